"""Commands that do many runs: bench, ablate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from adagc.commands.common import add_json, make_parser, print_json, quiet_start
from adagc.errors import AdagcError, UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from adagc.arguments import Parser
    from adagc.bench.engines import Engine
    from adagc.bench.jobs import Job
    from adagc.bench.results import Results
    from adagc.bench.scenarios import Scenario


_SLURM = (
    ("partition", str, "partition to submit to, else the cluster's default."),
    ("minutes", int, "time limit of a job in minutes, else 240; longer runs are requeued."),
    ("cpus", int, "number of cores of a job, else 2."),
    ("gpus", int, "number of GPUs of a job, else 0."),
    ("memory", str, "memory of a job, such as 16GB; else the cluster's default."),
    ("runs_per_job", int, "number of runs that share a job, else 1."),
    ("parallel", int, "number of jobs at the same time, else 64."),
    ("requeues", int, "how often a job that is out of time is queued again, else 20."),
)


def bench(argv: list[str]) -> None:
    """Compare methods on scenarios: runs what is missing, then tables and a recommendation."""
    parser = make_parser("bench", bench, "adagc bench demo-random --methods AN WAN AdaGC")
    add_scenarios(parser)
    parser.option(
        "methods",
        list[str] | None,
        None,
        "Methods to compare, as listed by adagc methods; all by default.",
    )
    _add_running(parser)
    options = parser.parse(argv)
    quiet_start()
    from adagc.bench import jobs
    from adagc.compare.outputs import write_tables
    from adagc.methods import outline
    from adagc.methods import titles as all_titles
    from adagc.paper import values

    titles = [outline(name).title for name in options.methods or all_titles()]
    planned = [
        (
            scenario,
            jobs.plan(scenario, titles, Path(options.out), options.seeds),
            None if scenario.paper is None else values.values(scenario.paper),
        )
        for scenario in chosen_scenarios(options)
    ]
    if not _run(options, [job for _, group, _ in planned for job in group]):
        return
    found = [write_tables(s, group, Path(options.out), theirs) for s, group, theirs in planned]
    if options.json:
        print_json({written.scenario.name: written.to_dict() for written in found})
    else:
        from adagc import console

        for written in found:
            console.stdout.print(written.terminal(console.stdout.width))
            console.stdout.print(written.sentence, soft_wrap=True)
            console.stdout.print(f"Tables: {written.folder}/table.md .csv .tex .json")
    _complain([written.results for written in found], asked=options.methods is not None)


def ablate(argv: list[str]) -> None:
    """Change one thing of AdaGC at a time: trigger, pseudo-labels, Mixup, and its numbers."""
    parser = make_parser("ablate", ablate, "adagc ablate demo-random --studies trigger mixup")
    add_scenarios(parser)
    parser.option(
        "studies",
        list[str] | None,
        None,
        "What to change: trigger, pseudo-labels, mixup (as in the paper), weight, patience,"
        " memory_momentum, balance; all by default.",
    )
    _add_running(parser)
    options = parser.parse(argv)
    quiet_start()
    from adagc.compare import render
    from adagc.paper import ablate as ablations

    planned = []
    for scenario in chosen_scenarios(options):
        epochs = scenario.config(scenario.seeds[0]).epochs
        names = options.studies or list(ablations.studies(epochs))
        planned.append(
            (scenario, ablations.plan(scenario, names, Path(options.out), options.seeds))
        )
    everything: dict[str, Job] = {}
    for _, chosen in planned:
        for job in (job for group in chosen.values() for job in group):
            everything.setdefault(job.folder, job)  # known by the first of its names
    if not _run(options, list(everything.values())):
        return
    found = [
        ablations.write_study(scenario, study, group, Path(options.out))
        for scenario, chosen in planned
        for study, group in chosen.items()
    ]
    if options.json:
        print_json([written.to_dict() for written in found])
    else:
        from adagc import console

        for written in found:
            for table in written.tables[::-1]:  # the student, which is deployed, then the teacher
                console.stdout.print(render.terminal(table, console.stdout.width))
        for remark in dict.fromkeys(written.remark for written in found if written.remark):
            console.stderr.print(remark, soft_wrap=True)
        for folder in dict.fromkeys(written.folder for written in found):
            console.stdout.print(f"Tables and curves: {folder}", soft_wrap=True)
    _complain([written.results for written in found], asked=True)


# -- what bench and ablate share -------------------------------------------------------------


def add_scenarios(parser: Parser) -> None:
    """Which scenarios, and what of them is changed."""
    parser.positional(
        "scenarios",
        list[str],
        "Names of shipped scenarios (demo-random, aid-random, ...) or folders of your own.",
    )
    add_out(parser)
    parser.option(
        "seeds", list[int] | None, None, "Seeds to run, instead of those that the scenario names."
    )
    parser.option(
        "epochs",
        int | None,
        None,
        "How often training goes over all training images, instead of what the scenario says.",
    )
    parser.option(
        "scenes",
        int | None,
        None,
        "Number of training scenes to make up, instead of what the scenario says; for synthetic"
        " data only.",
    )
    parser.option(
        "tuned",
        str | None,
        None,
        "Folder of method options that adagc tune wrote; they replace those of the scenario.",
    )


def add_out(parser: Parser) -> None:
    """Where the runs of all scenarios lie."""
    parser.option("out", str, "runs/bench", "Folder that holds the runs of all scenarios.")


def _add_running(parser: Parser) -> None:
    parser.option(
        "engine",
        Literal["local", "slurm"],
        "local",
        "Where runs are computed: on this machine, or as jobs of a Slurm cluster.",
    )
    parser.option(
        "workers",
        int | None,
        None,
        "Number of processes on this machine; by default one per GPU, or one per core.",
    )
    for name, kind, text in _SLURM:
        parser.option(name, kind | None, None, f"Slurm: {text}")
    parser.flag(
        "together", "Slurm: run the runs that share a job side by side, not one after the other."
    )
    parser.option(
        "sbatch",
        list[str] | None,
        None,
        "Slurm: further options of sbatch, such as qos=long account=geo.",
    )
    parser.flag("dry_run", "Say which runs are missing and how long they will take; run nothing.")
    add_json(parser)


def chosen_scenarios(options: Namespace) -> list[Scenario]:
    """Those that `add_scenarios` asked for."""
    from adagc.bench.scenarios import load
    from adagc.datasets.registry import DEFAULT, find

    found = [load(name) for name in options.scenarios]
    names = [scenario.name for scenario in found]
    if len(set(names)) < len(names):
        raise UsageError("two scenarios have the same name: rename the folder of one")
    if options.scenes is not None:
        for scenario in found:
            if "scenes" not in find(scenario.settings.get("data", DEFAULT)).options:
                raise UsageError(f"--scenes is for made-up data, which {scenario.name} is not")
    if options.tuned is not None:
        found = [scenario.with_options(Path(options.tuned)) for scenario in found]
    return [
        scenario.with_settings(epochs=options.epochs, scenes=options.scenes) for scenario in found
    ]


def _run(options: Namespace, jobs: list[Job]) -> bool:
    """Do what is missing; False after a dry run."""
    from adagc import console
    from adagc.bench.estimate import seconds_left
    from adagc.bench.results import collect
    from adagc.compare.render import duration

    engine = _engine(options)
    missing = [job for job in jobs if job.status != "finished"]
    known = [
        collect(name, [job for job in jobs if job.scenario == name])
        for name in dict.fromkeys(job.scenario for job in jobs)
    ]
    _check_roots(missing)
    left = seconds_left(missing, known, engine.workers)
    time = ""
    if missing and left is None:
        time = " (how long is not known before a run of the scenario is finished)"
    elif missing:
        time = f", about {duration(left or 0)} on {engine.workers} worker(s)"
    summary = f"{len(jobs)} runs, {len(jobs) - len(missing)} finished, {len(missing)} to do{time}"
    blind = {job.scenario for job in missing if _without_truth(job)}
    if blind:
        console.stderr.print(
            f"{', '.join(sorted(blind))} has no clean labels (truth: FILE): methods are trained,"
            " but not compared",
            soft_wrap=True,
        )
    if options.dry_run:
        if options.json:
            todo = [
                {"run": job.name, "folder": job.folder, "status": job.status} for job in missing
            ]
            print_json({"runs": len(jobs), "to_do": todo, "seconds": left})
        else:
            for job in missing:
                status = "to do" if job.status == "missing" else job.status
                console.stdout.print(f"{status:<8}  {job.name}", soft_wrap=True)
            console.stdout.print(summary, soft_wrap=True)
        return False
    console.stderr.print(summary, soft_wrap=True)
    if missing:
        with console.bench_bar(missing) as bar:
            engine.run(missing, bar)
    return True


def _without_truth(job: Job) -> bool:
    """Data sets of one's own have clean labels only if they are given; the others bring theirs."""
    from adagc.datasets.registry import find

    return not find(job.settings["data"]).brings_truth and job.settings["truth"] is None


