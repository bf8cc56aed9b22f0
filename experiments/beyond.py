"""What docs/results/beyond.md says of methods that go beyond the paper."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import cache

import thresholds
from lines import RECORDS, read
from records import HEADINGS, Pack
from words import error, one

from adagc.compare.bootstrap import Resampled, resample
from adagc.compare.comparison import Comparison
from adagc.compare.intervals import Difference
from adagc.compare.words import signed
from adagc.methods import outlines
from adagc.metrics import METRICS
from adagc.training.views import VIEWS

FOLDER, ESTIMATED = "beyond", "beyond-estimated"  # packs; the other with --priors estimated
# By pack: the words for its data, and what Auto should gain over WAN in mAP.
DATA = {
    "aid-features-tuned": ("AID, frozen features", 3),
    "ucm-features-tuned": ("UC Merced, frozen features", 2),
    "mosaic-features-random": ("mosaics, random labels", 3),
    "mosaic-features-dominant": ("mosaics, dominant labels", 3),
    "demo-random": ("synthetic scenes, random labels", 3),
    "demo-dominant": ("synthetic scenes, dominant labels", 3),
}
BEST, LAST = "averaged-best", "averaged-last"
# Packs whose thresholds were recorded, by the name of the record.
THRESHOLDS = {"aid-features-tuned": "aid", "ucm-features-tuned": "ucm", "demo-random": "demo"}
MARKS = {"told": " ᵃ", "estimated": " ᵉ", "none": ""}


def view_of(row: str) -> str:
    """What is shown of a row: the average at the epoch that noisy validation chooses.

    Auto chooses an epoch itself, and this is what it deploys after the last one.
    """
    return LAST if row == "Auto" else BEST


@cache
def of(name: str, folder: str = FOLDER) -> Pack:
    """The confirmation runs of a scenario."""
    return Pack(f"{folder}/{name}")


def there(folder: str, name: str) -> bool:
    """Whether there are results of a scenario in a folder of packs."""
    return (RECORDS / folder / name / "pack.json").exists()


def known() -> list[str]:
    """The scenarios that were confirmed."""
    return [name for name in DATA if there(FOLDER, name)]


@cache
def difference(runs: Pack, row: str, other: str) -> Difference:
    """What a row gains over another in mAP, each as it is shown: one planned comparison."""
    results = runs.results
    first, second = (
        resample({label: results.of(label)}, VIEWS[view_of(label)], resamples=500, seed=0)
        for label in (row, other)
    )
    # Both draw the same images: the draws depend on the seed and on how many images there are.
    drawn = Resampled(
        first.images, {**first.plain, **second.plain}, {**first.drawn, **second.drawn}
    )
    found = Comparison(drawn, [row, other]).difference(row, other)
    assert found is not None, "both were run with the same seeds"
    return found


def gain(name: str, row: str = "Auto", other: str = "WAN", folder: str = FOLDER) -> str:
    """The difference of two rows in mAP with its 95 % interval: "+1.5 ± 0.7"."""
    return signed(difference(of(name, folder), row, other))


def shown(runs: Pack, row: str, metric: str = "mAP") -> float:
    """The mean score of a row, as it is shown."""
    return runs.mean(row, metric, view_of(row))


def both(runs: Pack, row: str) -> str:
    """The mAP and mF1 of a row: "68.7 / 62.8"."""
    return f"{one(shown(runs, row))} / {one(shown(runs, row, 'mF1'))}"


def closed(runs: Pack, row: str) -> float:
    """Share of the gap from AN to GT in mAP that a row closes, in per cent."""
    own, low, high = (shown(runs, label) for label in (row, "AN", "GT w/ BCE"))
    return 100 * (own - low) / (high - low)


def table() -> str:
    """Auto against averaged WAN at the epoch that noisy validation chooses, on all data."""
    lines = [
        "| | WAN | AdaGC | Auto | Auto over WAN | wanted | of the gap AN to GT: AdaGC | Auto |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name in known():
        words, wanted = DATA[name]
        runs = of(name)
        scores = [both(runs, row) for row in ("WAN", "AdaGC", "Auto")]
        shares = [f"{closed(runs, row):.0f} %" for row in ("AdaGC", "Auto")]
        cells = (words, *scores, gain(name), f"+{wanted}", *shares)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def rows(names: Sequence[str]) -> dict[str, dict[str, Pack]]:
    """By row and scenario the pack that has it; told, estimated and none are rows apart."""
    found: dict[str, dict[str, Pack]] = {}
    for folder in (FOLDER, ESTIMATED):
        for name in (name for name in names if there(folder, name)):
            runs = of(name, folder)
            for label in runs.results.labels:
                knows = runs.results.knows(label)
                found.setdefault(label + MARKS[knows], {}).setdefault(name, runs)
    order = [*outlines()]
    return dict(sorted(found.items(), key=lambda item: order.index(item[0].rstrip(" ᵃᵉ"))))


def every(metric: str = "mAP") -> str:
    """All methods of the confirmation on all data, each as it is shown."""
    names = known()
    lines = [
        f"| | {' | '.join(DATA[name][0] for name in names)} |",
        f"|---|{'---:|' * len(names)}",
    ]
    for row, packs in rows(names).items():
        label = row.rstrip(" ᵃᵉ")
        cells = [one(shown(packs[name], label, metric)) if name in packs else "" for name in names]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def rivals(name: str) -> list[tuple[str, float]]:
    """Rows that get nothing but observed labels, best mAP first."""
    found = [
        (row, shown(packs[name], row.rstrip(" ᵉ")))
        for row, packs in rows([name]).items()
        if not packs[name].results.given(row.rstrip(" ᵉ")) & {"truth", "priors"}
    ]
    return sorted(found, key=lambda item: -item[1])


# -- thresholds ----------------------------------------------------------------------------------


def learnt(name: str, row: str, rule: str) -> dict[int, float]:
    """mF1 of a row by seed, as it is shown, at the thresholds of a rule."""
    return {
        line["seed"]: line["scores"][view_of(row)][rule][thresholds.METRICS.index("mF1")]
        for line in thresholds.lines(development=False)
        if line["data"] == THRESHOLDS[name] and line["method"] == row
    }


def limits() -> str:
    """mF1 of WAN, AdaGC and Auto at one half and at thresholds that were learnt."""
    compared = ("WAN", "AdaGC", "Auto")
    names = [
        name
        for name in THRESHOLDS
        if name in known() and all(learnt(name, row, "half") for row in compared)
    ]
    lines = [
        "| | WAN | AdaGC | Auto | Auto over WAN, both at learnt thresholds | Auto at learnt ones"
        " over WAN at one half |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in names:
        cells = [
            " / ".join(
                one(statistics.fmean(learnt(name, row, rule).values()))
                for rule in ("half", thresholds.DEFAULT)
            )
            for row in compared
        ]
        for rule in (thresholds.DEFAULT, "half"):
            own, base = learnt(name, "Auto", thresholds.DEFAULT), learnt(name, "WAN", rule)
            gaps = [own[seed] - base[seed] for seed in own]
            cells.append(error(gaps))
        lines.append(f"| {DATA[name][0]} | {' | '.join(cells)} |")
    return "\n".join(lines)


# -- Auto -----------------------------------------------------------------------------------------


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


# -- controls -------------------------------------------------------------------------------------


def control(name: str, title: str) -> float | None:
    """The mAP of a method with the class maps of likelihood methods: experiments/controls.py."""
    metric = METRICS[HEADINGS["mAP"]]
    values = [
        metric.scale * line["scores"][BEST][metric.key]
        for line in read(RECORDS / "beyond-controls.jsonl")
        if line["scenario"] == name and line["method"] == f"{title}, any position"
    ]
    return statistics.fmean(values) if values else None


def controls() -> str:
    """What Auto gains over WAN, in part by its last layer."""
    lines = [
        "| | WAN | WAN, any position | Auto | GT | GT, any position |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in known():
        runs, wan, gt = of(name), control(name, "WAN"), control(name, "GT w/ BCE")
        if wan is None:
            continue
        values = (shown(runs, "WAN"), wan, shown(runs, "Auto"), shown(runs, "GT w/ BCE"), gt)
        cells = ["" if value is None else one(value) for value in values]
        lines.append(f"| {DATA[name][0]} | {' | '.join(cells)} |")
    return "\n".join(lines)


# -- the trial of annotators -----------------------------------------------------------------------

TRIAL = "beyond-trial"
_WORDS = {"cover": "land cover", "random": "any class present"}


def taken(name: str, folder: str = FOLDER) -> str:
    """What the trials of Auto's runs have taken: "land cover in 4 of 5 runs"."""
    records = [run.run.shortlist for run in of(name, folder).results.of("Auto")]
    found = [record.taken for record in records if record is not None]
    most = max(sorted(set(found)), key=found.count)
    return f"{_WORDS[most]} in {found.count(most)} of {len(found)} runs"


