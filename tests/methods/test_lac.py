from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from adagc import losses
from adagc.errors import UsageError
from adagc.methods.lac import LAC, PairMemory, pseudo_labels, supervised_contrast
from adagc.models import HeadSpec, ModelSpec, build
from adagc.models.label_wise import LabelWiseHead
from adagc.types import Task
from conftest import make_batch, make_progress, make_task
from reference import slow_lac as slow

Z = [[0.5, -1.0, 2.0], [-0.3, 0.8, -2.0]]
Y = [[1, 0, 0], [0, 1, 0]]
WIDTH = 5


class FirstNumber(nn.Module):
    """A head whose logits are the first number of every embedding."""

    def logits(self, embeddings: Tensor) -> Tensor:
        return embeddings[..., 0]


class TwoViews(nn.Module):
    """Answers with one parameter for the batch as it is and with another for any other view."""

    def __init__(self, weak: Tensor, strong: Tensor, images: Tensor) -> None:
        super().__init__()
        self.weak, self.strong = nn.Parameter(weak.clone()), nn.Parameter(strong.clone())
        self.images = images
        self.head = FirstNumber()

    def label_embeddings(self, images: Tensor) -> Tensor:
        return self.weak if torch.equal(images, self.images) else self.strong


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def views(rows: int, columns: int, seed: int = 0) -> TwoViews:
    """A fake whose logits are moderate and whose two views are alike but not the same."""
    weak = 2 * random(rows, columns, WIDTH, seed=seed)
    strong = weak + 0.3 * random(rows, columns, WIDTH, seed=seed + 1)
    return TwoViews(weak, strong, random(rows, 3, seed=seed))


def ready(task: Task, **options) -> LAC:
    method = LAC(width=WIDTH, projection=4, **options)
    method.setup(nn.Identity(), task)
    return method


def single(rows: int, columns: int) -> Tensor:
    observed = torch.zeros(rows, columns, dtype=torch.int8)
    observed[torch.arange(rows), torch.arange(rows) % columns] = 1
    return observed


# -- pseudo-labels ---------------------------------------------------------------------------


def test_golden_mask_and_targets():
    targets, sure = pseudo_labels(torch.tensor(Z), torch.tensor(Y), 0.6)
    assert sure.tolist() == [[1, 1, 1], [0, 1, 1]]
    assert targets.tolist() == [[1, 0, 1], [0, 1, 0]]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.floats(-40, 40), st.integers(-1, 1)), min_size=2, max_size=2),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([0.5, 0.6, 0.9, 1.0]),
)
def test_what_was_seen_passes_and_the_rest_agrees_with_the_slow_twin(entries, tau):
    z = [[value for value, _ in row] for row in entries]
    y = [[known for _, known in row] for row in entries]
    observed = torch.tensor(y)
    targets, sure = pseudo_labels(torch.tensor(z, dtype=torch.float64), observed, tau)
    wanted, mask = slow.pseudo_labels(z, y, tau)
    assert targets.tolist() == wanted
    assert sure.tolist() == mask
    assert targets[observed == 1].eq(1).all()
    assert targets[observed == -1].eq(0).all()
    assert sure[observed != 0].eq(1).all()


# -- the contrastive loss --------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 3), max_size=7), st.sampled_from([0.1, 0.5, 2.0]), st.integers(0, 99)
)
def test_contrast_agrees_with_its_slow_twin(labels, temperature, seed):
    vectors = nn.functional.normalize(random(len(labels), 3, seed=seed).double(), dim=1)
    vectors.requires_grad_()
    found = supervised_contrast(vectors, torch.tensor(labels, dtype=torch.int64), temperature)
    wanted = slow.contrast(vectors.tolist(), labels, temperature)
    assert found.item() == pytest.approx(wanted, abs=1e-9)
    found.backward()
    assert vectors.grad.isfinite().all()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 3), max_size=7), st.lists(st.integers(0, 3), max_size=7),
    st.integers(0, 99),
)  # fmt: skip
def test_what_is_kept_counts_like_what_is_fresh_but_is_left_as_it_is(fresh, kept, seed):
    labels = torch.tensor([*fresh, *kept], dtype=torch.int64)
    whole = nn.functional.normalize(random(len(labels), 3, seed=seed).double(), dim=1)
    parts = whole[: len(fresh)].clone().requires_grad_(), whole[len(fresh) :].clone()
    whole.requires_grad_()
    wanted = supervised_contrast(whole, labels, 0.5)
    among = (parts[1] @ parts[1].T / 0.5).fill_diagonal_(-math.inf).logsumexp(dim=1)
    found = supervised_contrast(
        parts[0], labels[: len(fresh)], 0.5, (parts[1], labels[len(fresh) :], among)
    )
    assert found.item() == pytest.approx(wanted.item(), abs=1e-12)
    found.backward()
    wanted.backward()
    torch.testing.assert_close(parts[0].grad, whole.grad[: len(fresh)])


