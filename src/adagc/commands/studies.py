"""Commands that look at runs, or for options: tune, figures, theory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from adagc.commands.bench import add_scenarios, chosen_scenarios
from adagc.commands.common import make_parser, parse, print_json, quiet_start
from adagc.errors import AdagcError

if TYPE_CHECKING:
    from jsonargparse import Namespace

    from adagc.tuning.study import Correlation, Study


def figures(argv: list[str]) -> None:
    """Draw the paper's figures, and more, from the finished runs of bench and ablate."""
    parser = make_parser("figures", figures, "adagc figures demo-random demo-dominant --to figures")
    add_scenarios(parser)
    parser.add_argument("--to", type=str, default="figures", help="Folder for PDF and PNG files.")
    parser.add_argument(
        "--only",
        type=str,
        nargs="+",
        default=None,
        help="labels, trends, smoothness, triggers, pseudo-labels, gap, classes, ranks, cost; all"
        " by default.",
    )
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = parse(parser, argv)
    quiet_start()
    from adagc.bench import jobs
    from adagc.bench.results import collect
    from adagc.methods import registry
    from adagc.paper import ablate as ablations
    from adagc.paper.figures import draw_all

    out, found = Path(options.out), []
    for scenario in chosen_scenarios(options):
        found.append(collect(scenario.name, jobs.plan(scenario, registry(), out, options.seeds)))
        names = ablations.studies(scenario.config(scenario.seeds[0]).epochs)
        groups = ablations.plan(scenario, names, out, options.seeds).values()
        found.extend(collect(scenario.name, group) for group in groups)
    if not any(results.finished for results in found):
        other = any(next(out.glob(f"{results.scenario}/*/*/bench.json"), None) for results in found)
        raise AdagcError(
            f"{out} holds runs of these scenarios with other settings: repeat --epochs, --scenes,"
            " --seeds or --tuned of the bench"
            if other
            else f"{out} holds no finished run of these scenarios: run  adagc bench  first"
        )
    drawn = draw_all(found, Path(options.to), set(options.only) if options.only else None)
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
    parser.add_argument("run", type=str, help="Run folder.")
    parser.add_argument("--network", type=str, default=None, help="teacher, network or averaged.")
    parser.add_argument("--to", type=str, default=None, help="Folder of the figure; the run's own.")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = parse(parser, argv)
    quiet_start()
    from adagc.paper import canvas
    from adagc.paper.theory.figure import draw
    from adagc.paper.theory.measure import measure
    from adagc.paper.theory.words import sentence, table

    found = measure(Path(options.run), options.network)
    files = canvas.save(draw(found), Path(options.to or options.run) / "theory")
    if options.json:
        shown = [str(path) for path in files]
        print_json({**found.to_dict(), "found": sentence(found), "figure": shown})
        return
    from adagc import console

    console.stdout.print(table(found))
    console.stdout.print(sentence(found), soft_wrap=True)
    console.stdout.print(f"Figure: {files[0]}  {files[1]}", soft_wrap=True)


def tune(argv: list[str]) -> None:
    """Choose options of methods by noisy validation labels, on a share of the data."""
    parser = make_parser("tune", tune, "adagc tune demo-random --methods LL-R AdaGC --workers 2")
    parser.add_argument("scenario", type=str, help="Name of a shipped scenario, or a folder.")
    parser.add_argument(
        "--methods", type=str, nargs="+", default=None, help="Titles; all with a grid by default."
    )
    parser.add_argument("--out", type=str, default="runs/bench", help="Folder of all runs.")
    parser.add_argument(
        "--to", type=str, default=None, help="Folder for the YAML files; OUT/SCENARIO/tuned."
    )
    parser.add_argument(
        "--search",
        choices=["grid", "tpe"],
        default="grid",
        help="The paper's grid, or Optuna's TPE.",
    )
    parser.add_argument("--trials", type=int, default=None, help="At most so many per method.")
    parser.add_argument("--share", type=float, default=0.5, help="Of the training images.")
    parser.add_argument("--epochs", type=int, default=10, help="Of every trial.")
    parser.add_argument("--seeds", type=int, nargs="+", default=None, help="The first by default.")
    parser.add_argument(
        "--by", choices=["last", "best"], default="last", help="Epoch at which a trial is judged."
    )
    parser.add_argument("--workers", type=int, default=1, help="Processes that share the trials.")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    options = parse(parser, argv)
    quiet_start()
    from adagc import console
    from adagc.bench.scenarios import load
    from adagc.methods import find, registry
    from adagc.tuning.study import pooled_correlation
    from adagc.tuning.tune import tune_all

    scenario = load(options.scenario)
    if options.methods is None:
        titles = [title for title, method in registry().items() if method.grid]
    else:
        titles = [find(name).title for name in options.methods]
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
            f" test mAP correlate with {pooled.test:.2f} (Spearman; hindsight).",
            soft_wrap=True,
        )
    console.stdout.print(f"Options: {folder}  (adagc bench {options.scenario} --tuned {folder})")
