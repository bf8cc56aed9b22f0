"""The command ablate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from adagc.commands.common import add_pack, check_folder, make_parser, print_json, quiet_start
from adagc.commands.running import add_running, complain, train_missing
from adagc.commands.scenarios import add_changes, add_out, add_scenarios, chosen_scenarios

if TYPE_CHECKING:
    from adagc.bench.jobs import Job


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
    add_pack(
        parser,
        "Folder to write the results to as small files, in a folder for each scenario and study:"
        " settings, histories and scores of all runs, without their weights.",
    )
    add_changes(parser)
    add_running(parser)
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
    if not train_missing(options, list(everything.values())):
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
    complain([written.results for written in studies], asked=True)