def test_contrast_by_hand():
    # Two equal vectors of one class and one opposite of another: log(1 + e^(-2/T)) for the pair,
    # nothing for the anchor without its like.
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    found = supervised_contrast(vectors, torch.tensor([5, 5, 2]), 0.5)
    assert found.item() == pytest.approx(2 / 3 * math.log(1 + math.exp(-4)), abs=1e-6)


def test_contrast_brings_like_together_and_parts_the_rest():
    vectors = nn.Parameter(random(12, 4))
    labels = torch.arange(12) % 3
    for _ in range(200):
        loss = supervised_contrast(nn.functional.normalize(vectors, dim=1), labels, 0.5)
        (gradient,) = torch.autograd.grad(loss, vectors)
        vectors.data -= 0.5 * gradient
    e = nn.functional.normalize(vectors.detach(), dim=1)
    similarity = e @ e.T
    same = labels[:, None] == labels
    assert similarity[same].min() > 0.9
    assert similarity[~same].max() < 0.0


# -- the ring --------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=8), st.integers(0, 99))
def test_the_ring_holds_the_last_pairs_whatever_their_number(counts, seed):
    memory, wanted = PairMemory(7, 2, 0.5), slow.Memory(7)
    for number, count in enumerate(counts):
        fresh = nn.functional.normalize(random(count, 2, 2, seed=100 * seed + number), dim=2)
        labels = torch.arange(count) + seed
        stay, found, _ = memory.exchange(fresh, labels)
        wanted.write(fresh.tolist(), labels.tolist())
        known = [*zip(found.tolist(), stay.tolist(), strict=True)]
        news = [*zip(labels.tolist(), fresh.tolist(), strict=True)]
        assert sorted(known + news) == wanted.contents()
        assert int(memory.valid.sum()) == len(wanted.pairs)


@pytest.mark.parametrize("temperature", [0.05, 0.5, 3.0])
def test_what_remembered_pairs_have_to_do_with_each_other_never_drifts(temperature):
    memory = PairMemory(12, 3, temperature)
    for step in range(400):
        count = step % 7
        # Often close together and sometimes all over the place: sums go up and down.
        fresh = random(count, 2, 3, seed=step) * (step % 5) + torch.tensor([3.0, 0.0, 0.0])
        labels = torch.zeros(count, dtype=torch.int64)
        stay, _, crowd = memory.exchange(nn.functional.normalize(fresh, dim=2), labels)
        old = stay.flatten(0, 1).double()
        apart = (old @ old.T / temperature).fill_diagonal_(-math.inf)
        torch.testing.assert_close(crowd.flatten(), apart.logsumexp(dim=1), atol=1e-6, rtol=1e-6)
    assert memory.valid.all()


def test_remembered_pairs_carry_no_gradient():
    memory = PairMemory(6, 2, 0.5)
    first, second = random(4, 2, 2).requires_grad_(), random(4, 2, 2, seed=1).requires_grad_()
    memory.exchange(first, torch.zeros(4, dtype=torch.int64))
    stay, labels, crowd = memory.exchange(second, torch.ones(4, dtype=torch.int64))
    assert not stay.requires_grad
    assert not crowd.requires_grad
    assert not memory.vectors.requires_grad
    torch.testing.assert_close(stay, first[2:])
    assert labels.tolist() == [0, 0]


def test_more_positives_than_memory_neither_overflow_nor_fill_it_at_once():
    rows, columns = 30, 4
    task = make_task(torch.ones(rows, columns, dtype=torch.int8))
    method, network = ready(task, memory=16), views(rows, columns)
    batch = make_batch(network.images, task)
    for step in range(1, 7):
        method.loss(network, batch, make_progress(4)).total.backward()
        assert int(method.pairs.valid.sum()) == min(4 * step, 16)
        assert int(method.pairs.next) == 4 * step % 16
    assert method.status() == {"pairs_in_memory": 16}
    assert len(method.pairs.labels.unique()) > 1  # chosen at random, not the first of the batch


def test_memory_grows_with_the_batch_within_bounds():
    for rows, steps, wanted in ((100, 10, 512), (2000, 10, 800), (9000, 9, 2048), (7, 2, 512)):
        task = Task(("a", "b"), torch.zeros(rows, 2, dtype=torch.int8), 4, steps, 0)
        assert ready(task).pairs.size == wanted
    assert ready(task, memory=64).pairs.size == 64


# -- the whole loss --------------------------------------------------------------------------


