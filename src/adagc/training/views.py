"""A view: which network of every run is looked at, and after which of its epochs.

Methods are compared like with like, so a table, a figure, a gap and a recommendation each have one
view for all rows. There are four: the trained network and its average (an exponential average of
its weights over the steps), each after the last epoch and after the epoch that noisy validation
chooses. A network that the trained one learns from is such an average already and stands beside
averages.

`DEFAULT` is the average after the last epoch. docs/results/selection.md has the numbers, which
`python experiments/views.py` computes from all published tables, without methods that see clean
labels and without the one that this project proposes:

- After the last epoch averages are better than the networks they are made of, and vary less between
  seeds. A comparison without them measures in part which method swings least from step to step.
- The last epoch treats methods alike: what chooses an epoch by observed labels may favour methods
  that leave labels missing, as the mAP on these labels does.
- Nothing has to be chosen, so it needs no validation labels. It is also what the paper does.

Against it: the chosen epoch is about as good with a criterion that suits missing labels. Who stops
training early should look at `averaged-best`. All four views are therefore in every file of tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from adagc.training.records import Choice, TestedNetwork
from adagc.types import HasRole, NetworkRole, Scores, with_role

ViewName = Literal["averaged-last", "averaged-best", "network-last", "network-best"]

_WORDS = {NetworkRole.DEPLOYED: "network", NetworkRole.AVERAGE: "averaged"}
_NETWORKS = {"network": "trained network", "averaged": "averaged network"}
_EPOCHS: dict[Choice, str] = {"last": "last epoch", "best": "best epoch by noisy validation"}
_AFTER: dict[Choice, str] = {
    "last": "after the last epoch",
    "best": "after the epoch that noisy validation chooses",
}


@dataclass(frozen=True)
class View:
    """One network of every run, with its weights after one epoch."""

    role: NetworkRole = NetworkRole.DEPLOYED
    choice: Choice = "last"

    @property
    def name(self) -> str:
        """The name for the command line and for files, such as "averaged-last"."""
        return f"{self.word}-{self.choice}"

    @property
    def word(self) -> str:
        """The word for the network in files: "network", "averaged", or the role."""
        return _WORDS.get(self.role, self.role.value)

    @property
    def network(self) -> str:
        """The network in a few words, such as "averaged network"."""
        return _NETWORKS.get(self.word, self.word)

    @property
    def title(self) -> str:
        """The view in the title of a table, such as "averaged network, last epoch"."""
        return f"{self.network}, {_EPOCHS[self.choice]}"

    @property
    def networks(self) -> str:
        """The view in a sentence, such as "averaged networks after the last epoch"."""
        return f"{self.network}s {_AFTER[self.choice]}"

    @property
    def at_other_epoch(self) -> View:
        """The same network after the chosen epoch instead of the last one, or the other way."""
        return View(self.role, "best" if self.choice == "last" else "last")

    def of(self, networks: Mapping[str, HasRole]) -> str | None:
        """The name of the network with this role among those of a run; None if it has none.

        A method that deploys an average reports the trained network beside it, which then stands
        beside the trained networks of others. The network that the deployed one learns from is
        usually an average of it. It is therefore used as the average of a run that has no other.
        """
        return next(
            filter(None, (with_role(networks, role) for role in self._roles(networks))), None
        )

    def _roles(self, networks: Mapping[str, HasRole]) -> tuple[NetworkRole, ...]:
        """The role of this view, before or after what may stand in for it."""
        trained = with_role(networks, NetworkRole.TRAINED)
        if self.role is NetworkRole.DEPLOYED:
            return NetworkRole.TRAINED, NetworkRole.DEPLOYED
        if self.role is NetworkRole.AVERAGE:
            itself = (NetworkRole.DEPLOYED,) if trained else ()
            return NetworkRole.AVERAGE, NetworkRole.TEACHER, *itself
        return (self.role,)

    def scores(self, networks: Mapping[str, TestedNetwork]) -> Scores | None:
        """The test scores that this view shows of a run; None if it has no such network or epoch.

        Args:
            networks: The tested networks of the run, by name.
        """
        name = self.of(networks)
        tested = None if name is None else networks[name].epochs.get(self.choice)
        return None if tested is None else tested.scores


VIEWS: dict[str, View] = {
    view.name: view
    for role in (NetworkRole.AVERAGE, NetworkRole.DEPLOYED)
    for choice in get_args(Choice)
    if (view := View(role, choice))
}
DEFAULT = VIEWS["averaged-last"]


def chosen(name: str | None, *, averages: bool, choice: Choice = DEFAULT.choice) -> View:
    """The view with this name, or the default if it is None.

    Args:
        name: One of the four, or None.
        averages: Whether runs keep an average. If a scenario says that they do not, the default is
            the trained network, again for all methods.
        choice: The epoch of the default.
    """
    if name is not None:
        return VIEWS[name]
    return VIEWS[View(DEFAULT.role if averages else NetworkRole.DEPLOYED, choice).name]
