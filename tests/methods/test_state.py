from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from adagc.methods.state import AveragedNetwork, Mixup, SampleTable
from conftest import TinyCNN, make_classifier

# -- SampleTable -----------------------------------------------------------------------------


def test_first_visit_is_taken_whole_and_later_ones_are_averaged():
    table = SampleTable(5, 2)
    rows = torch.tensor([3, 1])
    first = torch.tensor([[0.9, 0.1], [0.4, 0.6]])
    torch.testing.assert_close(table.average(rows, first, 0.8, first=True), first)
    second = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    mixed = table.average(rows, second, 0.8, first=True)
    torch.testing.assert_close(mixed, 0.8 * first + 0.2 * second)
    torch.testing.assert_close(table[rows], mixed)
    assert table.seen.tolist() == [False, True, False, True, False]
    assert table.values[[0, 2, 4]].abs().sum() == 0


def test_first_and_later_visits_in_one_batch_are_told_apart():
    table = SampleTable(2, 1)
    table.write(torch.tensor([0]), torch.tensor([[0.5]]))
    mixed = table.average(torch.tensor([0, 1]), torch.ones(2, 1), 0.8, first=True)
    torch.testing.assert_close(mixed, torch.tensor([[0.6], [1.0]]))


def test_zeros_start_averages_from_the_start_value():
    table = SampleTable(1, 1)
    found = [
        table.average(torch.tensor([0]), torch.ones(1, 1), 0.8, first=False).item()
        for _ in range(3)
    ]
    assert found == pytest.approx([0.2, 0.36, 0.488])
    other = SampleTable(1, 1, start=0.5)
    assert other.average(
        torch.tensor([0]), torch.ones(1, 1), 0.8, first=False
    ).item() == pytest.approx(0.6)


@pytest.mark.parametrize(("momentum", "expected"), [(0.0, 1.0), (0.25, 0.75), (1.0, 0.0)])
def test_momentum_is_the_share_of_the_past(momentum, expected):
    table = SampleTable(1, 1, start=-1.0)
    table.write(torch.tensor([0]), torch.zeros(1, 1))
    found = table.average(torch.tensor([0]), torch.ones(1, 1), momentum, first=True)
    assert found.item() == pytest.approx(expected)


def test_table_keeps_no_graph_and_accepts_half_precision():
    table = SampleTable(2, 2)
    rows = torch.rand(2, 2, dtype=torch.float16, requires_grad=True)
    mixed = table.average(torch.arange(2), rows, 0.8, first=True)
    assert not mixed.requires_grad
    assert table.values.dtype == torch.float32


def test_table_survives_its_state_dict():
    table = SampleTable(4, 3)
    table.average(torch.tensor([2]), torch.rand(1, 3), 0.8, first=True)
    twin = SampleTable(4, 3)
    twin.load_state_dict(copy.deepcopy(table.state_dict()))
    assert set(table.state_dict()) == {"values"}
    new = torch.rand(4, 3)
    a = table.average(torch.arange(4), new, 0.8, first=True)
    b = twin.average(torch.arange(4), new, 0.8, first=True)
    assert torch.equal(a, b)
    assert torch.equal(twin.seen, table.seen)


def test_a_table_of_an_earlier_checkpoint_is_read():
    values = torch.tensor([[0.0, 0.0], [0.2, 0.0]])
    table = SampleTable(2, 2)
    table.load_state_dict({"values": values, "seen": torch.tensor([False, True])})
    assert table.seen.tolist() == [False, True]
    assert torch.equal(table.values, values)


def test_a_row_that_has_the_start_value_everywhere_was_never_written():
    table = SampleTable(3, 2, start=0.25)
    table.write(torch.tensor([0, 1]), torch.tensor([[0.25, 0.25], [0.25, 0.3]]))
    assert table.seen.tolist() == [False, True, False]
    assert table.written(torch.tensor([1, 0])).tolist() == [True, False]


# -- AveragedNetwork -------------------------------------------------------------------------


