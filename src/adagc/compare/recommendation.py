"""Which method to use on this data, by how much it leads, and what would do at a lower price."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from adagc.bench.results import Choice, Result, Results
from adagc.compare.bootstrap import Difference, Resampled, resample
from adagc.compare.tables import called, network_of
from adagc.errors import AdagcError
from adagc.methods import outline
from adagc.types import NetworkRole

NEAR = 0.01  # of mean average precision: as good as the leader for most purposes
_CHEAPER = 0.95  # of the leader's cost; times that are closer are not worth a word


@dataclass(frozen=True)
class Recommendation:
    """The numbers behind the sentence; mean average precision as a fraction.

    Candidates are the rows whose method needs neither clean labels nor label frequencies.
    """

    planned: int  # runs
    failed: int
    unfinished: int
    missing: str = ""  # why there is nothing to decide; nothing below is set then
    leader: str = ""
    score: float = 0.0  # mean over the leader's runs
    runner_up: str = ""
    lead: Difference | None = None  # over the runner-up
    level: tuple[str, ...] = ()  # candidates that cannot be told apart from the leader
    cheapest: str = ""  # of those near or level; the leader itself if nothing is clearly cheaper
    gap: Difference | None = None  # from the leader to the cheapest
    cost: float = 1.0  # of the cheapest, as a share of the leader's training time
    fastest: bool = True  # whether no candidate at all is clearly cheaper than the leader
    informed: str = ""  # a method with more information that scores higher than all candidates
    advantage: Difference | None = None  # of that over the leader

    @property
    def sentence(self) -> str:
        """For people: at most three sentences."""
        if self.missing:
            return f"There is no verdict yet: {self.missing}{self._warning('; ')}."
        said = [self._first(), self._second()]
        if self.advantage is not None:
            said.append(self._third(self.advantage) + self._warning("; "))
        elif self._warning():
            said.append(self._warning())
        return " ".join(f"{one}." for one in said)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, the sentence included."""
        return {**asdict(self), "sentence": self.sentence}

    def _first(self) -> str:
        assert self.lead is not None
        basis = f"95 % interval over {self.lead.seeds} seeds and {self.lead.images} test images"
        if self.lead.seeds == 1:
            basis = f"one seed: the 95 % interval covers the {self.lead.images} test images only"
        if self.lead.low > 0:
            return (
                f"Use {self.leader}: it leads by {_points(self.lead)} mAP over {self.runner_up}"
                f" ({basis})"
            )
        others = [label for label in self.level if label != self.runner_up]
        return (
            f"{self.leader} has the highest mAP, {self.score * 100:.1f}, but cannot be told apart"
            f" from {self.runner_up} on this data (difference {_points(self.lead)} mAP; {basis})"
            + (f", nor from {_listed(others)}" if others else "")
        )

    def _second(self) -> str:
        share = f"at {self.cost * 100:.0f} % of the cost"
        if self.cheapest == self.leader:
            if self.fastest:
                return "No other method is clearly cheaper to train"
            return f"No clearly cheaper method comes within {NEAR * 100:.1f} mAP of it"
        if self.gap is not None and self.gap.mean <= NEAR:
            return f"{self.cheapest} is within {NEAR * 100:.1f} of {self.leader} {share}"
        return (
            f"The cheapest that cannot be told apart from {self.leader} is {self.cheapest}, {share}"
        )

    def _third(self, advantage: Difference) -> str:
        by = _points(advantage)
        more = f"scores {by} more" if advantage.is_clear else f"is not clearly better ({by} mAP)"
        return (
            f"{self.informed}, which must be told the true label frequencies or the mean number of"
            f" labels per image, {more}"
        )

    def _warning(self, before: str = "") -> str:
        of = f" of {self.planned} runs"
        parts = []
        if self.failed:
            parts.append(f"{self.failed}{of} failed")
        if self.unfinished:
            is_ = "is" if self.unfinished == 1 else "are"
            parts.append(f"{self.unfinished}{'' if parts else of} {is_} not finished")
        if not parts:
            return ""
        return f"{before}{' and '.join(parts)}" + ("" if self.missing else ", so this may change")


