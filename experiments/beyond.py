"""What docs/results/beyond.md says of methods that go beyond the paper."""

from __future__ import annotations

import statistics
from functools import cache

from lines import RECORDS, read
from records import HEADINGS, Pack
from words import one

from adagc.compare.bootstrap import resample
from adagc.compare.comparison import Comparison
from adagc.compare.words import signed
from adagc.metrics import METRICS
from adagc.training.views import VIEWS

FOLDER = "beyond"
# By pack: the words for its data, and what Auto should gain over WAN in mAP.
DATA = {
    "aid-features-tuned": ("AID, frozen features", 3),
    "ucm-features-tuned": ("UC Merced, frozen features", 2),
    "mosaic-features-random": ("mosaics, random labels", 3),
    "mosaic-features-dominant": ("mosaics, dominant labels", 3),
    "demo-random": ("synthetic scenes, random labels", 3),
    "demo-dominant": ("synthetic scenes, dominant labels", 3),
}
BEST = "averaged-best"


@cache
def of(name: str) -> Pack:
    """The confirmation runs of a scenario."""
    return Pack(f"{FOLDER}/{name}")


def known() -> list[str]:
    """The scenarios that were confirmed."""
    return [name for name in DATA if (RECORDS / FOLDER / name / "pack.json").exists()]


@cache
def gain(name: str, row: str = "Auto", other: str = "WAN", view: str = BEST) -> str:
    """What a row gains over another in mAP, with the 95 % interval of this one comparison."""
    results = of(name).results
    judged = {label: results.of(label) for label in (row, other)}
    drawn = resample(judged, VIEWS[view], resamples=500, seed=0)
    found = Comparison(drawn, [row, other]).difference(row, other)
    assert found is not None, "both were run with the same seeds"
    return signed(found)


def table() -> str:
    """Auto against averaged WAN at the epoch that noisy validation chooses, on all data."""
    lines = [
        "| | WAN | AdaGC | Auto | Auto over WAN | wanted | of the gap AN to GT: AdaGC | Auto |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name in known():
        words, wanted = DATA[name]
        runs = of(name)
        scores = [
            f"{one(runs.mean(row, view=BEST))} / {one(runs.mean(row, 'mF1', BEST))}"
            for row in ("WAN", "AdaGC", "Auto")
        ]
        shares = [f"{runs.closed(row, BEST):.0f} %" for row in ("AdaGC", "Auto")]
        cells = (words, *scores, gain(name), f"+{wanted}", *shares)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def every(metric: str = "mAP") -> str:
    """All methods of the confirmation on all data, averages at the chosen epoch."""
    names = known()
    rows = dict.fromkeys(label for name in names for label in of(name).results.labels)
    lines = [
        f"| | {' | '.join(DATA[name][0] for name in names)} |",
        f"|---|{'---:|' * len(names)}",
    ]
    for row in rows:
        cells = [
            one(of(name).mean(row, metric, BEST)) if row in of(name).results.labels else ""
            for name in names
        ]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def stages(name: str) -> list[tuple[int, int, int | None]]:
    """Of Auto's runs: the seed, the epoch that was kept, and the one after which came stage 2."""
    found = []
    for run in of(name).results.of("Auto"):
        status = run.run.history[-1].status
        found.append((run.seed, status["kept_epoch"], status["completed_after"]))
    return found


def completed(name: str) -> str:
    """In how many of Auto's runs an epoch after completion was kept: "4 of 5"."""
    kept = [after is not None and epoch > after for _, epoch, after in stages(name)]
    return f"{sum(kept)} of {len(kept)}"


def cost(name: str, row: str = "Auto", other: str = "AN") -> str:
    """CPU time of whole runs of a row relative to another's."""
    own, base = (
        statistics.fmean(run.cpu_seconds or run.seconds for run in of(name).results.of(label))
        for label in (row, other)
    )
    return f"{own / base:.2f}"


def control(name: str, metric: str = "mAP") -> float:
    """WAN with the class maps of likelihood methods: experiments/controls.py."""
    metrics = METRICS[HEADINGS[metric]]
    values = [
        metrics.scale * line["scores"][BEST][metrics.key]
        for line in read(RECORDS / "beyond-controls.jsonl")
        if line["scenario"] == name
    ]
    return statistics.fmean(values)


def controls() -> str:
    """What Auto gains over WAN, in part by its last layer."""
    lines = ["| | WAN | WAN, any position | Auto |", "|---|---:|---:|---:|"]
    there = {line["scenario"] for line in read(RECORDS / "beyond-controls.jsonl")}
    for name in (name for name in known() if name in there):
        values = (of(name).mean("WAN", view=BEST), control(name), of(name).mean("Auto", view=BEST))
        lines.append(f"| {DATA[name][0]} | {' | '.join(map(one, values))} |")
    return "\n".join(lines)
