from __future__ import annotations

import threading
import time
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from adagc.augment import dihedral, draw_turns
from adagc.images.array import ArrayScenes
from adagc.training.batches import Batches, batch_bounds, derived_seed, generator_for

COUNT = 22


def numbered(count: int = COUNT, shape: tuple[int, ...] = (2, 3, 3)) -> ArrayScenes:
    """Images whose first band says which row they are; the second has no symmetry."""
    values = np.zeros((count, *shape), dtype=np.float32)
    values[:, 0] = np.arange(count).reshape(-1, *[1] * (len(shape) - 1))
    values[:, 1] = np.arange(np.prod(shape[1:])).reshape(shape[1:])
    return ArrayScenes(values)


def make(count: int = COUNT, *, images: ArrayScenes | None = None, **options) -> Batches:
    """Training rows in reverse, so that a row of the table is not a row of the images."""
    rows = np.arange(count)[::-1].copy()
    defaults = {
        "truth": None, "batch_size": 6, "seed": 0, "how": "dihedral", "device": torch.device("cpu"),
    }  # fmt: skip
    observed = torch.arange(count * 2).view(count, 2)
    return Batches(images or numbered(count), rows, observed, **{**defaults, **options})


def indices(batches: Batches, epoch: int) -> list[int]:
    return [i for batch in batches.epoch(epoch) for i in batch.index.tolist()]


def test_every_image_comes_once_per_epoch():
    for epoch in (1, 2):
        assert sorted(indices(make(), epoch)) == list(range(COUNT))


def test_a_tail_of_one_image_is_dropped_and_changes_with_the_epoch():
    batches = make(19)
    assert len(batches) == 3
    left_out = {next(iter(set(range(19)) - set(indices(batches, epoch)))) for epoch in range(1, 9)}
    assert all(
        len(indices(batches, epoch)) == len(set(indices(batches, epoch))) == 18 for epoch in (1, 2)
    )
    assert len(left_out) > 2


@given(st.integers(2, 200), st.integers(2, 64), st.integers(1, 4))
def test_bounds_are_contiguous_and_leave_out_little(count, size, world):
    bounds = batch_bounds(count, size, world)
    assert bounds[0][0] == 0
    assert all(one[1] == other[0] for one, other in pairwise(bounds))
    assert all(0 < end - start <= size for start, end in bounds)
    assert count - bounds[-1][1] < min(2 * world, size)


def test_rows_labels_and_truth_belong_to_the_index():
    truth = torch.arange(COUNT).view(-1, 1).float()
    for batch in make(truth=truth).epoch(1):
        rows = COUNT - 1 - batch.index
        assert torch.equal(batch.images[:, 0, 0, 0], rows.float())
        assert torch.equal(batch.observed[:, 0], batch.index * 2)
        assert torch.equal(batch.truth[:, 0], batch.index.float())
        assert batch.images.dtype == torch.float32
    assert all(batch.truth is None for batch in make().epoch(1))


def test_order_depends_on_seed_and_epoch_alone():
    wanted = indices(make(), 2)
    torch.manual_seed(5)
    other = make(how="none", truth=torch.zeros(COUNT, 1))
    list(other.epoch(1))  # an epoch before must not matter
    assert indices(other, 2) == wanted
    assert indices(make(batch_size=11), 2) == wanted
    assert indices(make(), 1) != wanted
    assert indices(make(seed=1), 2) != wanted


def test_generator_of_the_method_depends_on_seed_and_epoch_alone():
    def draw(batches: Batches, epoch: int) -> list[float]:
        return [torch.rand((), generator=batch.generator).item() for batch in batches.epoch(epoch)]

    assert draw(make(), 3) == draw(make(), 3)
    assert draw(make(), 3) != draw(make(), 4)
    assert len(set(draw(make(), 3))) == len(make())


def test_seeds_for_different_purposes_differ():
    seeds = {
        derived_seed(*parts)
        for parts in ((0, 1, "order"), (0, 1, "augment"), (1, 0, "order"), (0, 11), (0, 1, 1))
    }
    assert len(seeds) == 5
    assert derived_seed(0, 1, "order") == derived_seed(0, 1, "order")
    assert torch.rand(1, generator=generator_for(1)) == torch.rand(1, generator=generator_for(1))


# -- reading ahead ---------------------------------------------------------------------------