def walk(network: nn.Module, seed: int) -> None:
    """What an optimiser step and a batch do: every float moves, integers count."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in (*network.parameters(), *network.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator))
            else:
                tensor += seed + 1


def test_average_is_the_plain_mean_while_it_warms_up(cnn):
    teacher = AveragedNetwork(cnn, 0.95)  # a memory of twenty steps
    seen = []
    for step in range(20):
        walk(cnn, step)
        teacher.update(cnn)
        seen.append({k: v.clone() for k, v in cnn.state_dict().items()})
        for name, value in teacher.network.state_dict().items():
            if value.is_floating_point():
                mean = torch.stack([state[name] for state in seen]).mean(0)
                torch.testing.assert_close(value, mean, atol=1e-6, rtol=1e-5)


def test_average_is_exponential_after_warming_up(cnn):
    teacher = AveragedNetwork(cnn, 0.5)
    for step in range(2):
        walk(cnn, step)
        teacher.update(cnn)
    for step in range(2, 5):
        before = teacher.network[0].weight.clone()
        walk(cnn, step)
        teacher.update(cnn)
        torch.testing.assert_close(teacher.network[0].weight, 0.5 * before + 0.5 * cnn[0].weight)


def test_without_warm_up_the_first_weights_count(cnn):
    start = cnn[0].weight.detach().clone()
    teacher = AveragedNetwork(cnn, 0.9, warm_up=False)
    walk(cnn, 0)
    teacher.update(cnn)
    torch.testing.assert_close(teacher.network[0].weight, 0.9 * start + 0.1 * cnn[0].weight)


def test_statistics_of_batch_normalisation_are_averaged_and_counters_copied(cnn):
    teacher = AveragedNetwork(cnn, 0.9, warm_up=False)
    ours, theirs = teacher.network[1], cnn[1]
    mean, variance = ours.running_mean.clone(), ours.running_var.clone()
    cnn.train()
    cnn(torch.rand(8, 3, 6, 6) * 9)
    assert not torch.equal(theirs.running_mean, mean)
    teacher.update(cnn)
    torch.testing.assert_close(ours.running_mean, 0.9 * mean + 0.1 * theirs.running_mean)
    torch.testing.assert_close(ours.running_var, 0.9 * variance + 0.1 * theirs.running_var)
    assert ours.num_batches_tracked == theirs.num_batches_tracked == 1


def test_average_stays_in_evaluation_mode_and_out_of_the_optimiser(cnn):
    teacher = AveragedNetwork(cnn, 0.9)
    holder = nn.ModuleDict({"teacher": teacher})
    holder.train()
    assert not any(module.training for module in teacher.modules())
    statistics = teacher.network[1].running_mean.clone()
    teacher(torch.rand(4, 3, 6, 6))
    assert torch.equal(teacher.network[1].running_mean, statistics)
    assert not any(p.requires_grad for p in teacher.parameters())
    assert all(p.requires_grad for p in cnn.parameters())
    shared = {p.data_ptr() for p in teacher.parameters()} & {p.data_ptr() for p in cnn.parameters()}
    assert not shared


def test_normalisation_constants_never_drift():
    network = make_classifier()
    network.normalise.mean.copy_(torch.tensor([0.1, 123.675, 1e-3, 7.7, 0.3, 1 / 3]))
    network.normalise.std.copy_(torch.tensor([0.7, 58.395, 1e-4, 3.3, 0.1, 2 / 3]))
    teacher = AveragedNetwork(network, 0.999)
    for _ in range(300):
        teacher.update(network)
    assert torch.equal(teacher.network.normalise.mean, network.normalise.mean)
    assert torch.equal(teacher.network.normalise.std, network.normalise.std)


def test_average_follows_through_moves_copies_and_shared_weights():
    """Where tensors live is remembered between steps: nothing may be left behind or done twice."""
    student = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    student[2].weight = student[0].weight
    teacher = AveragedNetwork(student, 0.5, warm_up=False)
    walk(student, 0)
    teacher.update(student)
    twin = copy.deepcopy(teacher)
    student.double()  # replaces the buffers, as a move to another device does
    teacher.double()
    for average in (teacher, twin.double()):
        before = {name: value.clone() for name, value in average.network.state_dict().items()}
        walk(student, 1)
        average.update(student)
        for name, value in student.state_dict().items():
            expected = value if name.endswith("tracked") else (before[name] + value) / 2
            torch.testing.assert_close(average.network.state_dict()[name], expected)


def test_average_of_another_network_forgets_the_first(cnn):
    other = copy.deepcopy(cnn)
    teacher = AveragedNetwork(cnn, 0.0, warm_up=False)
    teacher.update(cnn)
    walk(other, 3)
    teacher.update(other)
    assert torch.equal(teacher.network[0].weight, other[0].weight)


def test_average_survives_its_state_dict_in_the_middle_of_warming_up():
    student = TinyCNN()
    teacher = AveragedNetwork(student, 0.9)
    for step in range(3):
        walk(student, step)
        teacher.update(student)
    twin = AveragedNetwork(TinyCNN(seed=5), 0.9)
    twin.load_state_dict(copy.deepcopy(teacher.state_dict()))
    walk(student, 3)
    teacher.update(student)
    twin.update(student)
    for name, value in teacher.state_dict().items():
        assert torch.equal(twin.state_dict()[name], value), name


# -- Mixup -----------------------------------------------------------------------------------


def draw(size: int = 16, alpha: float = 1.0, seed: int = 0, **options) -> Mixup:
    return Mixup.draw(size, alpha, torch.Generator().manual_seed(seed), **options)


@pytest.mark.parametrize("per", ["batch", "sample"])
def test_the_same_pairs_serve_every_tensor(per):
    mix = draw(per=per)
    images, labels = torch.rand(16, 3, 2, 2), torch.rand(16, 5)
    for i in range(16):
        j, phi = mix.partner[i], mix.share[i]
        for values in (images, labels):
            torch.testing.assert_close(mix(values)[i], phi * values[i] + (1 - phi) * values[j])


def test_partners_are_a_permutation_and_shares_fractions():
    mix = draw(64, per="sample")
    assert sorted(mix.partner.tolist()) == list(range(64))
    assert mix.share.min() >= 0
    assert mix.share.max() <= 1
    assert mix.share.shape == (64,)


def test_one_share_per_batch_or_one_per_sample():
    assert draw(per="batch").share.unique().numel() == 1
    assert draw(per="sample").share.unique().numel() == 16


def test_the_generator_alone_decides():
    torch.manual_seed(1)
    one = draw(seed=3)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    other = draw(seed=3)
    assert torch.equal(one.partner, other.partner)
    assert torch.equal(one.share, other.share)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(draw(seed=4).partner, one.partner)
    generator = torch.Generator().manual_seed(3)
    successive = [Mixup.draw(16, 1.0, generator).share[0].item() for _ in range(4)]
    assert len(set(successive)) == 4


@pytest.mark.parametrize(
    ("alpha", "variance"), [(0.2, 0.25 / 1.4), (1.0, 1 / 12), (6.0, 0.25 / 13)]
)
def test_shares_follow_the_beta_distribution(alpha, variance):
    share = draw(20_000, alpha, per="sample").share.double()
    assert share.mean().item() == pytest.approx(0.5, abs=0.01)
    assert share.var().item() == pytest.approx(variance, rel=0.05)  # 1 / (4 (2α + 1))
    if alpha == 1.0:  # uniform: a tenth in every tenth
        counts = torch.histc(share, 10, 0, 1) / 20_000
        torch.testing.assert_close(counts, torch.full_like(counts, 0.1), atol=0.01, rtol=0)


def test_entries_that_both_partners_lack_stay_exactly_zero():
    mix = draw(per="sample")
    labels = (torch.arange(64).view(16, 4) % 5 == 0).float()
    both = (labels == 0) & (labels[mix.partner] == 0)
    assert torch.equal(mix(labels) == 0, both)


def test_a_batch_of_one_mixes_with_itself():
    images = torch.rand(1, 3)
    torch.testing.assert_close(draw(1)(images), images)
