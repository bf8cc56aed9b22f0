"""The words of a recommendation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from adagc.compare.intervals import Difference
from adagc.training.views import View
from adagc.types import NetworkRole

if TYPE_CHECKING:
    from adagc.compare.recommendation import Recommendation

NEAR = 0.01  # a difference of mean average precision that is small enough for most purposes
_ENOUGH = 3  # seeds that are asked for where there is only one


def sentence(found: Recommendation) -> str:
    """The whole recommendation, in a few sentences."""
    warning = _warning(found)
    if found.missing:
        reasons = [found.missing, *([warning] if warning else [])]
        return f"There is no recommendation yet: {'; '.join(reasons)}."
    assert found.lead is not None
    if found.lead.rests_on_seeds or (found.level and found.lead.covers_seeds):
        sentences = [_first(found, found.lead), _cost(found)]
        if found.advantage is not None:
            sentences.append(_informed(found, found.advantage))
    else:
        sentences = _without_seeds(found, found.lead)
    sentences += _estimating(found)
    sentences += _left_out(found)
    if warning:
        sentences.append(f"{warning}, so this may change")
    return " ".join(f"{one}." for one in sentences)


def gains(label: str, own: Mapping[str, Difference], view: View) -> str:
    """What a row gains over baselines in the same view, in one line."""
    kind = "averaged " if view.role is NetworkRole.AVERAGE else ""
    parts = [f"against {kind}{other} {signed(gain)}" for other, gain in own.items()]
    one = next(iter(own.values()))
    covers = "95 % intervals" if one.covers_seeds else "one seed, test images only"
    return f"mAP of {label} {', '.join(parts)} ({covers})."


def points(difference: Difference) -> str:
    """A difference in per cent with half its interval: 1.1 ± 1.5."""
    mean = round(difference.mean * 100, 1) + 0.0  # turns -0.0 into 0.0
    return f"{mean:.1f} ± {difference.half * 100:.1f}"


def signed(difference: Difference) -> str:
    """A difference with its sign and half its interval: +1.1 ± 1.5."""
    text = points(difference)
    return text if text.startswith("-") else f"+{text}"


def listed(labels: Sequence[str], most: int = 3) -> str:
    """The first names, and how many others there are.

    >>> listed(["AN", "WAN", "GR"]), listed(["AN", "WAN", "GR", "EM", "ASL"])
    ('AN, WAN and GR', 'AN, WAN, GR and 2 others')
    """
    named = list(labels[:most])
    if len(labels) > most:
        rest = len(labels) - most
        named.append(f"{rest} other{'s' * (rest > 1)}")
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _first(found: Recommendation, lead: Difference) -> str:
    """Which method leads, and how certain that is."""
    many = f", corrected for comparing {found.compared} methods" if found.compared > 2 else ""
    # Two that never met in a seed are compared through others that met both.
    seeds = f"{lead.seeds} seed{'s' * (lead.seeds > 1)}" if lead.seeds else "seeds of others"
    basis = f"{found.view.networks}; 95 % interval over {seeds} and {lead.images} test images{many}"
    if found.recommended:
        return (
            f"Use {found.leader}: it leads by {points(lead)} mAP over {found.runner_up} ({basis})"
        )
    others = [label for label in found.level if label != found.runner_up]
    return (
        f"{_ahead(found)}, but cannot be told apart from {found.runner_up} on this data"
        f" (difference {points(lead)} mAP; {basis})"
        + (f", nor from {listed(others)}" if others else "")
    )


def _ahead(found: Recommendation) -> str:
    """Who leads, with its score."""
    score = f"{found.score * 100:.1f}"
    if found.highest:
        return f"{found.leader} has the highest mAP, {score}"
    return f"{found.leader} is ahead where methods share seeds (its mAP is {score})"


def _without_seeds(found: Recommendation, lead: Difference) -> list[str]:
    """What can be seen if the first two share at most one seed, and that it is not enough."""
    common = "with one seed"
    covers = f"the 95 % interval covers the choice of the {lead.images} test images only"
    if lead.covers_seeds:
        common = f"but they have {'only one' if lead.seeds else 'no'} seed in common"
        covers = "95 % interval over test images and the seeds of other methods"
    return [
        f"{_ahead(found)}, {points(lead)} above {found.runner_up}{',' * lead.covers_seeds} {common}"
        f" ({found.view.networks}; {covers})",
        "Nothing is recommended from one seed, because another one may turn the order round: run"
        f" {_ENOUGH} or more (such as --seeds {' '.join(map(str, range(_ENOUGH)))})",
    ]


def _cost(found: Recommendation) -> str:
    """Whether a cheaper method is about as good."""
    if found.cheapest == found.leader or found.gap is None:
        if found.fastest:
            return "No other method is clearly cheaper to train"
        return f"No clearly cheaper method comes within {NEAR * 100:.1f} mAP of it"
    share = f"{found.cheapest} takes {found.cost * 100:.0f} % of its {found.clock}"
    if found.gap.is_clear:
        return f"{share} and scores {points(found.gap)} mAP less"
    if found.cheapest == found.runner_up and not found.recommended:
        return share
    return f"{share} and cannot be told apart from it either (difference {points(found.gap)} mAP)"


def _informed(found: Recommendation, advantage: Difference) -> str:
    """Whether a method that is told label frequencies is better."""
    by = points(advantage)
    more = f"scores {by} more" if advantage.is_clear else f"is not clearly better ({by} mAP)"
    return (
        f"{found.informed}, which is told the true label frequencies or the mean number of"
        f" labels per image, {more}"
    )


def _estimating(found: Recommendation) -> list[str]:
    """Which of the named methods rest on an estimate of label frequencies."""
    if not found.estimating:
        return []
    several = len(found.estimating) > 1
    return [
        f"{listed(found.estimating)} {'are' if several else 'is'} given label frequencies that were"
        " estimated from observed labels"
    ]


def _left_out(found: Recommendation) -> list[str]:
    """Which rows are not compared, and why."""
    parts = []
    if found.without:
        have = "have" if len(found.without) > 1 else "has"
        parts.append(
            f"{listed(found.without)} {have} no {found.view.network} and cannot be compared here"
        )
    if found.apart:
        have = "have" if len(found.apart) > 1 else "has"
        parts.append(f"{listed(found.apart)} {have} no seed in common with the others")
    return parts


def _warning(found: Recommendation) -> str:
    """How many runs failed or are not finished; empty if all are finished."""
    of = f" of {found.planned} runs"
    parts = []
    if found.failed:
        parts.append(f"{found.failed}{of} failed")
    if found.unfinished:
        are = "is" if found.unfinished == 1 else "are"
        parts.append(f"{found.unfinished}{'' if parts else of} {are} not finished")
    return " and ".join(parts)
