"""The command `embed`: images to embeddings, in a file that training reads."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from adagc.commands.common import add_json, make_parser, print_json, quiet_start
from adagc.options import REQUIRED, read

# Settings of training that decide what is read and what looks at it.
_DATA = ("data", "size", "bands", "nodata", "cache", "skip_unreadable")
_NETWORK = ("backbone", "weights", "normalise", "batch_size", "accelerator")


def embed(argv: list[str]) -> None:
    """Write what a pretrained network sees in images, to train on."""
    from adagc.training.config import RunConfig

    parser = make_parser("embed", embed, "adagc embed photos/ --out photos.parquet")
    known = read(RunConfig)
    parser.positional("images", str, "Folder of the images.", old="--root")
    parser.option(
        "out",
        str,
        REQUIRED,
        "File to write: .parquet (with names, and with places if images are GeoTIFFs; train on it"
        " with --data geoparquet), .npz (with names) or .npy (names beside it); train on these two"
        " with --data array. What is done is kept beside it until then, and the same command"
        " continues after an interruption.",
    )
    for name in (*_DATA, *_NETWORK):
        parser.add(known[name])
    parser.option(
        "dtype",
        Literal["float32", "float16"],
        "float32",
        "Numbers of the embeddings; float16 takes half the space.",
    )
    parser.flag("force", "Replace the file of --out if it exists.")
    add_json(parser)
    options = parser.parse(argv)
    from adagc.embedding import check_out
    from adagc.embedding import embed as embedded
    from adagc.errors import UsageError
    from adagc.suggest import require_path

    out = Path(options.out)
    require_path("IMAGES", options.images)
    check_out(out)
    if out.exists() and not options.force:
        raise UsageError(f"{out} exists: add --force to replace it, or choose another --out")
    quiet_start()
    given = {name: getattr(options, name) for name in (*_DATA, *_NETWORK)}
    found = embedded(RunConfig(root=options.images, **given), out, dtype=options.dtype)
    if found is None:  # the first of several processes reports for all
        return
    placed = 0 if found.geometry is None else sum(place is not None for place in found.geometry)
    count, width = found.values.shape
    if options.json:
        print_json(
            {"out": str(out), "images": count, "numbers": width, "placed": placed, **found.meta}
        )
        return
    from adagc import console

    where = f", {placed:,} of them with their place ({found.crs})" if placed else ""
    console.stdout.print(
        f"{count:,} images, {width:,} numbers each{where}, by {found.meta['backbone']}"
        f" ({found.meta['weights']}): {out}",
        soft_wrap=True,
    )
