"""Figures say what run folders say: artists are read back and compared with the files."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from adagc.bench.jobs import Job
from adagc.bench.results import Results, collect
from adagc.errors import MissingExtraError, UsageError
from adagc.paper import canvas
from adagc.paper.figures import FIGURES, NothingToDrawError, draw_all, draw_by_label
from adagc.paper.figures.cost import Point, front
from adagc.paper.figures.gap import gap_shares
from adagc.paper.figures.placing import place
from adagc.paper.figures.ranks import comparisons
from adagc.paper.figures.variants import TRIGGER_OPTIONS, variants
from adagc.paper.ranking import critical_difference
from adagc.training.views import VIEWS, View
from fake_results import with_told

CLASSES = ("forest", "sea", "urban")
BETA = (0.25, 0.75, 0.5)
EPOCHS = 6
DRAWN = {"labels", "trends", "smoothness", "gap", "classes", "ranks", "cost"}  # from a benchmark


def scores(accuracy: float, per_class: Sequence[float | None] | None = None) -> dict[str, Any]:
    own = list(per_class or [accuracy] * 3)
    table = dict.fromkeys(("average_precision", "precision", "recall", "f1"), own)
    names = ("coverage", "ranking_loss", "overall_accuracy", "mean_f1", "mean_precision")
    return {
        "epoch": EPOCHS,
        "mean_average_precision": accuracy,
        **dict.fromkeys((*names, "mean_recall"), 0.5),
        "per_class": {**table, "support": [4, 4, 4], "predicted": [4, 4, 4]},
    }


def history(seed: int, teacher: str, *, start: int | None = None, level: float = 0.0) -> list[Any]:
    """Numbers that tell seed, epoch, network and kind apart."""
    lines = []
    for epoch in range(1, EPOCHS + 1):
        base = level + 0.1 + 0.05 * epoch + 0.01 * seed
        noisy = {"network": base, teacher: base + 0.002}
        triggered = start if start is not None and epoch >= start else None
        lines.append(
            {
                "epoch": epoch,
                "noisy": {k: {"mean_average_precision": v} for k, v in noisy.items()},
                "oracle": {
                    "validation": {
                        k: {"mean_average_precision": v + 0.3, "mean_f1": v + 0.2}
                        for k, v in noisy.items()
                    },
                    "pseudo_labels": {
                        "mean_average_precision": base + 0.4,
                        "f1": base + 0.25,
                        "precision": 0.5,
                        "recall": 0.5,
                        "added_per_image": 1.0,
                    },
                },
                "verdict": "continue",
                "status": {"triggered_after": triggered},
            }
        )
    return lines


def write_run(
    folder: Path,
    label: str,
    method: str,
    seed: int,
    *,
    accuracy: float = 0.5,
    per_class: Sequence[float | None] | None = None,
    seconds: float = 10.0,
    scenario: str = "demo",
    options: Mapping[str, Any] | None = None,
    lines: Sequence[Any] | None = None,
    cardinality: Sequence[int] = (0, 6, 3, 1),
    flip_rates: bool = True,
) -> Job:
    folder.mkdir(parents=True)
    teacher = "teacher" if method == "AdaGC" else "averaged"
    lines = history(seed, teacher) if lines is None else lines
    tested = scores(accuracy, per_class)
    rates = {
        "beta": list(BETA), "cardinality": list(cardinality), "support": [4, 4, 4],
        "micro": 0.5, "macro": 0.5, "observed": 10, "wrong": 0,
    } if flip_rates else None  # fmt: skip
    about = {"training_seconds": seconds, "method": method, "best_epoch": {}, "epochs": EPOCHS}
    files = {
        "labels.json": {
            "classes": list(CLASSES),
            "flip_rates": rates,
            "hash": "0" * 64,
            "images": {"train": 9, "val": 9, "test": 9, "left_out": 0},
            "observed_counts": [4, 3, 3],
        },
        "model.json": {"extra": about},
        "scores.json": {
            "split": "test",
            "images": 9,
            "threshold": 0.5,
            "method": method,
            "classes": list(CLASSES),
            "networks": {"network": {"last": tested, "best": scores(accuracy + 0.01)}},
        },
    }
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))
    (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = {"method": {"title": method}, "seed": seed, "epochs": len(lines) or 1}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    job = Job(scenario, label, method, dict(options or {}), {"seed": seed}, str(folder))
    (folder / "bench.json").write_text(json.dumps(job.to_dict()))
    return job


# What the benchmark of these tests found, in per cent and by seed.
ACCURACIES = {
    "GT w/ BCE": (80.0, 82.0),
    "AN": (40.0, 42.0),
    "WAN": (50.0, 52.0),
    "EPR": (45.0, 43.0),
    "AdaGC": (60.0, 70.0),
}
SECONDS = {"GT w/ BCE": 10.0, "AN": 10.0, "WAN": 12.0, "EPR": 30.0, "AdaGC": 20.0}


def make_bench(
    root: Path,
    scenario: str = "demo",
    accuracies: Mapping[str, Sequence[float]] = ACCURACIES,
    **more: Any,
) -> Results:
    jobs = []
    for title, values in accuracies.items():
        for seed, value in enumerate(values):
            start = 3 + seed if title == "AdaGC" else None
            teacher = "teacher" if title == "AdaGC" else "averaged"
            jobs.append(
                write_run(
                    root / scenario / f"{title.replace('/', '')}-{seed}",
                    title,
                    title,
                    seed,
                    accuracy=value / 100,
                    seconds=SECONDS.get(title, 15.0),
                    scenario=scenario,
                    lines=history(seed, teacher, start=start),
                    **more,
                )
            )
    return collect(scenario, jobs)


def make_study(
    root: Path, rows: Mapping[str, tuple[Mapping[str, Any], int, float]], scenario: str = "demo"
) -> Results:
    """Rows of an ablation: label to options, epoch of the trigger and level of all curves."""
    jobs = [
        write_run(
            root / f"{scenario}-{next(iter(rows))}" / f"{number}-{seed}",
            label,
            "AdaGC",
            seed,
            scenario=scenario,
            options={"weight": 3, "trigger_epoch": None, "pseudo_labels": "dual", **options},
            lines=history(seed, "teacher", start=start, level=level),
        )
        for number, (label, (options, start, level)) in enumerate(rows.items())
        for seed in (0, 1)
    ]
    return collect(scenario, jobs)


TRIGGERS = {
    "adaptive": ({}, 4, 0.1),
    "after epoch 2": ({"trigger_epoch": 2}, 2, 0.0),
    "after epoch 3": ({"trigger_epoch": 3}, 3, 0.05),
    "λ = 5": ({"weight": 5, "trigger_epoch": 5}, 4, 0.2),  # differs in something else too
    "b_e = 5": ({}, 4, 0.1),  # was told the same as the first
}
PSEUDO_LABELS = {
    "T + S": ({}, 3, 0.1),
    "T": ({"pseudo_labels": "teacher"}, 3, 0.0),
    "S": ({"pseudo_labels": "student"}, 3, 0.05),
}


@pytest.fixture
def bench(tmp_path) -> Results:
    return make_bench(tmp_path)


def drawn(name: str, *several: Results):
    return FIGURES[name].draw(several, View())


def legend_of(made) -> list[str]:
    return [text.get_text() for legend in made.legends for text in legend.get_texts()]


def mean_of(results: Results, label: str, *keys: str) -> list[float]:
    """The mean over seeds of what histories say, in per cent, by plain loops."""
    found = []
    for epoch in range(EPOCHS):
        values = [100 * _value(one.run.history[epoch].to_dict(), keys) for one in results.of(label)]
        found.append(statistics.fmean(values))
    return found


def _value(line: Any, keys: Sequence[str]) -> float:
    for key in keys:
        line = line[key]
    return line


def lines_of(ax, *, least: int = 3) -> list[Any]:
    return [line for line in ax.get_lines() if len(line.get_xdata()) >= least]


# -- what the artists hold -------------------------------------------------------------------


def test_labels_are_shares_of_images(tmp_path):
    here = make_bench(tmp_path, "here")
    there = make_bench(tmp_path, "there", cardinality=(1, 1, 0, 2))
    same = make_bench(tmp_path, "same")
    made = drawn("labels", here, there, same)
    first, second = made.axes  # scenarios with the same images share a panel
    assert [bar.get_height() for bar in first.patches] == [60, 30, 10]
    assert [bar.get_height() for bar in second.patches] == [25, 25, 0, 50]
    assert [bar.get_x() + bar.get_width() / 2 for bar in second.patches] == [0, 1, 2, 3]
    assert first.get_title() == "(a) here, same\nmean 1.50"
    assert second.get_title() == "(b) there\nmean 1.75"


def test_trends_are_means_over_seeds(bench):
    made = drawn("trends", bench)
    (ax,) = made.axes
    keys = {
        "student, clean": ("oracle", "validation", "network"),
        "teacher, clean": ("oracle", "validation", "teacher"),
        "student, noisy": ("noisy", "network"),
        "teacher, noisy": ("noisy", "teacher"),
    }
    curves = lines_of(ax)
    assert len(curves) == 4
    for line, where in zip(curves, keys.values(), strict=True):
        expected = mean_of(bench, "AdaGC", *where, "mean_average_precision")
        np.testing.assert_allclose(line.get_ydata(), expected)
        np.testing.assert_array_equal(line.get_xdata(), range(1, EPOCHS + 1))
    marks = [line.get_xdata()[0] for line in ax.get_lines() if len(line.get_xdata()) == 2]
    assert marks == [3, 4]  # one per seed
    assert legend_of(made) == [*keys, "calibration starts"]
    band = ax.collections[0].get_paths()[0].vertices
    keys_of_seed = ("oracle", "validation", "network", "mean_average_precision")
    for seed in bench.of("AdaGC"):  # of two seeds one is the lowest, the other the highest
        value = 100 * _value(seed.run.history[2].to_dict(), keys_of_seed)
        assert [3, pytest.approx(value)] in band.tolist()


def test_smoothness_shows_every_seed(bench):
    (ax,) = drawn("smoothness", bench).axes
    curves = [line.get_ydata() for line in lines_of(ax)]
    assert len(curves) == 6  # of each network two seeds and their mean
    np.testing.assert_allclose(
        curves[2], mean_of(bench, "AN", "noisy", "network", "mean_average_precision")
    )
    for seed, shown in zip(bench.of("AN"), curves[3:5], strict=True):
        own = [line.noisy["averaged"].mean_average_precision for line in seed.run.history]
        np.testing.assert_allclose(shown, [100 * value for value in own])


def test_triggers_are_rows_that_differ_in_the_trigger_alone(tmp_path):
    study = make_study(tmp_path, TRIGGERS)
    assert variants(study, TRIGGER_OPTIONS) == list(TRIGGERS)[:3]
    made = drawn("triggers", study)
    assert legend_of(made) == list(TRIGGERS)[:3]
    for ax, metric in zip(made.axes, ("mean_average_precision", "mean_f1"), strict=True):
        for label, line in zip(list(TRIGGERS)[:3], lines_of(ax), strict=True):
            expected = mean_of(study, label, "oracle", "validation", "teacher", metric)
            np.testing.assert_allclose(line.get_ydata(), expected)
        bars = [float(line.get_xdata()[0]) for line in ax.get_lines() if len(line.get_xdata()) == 1]
        assert bars == [4, 2, 3]


def test_pseudo_labels_by_variant_and_scenario(tmp_path):
    here = make_study(tmp_path, PSEUDO_LABELS, "here")
    there = make_study(tmp_path, dict(list(PSEUDO_LABELS.items())[1:]), "there")
    made = drawn("pseudo-labels", here, there)
    assert len(made.axes) == 8
    assert legend_of(made) == list(PSEUDO_LABELS)
    quality = ("oracle", "pseudo_labels", "f1")
    for label, line in zip(PSEUDO_LABELS, lines_of(made.axes[1]), strict=True):
        np.testing.assert_allclose(line.get_ydata(), mean_of(here, label, *quality))
    below = lines_of(made.axes[5])
    np.testing.assert_allclose(below[0].get_ydata(), mean_of(there, "T", *quality))
    # A variant looks the same in both scenarios, although it is the first line in one of them.
    assert below[0].get_color() == lines_of(made.axes[1])[1].get_color()


def test_more_variants_than_a_reader_can_tell_apart(tmp_path):
    rows = {f"after epoch {at}": ({"trigger_epoch": at}, at % 6 + 1, 0.0) for at in range(8)}
    made = drawn("triggers", make_study(tmp_path, rows))
    assert len(lines_of(made.axes[0])) == 6
    assert made.legends[0].get_title().get_text() == "the first 6 of 8 variants"


def test_curves_by_any_labels(tmp_path):
    study = make_study(tmp_path, TRIGGERS)
    made = draw_by_label([(study, ["λ = 5"])])
    assert legend_of(made) == ["λ = 5"]


def test_gap_by_hand(bench):
    (ax,) = drawn("gap", bench).axes
    # The gap is 40. WAN closes 10 of it with either seed, EPR 5 and 1, AdaGC 20 and 28.
    expected = {"AdaGC": (60, 10 * 2**0.5), "WAN": (25, 0), "EPR": (7.5, 5 * 2**0.5)}
    (container,) = ax.containers
    points, _, (bars,) = container
    means = [float(x) for x in points.get_xdata()]
    np.testing.assert_allclose(means, [mean for mean, _ in expected.values()])
    lengths = [np.ptp(segment[:, 0]) for segment in bars.get_segments()]
    np.testing.assert_allclose(lengths, [2 * d for _, d in expected.values()], atol=1e-9)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["AdaGC", "WAN", "EPRᵃ"]
    (ax,) = drawn("gap", with_told(bench, "WAN", "negative_weight")).axes
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["AdaGC", "WANᵃ", "EPRᵃ"]


def test_gap_compares_equal_seeds_only(tmp_path):
    uneven = {**ACCURACIES, "AN": (40.0, 42.0, 99.0), "WAN": (50.0,)}
    (ax,) = drawn("gap", make_bench(tmp_path, accuracies=uneven)).axes
    shares = [float(x) for x in ax.containers[0][0].get_xdata()]
    np.testing.assert_allclose(shares, [60, 25, 7.5])


def test_classes_in_the_order_of_flip_rates(tmp_path):
    jobs = []
    table = {"AN": [(0.1, 0.2, 0.3), (0.3, 0.2, 0.5)], "AdaGC": [(0.5, None, 0.6), (0.7, 0.8, 0.6)]}
    for label, seeds in table.items():
        for seed, own in enumerate(seeds):
            folder = tmp_path / f"{label}{seed}"
            jobs.append(write_run(folder, label, label, seed, per_class=own))
    wide, slim = drawn("classes", collect("demo", jobs)).axes
    assert [tick.get_text() for tick in wide.get_yticklabels()] == ["sea", "urban", "forest"]
    assert [bar.get_width() for bar in slim.patches] == [75, 50, 25]
    low, ours = (line.get_xdata() for line in wide.get_lines())
    np.testing.assert_allclose(low, [20, 40, 20])
    np.testing.assert_allclose(ours, [80, 60, 60])  # a class that one test lacks: the others' mean


def test_ranks_over_scenarios_and_seeds(tmp_path):
    here = make_bench(tmp_path, "here")
    there = make_bench(tmp_path, "there", {**ACCURACIES, "EM": (70.0, 80.0), "AN": (99.0, 42.0)})
    blocks = comparisons([here, there], View())
    assert blocks.methods == ("AN", "WAN", "EPR", "AdaGC")  # no bound, none of one scenario only
    assert blocks.conditions == (("here", 0), ("here", 1), ("there", 0), ("there", 1))
    np.testing.assert_allclose(blocks.scores[2], [99, 50, 45, 60])
    assert blocks.left_out == ("EM",)
    made = drawn("ranks", here, there)
    texts = {text.get_text() for text in made.axes[0].texts}
    # AN is last, last, first, last; AdaGC first, first, second, first.
    assert {"AdaGC  1.25", "WAN  2.25", "3.25  AN", "3.25  EPRᵃ"} <= texts
    told = drawn("ranks", here, with_told(there, "WAN", "negative_weight")).axes[0].texts
    assert "WANᵃ  2.25" in {text.get_text() for text in told}
    assert f"critical difference = {critical_difference(4, 4):.2f}" in texts
    note = next(text for text in texts if "Friedman" in text)
    assert "4 blocks" in note
    assert "indicative only" in note
    assert "EM" in note


def test_enough_blocks_need_no_warning(tmp_path):
    several = [make_bench(tmp_path, f"scenario {i}") for i in range(3)]
    note = next(t.get_text() for t in drawn("ranks", *several).axes[0].texts if "block" in str(t))
    assert "6 blocks" in note
    assert "indicative" not in note


def test_what_never_ran_does_not_take_part_in_ranks(tmp_path, bench):
    planned = [
        Job(scenario, "EM", "EM", {}, {"seed": 0}, str(tmp_path / scenario / "missing"))
        for scenario in ("demo", "another")
    ]
    more = collect("demo", [*bench.jobs, planned[0]])
    blocks = comparisons([collect("another", planned[1:]), more], View())
    assert (len(blocks.conditions), len(blocks.methods), blocks.left_out) == (2, 4, ())


def test_variants_of_an_ablation_are_not_ranked(tmp_path):
    blocks = comparisons([make_bench(tmp_path), make_study(tmp_path, TRIGGERS)], View())
    assert set(blocks.methods) == set(ACCURACIES) - {"GT w/ BCE"}


def test_cost_is_relative_to_an(bench):
    (ax,) = drawn("cost", bench).axes
    assert ax.get_xscale() == "log"
    named = {text.get_text(): text.xy for text in ax.texts}
    assert named.keys() == ACCURACIES.keys()
    for title, (x, y) in named.items():
        assert x == pytest.approx(SECONDS[title] / 10)
        assert y == pytest.approx(statistics.fmean(ACCURACIES[title]))
    line = next(line for line in ax.get_lines() if line.get_drawstyle() == "steps-post")
    np.testing.assert_allclose(line.get_ydata(), [41, 51, 65])  # AN, WAN, AdaGC; EPR is dominated


def test_cost_is_cpu_time_where_it_is_known(bench):
    """The clock and the processor may disagree about which method is cheaper."""
    assert "time of training relative to AN" in drawn("cost", bench).axes[0].get_xlabel()
    cpu = {"AN": 4.0, "WAN": 2.0, "EPR": 2.0, "AdaGC": 8.0, "GT w/ BCE": 4.0}
    for job in bench.jobs:
        path = Path(job.folder) / "model.json"
        made = json.loads(path.read_text())
        made["extra"]["cpu_seconds"] = cpu[job.method]
        path.write_text(json.dumps(made))
    (ax,) = drawn("cost", collect("demo", bench.jobs)).axes
    assert ax.get_xlabel() == "CPU time of training relative to AN"
    named = {text.get_text(): text.xy[0] for text in ax.texts}
    assert named == pytest.approx({title: used / 4 for title, used in cpu.items()})


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6), st.booleans()), min_size=1, max_size=8)
)
def test_front_is_what_nothing_beats(values):
    points = [
        Point(str(i), float(cost), float(accuracy), 0.0, bound=bound, told=False)
        for i, (cost, accuracy, bound) in enumerate(values)
    ]
    rivals = [point for point in points if not point.bound]
    beaten = {
        one.name
        for one in rivals
        for other in rivals
        if other.cost <= one.cost
        and other.accuracy >= one.accuracy
        and (other.cost, other.accuracy) != (one.cost, one.accuracy)
    }
    best = {(point.cost, point.accuracy) for point in rivals if point.name not in beaten}
    assert [(point.cost, point.accuracy) for point in front(points)] == sorted(best)


# -- labels beside points --------------------------------------------------------------------


def overlap(a: Sequence[float], b: Sequence[float], slack: float = 0.0) -> bool:
    """Whether two boxes (left, bottom, right, top) share more than `slack` in both directions."""
    wide = min(a[2], b[2]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[1], b[1])
    return wide > slack and high > slack


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(60, 340), st.integers(60, 240)), min_size=1, max_size=10, unique=True
    ),
    st.lists(st.integers(8, 50), min_size=10, max_size=10),
)
def test_labels_do_not_touch(points, widths):
    where = np.array(points, float)
    sizes = np.array([[width, 8.0] for width in widths[: len(points)]])
    centres = place(where, sizes, (0, 0, 400, 300))
    boxes = np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1).tolist()
    for a, b in itertools.combinations(boxes, 2):
        assert not overlap(a, b)
    for left, bottom, right, top in boxes:
        assert left >= 0
        assert bottom >= 0
        assert right <= 400
        assert top <= 300
    np.testing.assert_array_equal(centres, place(where, sizes, (0, 0, 400, 300)))


def test_a_lonely_label_stands_to_the_right():
    (centre,) = place(np.array([[50.0, 50.0]]), np.array([[20.0, 8.0]]), (0, 0, 100, 100))
    assert centre.tolist() == [63, 50]


def test_a_label_leaves_a_line_in_sight():
    line = np.stack([np.linspace(50, 100, 40), np.full(40, 50.0)], axis=1)
    size = np.array([[20.0, 8.0]])
    (centre,) = place(np.array([[50.0, 50.0]]), size, (0, 0, 100, 100), line)
    assert abs(centre[1] - 50) >= 4


# -- all of them -----------------------------------------------------------------------------


def everything(root: Path) -> list[Results]:
    """Many methods in two scenarios, and both ablations."""
    titles = ("GT w/ BCE", "IUN", "AN", "AN-LS", "WAN", "EPR", "ELR", "LL-R", "LL-Ct", "LL-Cp",
              "BoostLU + LL-Ct", "Dist-PU", "ROLE", "GR", "LAC", "MIME", "AdaGC")  # fmt: skip
    rng = np.random.default_rng(4)
    return [
        *(
            make_bench(root, name, {t: rng.uniform(40, 50, 2).tolist() for t in titles})
            for name in ("reben-random", "reben-dominant")
        ),
        make_study(root, TRIGGERS, "reben-random"),
        make_study(root, PSEUDO_LABELS, "reben-random"),
    ]


def texts_of(made) -> list[Any]:
    """All that is written in a figure, ticks out of sight left out."""
    found = [text for text in made.texts if text.get_text()]
    found += [text for legend in made.legends for text in legend.get_texts()]
    for ax in made.axes:
        found += [*ax.texts, ax.title]
        if not ax.axison:
            continue
        for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
            ticks = axis.get_major_ticks()
            found += [t.label1 for t in ticks if min(low, high) <= t.get_loc() <= max(low, high)]
            found.append(axis.label)
    return [text for text in found if text.get_text().strip()]


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_is_clipped_or_overlaps(tmp_path, name):
    several = everything(tmp_path)
    if name == "pseudo-labels":
        several = several[-1:]
    made = drawn(name, *several)
    with matplotlib.rc_context(canvas._STYLE):
        made.draw_without_rendering()  # gives everything its place
    width, height = made.bbox.width, made.bbox.height
    boxes = {}
    for text in texts_of(made):
        box = text.get_window_extent().extents.tolist()
        boxes[f"{text.get_text()!r} at {box}"] = box
        assert box[0] >= -1, f"{text.get_text()!r} is cut off on the left"
        assert box[1] >= -1, f"{text.get_text()!r} is cut off at the bottom"
        assert box[2] <= width + 1, f"{text.get_text()!r} is cut off on the right"
        assert box[3] <= height + 1, f"{text.get_text()!r} is cut off at the top"
    for (one, a), (other, b) in itertools.combinations(boxes.items(), 2):
        assert not overlap(a, b, slack=1.0), f"{one} overlaps {other}"


def test_lines_differ_in_more_than_colour(bench):
    (ax,) = drawn("trends", bench).axes
    curves = lines_of(ax)
    assert len({line.get_marker() for line in curves}) == 4
    assert len({str(line.get_linestyle()) + str(line._dash_pattern) for line in curves}) == 4


def test_the_house_style_is_used(bench):
    made = drawn("trends", bench)
    assert {text.get_fontsize() for text in made.legends[0].get_texts()} == {7}
    assert lines_of(made.axes[0])[0].get_linewidth() == 1.3


@pytest.fixture
def quick(monkeypatch) -> None:
    """Empty files instead of rendered ones, where only the names of files matter."""

    def touch(made, stem: Path) -> tuple[Path, Path]:
        paths = (stem.with_suffix(".pdf"), stem.with_suffix(".png"))
        for path in paths:
            path.parent.mkdir(exist_ok=True)
            path.touch()
        return paths

    monkeypatch.setattr("adagc.paper.figures.save", touch)


def test_the_same_data_gives_the_same_files(tmp_path, bench):
    only = {"trends", "classes", "ranks", "cost"}  # bands, shared axes, plain text, placed names
    first, second = (
        draw_all([bench], tmp_path / name, only, view=View()) for name in ("one", "two")
    )
    for name in only:
        pdf, png = first[name]
        assert pdf == tmp_path / "one" / f"{name}.pdf"
        assert pdf.read_bytes().startswith(b"%PDF")
        assert png.read_bytes().startswith(b"\x89PNG")
        for one, two in zip(first[name], second[name], strict=True):
            assert one.read_bytes() == two.read_bytes(), one


@pytest.mark.usefixtures("quick")
def test_draw_all_draws_what_it_can_and_says_why_not(tmp_path, bench):
    out = tmp_path / "figures"
    found = draw_all([bench], out, None, view=View())
    assert list(found) == list(FIGURES)
    assert {name for name, result in found.items() if not isinstance(result, str)} == DRAWN
    for name in FIGURES.keys() - DRAWN:
        assert "\n" not in found[name]
        assert "adagc ablate SCENARIO --studies" in found[name]
    assert sorted(path.stem for path in out.glob("*.pdf")) == sorted(DRAWN)


def test_nothing_finished_gives_only_reasons(tmp_path):
    job = Job("demo", "AN", "AN", {}, {"seed": 0}, str(tmp_path / "missing"))
    found = draw_all([collect("demo", [job])], tmp_path / "out")
    assert all(isinstance(reason, str) and "\n" not in reason for reason in found.values())
    assert not (tmp_path / "out").exists()
    assert draw_all([], tmp_path / "out") == found


def without(name: str) -> Callable[[Path], Results]:
    return lambda root: make_bench(
        root, accuracies={title: own for title, own in ACCURACIES.items() if title != name}
    )


@pytest.mark.parametrize(
    ("name", "make", "reason"),
    [
        ("labels", lambda root: make_bench(root, flip_rates=False), "clean labels"),
        ("classes", lambda root: make_bench(root, flip_rates=False), "flip rates"),
        ("trends", without("AdaGC"), "no finished run of AdaGC"),
        ("smoothness", without("AN"), "no finished run of AN"),
        ("gap", without("GT w/ BCE"), "GT w/ BCE"),
        ("gap", lambda root: make_bench(root, accuracies={**ACCURACIES, "AN": (90, 90)}), "above"),
        ("cost", without("AN"), "of AN and of another"),
        ("ranks", lambda root: make_bench(root, accuracies={"AN": (4, 5), "GT w/ BCE": (6, 7)}),
         "1 method"),
        ("ranks", lambda root: make_bench(root, accuracies={"AN": (4,), "WAN": (6,)}), "in 1 scen"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(tmp_path, name, make, reason):
    results = make(tmp_path)
    with pytest.raises(NothingToDrawError, match=reason) as caught:
        drawn(name, results)
    assert "\n" not in str(caught.value)


def test_without_an_averaged_copy_there_is_nothing_to_compare(tmp_path):
    lines = history(0, "averaged")
    for line in lines:
        del line["noisy"]["averaged"]
    job = write_run(tmp_path / "an", "AN", "AN", 0, lines=lines)
    with pytest.raises(NothingToDrawError, match="--average"):
        drawn("smoothness", collect("demo", [job]))


def test_scenarios_without_the_runs_get_no_panel(tmp_path):
    made = drawn("trends", without("AdaGC")(tmp_path / "a"), make_bench(tmp_path, "there"))
    assert [ax.get_title() for ax in made.axes] == ["there"]


@pytest.mark.usefixtures("quick")
def test_a_damaged_folder_spoils_only_its_figures(tmp_path, bench):
    line = '{"noisy": {"teacher": {"mean_average_precision": 0.5}}}\n'  # of which epoch?
    bench.of("AdaGC")[0].run.path("history.jsonl").write_text(line)
    bench.of("AN")[0].run.path("history.jsonl").write_text("{broken\n")
    bench.finished[0].run.path("labels.json").write_text("{")
    found = draw_all([bench], tmp_path / "out", view=View())
    for name in ("trends", "smoothness", "labels", "classes"):
        assert isinstance(found[name], str), name
        assert "\n" not in found[name]
    assert {name for name in found if not isinstance(found[name], str)} >= {"gap", "ranks", "cost"}


@pytest.mark.parametrize("name", ["gap", "classes", "ranks", "cost"])
def test_figures_of_test_scores_say_their_view(bench, name):
    for view in (View(), VIEWS["network-best"]):
        made = FIGURES[name].draw([bench], view)
        said = " ".join(" ".join(text.get_text().split()) for text in texts_of(made))
        assert view.networks in said


def test_gaps_compare_like_with_like(tmp_path):
    """AN's average is nearly as good as AdaGC's teacher, but not its trained network."""
    jobs = []
    for title, trained, averaged in (("AN", 40, 58), ("AdaGC", 60, 60), ("GT w/ BCE", 80, 78)):
        folder = tmp_path / title.replace("/", "")
        jobs.append(write_run(folder, title, title, 0, accuracy=trained / 100))
        record = json.loads((folder / "scores.json").read_text())
        name = "teacher" if title == "AdaGC" else "averaged"
        record["networks"][name] = {"last": scores(averaged / 100)}
        (folder / "scores.json").write_text(json.dumps(record))
    results = collect("demo", jobs)
    found = {name: gap_shares(results, view) for name, view in VIEWS.items()}
    assert found["network-last"]["AdaGC"].mean == pytest.approx(50)
    assert found["averaged-last"]["AdaGC"].mean == pytest.approx(10)
    assert found["averaged-best"] == {}


def test_another_network_or_epoch_can_be_read(bench):
    best = FIGURES["cost"].draw([bench], VIEWS["network-best"]).axes[0]
    assert {text.get_text(): text.xy[1] for text in best.texts}["AN"] == pytest.approx(42)
    with pytest.raises(NothingToDrawError):
        FIGURES["cost"].draw([bench], VIEWS["averaged-last"])


@pytest.mark.usefixtures("quick")
def test_only_some(tmp_path, bench):
    assert list(draw_all([bench], tmp_path, {"gap", "labels"}, view=View())) == ["labels", "gap"]
    with pytest.raises(UsageError, match="did you mean 'trends'"):
        draw_all([bench], tmp_path, {"trend"})


def test_every_figure_says_what_it_is():
    for name, drawing in FIGURES.items():
        assert drawing.about, name
        assert "\n" not in drawing.about


def test_without_matplotlib_the_remedy_is_named(tmp_path, bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'adagc\[bench\]'"):
        draw_all([bench], tmp_path)


def test_importing_is_light():
    code = (
        "import sys, adagc.paper.figures;"
        "print([m for m in ('torch', 'matplotlib', 'scipy') if m in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
