"""Look at all networks of a method after every epoch, without changing how it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from adagc.methods.base import Method, reported_by
from adagc.methods.state import AveragedNetwork
from adagc.types import NetworkRole, Reported


def watching(kind: type[Method], momentum: float | None) -> type[Any]:
    """A method whose networks are looked at after every epoch, when they are validated.

    Args:
        kind: The method.
        momentum: Momentum of an averaged copy that is reported, too, as the loop would; None for
            no copy.
    """

    class Watching(kind):  # type: ignore[misc, valid-type]
        look: Callable[[Mapping[str, Reported]], None]

        def setup(self, network: Any, task: Any) -> None:
            super().setup(network, task)
            self.followed = [network]  # in a list, or it would become a part of the method
            if momentum is not None:
                self.copy = AveragedNetwork(network, momentum)

        def after_step(self, network: Any) -> None:
            super().after_step(network)
            if momentum is not None:
                self.copy.update(network)

        def reported(self, network: Any) -> dict[str, Reported]:
            networks = dict(super().reported(network))
            if momentum is not None:
                networks["averaged"] = Reported(self.copy.network, NetworkRole.AVERAGE)
            return networks

        def end_epoch(self, scores: Any, progress: Any) -> Any:
            self.look(reported_by(self, self.followed[0]))
            return super().end_epoch(scores, progress)

    Watching.__doc__, Watching.__name__ = kind.__doc__, kind.__name__
    return Watching
