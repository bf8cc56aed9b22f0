"""Commands that analyse finished runs (figures, theory) or search for options (tune)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from adagc.commands.bench import add_out, add_scenarios, chosen_scenarios
from adagc.commands.common import add_json, make_parser, print_json, quiet_start
from adagc.errors import AdagcError

if TYPE_CHECKING:
    from argparse import Namespace

    from adagc.tuning.study import Correlation, Study


def figures(argv: list[str]) -> None:
    """Draw the paper's figures, and more, from the finished runs of bench and ablate."""
    parser = make_parser("figures", figures, "adagc figures demo-random demo-dominant --to figures")
    add_scenarios(parser)
    parser.option("to", str, "figures", "Folder that PDF and PNG files are written to.")
    parser.option(
        "only",
        list[str] | None,
        None,
        "Figures to draw: labels, trends, smoothness, triggers, pseudo-labels, gap, classes, ranks,"
        " cost; all by default.",
    )
    add_json(parser)
    options = parser.parse(argv)
    quiet_start()
    from adagc.bench import jobs
    from adagc.bench.results import collect
    from adagc.methods import titles
    from adagc.paper import ablate as ablations
    from adagc.paper.figures import check_names, draw_all

    check_names(options.only or ())
    out, collected = Path(options.out), []
    for scenario in chosen_scenarios(options):
        collected.append(collect(scenario.name, jobs.plan(scenario, titles(), out, options.seeds)))
        names = ablations.studies(scenario.config(scenario.seeds[0]).epochs)
        groups = ablations.plan(scenario, names, out, options.seeds).values()
        collected.extend(collect(scenario.name, group) for group in groups)
    if not any(results.finished for results in collected):
        differing = any(
            next(out.glob(f"{results.scenario}/*/*/bench.json"), None) for results in collected
        )
        raise AdagcError(
            f"{out} holds runs of these scenarios with other settings: repeat --epochs, --scenes,"
            " --seeds or --tuned of the bench"
            if differing
            else f"{out} holds no finished run of these scenarios: run  adagc bench  first"
        )
    drawn = draw_all(collected, Path(options.to), set(options.only) if options.only else None)
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


def theory(argv: list[str]) -> None:
    """Check the paper's propositions on a run: predicted against observed noisy mAP."""
    parser = make_parser("theory", theory, "adagc theory runs/demo/adagc")
    parser.positional("run", str, "Folder of the run.")
    parser.option(
        "network",
        str | None,
        None,
        "Which network of the run to check: teacher, network (the deployed one) or averaged; by"
        " default the first of these that the run has.",
    )
    parser.option(
        "to", str | None, None, "Folder that the figure is written to; that of the run by default."
    )
    add_json(parser)
    options = parser.parse(argv)
    quiet_start()
    from adagc.paper import canvas
    from adagc.paper.theory.figure import draw
    from adagc.paper.theory.measure import measure
    from adagc.paper.theory.words import sentence, table

    measured = measure(Path(options.run), options.network)
    files = canvas.save(draw(measured), Path(options.to or options.run) / "theory")
    if options.json:
        paths = [str(path) for path in files]
        print_json({**measured.to_dict(), "found": sentence(measured), "figure": paths})
        return
    from adagc import console

    console.stdout.print(table(measured))
    console.stdout.print(sentence(measured), soft_wrap=True)
    console.stdout.print(f"Figure: {files[0]}  {files[1]}", soft_wrap=True)


def tune(argv: list[str]) -> None:
    """Choose options of methods by noisy validation labels, on a share of the data."""
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
        "to",
        str | None,
        None,
        "Folder that the chosen options are written to, one YAML file per method;"
        " OUT/SCENARIO/tuned by default.",
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
    parser.option("epochs", int, 10, "Number of passes of a trial over its training images.")
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
    parser.option("workers", int, 1, "Number of processes on this machine that share the trials.")
    add_json(parser)
    options = parser.parse(argv)
    quiet_start()
    from adagc.bench.scenarios import load
    from adagc.methods import outline, outlines

    scenario = load(options.scenario)
    if options.methods is None:
        titles = [title for title, method in outlines().items() if method.grid]
    else:
        titles = [outline(name).title for name in options.methods]
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
    )
    folder = Path(options.to) if options.to else Path(options.out) / scenario.name / "tuned"
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
            f"Over all {pooled.trials} trials of {len(studies)} methods noisy validation and clean"
            f" test mAP correlate with {pooled.test:.2f} (Spearman; no option is chosen by this).",
            soft_wrap=True,
        )
    console.stdout.print(f"Options: {folder}  (adagc bench {options.scenario} --tuned {folder})")
