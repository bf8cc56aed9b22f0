from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from adagc.errors import AdagcError, UsageError
from adagc.methods.assume_negative import AssumeNegative
from adagc.methods.label_correlation import LabelCorrelation
from adagc.text import correlation, shipped
from adagc.types import Losses, Task
from conftest import FixedLogits, make_batch, make_progress
from reference import slow_label_correlation as slow

Z = [[0.5, -1.0, 2.0], [-0.3, 0.8, -2.0]]
Y = [[1, 0, 0], [0, 1, 0]]
# Two classes of a kind and one of another: 0 and 1 are tied to each other alone.
PAIR = [[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]


def make_task(y, text) -> Task:
    observed = torch.tensor(y, dtype=torch.int8)
    classes = tuple(f"class {i}" for i in range(observed.shape[1]))
    values = None if text is None else torch.as_tensor(text)
    return Task(classes, observed, 4, 1, 0, text=values)


def run(
    method: LabelCorrelation, z=Z, y=Y, text=PAIR, *, half: bool = False
) -> tuple[Losses, Tensor]:
    """Loss and gradient (times BC) of a batch that is the whole training set."""
    task = make_task(y, text)
    values = torch.tensor(z, dtype=torch.float32 if half else torch.float64)
    network = FixedLogits(values, half=half)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method.setup(network, task)
    found = method.loss(network, make_batch(torch.zeros(len(z), 1), task), make_progress())
    found.total.backward()
    return found, network.logits.grad * values.numel()


def test_values_that_can_be_done_by_hand():
    # S = [[0, 1, 0], [1, 0, 0], [0, 0, 0]], so the sum is 2 (p_0 - p_1)² for each image.
    p = torch.tensor(Z, dtype=torch.float64).sigmoid()
    smoothing = 2 * (p[:, 0] - p[:, 1]).square().sum().item() / 6
    found, _ = run(LabelCorrelation())
    assert found.parts["assume_negative"].item() == pytest.approx(0.661108, abs=5e-7)
    assert found.parts["smoothing"].item() == pytest.approx(smoothing, rel=1e-6)
    assert smoothing == pytest.approx(0.064964, abs=5e-7)
    assert found.total.item() == pytest.approx(0.661108 + 0.1 * 0.064964, abs=1e-6)


def test_targets_by_hand():
    method = LabelCorrelation(form="targets", share=0.3)
    found, gradient = run(method)
    y = torch.tensor([[1, 0.3, 0], [0.3, 1, 0]], dtype=torch.float64)
    p = torch.tensor(Z, dtype=torch.float64).sigmoid()
    torch.testing.assert_close(gradient, p - y, rtol=0, atol=1e-6)
    assert found.total.item() == pytest.approx(
        torch.nn.functional.binary_cross_entropy(p, y).item(), rel=1e-6
    )


@st.composite
def problems(draw):
    rows, columns, width = (draw(st.integers(1, n)) for n in (3, 5, 4))
    number = st.floats(-3, 3)
    z = [[draw(st.floats(-30, 30)) for _ in range(columns)] for _ in range(rows)]
    y = [[draw(st.sampled_from((-1, 0, 0, 1))) for _ in range(columns)] for _ in range(rows)]
    e = [[round(draw(number), 2) + 10 for _ in range(width)] for _ in range(columns)]
    return z, y, e


def well_posed(e) -> bool:
    """No vector is the mean itself and no two are at a right angle: there rounding decides."""
    centred = np.array(e) - np.mean(e, axis=0)
    length = np.linalg.norm(centred, axis=1)
    if (length < 1e-3).any():
        return False
    cosine = (centred / length[:, None]) @ (centred / length[:, None]).T
    return bool((np.abs(cosine) > 1e-4).all())


@settings(max_examples=60, deadline=None)
@given(problems(), st.sampled_from((0.01, 0.1, 1.0)), st.sampled_from((0.1, 0.5, 1.0)))
def test_both_forms_agree_with_their_slow_twins(problem, weight, share):
    z, y, e = problem
    assume(well_posed(e))
    s = slow.correlation(e)
    np.testing.assert_allclose(correlation(e), s, rtol=1e-7, atol=1e-9)
    text = torch.tensor(e, dtype=torch.float64)
    found, gradient = run(LabelCorrelation(weight=weight), z, y, text)
    assert found.total.item() == pytest.approx(slow.smoothed_loss(z, y, s, weight), rel=1e-5)
    assert gradient.isfinite().all()
    found, _ = run(LabelCorrelation(form="targets", share=share), z, y, text)
    assert found.total.item() == pytest.approx(slow.handed_on_loss(z, y, s, share), rel=1e-5)


# -- the matrix ------------------------------------------------------------------------------


def test_the_matrix_is_what_was_decided():
    s = correlation(np.random.default_rng(0).normal(size=(8, 5)))
    assert (s >= 0).all()
    assert (np.diag(s) == 0).all()
    np.testing.assert_allclose(s.sum(axis=1), 1)
    lonely = correlation(PAIR)
    np.testing.assert_allclose(lonely, [[0, 1, 0], [1, 0, 0], [0, 0, 0]], atol=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        np.eye(4),  # everybody is equally unlike everybody
        np.full((4, 3), 0.1),  # all the same: nothing to tell classes apart
        [[1.0, 2.0], [3.0, -1.0]],  # two classes always lie on two sides of their mean
        [[0.3, 0.7]],
        np.zeros((3, 2)),
    ],
    ids=["orthogonal", "identical", "two classes", "one class", "zeros"],
)
def test_names_that_say_nothing_make_it_an_with_a_warning(text):
    assert not correlation(text).any()
    y = [[1, *[0] * (len(text) - 1)]]
    z = [[0.3] * len(text)]
    network, task = FixedLogits(torch.tensor(z)), make_task(y, np.asarray(text))
    method, plain = LabelCorrelation(weight=1.0), AssumeNegative()
    with pytest.warns(UserWarning, match="LCR is AN"):
        method.setup(network, task)
    batch = make_batch(torch.zeros(1, 1), task)
    found = method.loss(network, batch, make_progress())
    torch.testing.assert_close(found.total, plain.loss(network, batch, make_progress()).total)


