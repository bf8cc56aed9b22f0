"""What commands on scenarios share: which scenarios, with what changes, seen in which view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adagc.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from adagc.arguments import Parser
    from adagc.bench.scenarios import Scenario
    from adagc.training.records import Choice
    from adagc.training.views import View

RUNS = "runs/bench"  # folder of runs, unless the command line names another
_CHANGES = "changes to the scenarios"


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


def judged_view(options: Namespace, scenarios: Sequence[Scenario], choice: Choice = "last") -> View:
    """The view that --judge names, or the default of these scenarios.

    Args:
        options: The command line.
        scenarios: All of them share the view.
        choice: The epoch of the default.
    """
    from adagc.training.views import chosen

    averages = all(scenario.settings.get("average") is not None for scenario in scenarios)
    return chosen(options.judge, averages=averages, choice=choice)


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


def check_backbones(names: Iterable[str]) -> None:
    """Raise UsageError now if there is no such backbone, instead of letting every run fail."""
    from adagc.models.backbones import check_backbone
    from adagc.training.config import RunConfig

    for name in dict.fromkeys(names):
        if name != RunConfig.backbone:  # auto
            check_backbone(name)
