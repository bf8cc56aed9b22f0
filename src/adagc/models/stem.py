"""Adapts pretrained weights to other bands and image sizes than those they were trained with.

Each plane of a first-layer filter belongs to a band: the first to red, the second to green, the
third to blue. Planes are therefore assigned by the *name* of a band, not by its position.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from adagc.errors import AdagcError
from adagc.images.spectral import canonical_band

RGB = ("red", "green", "blue")


def adapt_filters(filters: Tensor, source: Sequence[str], target: Sequence[str]) -> Tensor:
    """Filters for the bands `target`, from filters (out, len(source), kh, kw) for `source`.

    A band that `source` has keeps its plane, any other gets the mean of all planes, and the result
    is multiplied by len(source) / len(target). So an image whose bands are all equal gets the same
    response as before (if all of `source` is in `target`, or none of it), and later layers get
    activations of the size they were trained on. If there are as many bands as before but none of
    their names is known, the filters stay as they are: their order is then the best guess.
    """
    planes = {canonical_band(name): i for i, name in enumerate(source)}
    places = [planes.get(canonical_band(name)) for name in target]
    if len(target) == len(source) and all(place is None for place in places):
        return filters
    mean = filters.mean(dim=1)
    adapted = torch.stack([mean if p is None else filters[:, p] for p in places], dim=1)
    return adapted * (len(source) / len(target))


def fit_state(
    state: Mapping[str, Tensor],
    net: nn.Module,
    *,
    bands: Sequence[str],
    trained_on: Sequence[str] | None,
) -> dict[str, Tensor]:
    """`state` with first-layer filters for `bands` and position codes for the grid of `net`.

    Args:
        state: Weights to adapt, under the names that `net` uses.
        net: A timm network, built for as many bands as `bands`.
        bands: Names of the bands of the images that the network will get.
        trained_on: Names of the bands that `state` was trained on. If they are None, three bands
            are taken for RGB, and any other number must be that of `bands`, in the same order.
    """
    fitted = dict(state)
    ours = net.state_dict()
    for key in _first_filters(net):
        # Where planes do not correspond to bands (in a grouped layer, say), nothing is adapted.
        if key not in fitted or key not in ours or ours[key].shape[1] != len(bands):
            continue
        planes = fitted[key].shape[1]
        source = trained_on or (RGB if planes == len(RGB) else None)
        if source is not None and len(source) == planes:
            fitted[key] = adapt_filters(fitted[key], source, bands)
        elif planes != len(bands):
            raise AdagcError(
                f"the weights are for {planes} bands of unknown names, the images have "
                f"{len(bands)} ({', '.join(bands)}): use weights for these bands or for RGB"
            )
    positions, wanted = fitted.get("pos_embed"), ours.get("pos_embed")
    if positions is not None and wanted is not None and positions.shape != wanted.shape:
        fitted["pos_embed"] = _resampled(positions, wanted, net)
    return fitted


def plane_count(state: Mapping[str, Tensor], net: nn.Module) -> int | None:
    """The number of bands that the first layer of `state` takes; None if it has none."""
    for key in _first_filters(net):
        if key in state:
            return int(state[key].shape[1])
    return None


def _first_filters(net: nn.Module) -> list[str]:
    """Names of the weights that are applied to the bands, as timm's configuration gives them."""
    config = getattr(net, "pretrained_cfg", None) or {}
    layers = config.get("first_conv") or ()
    return [f"{layer}.weight" for layer in ([layers] if isinstance(layers, str) else layers)]


def _resampled(positions: Tensor, wanted: Tensor, net: nn.Module) -> Tensor:
    """Position codes (1, tokens, D) for another grid of patches; unchanged if there is no grid."""
    grid = getattr(getattr(net, "patch_embed", None), "grid_size", None)
    if grid is None or wanted.ndim != 3 or positions.shape[::2] != wanted.shape[::2]:
        return positions
    layers = importlib.import_module("timm.layers")
    resampled: Tensor = layers.resample_abs_pos_embed(
        positions, new_size=list(grid), num_prefix_tokens=wanted.shape[1] - grid[0] * grid[1]
    )
    return resampled
