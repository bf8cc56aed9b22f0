"""The images of a batch of which a rank holds its own, against the whole batch."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
import torch
from torch import Tensor

from adagc.methods.state import Mixup
from adagc.ranks import Share, processes, share

BATCH = torch.randn(7, 2, 3, 3, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=[0, 1, 2])
def rank(request, monkeypatch) -> int:
    """This process as one of three."""
    for module in (share, processes):
        monkeypatch.setattr(module, "world", lambda: 3)
        monkeypatch.setattr(module, "rank", lambda: request.param)
    return request.param


def held(rank: int, asked: list[int] | None = None) -> Share:
    def read(positions: Tensor) -> Future[Tensor]:
        if asked is not None:
            asked.extend(positions.tolist())
        done: Future[Tensor] = Future()
        done.set_result(BATCH[positions])
        return done

    return Share(BATCH[rank::3], len(BATCH), read)


def test_mixing_gives_the_rows_of_the_mixed_batch(rank):
    mix = Mixup.draw(7, 1.0, torch.Generator().manual_seed(1), per="sample")
    assert torch.equal(mix(held(rank)).mine, mix(BATCH)[rank::3])


def test_partners_that_are_here_are_not_read_again(rank):
    asked: list[int] = []
    partner = torch.tensor([3, 4, 5, 6, 1, 2, 0])  # every image of the same rank
    found = held(rank, asked).blend(partner, torch.full((7,), 0.25))
    assert torch.equal(found.mine, torch.lerp(BATCH[partner], BATCH, 0.25)[rank::3])
    assert asked == []
    held(rank, asked).blend(torch.arange(7).roll(1), torch.ones(7))
    assert asked == [
        (position - 1) % 7 for position in range(rank, 7, 3) if (position - 1) % 7 % 3 != rank
    ]


def test_reading_begins_at_once_and_is_waited_for_at_first_use(rank):
    late: Future[Tensor] = Future()
    shown = Share(BATCH[rank::3], 7, lambda positions: late)
    mixed = shown.blend(torch.arange(7).roll(1), torch.zeros(7))
    partners = [(position - 1) % 7 for position in range(rank, 7, 3)]
    strange = [position for position in partners if position % 3 != rank]
    late.set_result(BATCH[strange])  # only now
    assert torch.equal(mixed.mine, BATCH[partners])
    with pytest.raises(RuntimeError, match="cannot be mixed once more"):
        mixed.blend(torch.arange(7), torch.ones(7))


def test_it_looks_like_the_whole_batch(rank):
    shown = held(rank)
    assert len(shown) == 7
    assert shown.shape == BATCH.shape
    assert shown.device == BATCH.device
    assert torch.equal(shown.map(lambda rows: 2 * rows).mine, 2 * BATCH[rank::3])
