"""Commands around one run: train, evaluate, report, priors, methods."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from adagc.commands.common import add_json, check_folder, make_parser, print_json, quiet_start
from adagc.progress import meter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adagc.arguments import Parser
    from adagc.training.records import TestRecord


def train(argv: list[str]) -> None:
    """Train one method; write a run folder with scores and a report."""
    from adagc.training.command import parse_train

    options = parse_train(argv)
    check_folder("out", options.out)
    from adagc.progress import first_process
    from adagc.training.inputs import open_configured
    from adagc.training.runs import Run

    if first_process():  # of several ranks another one may find what the first has made already
        # Now, because decoding the images of a large data set takes minutes.
        Run(options.out).check_place(resume=options.resume)
    quiet_start()
    # The data is opened once, for training and for the report. It is opened before torch is
    # imported, which takes seconds, so that a mistake in the options shows at once.
    collection = open_configured(options.config)
    from adagc import console, ranks
    from adagc.training.experiment import train as run_training

    method = options.build()
    with console.progress_bar(method.title) as bar:
        run = run_training(
            options.config,
            method,
            options.out,
            resume=options.resume,
            collection=collection,
            on_step=bar.step,
            on_epoch=bar.epoch,
        )
    if ranks.rank() != 0:  # the first of several processes reports for all
        return
    if options.report:
        from adagc.report import write_report

        with meter("writing the report"):
            write_report(run, collection=collection)
    from adagc.report.record import Record

    tested, story = run.scores, Record.of(run).story.sentence
    if options.json:
        noisy = run.history[-1].noisy
        print_json(
            {
                "run": str(run.folder),
                "noisy": {name: scores.to_dict() for name, scores in noisy.items()},
                "scores": None if tested is None else tested.to_dict(),
                "story": story or None,
            }
        )
        return
    if tested is not None:
        rows, title = console.rows_of(tested), f"{method.title}: test, clean labels"
        from adagc.report.remarks import remarks

        console.stdout.print(console.score_table(rows, title, _below(tested, remarks(run))))
    else:
        console.stdout.print("No clean test labels: noisy validation scores are in the report.")
    if story:
        console.stdout.print(f"{story}.")
    console.stdout.print(f"Run folder: {run.folder}", soft_wrap=True)
    if options.report:
        console.stdout.print(f"Report: {run.path('report.html')}", soft_wrap=True)


def evaluate(argv: list[str]) -> None:
    """Score the networks of a run on clean labels."""
    parser = make_parser("evaluate", evaluate, "adagc evaluate runs/aid --json")
    parser.positional("run", str, "Folder of the run.")
    parser.option("split", Literal["train", "val", "test"], "test", "Part of the images to score.")
    _add_root(parser)
    parser.option(
        "truth",
        str | None,
        None,
        "Label file with all labels of the images, if the run was trained without one or if it has"
        " moved.",
    )
    parser.option(
        "absent",
        Literal["error", "skip"] | None,
        None,
        "What to do with classes that no image of the split contains: skip leaves them out of the"
        " mean average precision, error stops. By default what the run was trained with.",
    )
    parser.flag(
        "other_data",
        "Score other images or labels than those of the run, in the split that they have when they"
        " are opened. The result goes to scores-other.json.",
    )
    _add_thresholds(parser)
    add_json(parser)
    options = parser.parse(argv)
    from adagc.report.remarks import remarks
    from adagc.training.experiment import evaluate as run_evaluation
    from adagc.training.runs import Run

    quiet_start()
    run = Run.open(options.run)
    notes = remarks(run)  # before anything is written: its files may be damaged
    scores = run_evaluation(
        run,
        split=options.split,
        absent=options.absent,
        root=options.root,
        truth=options.truth,
        other_data=options.other_data,
        thresholds=options.thresholds,
    )
    if options.json:
        print_json(scores.to_dict())
        return
    from adagc import console

    other = " of other data than the run's" if scores.other_data else ""
    title = f"{scores.method}: {options.split}, clean labels{other}"
    rows = console.rows_of(scores)
    console.stdout.print(console.score_table(rows, title, _below(scores, notes)))


def report(argv: list[str]) -> None:
    """Write the report of a run again, with other runs to compare with."""
    parser = make_parser("report", report, "adagc report runs/aid --against runs/an")
    parser.positional("run", str, "Folder of the run.")
    parser.option("against", list[str], [], "Folders of other runs to compare it with.")
    parser.option(
        "out", str | None, None, "File to write; by default report.html in the folder of the run."
    )
    _add_root(parser)
    parser.flag(
        "other_data",
        "Show pictures even if the images or labels are not those of the run; the report says so.",
    )
    _add_thresholds(parser)
    add_json(parser)
    options = parser.parse(argv)
    from adagc.report import write_report
    from adagc.training.runs import Run

    quiet_start()
    with meter("writing the report"):
        path = write_report(
            Run.open(options.run),
            against=[Run.open(folder) for folder in options.against],
            out=None if options.out is None else Path(options.out),
            root=options.root,
            other_data=options.other_data,
            thresholds=options.thresholds,
        )
    if options.json:
        print_json({"report": str(path)})
    else:
        print(path)


def priors(argv: list[str]) -> None:
    """Estimate how frequent classes are in the images of a run."""
    parser = make_parser("priors", priors, "adagc priors runs/aid")
    parser.positional("run", str, "Folder of the run.")
    add_json(parser)
    options = parser.parse(argv)
    from adagc.training.frequencies import frequencies
    from adagc.training.runs import Run

    quiet_start()
    found = frequencies(Run.open(options.run))
    if options.json:
        print_json(found.to_dict())
        return
    from adagc import console

    console.stdout.print(console.frequency_table(found))
    console.stdout.print(found.sentence)
    if found.priors.trusted:
        console.stdout.print(found.priors.reason)


def _below(tested: TestRecord, notes: Sequence[str]) -> str:
    """What a reader of the scores must know: what was tested, what was told, how training went."""
    return "\n".join(filter(None, [tested.remark, tested.limits_remark, *notes]))


def _add_root(parser: Parser) -> None:
    parser.option(
        "root", str | None, None, "Folder of the data, if it has moved since the run was trained."
    )


def _add_thresholds(parser: Parser) -> None:
    from adagc.limits import OPTION

    parser.option("thresholds", str | None, None, f"{OPTION} By default those of the run.")


def methods(argv: list[str]) -> None:
    """List the methods, or explain one with its options."""
    parser = make_parser("methods", methods, "adagc methods AdaGC")
    parser.positional("name", str | None, "Method to explain; without it all are listed.", None)
    parser.flag("long", "List with each method what it needs, what it keeps and what it costs.")
    add_json(parser)
    options = parser.parse(argv)
    from adagc import console
    from adagc.methods import catalogue

    if options.json:
        print_json(catalogue.describe(options.name))
    else:
        console.stdout.print(catalogue.render(options.name, long=options.long))
