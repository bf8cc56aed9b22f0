"""Commands that compare methods: bench trains them, tables reads published results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adagc.commands.common import (
    add_json,
    add_pack,
    check_folder,
    make_parser,
    print_json,
    quiet_start,
)
from adagc.commands.running import add_running, complain, train_missing
from adagc.commands.scenarios import (
    add_changes,
    add_judge,
    add_out,
    add_scenarios,
    chosen_scenarios,
    judged_view,
)
from adagc.errors import UsageError
from adagc.progress import tracked

if TYPE_CHECKING:
    from argparse import Namespace

    from adagc.compare.outputs import Written


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
    parser.flag(
        "choose",
        "Choose a method without clean labels, none of which is read: compare how well methods"
        " explain the observed labels of validation images. Without --methods those that are told"
        " clean labels or frequencies are left out.",
    )
    add_judge(
        parser,
        "averaged-last, with --choose averaged-best (the trained network if the scenario says"
        " average: null)",
    )
    add_out(parser)
    add_pack(
        parser,
        "Folder to write the results to as small files, which adagc tables reads: settings,"
        " histories, scores and rankings of all runs, without their weights.",
    )
    add_changes(parser)
    add_running(parser)
    options = parser.parse(argv)
    check_folder("out", options.out)
    check_folder("pack", options.pack)
    if options.choose and options.pack is not None:
        raise UsageError(
            "--pack keeps scores on clean labels, which --choose does not read: leave one out"
        )
    quiet_start()
    from adagc.bench import jobs
    from adagc.compare.outputs import write_tables
    from adagc.methods import outline
    from adagc.methods import titles as all_titles
    from adagc.paper import values

    titles = [outline(name).title for name in options.methods or all_titles()]
    if options.choose:
        _choose(options, titles)
        return
    planned = [
        (
            scenario,
            jobs.plan(scenario, titles, Path(options.out), options.seeds),
            None if scenario.paper is None else values.values(scenario.paper),
        )
        for scenario in chosen_scenarios(options)
    ]
    if not train_missing(options, [job for _, group, _ in planned for job in group]):
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
    complain([written.results for written in tables], asked=options.methods is not None)


def _choose(options: Namespace, titles: Sequence[str]) -> None:
    """Train missing runs and choose a method by observed validation labels alone."""
    from adagc.bench import jobs
    from adagc.bench.results import collect
    from adagc.compare import choosing_outputs
    from adagc.compare.choosing import choose
    from adagc.methods import outline

    if options.methods is None:
        titles = [title for title in titles if not outline(title).needs & {"truth", "priors"}]
    planned = [
        (scenario, jobs.plan(scenario, titles, Path(options.out), options.seeds))
        for scenario in chosen_scenarios(options)
    ]
    if not train_missing(options, [job for _, group in planned for job in group], compares=False):
        return
    collected = [collect(scenario.name, group, tested=False) for scenario, group in planned]
    made = [
        choose(results, judged_view(options, [scenario], choice="best"), scenario.title)
        for (scenario, _), results in zip(planned, collected, strict=True)
    ]
    for one in made:
        choosing_outputs.write(one, Path(options.out) / one.scenario)
    if options.json:
        print_json({one.scenario: one.to_dict() for one in made})
    else:
        from adagc import console

        for one in made:
            console.stdout.print(choosing_outputs.terminal(one))
            place = Path(options.out) / one.scenario / choosing_outputs.STEM
            console.stdout.print(f"Table: {place}.md .json", soft_wrap=True)
            for text in choosing_outputs.sentences(one):
                console.stdout.print(text, soft_wrap=True)
    complain(collected, asked=options.methods is not None)


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


def _show(written: Written) -> None:
    """Print the first table and the recommendation."""
    from adagc import console

    console.stdout.print(written.terminal(console.stdout.width))
    console.stdout.print(written.sentence, soft_wrap=True)
