"""What commands that train many runs share: where to train, what is missing, what failed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from adagc.commands.common import add_json, print_json
from adagc.commands.scenarios import check_backbones
from adagc.errors import AdagcError, UsageError
from adagc.progress import duration

if TYPE_CHECKING:
    from argparse import Namespace

    from adagc.arguments import Parser
    from adagc.bench.engines import Engine
    from adagc.bench.jobs import Job
    from adagc.bench.results import Results

_WHERE, _CLUSTER = "where runs are trained", "with --engine slurm"
_SLURM = (
    ("partition", str, "Partition to submit jobs to; the cluster's default by default."),
    (
        "minutes",
        int,
        "Time limit of a job in minutes, 240 by default; a job that reaches it is queued again.",
    ),
    ("cpus", int, "Number of CPU cores of a job, 2 by default."),
    ("gpus", int, "Number of GPUs of a job, 0 by default."),
    ("memory", str, "Memory of a job, such as 16GB; the cluster's default by default."),
    ("runs_per_job", int, "Number of runs that one job does, 1 by default."),
    ("parallel", int, "Largest number of jobs that run at the same time, 64 by default."),
    (
        "requeues",
        int,
        "How often a job that reached its time limit is queued again, 20 by default.",
    ),
)


def add_running(parser: Parser) -> None:
    """Add the options that say where and how runs are trained; see `train_missing`."""
    parser.option(
        "engine",
        Literal["local", "slurm"],
        "local",
        "Where runs are computed: on this machine, or as jobs of a Slurm cluster.",
        group=_WHERE,
    )
    parser.option(
        "workers",
        int | None,
        None,
        "Number of runs that this machine trains at the same time; by default one per GPU, or one"
        " per core where there is no GPU. All of them together use at most OMP_NUM_THREADS threads,"
        " if that is set.",
        group=_WHERE,
    )
    parser.flag(
        "dry_run",
        "Print which runs are missing and how long they will take, and train nothing.",
        group=_WHERE,
    )
    for name, kind, text in _SLURM:
        parser.option(name, kind | None, None, text, group=_CLUSTER)
    parser.flag(
        "together",
        "Do the runs that share a job side by side, not one after the other.",
        group=_CLUSTER,
    )
    parser.option(
        "sbatch",
        list[str] | None,
        None,
        "Further options that are passed to sbatch, such as qos=long account=geo.",
        group=_CLUSTER,
    )
    add_json(parser)


def train_missing(options: Namespace, jobs: list[Job], *, compares: bool = True) -> bool:
    """Train the runs that are not finished yet; with --dry-run only list them and return False.

    Args:
        options: The command line.
        jobs: All runs.
        compares: Whether methods are then compared by clean labels, of which there may be none.
    """
    from adagc import console
    from adagc.bench.estimate import seconds_left
    from adagc.bench.results import collect

    engine = _engine(options)
    missing = [job for job in jobs if job.status != "finished"]
    results = [
        collect(name, [job for job in jobs if job.scenario == name], tested=False)
        for name in dict.fromkeys(job.scenario for job in jobs)
    ]
    _check_roots(missing)
    left = seconds_left(missing, results, engine.workers)
    time = ""
    if missing and left is None:
        time = " (the time needed is not known before a run of the scenario is finished)"
    elif missing:
        time = f", about {duration(left or 0)} on {engine.workers} worker(s)"
    summary = f"{len(jobs)} runs, {len(jobs) - len(missing)} finished, {len(missing)} to do{time}"
    untested = {job.scenario for job in missing if compares and _without_truth(job)}
    if untested:
        console.stderr.print(
            f"{', '.join(sorted(untested))} has no clean labels (truth: FILE): methods are trained,"
            " but not compared; --choose compares them by observed labels",
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
    check_backbones(job.settings["backbone"] for job in missing)
    if missing:
        with console.bench_bar(missing) as bar:
            engine.run(missing, bar)
    return True


def _without_truth(job: Job) -> bool:
    """Whether no clean labels are known: the data set has none, and no truth file is given."""
    from adagc.datasets.registry import find

    return not find(job.settings["data"]).brings_truth and job.settings["truth"] is None


def _check_roots(jobs: Sequence[Job]) -> None:
    """Raise UsageError now if data is missing, instead of letting every run fail."""
    for job in jobs:
        root = job.settings.get("root")
        if root is not None and not Path(root).exists():
            raise UsageError(f"{root}: no such data, which {job.scenario} asks for: check the path")


def _engine(options: Namespace) -> Engine:
    """The engine that the options choose; an option of the other engine is an error."""
    from adagc.bench.engines import LocalEngine

    values = {name: getattr(options, name) for name, _, _ in _SLURM}
    slurm: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if options.together:
        slurm["together"] = True
    if options.sbatch is not None:
        slurm["extra"] = _pairs(options.sbatch)
    if options.engine == "local":
        if slurm:
            name = "sbatch" if "extra" in slurm else next(iter(slurm))
            raise UsageError(
                f"--{name.replace('_', '-')} is for --engine slurm: add that, or leave it out"
            )
        return LocalEngine(options.workers)
    if options.workers is not None:
        raise UsageError("--workers is for --engine local; --parallel limits jobs on a cluster")
    from adagc.bench.slurm.engine import SlurmEngine

    return SlurmEngine(Path(options.out), **slurm)


def _pairs(words: Sequence[str]) -> dict[str, str | bool]:
    """Words like `qos=long` or `exclusive` as option to value; True for one without a value."""
    pairs = (word.removeprefix("--").partition("=") for word in words)
    return {name: value if equals else True for name, equals, value in pairs}


def complain(results: Sequence[Results], *, asked: bool) -> None:
    """Raise an error if runs failed; it is called last, when the tables are written.

    Args:
        results: The results of every scenario or study.
        asked: The user named the methods: one that does not suit the data counts as failed.
    """
    reasons = [
        f"{label}, {reason}"
        for scenario in results
        for label, failures in scenario.failed.items()
        for reason in failures
    ]
    if asked:
        reasons += [
            text
            for scenario in results
            for explanations in scenario.unsuited.values()
            for text in explanations
        ]
    if reasons:
        raise AdagcError(f"{len(reasons)} run(s) failed, the first: {reasons[0]}")
