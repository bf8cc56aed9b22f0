"""Commands that analyse finished runs (figures, theory) or search for options (tune)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from adagc.commands.common import (
    add_json,
    check_folder,
    make_parser,
    print_json,
    quiet_start,
)
from adagc.commands.scenarios import (
    RUNS,
    add_changes,
    add_judge,
    add_out,
    add_scenarios,
    check_backbones,
    chosen_scenarios,
    judged_view,
)
from adagc.errors import AdagcError
from adagc.progress import meter

if TYPE_CHECKING:
    from argparse import Namespace

    from adagc.tuning.study import Correlation, Study

log = logging.getLogger(__name__)


def figures(argv: list[str]) -> None:
    """Draw the paper's figures, and more, from finished runs."""
    parser = make_parser(
        "figures", figures, "adagc figures demo-random demo-dominant --out figures"
    )
    add_scenarios(parser)
    parser.option(
        "runs", str | None, None, f"Folder of runs to read, as bench wrote it. (default: {RUNS})"
    )
    parser.option(
        "out", str | None, None, "Folder of PDF and PNG files to write. (default: figures)"
    )
    parser.hidden("to", str)  # in earlier versions: the folder to write, and --out the one to read
    parser.option(
        "only",
        list[str] | None,
        None,
        "Figures to draw: labels, trends, smoothness, triggers, pseudo-labels, gap, classes, ranks,"
        " cost; all by default.",
    )
    add_judge(parser)
    add_changes(parser)
    add_json(parser)
    options = parser.parse(argv)
    quiet_start()
    from adagc.bench import jobs
    from adagc.bench.results import collect
    from adagc.methods import titles
    from adagc.paper import ablate as ablations
    from adagc.paper.figures import check_names, draw_all

    check_names(options.only or ())
    scenarios = chosen_scenarios(options)
    runs, out = _places(options, [scenario.name for scenario in scenarios])
    check_folder("out", str(out))
    collected = []
    for scenario in scenarios:
        collected.append(collect(scenario.name, jobs.plan(scenario, titles(), runs, options.seeds)))
        names = ablations.studies(scenario.config(scenario.seeds[0]).epochs)
        groups = ablations.plan(scenario, names, runs, options.seeds).values()
        collected.extend(collect(scenario.name, group) for group in groups)
    if not any(results.finished for results in collected):
        differing = any(
            next(runs.glob(f"{results.scenario}/*/*/bench.json"), None) for results in collected
        )
        raise AdagcError(
            f"{runs} holds runs of these scenarios with other settings: repeat --epochs, --scenes,"
            " --seeds or --tuned of the bench"
            if differing
            else f"{runs} holds no finished run of these scenarios: run  adagc bench  first"
        )
    drawn = draw_all(
        collected,
        out,
        set(options.only) if options.only else None,
        view=judged_view(options, scenarios),
    )
    if options.json:
        print_json(drawn)
    else:
        from adagc import console

        for name, files in drawn.items():
            text = f"not drawn: {files}" if isinstance(files, str) else f"{files[0]}  {files[1]}"
            console.stdout.print(f"{name:<14} {text}", soft_wrap=True)
    undrawn = [name for name, files in drawn.items() if isinstance(files, str)]
    if options.only and undrawn:
        raise AdagcError(f"{undrawn[0]} was not drawn: {drawn[undrawn[0]]}")


def _places(options: Namespace, scenarios: Sequence[str]) -> tuple[Path, Path]:
    """The folder of runs to read and the folder to write, also as earlier versions spelt them.

    They called the folder to read --out and the folder to write --to.
    """
    runs, out = options.runs, options.out
    if options.to is not None:
        runs, out = runs or out, options.to
    elif (
        runs is None and out is not None and any((Path(out) / name).is_dir() for name in scenarios)
    ):
        log.warning(f"{out} holds the runs to draw and is only read: call it --runs, not --out")
        runs, out = out, None
    return Path(runs or RUNS), Path(out or "figures")


def theory(argv: list[str]) -> None:
    """Compare the noisy mAP that the paper predicts with that of a run."""
    parser = make_parser("theory", theory, "adagc theory runs/demo/adagc")
    parser.positional("run", str, "Folder of the run.")
    parser.option(
        "network",
        str | None,
        None,
        "Which network of the run to check: teacher, averaged or network (the deployed one); by"
        " default the first of these that the run has.",
    )
    parser.option(
        "out",
        str | None,
        None,
        "Folder to write the figure to; by default that of the run.",
        old="--to",
    )
    add_json(parser)
    options = parser.parse(argv)
    check_folder("out", options.out)
    quiet_start()
    from adagc.paper import canvas
    from adagc.paper.theory.figure import draw
    from adagc.paper.theory.measure import measure
    from adagc.paper.theory.words import sentence, table

    with meter("checking the propositions"):
        measured = measure(Path(options.run), options.network)
    files = canvas.save(draw(measured), Path(options.out or options.run) / "theory")
    if options.json:
        paths = [str(path) for path in files]
        print_json({**measured.to_dict(), "found": sentence(measured), "figure": paths})
        return
    from adagc import console

    console.stdout.print(table(measured))
    console.stdout.print(sentence(measured), soft_wrap=True)
    console.stdout.print(f"Figure: {files[0]}  {files[1]}", soft_wrap=True)