def trial_gain(metric: str) -> list[str]:
    """On AID's maps of 5 x 5, by seed: what trying gains over land cover without a trial."""
    lines = read(RECORDS / TRIAL / "aid-maps.jsonl")
    by = {(line["seed"], line["annotator"]): line[metric] for line in lines}
    seeds = sorted({seed for seed, _ in by})
    return [f"{by[seed, 'tried'] - by[seed, 'cover']:+.1f}" for seed in seeds]


def single(folder: str) -> str:
    """The mAP of Auto on AID's whole network with the one seed that has a trial."""
    (value,) = of("aid-random", folder).per_seed("Auto", view=view_of("Auto")).values()
    return one(value)


def before_trial() -> str:
    """The same seed without a trial, for land cover."""
    (seed,) = of("aid-random", TRIAL).per_seed("Auto", view=view_of("Auto"))
    return one(of("aid-random", "beyond-end").per_seed("Auto", view=view_of("Auto"))[seed])


def cost_of_whole() -> str:
    """CPU time of Auto's whole networks on UC Merced relative to AN's, on seeds that both have."""
    results = of("ucm-random", "beyond-end").results
    spent = {
        label: {run.seed: run.cpu_seconds or run.seconds for run in results.of(label)}
        for label in ("Auto", "AN")
    }
    # The first seed of AN was run at another time, when the machine was free.
    seeds = [seed for seed in sorted(spent["Auto"].keys() & spent["AN"].keys()) if seed > 0]
    own, base = (sum(spent[label][seed] for seed in seeds) for label in ("Auto", "AN"))
    return f"{own / base:.2f}"