def test_trap_raw_cosines_are_almost_constant():
    """A large part that all names share must not tie every class to every other."""
    rng = np.random.default_rng(1)
    own = rng.normal(size=(12, 16))
    together = own + 30 * rng.normal(size=16)  # all names in one sentence
    unit = together / np.linalg.norm(together, axis=1, keepdims=True)
    raw = unit @ unit.T
    np.fill_diagonal(raw, 0)
    raw /= raw.sum(axis=1, keepdims=True)
    others = ~np.eye(12, dtype=bool)
    assert raw[others].std() / raw[others].mean() < 0.01  # what would have been used
    s = correlation(together)
    assert s[others].std() / s[others].mean() > 0.8
    np.testing.assert_allclose(s, correlation(own), atol=1e-9)  # the shared part is gone


def test_trap_with_real_names():
    """Cosines of the shipped embeddings are all above 0.3; the matrix is selective all the same."""
    classes = (
        "airplane", "bare-soil", "buildings", "cars", "chaparral", "court", "dock", "field",
        "grass", "pavement", "sand", "sea", "ship", "tanks", "trees", "water",
    )  # fmt: skip
    text = shipped(classes)
    others = ~np.eye(len(classes), dtype=bool)
    raw = (text @ text.T)[others]
    assert raw.min() > 0.3
    assert raw.std() / raw.mean() < 0.2
    s = correlation(text)
    assert 0.2 < (s[others] > 0).mean() < 0.6
    assert s[others].std() / s[others].mean() > 1

    def nearest(name: str) -> str:
        return classes[int(s[classes.index(name)].argmax())]

    assert nearest("water") == "sea"
    assert nearest("dock") == "ship"
    assert nearest("trees") == "grass"


# -- the method ------------------------------------------------------------------------------


def test_smoothing_draws_related_classes_together_and_leaves_others_alone():
    plain, without = run(LabelCorrelation(weight=0.0))
    found, gradient = run(LabelCorrelation(weight=1.0))
    assert found.total > plain.total
    pull = gradient - without
    p = torch.tensor(Z, dtype=torch.float64).sigmoid()
    higher = p[:, 0] > p[:, 1]
    assert torch.equal(pull[:, 0] > 0, higher)  # the higher of the two goes down
    assert torch.equal(pull[:, 1] < 0, higher)  # the lower one up
    assert (pull[:, 2] == 0).all()