def recommend(
    results: Results,
    role: NetworkRole = NetworkRole.DEPLOYED,
    choice: Choice = "last",
    *,
    resamples: int | None = None,
    seed: int = 0,
) -> Recommendation:
    """Compare the rows of a scenario by mean average precision and training time."""
    failed = sum(map(len, results.failed.values()))
    planned = len(results.jobs) - sum(map(len, results.unsuited.values()))
    unfinished = planned - len(results.finished) - failed
    tested = {label: _tested(results.of(label), role, choice) for label in results.labels}
    tested = {label: runs for label, runs in tested.items() if runs}
    needs = {label: outline(results.method(label)).needs for label in tested}
    candidates = [label for label in tested if not needs[label] & {"truth", "priors"}]
    missing = _missing(results, role, tested, candidates)
    if missing:
        return Recommendation(planned, failed, unfinished, missing)

    means = {label: _mean(runs, role, choice) for label, runs in tested.items()}
    informed = [
        label for label in tested if needs[label] & {"priors"} and "truth" not in needs[label]
    ]
    judged = {label: tested[label] for label in [*candidates, *informed]}
    try:
        drawn = resample(judged, role, choice, resamples=resamples, seed=seed)
    except AdagcError as error:  # the tables are worth having without a sentence
        return Recommendation(planned, failed, unfinished, str(error))
    leader = _leader(candidates, means, drawn)
    gaps = {
        label: gap
        for label in candidates
        if label != leader and (gap := drawn.difference(leader, label)) is not None
    }
    if not gaps:
        return Recommendation(
            planned, failed, unfinished, f"no method shares a seed with {leader}, the highest"
        )
    runner_up = min(gaps, key=lambda label: gaps[label].mean)
    if gaps[runner_up].high < 0:
        return Recommendation(
            planned,
            failed,
            unfinished,
            f"{leader} has the highest mAP of all, but less than {runner_up} on the seeds that both"
            " have",
        )
    cost = {
        label: (results.seconds(label) or 0.0) / (results.seconds(leader) or 1.0)
        for label in [leader, *gaps]
    }
    cheaper = [label for label in gaps if cost[label] < _CHEAPER]
    near = [label for label in cheaper if gaps[label].mean <= NEAR or not gaps[label].is_clear]
    cheapest = min(near, key=lambda label: cost[label], default=leader)
    advantages = {
        label: gap
        for label in informed
        if (gap := drawn.difference(label, leader)) is not None and gap.mean > 0
    }
    best = max(advantages, key=lambda label: advantages[label].mean, default="")
    return Recommendation(
        planned,
        failed,
        unfinished,
        leader=leader,
        score=means[leader],
        runner_up=runner_up,
        lead=gaps[runner_up],
        level=tuple(label for label in gaps if not gaps[label].is_clear),
        cheapest=cheapest,
        gap=gaps.get(cheapest),
        cost=cost[cheapest],
        fastest=not cheaper,
        informed=best,
        advantage=advantages.get(best),
    )


def _tested(runs: Sequence[Result], role: NetworkRole, choice: Choice) -> list[Result]:
    """Those that have scores of this network."""
    return [run for run in runs if run.scores(network_of(run, role) or "", choice) is not None]


def _mean(runs: Sequence[Result], role: NetworkRole, choice: Choice) -> float:
    found = [run.scores(network_of(run, role) or "", choice) for run in runs]
    return statistics.fmean(one.mean_average_precision for one in found if one is not None)


def _leader(candidates: Sequence[str], means: Mapping[str, float], drawn: Resampled) -> str:
    """The highest mean, unless another is clearly ahead where both have runs.

    With runs missing, a mean over lucky seeds is not a lead; and who is ahead of whom may go round
    in a circle, which nobody leads.
    """
    ranked = sorted(candidates, key=lambda label: -means[label])
    leader, beaten = ranked[0], {ranked[0]}
    while ahead := [
        label
        for label in ranked
        if (gap := drawn.difference(label, leader)) is not None and gap.low > 0
    ]:
        if ahead[0] in beaten:
            break
        leader = ahead[0]
        beaten.add(leader)
    return leader


def _missing(
    results: Results, role: NetworkRole, tested: Mapping[str, object], candidates: Sequence[str]
) -> str:
    """What has to be there before methods can be compared, if it is not."""
    if len(candidates) > 1:
        return ""
    if not results.finished:
        return "no run is finished"
    if not any(run.networks for run in results.finished):
        return "there are no clean labels of test images to compare the methods with"
    if not tested:
        return f"no run has a network called {called(role)!r}"
    who = f"only {candidates[0]}" if candidates else "no method"
    return f"{who} is finished of those that need neither clean labels nor label frequencies"


def _points(difference: Difference) -> str:
    mean = round(difference.mean * 100, 1) + 0.0  # no -0.0
    return f"{mean:.1f} ± {difference.half * 100:.1f}"


def _listed(labels: Sequence[str], most: int = 3) -> str:
    """Some names.

    >>> _listed(["AN", "WAN", "GR"]), _listed(["AN", "WAN", "GR", "EM", "ASL"])
    ('AN, WAN and GR', 'AN, WAN, GR and 2 others')
    """
    named = list(labels[:most])
    if len(labels) > most:
        rest = len(labels) - most
        named.append(f"{rest} other{'s' * (rest > 1)}")
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)