def test_both_stages_agree_with_the_slow_twin_over_steps():
    rows, columns = 5, 3
    observed = single(rows, columns)
    observed[0, 2] = -1
    task = make_task(observed)
    options = {"consistency": 0.7, "contrast": 0.3, "temperature": 0.4, "threshold": 0.8}
    method = ready(task, memory=80, **options)
    method.double()
    memory = slow.Memory(80)
    y = observed.clamp(min=0).tolist()
    for step, epoch in enumerate((1, 2, 3, 4)):  # the first of four epochs is stage 1
        network = views(rows, columns, seed=10 * step).double()
        batch = make_batch(network.images.double(), task)
        network.images = batch.images
        found = method.loss(network, batch, make_progress(epoch))
        weak, strong = network.weak.detach(), network.strong.detach()
        z, z_strong = weak[..., 0].tolist(), strong[..., 0].tolist()
        targets, mask = slow.pseudo_labels(z, observed.tolist(), 0.6 if epoch == 1 else 0.8)
        an = slow.consistency(z, y, [[1] * columns] * rows)
        plc = slow.consistency(z_strong, targets, mask)
        total = an + 0.7 * plc
        assert found.parts["assume_negative"].item() == pytest.approx(an, abs=1e-9)
        assert found.parts["consistency"].item() == pytest.approx(plc, abs=1e-9)
        assert ("contrast" in found.parts) == (epoch > 1)
        if epoch > 1:
            for i in range(rows):
                for c in range(columns):
                    if targets[i][c]:
                        pair = torch.stack([weak[i, c], strong[i, c]])
                        e = method.projector(pair).detach()
                        e = (e / e.square().sum(1, keepdim=True).sqrt()).tolist()
                        memory.write([e], [c])
            lac = memory.contrast(0.4)
            assert found.parts["contrast"].item() == pytest.approx(lac, abs=1e-9)
            total += 0.3 * lac
        assert found.total.item() == pytest.approx(total, abs=1e-9)
    assert len(memory.pairs) > rows * 3  # pseudo-labels were among them


@pytest.mark.parametrize(
    ("share", "epochs", "last"), [(2 / 7, 70, 20), (2 / 7, 40, 11), (2 / 7, 1, 0), (1.0, 5, 5)]
)
def test_the_second_stage_starts_after_its_share(share, epochs, last):
    task = make_task(single(3, 3))
    method, network = ready(task, first_stage=share), views(3, 3)
    for epoch in {1, last, min(last + 1, epochs), epochs} - {0}:
        found = method.loss(network, make_batch(network.images, task), make_progress(epoch, epochs))
        assert ("contrast" in found.parts) == (epoch > last), epoch


def test_pseudo_labels_teach_the_strong_view_and_get_no_gradient():
    task = make_task(torch.zeros(1, 2, dtype=torch.int8))
    method, network = ready(task, first_stage=1.0), views(1, 2)
    with torch.no_grad():
        network.weak[..., 0] = torch.tensor([[3.0, 0.0]])
        network.strong[..., 0] = torch.tensor([[-1.0, 1.0]])
    found = method.loss(network, make_batch(network.images, task), make_progress())
    (gradient,) = torch.autograd.grad(found.parts["consistency"], network.strong, retain_graph=True)
    assert gradient[0, 0, 0] < 0  # p = .95 > τ: up
    assert gradient[0, 1, 0] == 0  # p = .5: not confident
    alone = torch.autograd.grad(
        found.parts["consistency"], network.weak, allow_unused=True, retain_graph=True
    )
    assert alone == (None,)


def test_what_is_known_to_be_absent_never_enters_the_memory():
    observed = single(4, 3)
    observed[:, 2] = torch.where(observed[:, 2] == 1, 1, -1).to(torch.int8)
    task = make_task(observed)
    method, network = ready(task, memory=200), views(4, 3)
    with torch.no_grad():
        network.weak[..., 0] = 50.0
    method.loss(network, make_batch(network.images, task), make_progress(4))
    labels = method.pairs.labels[method.pairs.valid]
    assert (labels == 2).sum() == (observed[:, 2] == 1).sum()
    assert len(labels) == (observed >= 0).sum()


HARD = {
    "extreme": single(6, 4),
    "batch of one": single(1, 4),
    "class without positive": single(6, 4) * torch.tensor([1, 1, 1, 0], dtype=torch.int8),
    "all positive": torch.ones(6, 4, dtype=torch.int8),
    "nothing observed": torch.zeros(6, 4, dtype=torch.int8),
    "all seen to be absent": -torch.ones(6, 4, dtype=torch.int8),
    "half precision": single(6, 4),
}


