"""Review: which questions, which images first, what answers become, where evidence lies."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from adagc.completion.completed import Completed
from adagc.errors import DataError, LabelFileError, UsageError
from adagc.images.array import ArrayScenes
from adagc.labels import LabelTable, read_labels, write_labels
from adagc.metrics.shares import clustered, wilson
from adagc.models import HeadSpec, ModelSpec, build
from adagc.review.answers import Answer, conflicts, precision, reviewed
from adagc.review.evidence import evidence, evidence_maps, overlay
from adagc.review.order import ORDERS, entropy, ranked, suggested
from adagc.review.suggest import accept, suggestions


@st.composite
def beliefs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n, c = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    generator = np.random.default_rng(draw(st.integers(0, 1000)))
    presence = generator.random((n, c)).round(2)
    return presence, generator.integers(-1, 2, (n, c)).astype(np.int8)


def made_of(presence: np.ndarray, observed: np.ndarray) -> Completed:
    n, c = presence.shape
    return Completed(
        method="Auto",
        classes=tuple(f"c{i}" for i in range(c)),
        images=tuple(f"i{i}" for i in range(n)),
        parts=("train",) * n,
        samples=("held-out",) * n,
        probability=presence.astype(np.float32),
        presence=presence,
        observed=observed,
        decision=np.zeros((n, c), dtype=np.int8),
        rule="",
    )


# -- questions and order -------------------------------------------------------------------------


@given(beliefs(), st.floats(0, 1), st.integers(1, 4))
@settings(max_examples=50, deadline=None)
def test_questions_are_the_most_probable_open_ones(given_, least, most):
    presence, observed = given_
    asked = suggested(presence, observed, least=least, most=most)
    for row in range(len(presence)):
        able = [c for c in range(presence.shape[1]) if observed[row, c] == 0]
        able = [c for c in able if presence[row, c] >= least]
        assert asked[row].sum() == min(most, len(able))
        for c in np.flatnonzero(asked[row]):
            assert c in able
            assert all(asked[row, o] or presence[row, o] <= presence[row, c] for o in able)


@pytest.mark.parametrize("order", ORDERS)
@given(beliefs())
@settings(max_examples=25, deadline=None)
def test_every_order_has_each_image_with_a_question_once(order, given_):
    presence, observed = given_
    asked = suggested(presence, observed, least=0.3)
    rows = ranked(presence, asked, observed, order=order)
    assert sorted(rows.tolist()) == np.flatnonzero(asked.any(axis=1)).tolist()
    some = ranked(presence, asked, observed, order=order, count=2)
    assert some.tolist() == rows[:2].tolist()
    assert rows.tolist() == ranked(presence, asked, observed, order=order).tolist()


def test_orders_do_what_they_say():
    presence = np.array([[0.9, 0.9], [0.5, 0.4], [0.95, 0.05], [0.6, 0.02]])
    observed = np.zeros((4, 2), dtype=np.int8)
    asked = suggested(presence, observed, least=0.03)
    likely = ranked(presence, asked, observed, order="likely")
    assert likely.tolist() == [0, 2, 1, 3]  # 1.8, 1.0, 0.9, 0.6
    uncertain = ranked(presence, asked, observed, order="uncertain")
    bits = [entropy(np.array(one)).sum() for one in ([0.9, 0.9], [0.5, 0.4], [0.95, 0.05], [0.6])]
    assert uncertain.tolist() == np.argsort(bits)[::-1].tolist()
    orders = {tuple(ranked(presence, asked, observed, order="random", seed=s)) for s in range(20)}
    assert len(orders) > 5
    with pytest.raises(UsageError, match="informative, likely"):
        ranked(presence, asked, observed, order="best")


def test_the_informative_order_is_greedy_on_its_sum():
    generator = np.random.default_rng(0)
    presence = generator.random((12, 4))
    observed = (generator.random((12, 4)) < 0.2).astype(np.int8)
    asked = suggested(presence, observed, least=0.1)
    rows = ranked(presence, asked, observed, order="informative").tolist()
    bits = np.where(asked, entropy(presence), 0)
    known = (observed > 0).sum(axis=0) + 1.0

    def worth(chosen):
        return sum(math.sqrt(known[c] + sum(bits[i, c] for i in chosen)) for c in range(4))

    for step in range(6):
        best = max(
            (r for r in rows if r not in rows[:step]), key=lambda r: worth([*rows[:step], r])
        )
        assert worth([*rows[:step], best]) == pytest.approx(worth(rows[: step + 1]))


def test_the_informative_order_asks_about_rare_classes_first():
    presence = np.array([[0.5, 0.0]] * 20 + [[0.0, 0.5]] * 20)
    observed = np.zeros((60, 2), dtype=np.int8)
    observed[40:, 0] = 1  # the first class was observed twenty times
    presence = np.vstack([presence, np.zeros((20, 2))])
    asked = suggested(presence, observed)
    rows = ranked(presence, asked, observed, order="informative", count=10)
    assert (rows >= 20).all()


# -- suggestions, blind mode ---------------------------------------------------------------------


def test_suggestions_say_what_is_known_and_what_to_ask():
    presence = np.array([[0.99, 0.7, 0.3, 0.1], [0.2, 0.99, 0.25, 0.6]])
    observed = np.array([[1, 0, 0, 0], [0, 1, -1, 0]], dtype=np.int8)
    found = {one.image: one for one in suggestions("", completed=made_of(presence, observed))}
    assert found["i0"].marked == ("c0",)
    assert [(q.label, q.probability) for q in found["i0"].questions] == [("c1", 0.7), ("c2", 0.3)]
    assert [q.label for q in found["i1"].questions] == ["c3", "c0"]
    answers = accept(found.values(), 0.6)
    assert {(a.image, a.label, a.value) for a in answers} == {("i0", "c1", 1), ("i1", "c3", 1)}


@pytest.mark.parametrize("wrong", [{"blind": 1}, {"least": 2}, {"most": 0}])
def test_suggestions_that_make_no_sense(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        suggestions("no run is opened", **wrong)


def test_blind_mode_measures_precision_and_the_base_rate():
    generator = np.random.default_rng(1)
    truth = generator.random((600, 8)) < 0.3
    presence = np.clip(0.6 * truth + 0.5 * generator.random((600, 8)), 0, 0.99)
    observed = np.zeros((600, 8), dtype=np.int8)
    made = made_of(presence, observed)
    plain = suggestions("", completed=made, least=0.4, order="random")
    blind = suggestions("", completed=made, least=0.4, order="random", blind=0.3, seed=1)
    assert not any(q.blind for one in plain for q in one.questions)
    drawn = [q.blind for one in blind for q in one.questions]
    assert np.mean(drawn) == pytest.approx(0.3, abs=0.05)
    answers = []
    for one in blind:
        names = [q.label for q in one.questions]
        assert len(names) == len(set(names))
        row = made.images.index(one.image)
        answers += [
            Answer(one.image, q.label, 1 if truth[row, int(q.label[1:])] else -1, q.blind)
            for q in one.questions
        ]
    right = [
        truth[made.images.index(o.image), int(q.label[1:])] for o in plain for q in o.questions
    ]
    found = precision(answers)
    assert found.suggested.low < np.mean(right) < found.suggested.high
    # Images with more questions have more random ones.
    rows = [made.images.index(one.image) for one in plain for _ in one.questions]
    assert found.random.low < truth[rows].mean() < found.random.high
    assert found.suggested.count + found.random.count == len(answers)
    assert "drawn at random" in found.sentence


def test_answers_of_one_image_tell_less_than_those_of_many():
    alike = np.array([4, 0, 4, 0, 4, 0, 4, 0, 4, 0])
    apart = np.full(10, 2)
    counts = np.full(10, 4)
    assert clustered(apart, counts) == wilson(20, 40)
    wide = clustered(alike, counts)
    assert wide.value == 0.5
    assert wide.high - wide.low > 1.7 * (wilson(20, 40).high - wilson(20, 40).low)
    skipped = precision([Answer("a", "x", 0), Answer("a", "y", 1), Answer("a", "y", -1)])
    assert (skipped.skipped, skipped.suggested.count, skipped.suggested.value) == (1, 1, 0)
    assert "nobody knows" in skipped.sentence


# -- answers -------------------------------------------------------------------------------------


def test_answers_are_added_and_labels_stay(tmp_path):
    table = LabelTable(
        ("a", "b"), ("x", "y", "z"), np.array([[1, 0, 0], [0, 1, 0]], np.int8), "single"
    )
    answers = [
        Answer("a", "y", 1),
        Answer("a", "z", -1),
        Answer("b", "x", 1),
        Answer("b", "x", -1),  # changed their mind
        Answer("b", "z", 0),
        Answer("new", "z", 1),
        Answer("b", "y", -1),  # contradicts the label, which stays
    ]
    found = reviewed(table, answers)
    assert found.images == ("a", "b", "new")
    assert found.values.tolist() == [[1, 1, -1], [-1, 1, 0], [0, 0, 1]]
    assert found.kind == "multi"
    assert conflicts(table, answers) == [answers[-1]]
    write_labels(found, tmp_path / "out.csv")
    assert np.array_equal(read_labels(tmp_path / "out.csv").values, found.values)
    with pytest.raises(LabelFileError, match="'w'"):
        reviewed(table, [Answer("a", "w", 1)])
    with pytest.raises(UsageError, match="give 1"):
        reviewed(table, [Answer("a", "x", 2)])


# -- evidence ------------------------------------------------------------------------------------


def network(kind: str, *, backbone: str = "linear", channels: int = 4, side: int = 5):
    head = HeadSpec() if kind == "linear" else HeadSpec(kind)
    shape = (channels, side, side)
    bands = tuple(f"b{i}" for i in range(channels))
    spec = ModelSpec(backbone, shape, ("x", "y"), bands, hidden=8, head=head)
    return build(spec, seed=0)


@pytest.fixture
def scene() -> ArrayScenes:
    values = np.random.default_rng(0).normal(0, 0.1, (2, 4, 5, 5)).astype(np.float32)
    values[1, 2, 1, 3] = 5.0  # one position shows a lot of the third channel
    return ArrayScenes(values)


@pytest.mark.parametrize("kind", ["linear", "class-map", "any-position", "areas"])
def test_evidence_is_where_the_class_is(kind, scene):
    made = network(kind)
    layer = made.head if kind in ("linear", "class-map") else made.head.layer
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[1, 2] = 3.0
    found = evidence(made, scene, 1, "y")
    assert found.shape == (5, 5)
    assert found.max() == 1
    assert np.unravel_index(found.argmax(), found.shape) == (1, 3)
    assert found.min() >= 0
    others = np.delete(found.ravel(), 8)
    assert others.max() < 0.6


def test_a_pooled_linear_layer_has_class_activation_maps(scene):
    made = network("linear")
    values = torch.from_numpy(scene.gather(np.array([1])))
    plain = torch.einsum("d,dhw->hw", made.head.weight[0], values[0]).detach().numpy().clip(0)
    assert np.allclose(evidence(made, scene, 1, "x"), plain / plain.max(), atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "backbone"), [("label-wise", "linear"), ("bottleneck", "linear"), ("linear", "mlp")]
)
def test_other_heads_have_evidence_too(kind, backbone, scene):
    made = network(kind, backbone=backbone).train()
    modes = []
    for each in made.modules():
        each.register_forward_pre_hook(lambda part, _: modes.append(part.training))
    found = evidence(made, scene, 1, "x")
    assert set(modes) == {False}, "without dropout, and with the statistics of training"
    assert found.shape == (5, 5)
    assert 0 <= found.min() <= found.max() <= 1
    assert made.training
    assert all(p.grad is None for p in made.parameters())


def test_maps_that_were_pooled_before_training_have_evidence(scene):
    spec = ModelSpec("linear", (4,), ("x", "y"), ())
    made = build(spec, seed=0, mean=[0.1, 0, 0, 0], std=[1, 1, 2, 1])
    with torch.no_grad():
        made.head.weight.zero_()
        made.head.weight[0, 2] = 1.0
    found = evidence(made, scene, 1, "x")
    assert np.unravel_index(found.argmax(), found.shape) == (1, 3)
    wide = ArrayScenes(np.zeros((1, 9, 5, 5), np.float32))
    with pytest.raises(DataError, match="9 bands"):
        evidence(made, wide, 0, "x")


def test_evidence_of_an_image_network():
    spec = ModelSpec("resnet10t", (3, 64, 64), ("x", "y"), ("red", "green", "blue"))
    images = ArrayScenes(np.random.default_rng(0).integers(0, 255, (1, 3, 64, 64), dtype=np.uint8))
    found = evidence(build(spec, seed=0, mean=[127.0] * 3, std=[60.0] * 3), images, 0, "x")
    assert found.shape == (2, 2)
    assert 0 <= found.min() <= found.max() <= 1


def test_what_has_no_evidence_says_why(scene):
    made = network("linear")
    with pytest.raises(DataError, match="without positions"):
        evidence(made, ArrayScenes(np.zeros((2, 4), np.float32)), 0, "x")
    with pytest.raises(UsageError, match="no class 'z'"):
        evidence(made, scene, 0, "z")
    with torch.no_grad():
        made.head.weight.zero_()
    assert not evidence(made, scene, 0, "x").any()


@pytest.mark.parametrize("kind", ["linear", "class-map", "areas", "label-wise"])
def test_several_maps_at_once_are_those_of_each_class_alone(kind, scene):
    made = network(kind)
    found = evidence_maps(made, scene, 1, ("y", "x"))
    for label, together in zip(("y", "x"), found, strict=True):
        np.testing.assert_allclose(together, evidence(made, scene, 1, label), atol=1e-6)


def test_a_class_that_nothing_speaks_for_shows_where_least_speaks_against_it(scene):
    made = network("linear")
    values = torch.from_numpy(scene.gather(np.array([1])))[0]
    with torch.no_grad():
        made.head.weight.zero_()
        made.head.weight[0, 2] = -1.0
        made.normalise.mean[:] = -10  # so that all positions are above it, and speak against it
    assert not evidence(made, scene, 1, "x").any()
    (found,) = evidence_maps(made, scene, 1, ("x",), least=True)
    assert found.max() == pytest.approx(0.5)
    assert found[1, 3] == 0
    assert np.unravel_index(found.argmax(), (5, 5)) == np.unravel_index(
        int(values[2].argmin()), (5, 5)
    )
    flat = ArrayScenes(np.full((1, 4, 5, 5), 0.3, np.float32))
    assert not evidence_maps(made, flat, 0, ("x",), least=True).any()


def test_the_overlay_is_the_picture_with_light_on_it():
    images = ArrayScenes(np.full((1, 3, 40, 60), 40, np.uint8))
    found = np.zeros((2, 3), np.float32)
    found[0, 0] = 1
    shown = np.asarray(Image.open(io.BytesIO(overlay(images, 0, found))))
    assert shown.shape == (40, 60, 3)
    assert shown[0, 0, 0] > 180
    assert shown[0, 0, 1] < 40
    assert (shown[-1, -1] == 40).all()
