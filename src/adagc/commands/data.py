"""Commands around images and labels: inspect, simulate, text, datasets."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from adagc.commands.common import add_json, make_parser, print_json, quiet_start
from adagc.errors import UsageError, flag
from adagc.options import REQUIRED, read
from adagc.suggest import require_path

if TYPE_CHECKING:
    from adagc.datasets.inspect.look import Inspection


# Settings that decide how a data set is opened, and mean nothing for data that is recognised.
_OPENED = (
    *("scenes", "split_seed", "split", "maps", "map_classes", "map_share", "split_by_place"),
    *("cloudy", "resample"),
)


def inspect(argv: list[str]) -> None:
    """Check images and labels before training: sizes, values, counts."""
    from adagc.training.settings import DataSettings

    parser = make_parser("inspect", inspect, "adagc inspect photos/ --labels labels.csv")
    parser.positional("root", str | None, "Folder of images, or an array file.", None, old="--root")
    parser.option(
        "data",
        str | None,
        None,
        "Open ROOT as this kind of data set, as training would (adagc datasets lists them), and"
        " report its splits and areas of classes too; by default the kind is recognised.",
    )
    parser.option("labels", str | None, None, "Label file with observed labels to check as well.")
    parser.option(
        "truth", str | None, None, "Label file with all labels of some images to check as well."
    )
    for name in ("bands", "nodata"):
        parser.add(read(DataSettings)[name])
    parser.option(
        "size", int | None, None, "Height and width in pixels that training will scale images to."
    )
    for name in _OPENED:
        option = read(DataSettings)[name]
        parser.option(name, option.kind | None, None, f"{option.help} Needs --data.")
    parser.option(
        "pretrained",
        str | None,
        None,
        "Backbone whose pretrained weights will be used: the values of the images are checked"
        " against the mean and deviation that these weights expect.",
    )
    parser.flag(
        "verify", "Read all of what adagc prepare has written and compare it with its checksums."
    )
    add_json(parser)
    options = parser.parse(argv)
    for name in ("labels", "truth"):
        require_path(name, getattr(options, name))
    if options.verify:
        from adagc.commands.patches import verify

        require_path("ROOT", options.root)
        verify(options.root or "", json=options.json)
        return
    inspection = _recognised(options) if options.data is None else _opened(options)
    from adagc.datasets.inspect.look import render

    if options.json:
        print_json(inspection.to_dict())
    else:
        from adagc import console

        console.stdout.print(render(inspection))


def _recognised(options: Namespace) -> Inspection:
    """Look at what is at ROOT, which is recognised."""
    if options.root is None:
        raise UsageError("ROOT is missing: give the folder of the images, or an array file")
    for name in _OPENED:
        if getattr(options, name) is not None:
            raise UsageError(f"{flag(name)} needs --data: say which kind of data set this is")
    require_path("ROOT", options.root)
    from adagc.datasets.inspect.look import inspect as look

    quiet_start()
    return look(
        Path(options.root),
        labels=options.labels,
        truth=options.truth,
        bands=options.bands,
        nodata=options.nodata,
        size=options.size,
        **_pretrained_statistics(options.pretrained),
    )


def _opened(options: Namespace) -> Inspection:
    """Look at a data set of the kind that --data names."""
    from adagc.datasets.inspect.look import inspect_collection
    from adagc.datasets.registry import find
    from adagc.training.inputs import open_configured
    from adagc.training.settings import DataSettings

    fields = DataSettings.__dataclass_fields__
    given = {
        name: value for name, value in vars(options).items() if name in fields and value is not None
    }
    entry, settings = find(options.data), DataSettings(**given)
    quiet_start()
    return inspect_collection(
        open_configured(settings),
        root=options.root or entry.name,
        kind=entry.title,
        labels=options.labels,
        **_pretrained_statistics(options.pretrained),
    )


def simulate(argv: list[str]) -> None:
    """Keep one label of each image of a file of clean labels."""
    parser = make_parser(
        "simulate",
        simulate,
        "adagc simulate multilabel.csv --scheme random --seed 0 --out labels.csv",
    )
    parser.positional(
        "truth", str | None, "Label file with all labels of the images.", None, old="--truth"
    )
    parser.option(
        "root",
        str | None,
        None,
        "In place of TRUTH: a data set that comes with clean labels, such as BigEarthNet, whose"
        " reference maps say which class is dominant.",
    )
    parser.option("data", str | None, None, "Kind of the data set of --root, if it is not seen.")
    parser.option("workers", int, 1, "Threads that count the pixels of maps (with --root).")
    parser.flag(
        "cloudy", "With --root: also of patches of BigEarthNet with snow, clouds or shadow."
    )
    parser.option(
        "scheme",
        Literal["random", "dominant"],
        "random",
        "Which label of an image is kept: a random one, or that of the class that covers the"
        " largest area.",
    )
    parser.option(
        "areas",
        str | None,
        None,
        "For the scheme dominant: CSV with one column of areas per class, or an .npy file of class"
        " maps (N, H, W) in the order of the rows of TRUTH.",
    )
    parser.option(
        "maps",
        str | None,
        None,
        "For the scheme dominant, instead of --areas: folder with a map of each image, a picture of"
        " one band in which the number of a pixel stands for its class.",
    )
    parser.option(
        "map_classes",
        str | None,
        None,
        "CSV file with the columns code,class that says what the numbers in the maps mean; pixels"
        " of other numbers are left out.",
    )
    parser.option(
        "ignore", list[int], [], "Values of the class maps that mean no class, such as clouds."
    )
    parser.option(
        "seed",
        int,
        0,
        "Seed of the random choice; the scheme dominant needs it only between classes of equal"
        " area.",
    )
    parser.option("out", str, REQUIRED, "Label file to write.")
    parser.flag("force", "Replace the file of --out if it exists.")
    add_json(parser)
    options = parser.parse(argv)
    if (options.truth is None) == (options.root is None):
        raise UsageError("give either TRUTH, a file of clean labels, or --root, a data set")
    if options.root is not None:
        from adagc.commands.patches import simulate_data

        simulate_data(options)
        return
    if options.cloudy:
        raise UsageError("--cloudy goes with --root, a copy of BigEarthNet: leave it out")
    require_path("TRUTH", options.truth)
    for name in ("areas", "maps", "map_classes"):
        require_path(name, getattr(options, name))
    from adagc.labels import MapFolder
    from adagc.labels.command import simulate_file

    quiet_start()
    table, rates = simulate_file(
        Path(options.truth),
        Path(options.out),
        scheme=options.scheme,
        seed=options.seed,
        areas=None if options.areas is None else Path(options.areas),
        ignore=options.ignore,
        maps=MapFolder.open(options.maps, options.map_classes),
        force=options.force,
    )
    from adagc import console

    if options.json:
        print_json({"out": options.out, "hash": table.hash, **rates.to_dict()})
    else:
        console.stdout.print(rates.table(table.classes))
        console.stdout.print(f"{len(table):,} labels written to {options.out}")
    if rates.micro == 0:
        console.stderr.print(
            f"No image of {options.truth} has more than one label, so nothing was dropped: is it a"
            " file of clean labels?",
            soft_wrap=True,
        )


def text(argv: list[str]) -> None:
    """Turn class names into embeddings, which the method LCR needs."""
    parser = make_parser("text", text, "adagc text 'river, lake, sea' --out names.csv")
    parser.positional(
        "classes",
        str,
        "Class names with commas between them, a file with one name per line, or a label file.",
        old="--classes",
    )
    parser.option(
        "out", str, REQUIRED, "File of embeddings to write; it ends with .csv or .safetensors."
    )
    parser.option(
        "encoder",
        str,
        "minilm",
        "Text encoder that turns names into embeddings: minilm, or the file of a RemoteCLIP"
        " checkpoint.",
    )
    add_json(parser)
    options = parser.parse(argv)
    from adagc.text.command import embed_file

    neighbours = embed_file(options.classes, Path(options.out), encoder=options.encoder)
    if options.json:
        print_json({"out": options.out, "nearest": neighbours.to_dict()})
        return
    from adagc import console

    console.stdout.print(neighbours.table())
    console.stdout.print(f"{len(neighbours.classes)} classes written to {options.out}")


def datasets(argv: list[str]) -> None:
    """List the kinds of data that can be read, and their options."""
    parser = make_parser("datasets", datasets, "adagc datasets")
    add_json(parser)
    options = parser.parse(argv)
    from adagc.datasets.registry import registry

    known = registry().values()
    if options.json:
        print_json(
            {entry.name: {"about": entry.about, "options": entry.settings} for entry in known}
        )
        return
    from rich.table import Table

    from adagc import console

    table = Table(
        header_style="bold", caption="All of them take observed labels (--labels or --scheme)."
    )
    table.add_column("--data")
    table.add_column("what it reads")
    table.add_column("options")
    for entry in known:
        table.add_row(entry.name, entry.about, " ".join(map(flag, entry.settings)))
    console.stdout.print(table)


def _pretrained_statistics(backbone: str | None) -> dict[str, Any]:
    """Mean and standard deviation of 8-bit RGB images that the weights of a backbone expect."""
    if backbone is None:
        return {}
    from adagc.models import pretrained_normalisation

    statistics = pretrained_normalisation(backbone, ("red", "green", "blue"), 255.0)
    if statistics is None:
        raise UsageError(f"{backbone} has no pretrained mean and deviation: leave --pretrained out")
    return {"mean": statistics[0], "std": statistics[1]}
