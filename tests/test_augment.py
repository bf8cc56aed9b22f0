from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adagc import augment as views
from adagc.augment import strong_view

SHAPES = [(4, 3, 16, 16), (2, 14, 20, 12), (3, 1, 8, 8), (4, 6, 5, 5), (4, 9, 1, 1), (5, 7)]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_input_keeps_its_shape_and_is_changed_the_same_way_every_time(shape):
    images, scale = random(*shape), torch.ones(shape[1])
    kept, state = images.clone(), torch.get_rng_state()
    found = strong_view(images, scale, draws(1))
    assert found.shape == images.shape
    assert found.dtype == images.dtype
    assert found.isfinite().all()
    assert torch.equal(images, kept)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(found, strong_view(images, scale, draws(1)))
    assert not torch.equal(found, strong_view(images, scale, draws(2)))
    assert not torch.equal(found, images)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(SHAPES),
    st.floats(0.01, 1000),
    st.floats(-1000, 1000),
    st.integers(0, 1000),
)
def test_units_do_not_matter(shape, factor, shift, seed):
    images = random(*shape, seed=seed).double()
    scale = torch.rand(shape[1], generator=draws(seed)).double() + 0.5
    wanted = factor * strong_view(images, scale, draws(seed)) + shift
    found = strong_view(factor * images + shift, factor * scale, draws(seed))
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6 * (factor + abs(shift)))


def test_one_scale_serves_all_bands():
    images = random(4, 5, 9, 9)
    found = strong_view(images, torch.tensor([2.0]), draws())
    torch.testing.assert_close(found, strong_view(images, torch.full((5,), 2.0), draws()))


def test_every_image_is_seen_differently():
    images = random(1, 3, 16, 16).expand(6, -1, -1, -1)
    found = strong_view(images, torch.ones(3), draws()).flatten(1)
    assert torch.pdist(found).min() > 1.0


def test_a_small_map_stays_where_it_is():
    images = random(50, 6, 7, 9)
    found = strong_view(images, torch.ones(6), draws())
    x, v = images.flatten(2), found.flatten(2)
    x, v = x - x.mean(2, keepdim=True), v - v.mean(2, keepdim=True)
    gain = (x * v).sum(2, keepdim=True) / x.square().sum(2, keepdim=True)
    torch.testing.assert_close(v, gain * x, atol=1e-4, rtol=1e-4)  # nothing moved, nothing cut out
    lost = (gain.abs() < 1e-4).float().mean()
    assert 0.05 < lost < 0.15
    assert gain.max() <= 1 + views.GAIN + 1e-4


def test_embeddings_move_by_a_fraction_of_their_scale():
    images = random(400, 30) * torch.linspace(1, 50, 30)
    scale = images.std(dim=0)
    found = strong_view(images, scale, draws())
    centre = images.mean(dim=0)
    dropped = found == centre
    assert 0.08 < dropped.float().mean() < 0.12
    assert not dropped.all(dim=1).any()
    most = views.OFFSET * scale + views.GAIN * (images - centre).abs()
    moved = ((found - images).abs() / most)[~dropped]
    assert moved.max() <= 1 + 1e-4
    untouched = (torch.isclose(found, images) | dropped).all(dim=1).float().mean()
    assert untouched == pytest.approx(1 - views.JITTER, abs=0.06)


def test_the_only_band_is_never_dropped():
    images = random(200, 1, 4, 4)
    found = strong_view(images, torch.ones(1), draws())
    assert (found.flatten(1).std(dim=1) > 0.1).all()


def test_crops_keep_half_of_the_scene_and_stay_inside():
    side = 32
    ramp = (torch.arange(side) + 0.5) / side
    rows = ramp.view(1, 1, -1, 1).expand(300, 1, side, side)
    coordinates = torch.cat([rows, rows.transpose(2, 3)], dim=1)
    found = views._cropped(coordinates, views._draw_crop(len(coordinates), draws()))
    assert found.min() >= ramp[0]
    assert found.max() <= ramp[-1]
    # Away from the border every step of a pixel is a step of the crop's share of a pixel.
    height = (found[:, 0, 20, 16] - found[:, 0, 11, 16]) * side / 9
    width = (found[:, 1, 16, 20] - found[:, 1, 16, 11]) * side / 9
    area, aspect = height * width, width / height
    assert height.max() <= 1 + 1e-4
    assert width.max() <= 1 + 1e-4
    assert area.min() > views.AREA - 0.06  # elongated crops are cut to fit
    assert area.max() > 0.95
    assert aspect.max() <= views.ASPECT + 1e-4
    assert aspect.min() >= 1 / views.ASPECT - 1e-4
    assert aspect.log().mean().abs() < 0.05
    middle = found.mean(dim=(2, 3))
    assert middle.mean(dim=0).tolist() == pytest.approx([0.5, 0.5], abs=0.02)


def test_the_hole_covers_at_most_a_quarter_and_holds_the_mean():
    images = random(200, 3, 16, 24)
    hole = views._cut_out(images, torch.rand(200, 2, 1, generator=draws()))
    assert hole.shape == (200, 1, 16, 24)
    share = hole.float().mean(dim=(1, 2, 3))
    assert share.max() <= 0.25 + 1e-6
    assert share.min() > 0.05
    found = strong_view(images, torch.ones(3), draws())
    centre = images.mean(dim=(0, 2, 3)).view(1, 3, 1, 1)
    filled = (found == centre).all(dim=1).float().mean(dim=(1, 2))
    assert filled.min() > 0.05
    assert filled.max() <= 0.25 + 1e-6
