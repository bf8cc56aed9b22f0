"""Which network is taken for images if the user names none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from adagc import RunConfig
from adagc.images.array import ArrayScenes
from adagc.training.network import resolve


def taken(shape: tuple[int, ...], **settings: str) -> tuple[str, str]:
    images = ArrayScenes(np.zeros((2, *shape), dtype=np.float32))
    found = resolve(replace(RunConfig(data="array"), **settings), images)
    return found.backbone, found.weights


@pytest.mark.parametrize("shape", [(1280, 3, 3), (768, 16, 16), (32, 1, 1), (40,)])
def test_stored_features_get_the_network_for_features(shape):
    assert taken(shape) == ("mlp", "none")


@pytest.mark.parametrize(
    "shape",
    [
        (14, 3, 3),  # few bands, however small the images are
        (224, 64, 64),  # hyperspectral images have more pixels than bands
    ],
)
def test_images_get_a_network_for_images(shape):
    assert taken(shape) == ("resnet18", "none")


def test_what_the_user_names_is_taken():
    assert taken((1280, 3, 3), backbone="resnet18") == ("resnet18", "none")
    # Weights belong to a network for images.
    assert taken((1280, 3, 3), weights="mine.safetensors") == ("resnet18", "mine.safetensors")