@pytest.mark.parametrize("case", HARD)
def test_hard_batches_stay_finite(case):
    observed = HARD[case]
    task = make_task(observed)
    method, network = ready(task), views(*observed.shape)
    if case == "extreme":
        network.weak.data[..., 0] = 60 * network.weak.data[..., 0].sign()
        network.strong.data[..., 0] = -60 * network.strong.data[..., 0].sign()
    if case == "half precision":
        network.half()
    for epoch in (1, 2, 3):
        found = method.loss(network, make_batch(network.images, task), make_progress(epoch))
        assert found.total.isfinite()
        found.total.backward()
    for parameter in (*network.parameters(), *method.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


# -- state and the outside -------------------------------------------------------------------


def picture_network(method: LAC, seed: int = 0) -> nn.Module:
    spec = ModelSpec("linear", (3, 10, 10), ("a", "b", "c"), ("r", "g", "b"), head=method.head())
    return build(spec, seed=seed, mean=[1.0, 2.0, 3.0], std=[0.5, 1.0, 2.0])


def test_a_network_and_its_projector_are_trained_together():
    task = make_task(single(6, 3))
    method = LAC(width=8)
    assert method.head() == HeadSpec("label-wise", width=8)
    assert not list(method.parameters())
    network = picture_network(method)
    assert isinstance(network.head, LabelWiseHead)
    state = torch.get_rng_state()
    method.setup(network, task)
    groups = method.parameter_groups(network, 0.1)
    trained = {id(p) for group in groups for p in group["params"]}
    assert trained == {id(p) for p in (*network.parameters(), *method.parameters())}
    assert {group["lr"] for group in groups} == {0.1}
    batch = make_batch(random(6, 3, 10, 10), task)
    method.loss(network, batch, make_progress(4)).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    assert all(p.grad.abs().sum() > 0 for p in method.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_the_strong_view_knows_the_scale_of_the_bands(monkeypatch):
    seen = []

    def spy(images, scale, generator):
        seen.append(scale)
        return images + 1

    monkeypatch.setattr("adagc.methods.lac.strong_view", spy)
    task = make_task(single(6, 3))
    method = LAC(width=8)
    network = picture_network(method)
    method.setup(network, task)
    method.loss(network, make_batch(random(6, 3, 10, 10), task), make_progress())
    assert seen[0].tolist() == [0.5, 1.0, 2.0]
    ready(task).loss(views(6, 3), make_batch(random(6, 3), task), make_progress())
    assert seen[1].tolist() == [1.0, 1.0, 1.0]


def test_state_survives_save_and_load_in_the_middle_of_the_ring(tmp_path):
    task = make_task(single(6, 3))
    method = LAC(width=8, memory=10)
    network = picture_network(method)
    method.setup(network, task)
    images = random(6, 3, 10, 10)
    for step in range(7):
        method.loss(network, make_batch(images, task, seed=step), make_progress(3))
    assert int(method.pairs.next) == 4  # 7 times 2 pairs: once around and on
    torch.save([network.state_dict(), method.state_dict()], tmp_path / "state.ckpt")
    weights, state = torch.load(tmp_path / "state.ckpt", weights_only=True)
    twin = LAC(width=8, memory=10)
    twin_network = picture_network(method, seed=9)
    twin.setup(twin_network, make_task(single(6, 3)))
    twin_network.load_state_dict(weights)
    twin.load_state_dict(state)
    assert twin.status() == method.status()
    for step in range(3):
        batch = {"images": images, "task": task, "seed": 20 + step}
        one = method.loss(network, make_batch(**batch), make_progress(4)).total
        other = twin.loss(twin_network, make_batch(**batch), make_progress(4)).total
        assert torch.equal(one, other)
        assert torch.equal(method.pairs.vectors, twin.pairs.vectors)


def test_a_projector_depends_on_the_seed_alone():
    def projector(seed: int) -> Tensor:
        task = Task(("a", "b"), single(2, 2), 4, 1, seed)
        return ready(task).projector[0].weight

    assert torch.equal(projector(1), projector(1))
    assert not torch.equal(projector(1), projector(2))


def test_senseless_options_are_refused():
    task = make_task(single(2, 2))
    for options in ({"threshold": 0.4}, {"temperature": 0.0}, {"memory": 3}, {"first_stage": 1.1}):
        with pytest.raises(UsageError, match=f"method.{next(iter(options)).replace('_', '-')}"):
            LAC(**options).setup(nn.Identity(), task)


def test_low_precision_passes_leave_the_contrast_exact():
    task = make_task(single(6, 3))
    method, network = ready(task), views(6, 3)
    batch = make_batch(network.images, task)
    wanted = ready(task).loss(network, batch, make_progress(4)).parts["contrast"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = method.loss(network, batch, make_progress(4)).parts["contrast"]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted)
    assert losses.precise(found) is found
