"""Commands around images and labels: inspect, simulate, text, datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adagc.commands.common import make_parser, parse, print_json, quiet_start
from adagc.errors import UsageError


def inspect(argv: list[str]) -> None:
    """Look at images and labels before training: sizes, ranges, duplicates, counts, warnings."""
    parser = make_parser("inspect", inspect, "adagc inspect photos/ --labels labels.csv")
    parser.add_argument("root", type=str, help="Folder of images, or an array file.")
    parser.add_argument("--labels", type=str, default=None, help="Label file to check as well.")
    parser.add_argument("--truth", type=str, default=None, help="Clean multi-label file.")
    parser.add_argument("--bands", type=str, nargs="+", default=None, help="Names of the bands.")
    parser.add_argument("--size", type=int, default=None, help="Side that training will use.")
    parser.add_argument(
        "--pretrained",
        type=str,
        default=None,
        help="Backbone whose weights' own normalisation will be used: check the values against it.",
    )
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = parse(parser, argv)
    from adagc.datasets.inspect.look import inspect as look
    from adagc.datasets.inspect.look import render

    quiet_start()
    found = look(
        Path(options.root),
        labels=options.labels,
        truth=options.truth,
        bands=options.bands,
        size=options.size,
        **_pretrained_statistics(options.pretrained),
    )
    if options.json:
        print_json(found.to_dict())
    else:
        from adagc import console

        console.stdout.print(render(found))


def simulate(argv: list[str]) -> None:
    """Draw one positive label per image from clean labels, and tell how many were dropped."""
    parser = make_parser(
        "simulate",
        simulate,
        "adagc simulate --truth multilabel.csv --scheme random --seed 0 --out labels.csv",
    )
    parser.add_argument("--truth", type=str, required=True, help="Clean multi-label file.")
    parser.add_argument("--scheme", choices=["random", "dominant"], default="random")
    parser.add_argument(
        "--areas",
        type=str,
        default=None,
        help="For dominant: CSV with one area column per class, or .npy (N, H, W) class maps in "
        "the order of the rows of --truth.",
    )
    parser.add_argument(
        "--ignore", type=int, nargs="+", default=[], help="Values of class maps that are no class."
    )
    parser.add_argument("--seed", type=int, default=0, help="Of the draw, and of ties.")
    parser.add_argument("--out", type=str, required=True, help="Label file to write.")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = parse(parser, argv)
    from adagc.labels.command import simulate_file

    quiet_start()
    table, rates = simulate_file(
        Path(options.truth),
        Path(options.out),
        scheme=options.scheme,
        seed=options.seed,
        areas=None if options.areas is None else Path(options.areas),
        ignore=options.ignore,
    )
    if options.json:
        print_json({"out": options.out, "hash": table.hash, **rates.to_dict()})
    else:
        from adagc import console

        console.stdout.print(rates.table(table.classes))
        console.stdout.print(f"{len(table):,} labels written to {options.out}")


def text(argv: list[str]) -> None:
    """Embed class names for methods that learn from what classes are called (LCR)."""
    parser = make_parser("text", text, "adagc text --classes 'river, lake, sea' --out names.csv")
    parser.add_argument(
        "--classes",
        type=str,
        required=True,
        help="Names with commas between them, a file with one per line, or a label file.",
    )
    parser.add_argument(
        "--out", type=str, required=True, help="File to write, .csv or .safetensors."
    )
    parser.add_argument(
        "--encoder", type=str, default="minilm", help="minilm, or a RemoteCLIP checkpoint."
    )
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = parse(parser, argv)
    from adagc.text.command import embed_file

    found = embed_file(options.classes, Path(options.out), encoder=options.encoder)
    if options.json:
        print_json({"out": options.out, "nearest": found.to_dict()})
        return
    from adagc import console

    console.stdout.print(found.table())
    console.stdout.print(f"{len(found.classes)} classes written to {options.out}")


def datasets(argv: list[str]) -> None:
    """List the kinds of data and the folder shapes they are read from."""
    parser = make_parser("datasets", datasets, "adagc datasets")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = parse(parser, argv)
    from adagc.datasets.registry import registry

    known = registry().values()
    if options.json:
        print_json({one.name: {"about": one.about, "options": one.settings} for one in known})
        return
    from rich.table import Table

    from adagc import console

    table = Table(
        header_style="bold", caption="Observed labels (--labels or --scheme) go with all."
    )
    table.add_column("--data")
    table.add_column("what it reads")
    table.add_column("options")
    for one in known:
        table.add_row(one.name, one.about, " ".join(f"--{name}" for name in one.settings))
    console.stdout.print(table)


def _pretrained_statistics(backbone: str | None) -> dict[str, Any]:
    """Mean and deviation that the weights of a backbone expect of 8-bit colour images."""
    if backbone is None:
        return {}
    from adagc.models import pretrained_normalisation

    given = pretrained_normalisation(backbone, ("red", "green", "blue"), 255.0)
    if given is None:
        raise UsageError(f"{backbone} has no statistics of its own: leave --pretrained out")
    return {"mean": given[0], "std": given[1]}