def _check_roots(jobs: Sequence[Job]) -> None:
    """Whether the data is there, before every run finds out by itself."""
    for job in jobs:
        root = job.settings.get("root")
        if root is not None and not Path(root).exists():
            raise UsageError(f"{root}: no such data, which {job.scenario} asks for: check the path")


def _engine(options: Namespace) -> Engine:
    from adagc.bench.engines import LocalEngine

    told = {name: getattr(options, name) for name, _, _ in _SLURM}
    slurm: dict[str, Any] = {name: value for name, value in told.items() if value is not None}
    if options.together:
        slurm["together"] = True
    if options.sbatch is not None:
        slurm["extra"] = _pairs(options.sbatch)
    if options.engine == "local":
        if slurm:
            name = "sbatch" if "extra" in slurm else next(iter(slurm))
            raise UsageError(f"--{name.replace('_', '-')} is for --engine slurm")
        return LocalEngine(options.workers)
    if options.workers is not None:
        raise UsageError("--workers is for --engine local; --parallel limits jobs on a cluster")
    from adagc.bench.slurm.engine import SlurmEngine

    return SlurmEngine(Path(options.out), **slurm)


def _pairs(words: Sequence[str]) -> dict[str, str | bool]:
    """`qos=long` and `exclusive` as sbatch's options."""
    pairs = (word.removeprefix("--").partition("=") for word in words)
    return {name: value if equals else True for name, equals, value in pairs}


def _complain(results: Sequence[Results], *, asked: bool) -> None:
    """End with exit code 1 if runs failed; the tables are written by then.

    A method that does not suit the data is a failure if somebody asked for it by name.
    """
    reasons = [
        f"{label}, {reason}"
        for found in results
        for label, several in found.failed.items()
        for reason in several
    ]
    if asked:
        reasons += [
            text for found in results for several in found.unsuited.values() for text in several
        ]
    if reasons:
        raise AdagcError(f"{len(reasons)} run(s) failed, the first: {reasons[0]}")
