"""Recommend a method: which one leads on this data, by how much, and which one is cheaper."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from adagc.bench.results import Result, Results
from adagc.compare import words
from adagc.compare.bootstrap import resample
from adagc.compare.comparison import Comparison
from adagc.compare.intervals import Difference
from adagc.errors import AdagcError
from adagc.methods import outline
from adagc.training.views import DEFAULT, View

_CHEAPER = 0.95  # a method is clearly cheaper if it takes less than this share of the time


@dataclass(frozen=True)
class Recommendation:
    """The result of a comparison: numbers, and the sentence made from them.

    Mean average precision is given as a fraction. Candidates are the rows whose runs were given
    neither clean labels nor true label frequencies; an estimate may be recommended.
    """

    view: View  # which network of every run was compared, after which epoch
    planned: int  # number of runs
    failed: int  # number of runs
    unfinished: int  # number of runs
    missing: str = ""  # why nothing can be compared; the fields below are not set then
    leader: str = ""  # the candidate that is ahead
    score: float = 0.0  # mean over the leader's runs
    highest: bool = True  # whether no candidate has a higher mean over its own runs
    # The candidate with the smallest difference from the leader: of those that cannot be told apart
    # from it, if there are any, because these stand against a recommendation.
    runner_up: str = ""
    lead: Difference | None = None  # leader minus runner-up
    level: tuple[str, ...] = ()  # candidates that cannot be told apart from the leader
    compared: int = 0  # number of candidates, with the leader
    # The clearly cheaper candidate with the lowest cost among those that are within words.NEAR of
    # the leader or cannot be told apart from it; the leader itself if there is none.
    cheapest: str = ""
    gap: Difference | None = None  # leader minus cheapest
    cost: float = 1.0  # cost of the cheapest, as a share of the leader's
    clock: str = "time"  # what the cost is: "CPU time", or "time" on the clock where not known
    fastest: bool = True  # whether no candidate is clearly cheaper than the leader
    informed: str = ""  # a method that is told label frequencies and scores above the leader
    advantage: Difference | None = None  # informed minus leader
    # Of the rows that the sentence names, those that are given estimated label frequencies.
    estimating: tuple[str, ...] = ()
    without: tuple[str, ...] = ()  # finished rows that have no such network
    apart: tuple[str, ...] = ()  # candidates that share no seed with the others
    # By row, then by baseline: what the leader and the proposed method gain over the baselines.
    gains: Mapping[str, Mapping[str, Difference]] = field(default_factory=dict)

    @property
    def recommended(self) -> str:
        """The method to use; empty if the runs do not show that one is the best."""
        lead = self.lead
        sure = lead is not None and lead.rests_on_seeds and lead.low > 0
        return self.leader if sure else ""

    @property
    def sentence(self) -> str:
        """The recommendation in words, a few sentences."""
        return words.sentence(self)

    @property
    def notes(self) -> tuple[str, ...]:
        """The gains in words, one line per row."""
        return tuple(words.gains(label, own, self.view) for label, own in self.gains.items())

    def to_dict(self) -> dict[str, Any]:
        """All fields and the sentence, ready for `json.dumps`."""
        return {
            **asdict(self),
            "view": self.view.name,
            "recommended": self.recommended,
            "sentence": self.sentence,
        }


def recommend(
    results: Results, view: View = DEFAULT, *, resamples: int | None = None, seed: int = 0
) -> Recommendation:
    """Compare the rows of a scenario by mean average precision and cost.

    Args:
        results: The results of all runs of the scenario.
        view: Which network of every run is compared, after which epoch.
        resamples: Number of resamples of the test images; see `resample` for the default.
        seed: Seed of the random draws.
    """
    failed = sum(map(len, results.failed.values()))
    planned = len(results.jobs) - sum(map(len, results.unsuited.values()))
    counts: Any = {
        "view": view,
        "planned": planned,
        "failed": failed,
        "unfinished": planned - len(results.finished) - failed,
    }
    tested = {label: _tested(results.of(label), view) for label in results.labels}
    tested = {label: runs for label, runs in tested.items() if runs}
    needs = {label: results.given(label) for label in tested}
    candidates = [label for label in tested if not needs[label] & {"truth", "priors"}]
    missing = _missing(results, view, tested, candidates)
    if missing:
        return Recommendation(**counts, missing=missing)

    informed = [
        label for label in tested if needs[label] & {"priors"} and "truth" not in needs[label]
    ]
    judged = {label: tested[label] for label in [*candidates, *informed]}
    try:
        drawn = resample(judged, view, resamples=resamples, seed=seed)
    except AdagcError as error:  # the tables are still useful without a recommendation
        return Recommendation(**counts, missing=str(error))
    comparison = Comparison(drawn, candidates)
    leader, gaps = comparison.leader, comparison.gaps
    if not gaps:
        return Recommendation(**counts, missing="no two methods have a run with the same seed")
    level = tuple(label for label in gaps if not gaps[label].is_clear)
    # With one seed nothing is recommended anyway, and the next in the table is of interest.
    rivals = level if level and comparison.covers_seeds else gaps
    runner_up = min(rivals, key=lambda label: gaps[label].mean)
    means = {label: _mean(runs, view) for label, runs in tested.items()}
    cost = {
        label: (results.cost(label) or 0.0) / (results.cost(leader) or 1.0)
        for label in [leader, *gaps]
    }
    cheaper = [label for label in gaps if cost[label] < _CHEAPER]
    near = [
        label for label in cheaper if gaps[label].mean <= words.NEAR or not gaps[label].is_clear
    ]
    cheapest = min(near, key=lambda label: cost[label], default=leader)
    advantages = {
        label: gap
        for label in informed
        if (gap := comparison.difference(label, leader, len(informed))) is not None and gap.mean > 0
    }
    best = max(advantages, key=lambda label: advantages[label].mean, default="")
    return Recommendation(
        **counts,
        leader=leader,
        score=means[leader],
        highest=means[leader] >= max(means[label] for label in candidates),
        runner_up=runner_up,
        lead=gaps[runner_up],
        level=level,
        compared=1 + len(gaps),
        cheapest=cheapest,
        gap=gaps.get(cheapest),
        cost=cost[cheapest],
        clock=results.clock,
        fastest=not cheaper,
        informed=best,
        advantage=advantages.get(best),
        without=tuple(
            label
            for label in results.labels
            if label not in tested and any(run.networks for run in results.of(label))
        ),
        estimating=tuple(
            label
            for label in dict.fromkeys([leader, runner_up, cheapest])
            if "estimate" in needs[label]
        ),
        apart=comparison.apart,
        gains=_gains(results, comparison, candidates),
    )


def _gains(
    results: Results, comparison: Comparison, candidates: Sequence[str]
) -> dict[str, Mapping[str, Difference]]:
    """What the leader and the proposed method gain over the simplest baselines.

    These are baselines that need nothing but observed labels and have no option to tune.
    """
    methods = {label: outline(results.method(label)) for label in candidates}
    simple = [
        label
        for label, method in methods.items()
        if method.family == "Baseline methods" and not method.grid
    ]
    shown = [label for label, method in methods.items() if method.family == "Proposed"]
    gains = {
        label: comparison.gains(label, simple)
        for label in dict.fromkeys([comparison.leader, *shown])
        if label not in simple
    }
    return {label: own for label, own in gains.items() if own}


def _tested(runs: Sequence[Result], view: View) -> list[Result]:
    """The runs that have test scores in this view."""
    return [run for run in runs if view.scores(run.networks) is not None]


def _mean(runs: Sequence[Result], view: View) -> float:
    """Mean over runs of the mean average precision."""
    scores = [view.scores(run.networks) for run in runs]
    return statistics.fmean(one.mean_average_precision for one in scores if one is not None)


def _missing(
    results: Results, view: View, tested: Mapping[str, object], candidates: Sequence[str]
) -> str:
    """Why methods cannot be compared; empty if they can."""
    if len(candidates) > 1:
        return ""
    if not results.finished:
        return "no run is finished"
    if not any(run.networks for run in results.finished):
        return "there are no clean labels of test images to compare the methods with"
    if not tested:
        return f"no run has test scores of its {view.network}: choose another view with --judge"
    who = f"only {candidates[0]}" if candidates else "none"
    state = f"has an {view.network}" if view.word == "averaged" else "is finished"
    return (
        f"of the methods that need neither clean labels nor true label frequencies, {who} {state}"
    )
