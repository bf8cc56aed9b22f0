"""The command line: one function per command. Heavy imports stay inside the functions."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adagc._version import __version__
from adagc.errors import AdagcError, UsageError

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 done, 1 failed with one clear line, 2 wrong usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [word for word in arguments if word != "--debug"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if arguments[0] in ("--version", "-V"):
        print(f"adagc {__version__}")
        return 0
    name, *rest = arguments
    try:
        if name not in COMMANDS:
            raise UsageError(f"there is no command {name!r}{_closest(name)}; see adagc --help")
        COMMANDS[name](rest)
    except AdagcError as error:
        if debug:
            raise
        print(f"adagc {name}: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        more = "; the same command with --resume continues" if name == "train" else ""
        print(f"adagc {name}: interrupted{more}", file=sys.stderr)
        return 1
    except OSError as error:
        if debug:
            raise
        place = f"{error.filename}: " if error.filename else ""
        print(f"adagc {name}: {place}{error.strerror or error}", file=sys.stderr)
        return 1
    return 0


# -- commands --------------------------------------------------------------------------------


def demo(argv: list[str]) -> None:
    """Train AN and AdaGC on made-up scenes with one label each, and compare them."""
    parser = _parser("demo", demo, "adagc demo --out runs/demo")
    parser.add_argument("--out", type=str, default="runs/demo", help="Folder for runs and report.")
    parser.add_argument("--seed", type=int, default=0, help="Of scenes, labels and weights.")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = _parse(parser, argv)
    from adagc.demo import run_demo

    _quiet_start()
    # Three runs on the same scenes would say the same three times.
    logging.getLogger("adagc.training").setLevel(logging.WARNING)
    from adagc import console

    result = run_demo(Path(options.out), seed=options.seed)
    if options.json:
        _print_json(result)
        return
    rows = [(name, scores) for name, scores in result["scores"].items()]
    console.stdout.print(console.score_table(rows, "Test scores, clean labels"))
    console.stdout.print(result["sentence"])
    console.stdout.print(f"Report: {result['report']}  ({result['seconds']:.0f} s in all)")


def inspect(argv: list[str]) -> None:
    """Look at images and labels before training: sizes, ranges, duplicates, counts, warnings."""
    parser = _parser("inspect", inspect, "adagc inspect photos/ --labels labels.csv")
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
    options = _parse(parser, argv)
    from adagc.data.inspect import inspect as look
    from adagc.data.inspect import render

    _quiet_start()
    found = look(
        Path(options.root),
        labels=options.labels,
        truth=options.truth,
        bands=options.bands,
        size=options.size,
        **_pretrained_statistics(options.pretrained),
    )
    if options.json:
        _print_json(found.to_dict())
    else:
        from adagc import console

        console.stdout.print(render(found))


def simulate(argv: list[str]) -> None:
    """Draw one positive label per image from clean labels, and tell how many were dropped."""
    parser = _parser(
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
    options = _parse(parser, argv)
    from adagc.labels.command import simulate_file

    _quiet_start()
    table, rates = simulate_file(
        Path(options.truth),
        Path(options.out),
        scheme=options.scheme,
        seed=options.seed,
        areas=None if options.areas is None else Path(options.areas),
        ignore=options.ignore,
    )
    if options.json:
        _print_json({"out": options.out, "hash": table.hash, **rates.to_dict()})
    else:
        from adagc import console

        console.stdout.print(rates.table(table.classes))
        console.stdout.print(f"{len(table):,} labels written to {options.out}")


def train(argv: list[str]) -> None:
    """Train one method on one data set and leave a run folder with scores and a report."""
    from adagc import console
    from adagc.training.command import train_parser

    parser, method_class, argv = train_parser(argv)
    options = _parse(parser, argv)
    from adagc import ranks
    from adagc.training.command import split_options
    from adagc.training.experiment import train as run_training

    _quiet_start()
    config, method = split_options(options, method_class)
    with console.progress_bar(method.title) as bar:
        run = run_training(
            config,
            method,
            options.out,
            resume=options.resume,
            on_step=bar.step,
            on_epoch=bar.epoch,
        )
    if ranks.rank() != 0:  # the first of several processes reports for all
        return
    if options.report:
        from adagc.report import write_report

        write_report(run)
    tested = run.path("scores.json").exists()
    if options.json:
        last = run.history[-1]
        _print_json(
            {
                "run": str(run.folder),
                "noisy": last["noisy"],
                "scores": run.read_json("scores.json") if tested else None,
            }
        )
        return
    if tested:
        rows = console.rows_of(run.read_json("scores.json"))
        console.stdout.print(console.score_table(rows, f"{method.title}: test, clean labels"))
    else:
        console.stdout.print("No clean test labels: noisy validation scores are in the report.")
    console.stdout.print(f"Run folder: {run.folder}")


def evaluate(argv: list[str]) -> None:
    """Score the networks of a run on clean labels."""
    parser = _parser("evaluate", evaluate, "adagc evaluate runs/aid --json")
    parser.add_argument("run", type=str, help="Run folder.")
    parser.add_argument("--split", type=str, default="test", help="Split to score.")
    parser.add_argument("--root", type=str, default=None, help="Where the data has moved to.")
    parser.add_argument("--truth", type=str, default=None, help="Clean multi-label file.")
    parser.add_argument(
        "--absent",
        choices=["error", "skip"],
        default=None,
        help="Classes that no image contains: refuse, or leave them out of the mAP.",
    )
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = _parse(parser, argv)
    from adagc.training.experiment import evaluate as run_evaluation
    from adagc.training.runs import Run

    _quiet_start()
    scores = run_evaluation(
        Run.open(options.run),
        split=options.split,
        absent=options.absent,
        root=options.root,
        truth=options.truth,
    )
    if options.json:
        _print_json(scores)
        return
    from adagc import console

    title = f"{scores['method']}: {options.split}, clean labels"
    console.stdout.print(console.score_table(console.rows_of(scores), title))


def report(argv: list[str]) -> None:
    """Write report.html of a run again, beside other runs to compare with."""
    parser = _parser("report", report, "adagc report runs/aid --against runs/an")
    parser.add_argument("run", type=str, help="Run folder.")
    parser.add_argument("--against", type=str, nargs="+", default=[], help="Runs to compare with.")
    parser.add_argument("--out", type=str, default=None, help="File to write; in the run folder.")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = _parse(parser, argv)
    from adagc.report import write_report
    from adagc.training.runs import Run

    _quiet_start()
    path = write_report(
        Run.open(options.run),
        against=[Run.open(folder) for folder in options.against],
        out=None if options.out is None else Path(options.out),
    )
    if options.json:
        _print_json({"report": str(path)})
    else:
        print(path)


def text(argv: list[str]) -> None:
    """Embed class names for methods that learn from what classes are called (LCR)."""
    parser = _parser("text", text, "adagc text --classes 'river, lake, sea' --out names.csv")
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
    options = _parse(parser, argv)
    from adagc.text.command import embed_file

    found = embed_file(options.classes, Path(options.out), encoder=options.encoder)
    if options.json:
        _print_json({"out": options.out, "nearest": found.to_dict()})
        return
    from adagc import console

    console.stdout.print(found.table())
    console.stdout.print(f"{len(found.classes)} classes written to {options.out}")


def methods(argv: list[str]) -> None:
    """List the methods, or explain one with its options."""
    parser = _parser("methods", methods, "adagc methods AdaGC")
    parser.add_argument("name", type=str, nargs="?", default=None, help="Method to explain.")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = _parse(parser, argv)
    from adagc import console
    from adagc.methods import catalogue

    if options.json:
        _print_json(catalogue.describe(options.name))
    else:
        console.stdout.print(catalogue.render(options.name))


def datasets(argv: list[str]) -> None:
    """List the kinds of data and the folder shapes they are read from."""
    parser = _parser("datasets", datasets, "adagc datasets")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = _parse(parser, argv)
    from adagc.data import KINDS

    if options.json:
        _print_json(KINDS)
        return
    from rich.table import Table

    from adagc import console

    table = Table(header_style="bold")
    table.add_column("--data")
    table.add_column("what it reads")
    for name, text in KINDS.items():
        table.add_row(name, text)
    console.stdout.print(table)


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    function.__name__: function
    for function in (demo, inspect, simulate, train, evaluate, report, methods, datasets, text)
}


# -- helpers ---------------------------------------------------------------------------------


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [
        "adagc: from one label per remote-sensing image to a multi-label classifier",
        "",
        "usage: adagc COMMAND [options]      adagc COMMAND --help explains one",
        "",
        *(f"  {name:<{width}}  {(run.__doc__ or '').strip()}" for name, run in COMMANDS.items()),
        "",
        "Every command takes --debug to show the traceback of an error.",
    ]
    return "\n".join(lines)


def _closest(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, COMMANDS, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _parser(name: str, command: Callable[..., None], example: str) -> ArgumentParser:
    from jsonargparse import ArgumentParser

    return ArgumentParser(
        prog=f"adagc {name}",
        description=command.__doc__,
        epilog=f"example: {example}",
        exit_on_error=False,
    )


def _parse(parser: ArgumentParser, argv: list[str]) -> Namespace:
    from jsonargparse import ArgumentError

    try:
        return parser.parse_args(argv)
    except ArgumentError as error:
        text = " ".join(str(error).split())
        raise UsageError(f"{text} (see {parser.prog} --help)") from None


def _pretrained_statistics(backbone: str | None) -> dict[str, Any]:
    """Mean and deviation that the weights of a backbone expect of 8-bit colour images."""
    if backbone is None:
        return {}
    from adagc.models import pretrained_normalisation

    given = pretrained_normalisation(backbone, ("red", "green", "blue"), 255.0)
    if given is None:
        raise UsageError(f"{backbone} has no statistics of its own: leave --pretrained out")
    return {"mean": given[0], "std": given[1]}


def _quiet_start() -> None:
    from adagc import console

    console.configure_logging()


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, default=str))
