"""Commands for BigEarthNet: prepare, and what inspect and simulate do with a whole data set."""

from __future__ import annotations

import logging
from argparse import Namespace
from pathlib import Path
from typing import Any

from adagc.commands.common import add_json, check_folder, make_parser, print_json, quiet_start
from adagc.errors import DataError, UsageError, examples, flag
from adagc.options import REQUIRED
from adagc.suggest import require_path

log = logging.getLogger(__name__)


def prepare(argv: list[str]) -> None:
    """Turn BigEarthNet (GeoTIFF or LMDB) into files that are read fast."""
    from adagc.datasets.bigearthnet.store import StoreForm
    from adagc.images.bigearthnet.resample import DEFAULT, Resample

    parser = make_parser("prepare", prepare, "adagc prepare BigEarthNet/ --out reben --workers 8")
    parser.positional("root", str, "Folder of a published copy, version 1 or 2.", old="--root")
    parser.option("out", str, REQUIRED, "Folder to write; the same command continues it.")
    parser.option(
        "form",
        StoreForm,
        "memmap",
        "memmap is read fastest (0.46 MB per patch); lmdb keeps every band in its own resolution,"
        " in the layout of reBEN's converter (0.28 MB).",
    )
    parser.option("workers", int, 1, "Number of processes.")
    parser.option(
        "resample",
        Resample,
        DEFAULT,
        "How bands of 20 and 60 m are enlarged to 120 pixels per side: nearest keeps every value,"
        " bicubic is smooth and rounds to whole numbers.",
    )
    parser.flag("cloudy", "Prepare also patches with snow, clouds or shadow.")
    parser.flag("strict", "Fail at the end if patches could not be read.")
    add_json(parser)
    options = parser.parse(argv)
    require_path("ROOT", options.root)
    check_folder("out", options.out)
    from adagc.datasets.bigearthnet.prepare import LEFT_OUT
    from adagc.datasets.bigearthnet.prepare import prepare as work

    quiet_start()
    done = work(
        Path(options.root),
        Path(options.out),
        form=options.form,
        workers=options.workers,
        resample=options.resample,
        cloudy=options.cloudy,
        strict=options.strict,
    )
    if options.json:
        print_json(
            {
                "out": options.out,
                "patches": done.patches,
                "written": done.written,
                "left_out": done.left_out,
                "seconds": round(done.seconds, 1),
                "notes": list(done.notes),
            }
        )
        return
    from adagc import console

    for note in done.notes:
        console.stdout.print(f"{note}.")
    rate = f", {done.written / max(done.seconds, 1e-9):,.0f} per second" * bool(done.written)
    console.stdout.print(
        f"{done.patches:,} patches in {options.out}, {done.written:,} of them written now{rate}",
        soft_wrap=True,
    )
    if done.left_out:
        console.stdout.print(
            f"{len(done.left_out):,} patches are not whole or cannot be read, and were left out"
            f" ({examples(done.left_out)}): {Path(options.out) / LEFT_OUT} says why",
            soft_wrap=True,
        )
    bands = "" if done.bands is None else f" --bands {done.bands}"
    console.stdout.print(
        f"Train on them:  adagc train --data bigearthnet --root {options.out}{bands}"
        " --scheme random",
        soft_wrap=True,
    )


def verify(root: str, *, json: bool) -> None:
    """Check every value of a prepared store, for `adagc inspect --verify`."""
    from adagc.datasets.bigearthnet.store import read_plan
    from adagc.datasets.bigearthnet.verify import verify as check

    if read_plan(Path(root)) is None:
        raise UsageError(f"--verify checks what adagc prepare has written, which {root} is not")
    quiet_start()
    found = check(Path(root))
    if found.damaged:
        raise DataError(
            f"{root}: {len(found.damaged):,} of {found.patches:,} patches have other values than"
            f" were written ({examples(found.damaged)}): prepare the store again"
        )
    if json:
        print_json({"root": root, "patches": found.patches, "damaged": []})
        return
    from adagc import console

    console.stdout.print(f"{found.patches:,} patches have the values that were written")


def simulate_data(options: Namespace) -> None:
    """Keep one label of each image of a data set with clean labels, for `adagc simulate --root`."""
    from adagc.datasets.registry import find
    from adagc.labels import write_labels
    from adagc.labels.statistics import flip_rates
    from adagc.paper.values import flip_rates_of_paper
    from adagc.training.observe import simulate

    for name in ("areas", "maps", "map_classes", "ignore"):
        if getattr(options, name):
            raise UsageError(
                f"{flag(name)} goes with TRUTH, a file of clean labels: the data set of --root"
                " brings its own maps"
            )
    out = Path(options.out)
    if out.is_file() and not options.force:
        raise UsageError(f"{out} exists: choose another --out, or replace it with --force")
    require_path("root", options.root)
    entry = find(options.data or _kind_of(Path(options.root)))
    quiet_start()
    more: dict[str, Any] = {"cloudy": True} if options.cloudy else {}
    if options.scheme == "dominant" and "count_maps" in entry.options:
        more["count_maps"] = options.workers
    found = entry.recognise(Path(options.root))
    if found is not None and found.collection is not None:
        collection = found.collection(None, **more)  # half of the pixels will do
    else:
        collection = entry.open(root=options.root, **more)
    for note in collection.images.notes:
        log.warning(note)
    splits = tuple(collection.splits)
    table = simulate(collection, options.scheme, options.seed, splits=splits)
    write_labels(table, out)
    rows = collection.splits["train"]
    row_of = {name: row for row, name in enumerate(table.images)}
    kept = [row_of[collection.images.names[row]] for row in rows.tolist()]
    assert collection.truth is not None
    rates = flip_rates(collection.truth[rows], table.values[kept])
    bare = int((table.values.max(axis=1) <= 0).sum())
    if bare:
        log.warning("%d images get no label: no map of theirs has a pixel of a class", bare)
    if options.json:
        print_json({"out": options.out, "hash": table.hash, "train": rates.to_dict()})
        return
    from adagc import console

    paper = flip_rates_of_paper(collection.classes, options.scheme)
    scheme = options.scheme.capitalize()
    console.stdout.print(rates.table(collection.classes, scheme=scheme, paper=paper))
    beside = "" if paper is None else ", beside Table I of the paper (all of reBEN)"
    console.stdout.print(
        f"{len(table):,} labels written to {options.out}; the table is of the {len(rows):,}"
        f" training images{beside}",
        soft_wrap=True,
    )


def _kind_of(root: Path) -> str:
    """The data set that is at a path; those that need not be asked for are only recognised here."""
    from adagc.datasets.registry import registry

    for name, entry in reversed(registry().items()):
        if entry.recognise(root) is not None and entry.brings_truth:
            return name
    raise UsageError(
        f"{root} is no data set with clean labels that is recognised: name its kind with --data"
    )