class Slow(ArrayScenes):
    """Takes longer the fuller the batch is, and notes who reads when."""

    def __init__(self, array: np.ndarray) -> None:
        super().__init__(array)
        self.reads: list[tuple[int, str]] = []

    def gather(self, rows: np.ndarray) -> np.ndarray:
        time.sleep(0.002 if len(rows) > 5 else 0.0)
        self.reads.append((len(rows), threading.current_thread().name))
        return super().gather(rows)


@pytest.fixture
def large(monkeypatch):
    """Every batch counts as large."""
    monkeypatch.setattr("adagc.training.batches._SMALL", 0)


def test_reading_ahead_neither_reorders_nor_loses_a_batch(monkeypatch):
    at_once = list(make().epoch(1))
    monkeypatch.setattr("adagc.training.batches._SMALL", 0)  # from here on every batch is large
    images = Slow(numbered()._array)
    slow = make(images=images)
    for batch, wanted in zip(slow.epoch(1), at_once, strict=True):
        time.sleep(0.003)
        assert torch.equal(batch.index, wanted.index)
        assert torch.equal(batch.images, wanted.images)
    assert [size for size, _ in images.reads] == [6, 6, 6, 4]
    assert all(name != threading.main_thread().name for _, name in images.reads)


def test_a_small_batch_is_read_when_it_is_wanted():
    images = Slow(numbered()._array)
    iterator = make(images=images).epoch(1)
    next(iterator)
    assert images.reads == [(6, threading.main_thread().name)]
    assert [size for size, _ in images.reads[:1]] + [len(b.index) for b in iterator] == [6, 6, 6, 4]


@pytest.mark.usefixtures("large")
def test_the_next_batch_is_read_while_one_is_in_use():
    images = Slow(numbered()._array)
    iterator = make(images=images).epoch(1)
    next(iterator)
    deadline = time.monotonic() + 5
    while len(images.reads) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert len(images.reads) == 2
    iterator.close()


@pytest.mark.usefixtures("large")
def test_an_epoch_that_is_left_early_leaves_no_thread_behind():
    before = threading.active_count()
    iterator = make().epoch(1)
    next(iterator)
    iterator.close()
    assert threading.active_count() == before


# -- augmentation ----------------------------------------------------------------------------


def symmetries(picture: Tensor) -> list[Tensor]:
    """Quarter turns of the picture and of its mirror image."""
    return [torch.rot90(p, k, (-2, -1)) for p in (picture, picture.flip(-1)) for k in range(4)]


def test_all_eight_symmetries_appear_and_nothing_else():
    picture = torch.arange(2 * 9.0).view(2, 3, 3)
    turned = dihedral(picture.expand(8, -1, -1, -1), torch.arange(8))
    found = {tuple(p.flatten().tolist()) for p in turned}
    assert found == {tuple(p.flatten().tolist()) for p in symmetries(picture)}
    assert len(found) == 8


def test_every_band_of_an_image_is_turned_alike_and_every_symmetry_is_drawn():
    batches = make(64, batch_size=64)
    seen = set()
    for epoch in (1, 2):
        for batch in batches.epoch(epoch):
            assert torch.equal(batch.images[:, 0].flatten(1).amax(1), batch.images[:, 0, 0, 0])
            seen |= {tuple(image[1].flatten().tolist()) for image in batch.images}
    assert len(seen) == 8


def test_images_that_are_not_square_keep_their_shape():
    picture = torch.arange(6.0).view(1, 2, 3)
    turned = dihedral(picture.expand(8, -1, -1, -1), torch.arange(8))
    assert turned.shape == (8, 1, 2, 3)
    assert len({tuple(p.flatten().tolist()) for p in turned}) == 4
    assert torch.equal(turned.flatten(1).sort().values, picture.flatten().expand(8, -1))


def test_an_image_is_turned_anew_in_every_epoch_or_never():
    def second_bands(how: str, epoch: int) -> dict[int, Tensor]:
        return {
            i: image[1]
            for batch in make(how=how).epoch(epoch)
            for i, image in zip(batch.index.tolist(), batch.images, strict=True)
        }

    one, two = second_bands("dihedral", 1), second_bands("dihedral", 2)
    assert any(not torch.equal(one[i], two[i]) for i in one)
    plain = torch.arange(9.0).view(3, 3)
    assert all(torch.equal(image, plain) for image in second_bands("none", 1).values())


def test_embeddings_pass_as_they_are():
    values = torch.rand(8, 5)
    assert torch.equal(dihedral(values, torch.arange(8)), values)


def test_turns_are_evenly_drawn():
    counts = torch.bincount(draw_turns(8000, torch.Generator().manual_seed(0)), minlength=8)
    assert counts.min() > 850
    assert counts.max() < 1150
