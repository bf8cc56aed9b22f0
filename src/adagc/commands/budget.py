"""The command `budget`: one label on many images, or all labels of fewer."""

from __future__ import annotations

from pathlib import Path

from adagc.commands.common import check_folder, make_parser, print_json, quiet_start
from adagc.commands.running import add_running, complain, train_missing
from adagc.commands.scenarios import (
    add_changes,
    add_judge,
    add_out,
    add_scenarios,
    chosen_scenarios,
    judged_view,
)


def budget(argv: list[str]) -> None:
    """Say whether one label on many images beats all labels of fewer."""
    from adagc.budget.plan import SHARES
    from adagc.methods import DEFAULT

    parser = make_parser("budget", budget, "adagc budget demo-random --cost 4")
    add_scenarios(parser)
    parser.option(
        "cost",
        float | None,
        None,
        "Price of all labels of an image, in single labels: 4 if naming everything in an image"
        " takes as long as naming one thing in each of four. By default the mean number of labels"
        " of a training image, which leaves out the time to look for what is not there.",
    )
    parser.option(
        "method", str, DEFAULT, "Method that learns from one label per image (adagc methods)."
    )
    parser.option(
        "shares",
        list[float],
        list(SHARES),
        "Shares of the training images that get one label each.",
    )
    add_out(parser)
    add_judge(parser, "averaged-best (network-best if the scenario says average: null)")
    add_changes(parser)
    add_running(parser)
    options = parser.parse(argv)
    check_folder("out", options.out)
    quiet_start()
    from adagc.budget.answer import answer
    from adagc.budget.plan import make_plan
    from adagc.training.inputs import open_configured
    from adagc.training.settings import DataSettings

    scenarios = chosen_scenarios(options)
    plans = [
        make_plan(
            scenario,
            open_configured(DataSettings.of(scenario.config(scenario.seeds[0]))),
            Path(options.out),
            method=options.method,
            cost=options.cost,
            shares=options.shares,
            seeds=options.seeds,
        )
        for scenario in scenarios
    ]
    if not train_missing(options, [job for plan in plans for job in plan.jobs]):
        return
    view = judged_view(options, scenarios, "best")
    answers = [answer(plan, view) for plan in plans]
    for found in answers:
        found.write(Path(options.out) / found.plan.scenario.name / "budget")
    if options.json:
        print_json([found.to_dict() for found in answers])
    else:
        from adagc import console

        for found in answers:
            console.stdout.print(found.table())
            console.stdout.print(found.sentence, soft_wrap=True)
            for remark in found.remarks:
                console.stdout.print(remark, soft_wrap=True)
            place = Path(options.out) / found.plan.scenario.name / "budget"
            console.stdout.print(f"Figure and numbers: {place}", soft_wrap=True)
    complain([found.results for found in answers], asked=True)