def tune(argv: list[str]) -> None:
    """Choose options of methods by noisy validation labels."""
    from adagc.metrics.noisy import DEFAULT, CriterionName

    parser = make_parser("tune", tune, "adagc tune demo-random --methods LL-R AdaGC --workers 2")
    parser.positional("scenario", str, "Name of a shipped scenario, or a folder of your own.")
    parser.option(
        "methods",
        list[str] | None,
        None,
        "Methods to tune, as listed by adagc methods; by default all that have a grid of values to"
        " try.",
    )
    add_out(parser)
    parser.option(
        "tuned",
        str | None,
        None,
        "Folder of chosen options to write, one YAML file per method, for  adagc bench --tuned;"
        " by default OUT/SCENARIO/tuned.",
        old="--to",
    )
    parser.option(
        "search",
        Literal["grid", "tpe"],
        "grid",
        "How options are searched for: all combinations of the values in the grid of the method, as"
        " in the paper (grid), or Optuna's TPE sampler within the range of each option (tpe).",
    )
    parser.option(
        "trials",
        int | None,
        None,
        "Largest number of trials per method, each of which trains with one set of options; by"
        " default the whole grid, or 30 with tpe.",
    )
    parser.option(
        "share",
        float,
        0.5,
        "Share of the training images that a trial uses, above 0 and at most 1.",
    )
    parser.option(
        "epochs",
        int | None,
        None,
        "Number of passes of a trial over its training images. By default what the method needs to"
        " show the effect of its options: the paper's 10, or all of the scenario's for a method"
        " whose second stage depends on them.",
    )
    parser.option(
        "seeds",
        list[int] | None,
        None,
        "Seeds over which a trial is averaged; the first of the scenario by default.",
    )
    parser.option(
        "by",
        Literal["last", "best"],
        "last",
        "Epoch by whose noisy validation score a trial is judged: its last, or its best.",
    )
    parser.option(
        "select",
        CriterionName,
        DEFAULT,
        "Score on noisy validation labels by which trials are compared, and best epochs are chosen;"
        " adagc train --help explains them. tempered is what adagc bench --choose goes by.",
    )
    parser.option("workers", int, 1, "Number of processes on this machine that share the trials.")
    add_json(parser)
    options = parser.parse(argv)
    check_folder("out", options.out)
    quiet_start()
    from adagc.bench.scenarios import load
    from adagc.methods import outline, outlines

    scenario = load(options.scenario)
    if options.methods is None:
        titles = [title for title, method in outlines().items() if method.grid]
    else:
        titles = [outline(name).title for name in options.methods]
    check_backbones([scenario.defaults["backbone"]])
    from adagc import console
    from adagc.tuning.study import pooled_correlation
    from adagc.tuning.tune import tune_all

    studies = tune_all(
        scenario,
        titles,
        Path(options.out),
        workers=options.workers,
        say=lambda text: console.stderr.print(text, soft_wrap=True),
        sampler=options.search,
        trials=options.trials,
        share=options.share,
        epochs=options.epochs,
        seeds=options.seeds,
        by=options.by,
        select=options.select,
    )
    folder = Path(options.tuned) if options.tuned else Path(options.out) / scenario.name / "tuned"
    written = [study.write(folder) for study in studies if study.best is not None]
    if not written:
        raise AdagcError(
            "no trial finished, so there is nothing to choose from: see the .log files"
        )
    pooled = pooled_correlation(studies)
    empty = [study.method for study in studies if study.best is None]
    if options.json:
        print_json(
            {
                "studies": [study.to_dict() for study in studies],
                "correlation": asdict(pooled),
                "files": [str(path) for path in written],
            }
        )
    else:
        _show(options, studies, pooled, folder)
    if empty:
        raise AdagcError(f"no trial of {', '.join(empty)} finished: see the .log files")


def _show(options: Namespace, studies: Sequence[Study], pooled: Correlation, folder: Path) -> None:
    from adagc import console

    for study in studies:
        console.stdout.print(study.table())
        console.stdout.print(study.sentence(), soft_wrap=True)
    if len(studies) > 1 and pooled.test is not None:
        console.stdout.print(
            f"Over all {pooled.trials} trials of {len(studies)} methods"
            f" {studies[0].criterion.title} and clean test mAP correlate with {pooled.test:.2f}"
            " (Spearman; no option is chosen by this).",
            soft_wrap=True,
        )
    console.stdout.print(f"Options: {folder}  (adagc bench {options.scenario} --tuned {folder})")
