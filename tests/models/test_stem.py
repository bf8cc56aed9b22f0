from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from adagc.images.spectral import canonical_band
from adagc.models.stem import RGB, adapt_filters

S2 = (
    "B01",
    "B02",
    "B03",
    "B04",
    "B05",
    "B06",
    "B07",
    "B08",
    "B8A",
    "B09",
    "B11",
    "B12",
    "VV",
    "VH",
)


@pytest.fixture
def filters() -> Tensor:
    return torch.randn(8, 3, 3, 3, generator=torch.Generator().manual_seed(0))


def test_spellings() -> None:
    assert [canonical_band(b) for b in ("B04", "Red", " r ", "b3", "BLUE")] == [
        *("red", "red", "red", "green", "blue")
    ]
    assert canonical_band("B8A") == "b8a"


def test_rgb_in_order_is_unchanged(filters: Tensor) -> None:
    assert torch.equal(adapt_filters(filters, RGB, RGB), filters)
    assert torch.equal(adapt_filters(filters, RGB, ("B04", "B03", "B02")), filters)


def test_blue_first_images_get_the_same_response(filters: Tensor) -> None:
    x = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(1))
    adapted = adapt_filters(filters, RGB, ("blue", "green", "red"))
    assert not torch.equal(adapted, filters)
    torch.testing.assert_close(
        functional.conv2d(x.flip(1), adapted), functional.conv2d(x, filters), rtol=1e-5, atol=1e-5
    )


def test_every_band_gets_its_plane_or_the_mean(filters: Tensor) -> None:
    adapted = adapt_filters(filters, RGB, S2) * 14 / 3
    mean = filters.mean(1)
    for i, band in enumerate(S2):
        plane = {"B04": filters[:, 0], "B03": filters[:, 1], "B02": filters[:, 2]}.get(band, mean)
        torch.testing.assert_close(adapted[:, i], plane)


@pytest.mark.parametrize("bands", [S2, ("VV", "VH"), ("grey",), ("nir", *RGB)])
def test_alike_bands_keep_the_response(filters: Tensor, bands: tuple[str, ...]) -> None:
    grey = torch.randn(2, 1, 9, 9, generator=torch.Generator().manual_seed(1))
    before = functional.conv2d(grey.expand(-1, 3, -1, -1), filters)
    adapted = adapt_filters(filters, RGB, bands)
    after = functional.conv2d(grey.expand(-1, len(bands), -1, -1), adapted)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)


def test_nameless_bands_of_the_same_number_keep_their_order(filters: Tensor) -> None:
    assert torch.equal(adapt_filters(filters, RGB, ("1", "2", "3")), filters)
