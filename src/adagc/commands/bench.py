"""Commands that train many runs: bench, ablate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from adagc.commands.common import add_json, check_folder, make_parser, print_json, quiet_start
from adagc.errors import AdagcError, UsageError
from adagc.progress import duration, tracked

if TYPE_CHECKING:
    from argparse import Namespace

    from adagc.arguments import Parser
    from adagc.bench.engines import Engine
    from adagc.bench.jobs import Job
    from adagc.bench.results import Results
    from adagc.bench.scenarios import Scenario
    from adagc.compare.outputs import Written
    from adagc.training.views import View


RUNS = "runs/bench"  # folder of runs, unless the command line names another
_CHANGES = "changes to the scenarios"
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


def bench(argv: list[str]) -> None:
    """Compare methods: train missing runs, write tables, recommend one."""
    parser = make_parser("bench", bench, "adagc bench demo-random --methods AN WAN AdaGC")
    add_scenarios(parser)
    parser.option(
        "methods",
        list[str] | None,
        None,
        "Methods to compare, as listed by adagc methods; all by default.",
    )
    add_judge(parser)
    add_out(parser)
    _add_pack(
        parser,
        "Folder to write the results to as small files, which adagc tables reads: settings,"
        " histories, scores and rankings of all runs, without their weights.",
    )
    add_changes(parser)
    _add_running(parser)
    options = parser.parse(argv)
    check_folder("out", options.out)
    check_folder("pack", options.pack)
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
    tables = [
        write_tables(
            scenario, group, Path(options.out), published, judge=judged_view(options, [scenario])
        )
        for scenario, group, published in tracked(planned, "comparing methods")
    ]
    if options.pack is not None:
        from adagc.bench.packs import pack

        for written in tables:
            scenario, place = written.scenario, Path(options.pack) / written.scenario.name
            judge = judged_view(options, [scenario])
            pack(scenario, written.results, place, [judge, judge.at_other_epoch])
    if options.json:
        print_json({written.scenario.name: written.to_dict() for written in tables})
    else:
        from adagc import console

        for written in tables:
            _show(written)
            console.stdout.print(f"Tables: {written.folder}/table.md .csv .tex .json")
    _complain([written.results for written in tables], asked=options.methods is not None)


def tables(argv: list[str]) -> None:
    """Print the tables and the recommendation of published results."""
    parser = make_parser("tables", tables, "adagc tables docs/results/data/aid-features")
    parser.positional(
        "packs",
        list[str],
        "Folders that adagc bench --pack wrote.",
    )
    add_judge(parser, "as in the bench")
    parser.option(
        "out", str | None, None, "Folder to write the tables to, in a folder for each scenario."
    )
    add_json(parser)
    options = parser.parse(argv)
    check_folder("out", options.out)
    quiet_start()
    from adagc.bench.packs import judge_of, unpack
    from adagc.compare.outputs import make_tables, write
    from adagc.paper import values

    made = []
    for folder in tracked(options.packs, "reading results"):
        scenario, results = unpack(Path(folder))
        published = None if scenario.paper is None else values.values(scenario.paper)
        place = Path(options.out or folder) / scenario.name
        judge = None if options.judge else judge_of(Path(folder))
        judge = judge or judged_view(options, [scenario])
        made.append(make_tables(scenario, results, place, published, judge=judge))
    if options.out is not None:
        for written in made:
            write(written, [written.sentence])
    if options.json:
        print_json({written.scenario.name: written.to_dict() for written in made})
    else:
        for written in made:
            _show(written)


def _add_pack(parser: Parser, about: str) -> None:
    """The option --pack."""
    parser.option("pack", str | None, None, about)


def _show(written: Written) -> None:
    """Print the first table and the recommendation."""
    from adagc import console

    console.stdout.print(written.terminal(console.stdout.width))
    console.stdout.print(written.sentence, soft_wrap=True)


def ablate(argv: list[str]) -> None:
    """Change one part of AdaGC at a time and compare the results."""
    parser = make_parser("ablate", ablate, "adagc ablate demo-random --studies trigger mixup")
    add_scenarios(parser)
    parser.option(
        "studies",
        list[str] | None,
        None,
        "Parts of AdaGC to change, one after the other: trigger, pseudo-labels, mixup (as in the"
        " paper), weight, patience, memory-momentum, balance; all by default.",
    )
    add_out(parser)
    _add_pack(
        parser,
        "Folder to write the results to as small files, in a folder for each scenario and study:"
        " settings, histories and scores of all runs, without their weights.",
    )
    add_changes(parser)
    _add_running(parser)
    options = parser.parse(argv)
    check_folder("out", options.out)
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
            everything.setdefault(job.folder, job)  # several studies may share a run: train it once
    if not _run(options, list(everything.values())):
        return
    studies = [
        ablations.write_study(scenario, study, group, Path(options.out))
        for scenario, chosen in planned
        for study, group in chosen.items()
    ]
    if options.pack is not None:
        from adagc.bench.packs import pack

        for written in studies:
            place = Path(options.pack) / written.scenario.name / written.stem
            pack(written.scenario, written.results, place, views=())
    if options.json:
        print_json([written.to_dict() for written in studies])
    else:
        from adagc import console

        for written in studies:
            for table in written.tables[::-1]:  # the student, which is deployed, then the teacher
                console.stdout.print(render.terminal(table, console.stdout.width))
        for remark in dict.fromkeys(written.remark for written in studies if written.remark):
            console.stderr.print(remark, soft_wrap=True)
        for folder in dict.fromkeys(written.folder for written in studies):
            console.stdout.print(f"Tables and curves: {folder}", soft_wrap=True)
    _complain([written.results for written in studies], asked=True)


# -- what bench and ablate share -------------------------------------------------------------


def add_scenarios(parser: Parser) -> None:
    """Add the argument that names scenarios; see `chosen_scenarios`."""
    parser.positional(
        "scenarios",
        list[str],
        "Names of shipped scenarios (demo-random, aid-random, ...) or folders of your own.",
    )


def add_changes(parser: Parser) -> None:
    """Add the options that change what scenarios say; see `chosen_scenarios`."""
    parser.option(
        "seeds",
        list[int] | None,
        None,
        "Seeds to run, instead of those that the scenario names.",
        group=_CHANGES,
    )
    parser.option(
        "epochs",
        int | None,
        None,
        "How often training goes over all training images, instead of what the scenario says.",
        group=_CHANGES,
    )
    parser.option(
        "scenes",
        int | None,
        None,
        "Number of training scenes to make up, instead of what the scenario says; for data that"
        " is generated only.",
        group=_CHANGES,
    )
    parser.option(
        "priors",
        str | None,
        None,
        "Where methods that want to know have class frequencies from, instead of what the scenario"
        " says: estimated, truth, published or a file (see adagc train --help).",
        group=_CHANGES,
    )
    parser.option(
        "tuned",
        str | None,
        None,
        "Folder of method options that adagc tune wrote; they replace those of the scenario.",
        group=_CHANGES,
    )


def add_out(parser: Parser) -> None:
    """Add the option --out, the folder with the runs of all scenarios."""
    parser.option("out", str, RUNS, "Folder of runs to write; runs of all scenarios may share one.")


def add_judge(
    parser: Parser, usual: str = "averaged-last (network-last if the scenario says average: null)"
) -> None:
    """Add the option --judge, the view in which methods are compared; see `judged_view`.

    Args:
        parser: The parser of a command.
        usual: What happens without the option, for its explanation.
    """
    from adagc.training.views import ViewName

    parser.option(
        "judge",
        ViewName | None,
        None,
        "What is compared, of every method alike: the averaged or the trained network, after the"
        f" last epoch or the best by noisy validation. By default {usual}. Files of tables hold all"
        " four.",
    )


def judged_view(options: Namespace, scenarios: Sequence[Scenario]) -> View:
    """The view that --judge names, or the default of these scenarios."""
    from adagc.training.views import chosen

    averages = all(scenario.settings.get("average") is not None for scenario in scenarios)
    return chosen(options.judge, averages=averages)


def _add_running(parser: Parser) -> None:
    """Add the options that say where and how runs are trained; see `_engine` and `_run`."""
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


def chosen_scenarios(options: Namespace) -> list[Scenario]:
    """The scenarios named on the command line, with the changes of the options applied."""
    from adagc.bench.scenarios import load
    from adagc.datasets.registry import DEFAULT, find

    scenarios = [load(name) for name in options.scenarios]
    names = [scenario.name for scenario in scenarios]
    if len(set(names)) < len(names):
        raise UsageError("two scenarios have the same name: rename the folder of one")
    if options.scenes is not None:
        for scenario in scenarios:
            if "scenes" not in find(scenario.settings.get("data", DEFAULT)).options:
                raise UsageError(
                    f"--scenes is for made-up data, which {scenario.name} is not: leave it out"
                )
    if options.tuned is not None:
        scenarios = [scenario.with_options(Path(options.tuned)) for scenario in scenarios]
    return [
        scenario.with_settings(epochs=options.epochs, scenes=options.scenes, priors=options.priors)
        for scenario in scenarios
    ]


def _run(options: Namespace, jobs: list[Job]) -> bool:
    """Train the runs that are not finished yet; with --dry-run only list them and return False."""
    from adagc import console
    from adagc.bench.estimate import seconds_left
    from adagc.bench.results import collect

    engine = _engine(options)
    missing = [job for job in jobs if job.status != "finished"]
    results = [
        collect(name, [job for job in jobs if job.scenario == name])
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
    untested = {job.scenario for job in missing if _without_truth(job)}
    if untested:
        console.stderr.print(
            f"{', '.join(sorted(untested))} has no clean labels (truth: FILE): methods are trained,"
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
    check_backbones(job.settings["backbone"] for job in missing)
    if missing:
        with console.bench_bar(missing) as bar:
            engine.run(missing, bar)
    return True


def check_backbones(names: Iterable[str]) -> None:
    """Raise UsageError now if there is no such backbone, instead of letting every run fail."""
    from adagc.models.backbones import check_backbone
    from adagc.training.config import RunConfig

    for name in dict.fromkeys(names):
        if name != RunConfig.backbone:  # auto
            check_backbone(name)


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


def _complain(results: Sequence[Results], *, asked: bool) -> None:
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
