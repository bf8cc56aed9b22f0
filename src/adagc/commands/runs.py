"""Commands around one run: demo, train, evaluate, report, methods."""

from __future__ import annotations

import logging
from pathlib import Path

from adagc.commands.common import make_parser, parse, print_json, quiet_start


def demo(argv: list[str]) -> None:
    """Train AN and AdaGC on made-up scenes with one label each, and compare them."""
    parser = make_parser("demo", demo, "adagc demo --out runs/demo")
    parser.add_argument("--out", type=str, default="runs/demo", help="Folder for runs and report.")
    parser.add_argument("--seed", type=int, default=0, help="Of scenes, labels and weights.")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = parse(parser, argv)
    from adagc.demo import run_demo

    quiet_start()
    # Three runs on the same scenes would say the same three times.
    logging.getLogger("adagc.training").setLevel(logging.WARNING)
    from adagc import console

    result = run_demo(Path(options.out), seed=options.seed)
    if options.json:
        print_json(result)
        return
    rows = [(name, scores) for name, scores in result["scores"].items()]
    console.stdout.print(console.score_table(rows, "Test scores, clean labels"))
    console.stdout.print(result["sentence"])
    console.stdout.print(f"Report: {result['report']}  ({result['seconds']:.0f} s in all)")


def train(argv: list[str]) -> None:
    """Train one method on one data set and leave a run folder with scores and a report."""
    from adagc import console
    from adagc.training.command import train_parser

    parser, method_class, argv = train_parser(argv)
    options = parse(parser, argv)
    from adagc import ranks
    from adagc.training.command import split_options
    from adagc.training.experiment import train as run_training

    quiet_start()
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
    tested = run.scores
    if options.json:
        noisy = run.history[-1].noisy
        print_json(
            {
                "run": str(run.folder),
                "noisy": {name: scores.to_dict() for name, scores in noisy.items()},
                "scores": None if tested is None else tested.to_dict(),
            }
        )
        return
    if tested is not None:
        rows = console.rows_of(tested)
        console.stdout.print(console.score_table(rows, f"{method.title}: test, clean labels"))
    else:
        console.stdout.print("No clean test labels: noisy validation scores are in the report.")
    console.stdout.print(f"Run folder: {run.folder}")


def evaluate(argv: list[str]) -> None:
    """Score the networks of a run on clean labels."""
    parser = make_parser("evaluate", evaluate, "adagc evaluate runs/aid --json")
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
    options = parse(parser, argv)
    from adagc.training.experiment import evaluate as run_evaluation
    from adagc.training.runs import Run

    quiet_start()
    scores = run_evaluation(
        Run.open(options.run),
        split=options.split,
        absent=options.absent,
        root=options.root,
        truth=options.truth,
    )
    if options.json:
        print_json(scores.to_dict())
        return
    from adagc import console

    title = f"{scores.method}: {options.split}, clean labels"
    console.stdout.print(console.score_table(console.rows_of(scores), title))


def report(argv: list[str]) -> None:
    """Write report.html of a run again, beside other runs to compare with."""
    parser = make_parser("report", report, "adagc report runs/aid --against runs/an")
    parser.add_argument("run", type=str, help="Run folder.")
    parser.add_argument("--against", type=str, nargs="+", default=[], help="Runs to compare with.")
    parser.add_argument("--out", type=str, default=None, help="File to write; in the run folder.")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = parse(parser, argv)
    from adagc.report import write_report
    from adagc.training.runs import Run

    quiet_start()
    path = write_report(
        Run.open(options.run),
        against=[Run.open(folder) for folder in options.against],
        out=None if options.out is None else Path(options.out),
    )
    if options.json:
        print_json({"report": str(path)})
    else:
        print(path)


def methods(argv: list[str]) -> None:
    """List the methods, or explain one with its options."""
    parser = make_parser("methods", methods, "adagc methods AdaGC")
    parser.add_argument("name", type=str, nargs="?", default=None, help="Method to explain.")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = parse(parser, argv)
    from adagc import console
    from adagc.methods import catalogue

    if options.json:
        print_json(catalogue.describe(options.name))
    else:
        console.stdout.print(catalogue.render(options.name))
