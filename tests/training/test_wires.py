"""That the parts are called: each test fails when one call or one argument is taken out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from adagc.images.array import ArrayScenes
from adagc.training import batches as batches_module
from adagc.training.batches import Batches
from adagc.training.network import measured_normalisation
from adagc.training.observe import observe
from conftest import make_collection


def test_a_share_of_the_images_is_drawn_by_the_label_seed():
    collection = make_collection()
    drawn = {
        seed: observe(
            collection, labels=None, scheme="random", label_seed=seed, share=0.5
        ).train.tolist()
        for seed in (0, 0, 1, 2)
    }
    assert {len(rows) for rows in drawn.values()} == {12}
    assert len({tuple(rows) for rows in drawn.values()}) == 3
    assert drawn[1] == sorted(drawn[1])


def test_the_common_variance_of_features_holds_the_spread_of_their_means():
    collection = make_collection()
    rows = collection.splits["train"]
    values = collection.images.gather(np.arange(64)) + 10 * np.arange(6, dtype=np.float32)
    shifted = ArrayScenes(values)  # features of very different means
    values = values[rows].astype(np.float64)
    mean, std = measured_normalisation(shifted, rows, common=True)
    assert mean == pytest.approx([values.mean()] * 6, rel=1e-6)
    assert std == pytest.approx([values.std()] * 6, rel=1e-6)


def test_a_last_batch_that_is_too_small_for_all_ranks_is_left_out(monkeypatch):
    def bounds(world: int) -> list[tuple[int, int]]:
        monkeypatch.setattr(batches_module, "world", lambda: world)
        return Batches(
            make_collection().images, np.arange(10), torch.zeros(10, 4), truth=None,
            batch_size=4, seed=0, how="none", device=torch.device("cpu"),
        ).bounds  # fmt: skip

    assert bounds(1) == [(0, 4), (4, 8), (8, 10)]
    assert bounds(2) == [(0, 4), (4, 8)]