def test_without_weight_it_is_an_to_the_bit():
    observed = torch.tensor(Y, dtype=torch.int8)
    network = FixedLogits(torch.tensor(Z))
    task = make_task(Y, PAIR)
    method = LabelCorrelation(weight=0.0)
    method.setup(network, task)
    batch = make_batch(torch.zeros(2, 1), task)
    plain = AssumeNegative().loss(network, batch, make_progress())
    assert torch.equal(method.loss(network, batch, make_progress()).total, plain.total)
    assert torch.equal(batch.observed, observed)


def test_a_known_absence_is_a_full_negative_and_is_handed_nothing():
    absent = [[1, -1, 0], [0, 1, -1]]
    found, _ = run(LabelCorrelation(), y=absent)
    torch.testing.assert_close(found.total, run(LabelCorrelation())[0].total)
    _, gradient = run(LabelCorrelation(form="targets", share=1.0), y=absent)
    p = torch.tensor(Z, dtype=torch.float64).sigmoid()
    assert gradient[0, 1].item() == pytest.approx(p[0, 1].item(), rel=1e-6)  # target 0
    assert gradient[1, 0].item() == pytest.approx(p[1, 0].item() - 1, rel=1e-6)  # handed on


def test_targets_never_leave_zero_to_one():
    rng = np.random.default_rng(2)
    text = rng.normal(size=(6, 3))
    y = np.ones((4, 6), dtype=int)
    y[:, 0] = 0
    method = LabelCorrelation(form="targets", share=1.0)
    run(method, np.zeros((4, 6)).tolist(), y.tolist(), text)
    targets = method._targets(make_batch(torch.zeros(4, 1), make_task(y.tolist(), text)))
    assert targets.min() >= 0
    assert targets.max() <= 1
    columns = correlation(text)[1:].sum(axis=0)
    assert targets[0, 0].item() == pytest.approx(min(1.0, columns[0]), rel=1e-5)


@pytest.mark.parametrize("form", ["smoothing", "targets"])
@pytest.mark.parametrize(
    ("z", "y"),
    [
        ([[60.0, -60.0, 60.0], [-60.0, 60.0, -60.0]], Y),
        (Z, [[0, 0, 0], [0, 0, 0]]),
        (Z, [[-1, -1, -1], [-1, -1, -1]]),
        (Z, [[1, 1, 1], [1, 1, 1]]),
        (Z[:1], Y[:1]),
    ],
    ids=["extreme", "nothing observed", "all absent", "all positive", "batch of one"],
)
@pytest.mark.parametrize("half", [False, True])
def test_hard_batches_stay_finite(form, z, y, half):
    found, gradient = run(LabelCorrelation(form=form, weight=1.0), z, y, half=half)
    assert found.total.isfinite()
    assert gradient.isfinite().all()
    assert all(part.dtype != torch.float16 for part in found.parts.values())


def test_mixed_precision_does_not_round_the_sums():
    text = shipped(("sea", "water", "ship", "dock"))
    z, y = [[1.0, 1.01, -2.0, 0.3]], [[1, 0, 0, 0]]
    for form in ("smoothing", "targets"):
        method = LabelCorrelation(form=form, weight=1.0)
        wanted, _ = run(method, z, y, text)
        with torch.autocast("cpu", torch.bfloat16):
            found, _ = run(LabelCorrelation(form=form, weight=1.0), z, y, text)
        torch.testing.assert_close(found.total, wanted.total, rtol=1e-6, atol=0)


def test_the_matrix_travels_with_the_checkpoint():
    method, other = LabelCorrelation(), LabelCorrelation()
    run(method)
    run(other, text=[[0.0, 1.0], [1.0, 0.0], [1.0, 0.1]])
    assert not torch.equal(method.correlation, other.correlation)
    other.load_state_dict(method.state_dict())
    assert torch.equal(method.correlation, other.correlation)
    assert method.correlation.dtype == torch.float32


def test_refusals_are_one_line():
    network = FixedLogits(torch.tensor(Z))
    with pytest.raises(AdagcError, match="LCR needs text"):
        LabelCorrelation().setup(network, make_task(Y, None))
    with pytest.raises(AdagcError, match="2 embeddings for 3 classes"):
        LabelCorrelation().setup(network, make_task(Y, PAIR[:2]))
    with pytest.raises(UsageError, match=r"--method\.weight must be at least 0"):
        LabelCorrelation(weight=-1).setup(network, make_task(Y, PAIR))
    with pytest.raises(UsageError, match=r"--method\.share"):
        LabelCorrelation(share=1.5).setup(network, make_task(Y, PAIR))
