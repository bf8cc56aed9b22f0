"""The classifier: takes raw image values and returns a logit or a probability per class."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from adagc.errors import NAMED, AdagcError, DataError, examples
from adagc.models.backbones import Backbone, ImageBackbone, make_backbone
from adagc.models.heads import HEADS, ClassMapHead, Head
from adagc.models.label_wise import LabelWiseHead
from adagc.models.positions import PositionHead
from adagc.models.spec import ModelSpec
from adagc.models.weights import load_weights

THRESHOLD = 0.5  # default of every class: probability from which on it counts as predicted


class Normalise(nn.Module):
    """(x - mean) / std per band; part of the network, so that no caller can forget or repeat it.

    Missing values become 0, the mean of the band: NaN, and the number `nodata` if there is one.
    """

    mean: Tensor  # (K,) float32: K bands, K values of an embedding, or 1 for all of them
    std: Tensor  # (K,) float32

    def __init__(
        self,
        mean: Sequence[float] | Tensor,
        std: Sequence[float] | Tensor,
        nodata: float | None = None,
    ) -> None:
        super().__init__()
        self.nodata = nodata
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float32).clone())
        self.register_buffer("std", torch.as_tensor(std, dtype=torch.float32).clone())
        if self.mean.ndim != 1 or self.mean.shape != self.std.shape:
            raise AdagcError(
                f"mean and std must be lists of one length, got shapes {tuple(self.mean.shape)} "
                f"and {tuple(self.std.shape)}"
            )
        if not (self.mean.isfinite().all() and self.std.isfinite().all() and (self.std > 0).all()):
            raise AdagcError(
                "mean must be finite and std above 0 for every band: drop constant bands, or give "
                f"std 1 for them (std is {[round(v, 6) for v in self.std.tolist()][:20]})"
            )

    def forward(self, x: Tensor) -> Tensor:
        """The normalised inputs, of shape (B, K) or (B, K, H, W)."""
        shape = (1, -1) + (1,) * (x.ndim - 2)
        if self.nodata is not None:
            x = x.masked_fill(x == self.nodata, torch.nan)
        normalised = (x - self.mean.view(shape)) / self.std.view(shape)
        # In place, as it then costs next to nothing. Infinite values stay: they are an error.
        return normalised.nan_to_num_(nan=0.0, posinf=torch.inf, neginf=-torch.inf)


class Classifier(nn.Module):
    """Normalisation, backbone and head; `copy.deepcopy` gives an independent copy."""

    thresholds: Tensor  # (C,) float32: from which probability on a class counts as predicted

    def __init__(
        self, spec: ModelSpec, *, normalise: Normalise, backbone: Backbone, head: Head
    ) -> None:
        super().__init__()
        if len(normalise.mean) not in {spec.shape[0], 1}:
            raise AdagcError(
                f"normalisation for {len(normalise.mean)} bands, the model has {spec.shape[0]}"
                f"{_listed(spec.bands)}: give one mean and std per band"
            )
        self.spec = spec
        self.normalise = normalise
        self.backbone = backbone
        self.head = head
        # Not weights: they are stored in model.json, so the format of weight files is unchanged.
        limits = torch.full((len(spec.classes),), THRESHOLD)
        self.register_buffer("thresholds", limits, persistent=False)

    @property
    def width(self) -> int:
        """Length of a pooled feature vector, the input of the head."""
        return self.backbone.width

    def feature_map(self, x: Tensor) -> Tensor:
        """The feature map (B, D, h, w) of raw inputs; D is `width` if pooling is a plain mean."""
        return self.backbone.feature_map(self._prepared(x))

    def stages(self, x: Tensor) -> tuple[Tensor, ...]:
        """Feature maps (B, D_k, h_k, w_k) of several stages, finest first, of raw inputs."""
        return self.backbone.stages(self._prepared(x))

    def pool(self, features: Tensor) -> Tensor:
        """A feature map (B, D, h, w) -> (B, width); `head(pool(feature_map(x)))` is `forward`."""
        return self.backbone.pool(features)

    def embed(self, x: Tensor) -> Tensor:
        """Pooled features (B, width) of raw inputs."""
        features: Tensor = self.backbone(self._prepared(x))
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, C) of raw inputs (B, bands, H, W) or (B, D), for training."""
        logits: Tensor = self.head(self._features(x))
        return logits

    def probabilities(self, x: Tensor) -> Tensor:
        """(B, C) float32 predicted probabilities of raw inputs, as the head defines them.

        Predictions must be made with this, not with a sigmoid of the logits, which some heads
        do not use.
        """
        return self.head.probabilities(self._features(x))

    def decide(self, probabilities: Tensor) -> Tensor:
        """(B, C) bool: classes whose probability is at least their threshold."""
        return probabilities >= self.thresholds.to(probabilities.device)

    def short_thresholds(self) -> list[float]:
        """The thresholds with as few digits as needed: 0.3, not 0.300000012 as in float32.

        Read back as float32 they are exactly the same.
        """
        return [float(str(value)) for value in self.thresholds.cpu().numpy()]

    def set_thresholds(self, values: Sequence[float] | Tensor) -> None:
        """Set the threshold of each class, a probability, in the order of the classes."""
        limits = torch.as_tensor(values, dtype=torch.float32, device=self.thresholds.device)
        classes = len(self.spec.classes)
        if limits.shape != (classes,):
            raise AdagcError(
                f"{limits.numel()} thresholds for {classes} classes: give one per class"
            )
        if not limits.isfinite().all():
            raise AdagcError("a threshold is not finite: give probabilities")
        self.thresholds = limits.clone()

    def _features(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        if self.head.on_stages:
            return self.stages(x)
        return self.feature_map(x) if self.head.on_map else self.embed(x)

    def class_maps(self, x: Tensor) -> Tensor:
        """Class maps (B, C, h, w), the values of every class at every position.

        Raises AdagcError if the head has none.
        """
        if isinstance(self.head, PositionHead):
            return self.head.maps(self.stages(x))
        if isinstance(self.head, ClassMapHead):
            return self.head.maps(self.feature_map(x))
        raise AdagcError(f"a {self.spec.head.kind} head has no class maps")

    def label_embeddings(self, x: Tensor) -> Tensor:
        """Embeddings (B, C, width of the head), one per class, that `head.logits` takes.

        Raises AdagcError if the head has none.
        """
        if not isinstance(self.head, LabelWiseHead):
            raise AdagcError(f"a {self.spec.head.kind} head has no label-wise embeddings")
        return self.head.embed(self.feature_map(x))

    def logits_and_early_features(self, x: Tensor, *, whole: bool = False) -> tuple[Tensor, Tensor]:
        """(B, C) logits, and (B, K) flattened features of an early stage.

        Maps are averaged to 8 x 8 positions first, unless `whole`.
        """
        outputs: list[Tensor] = []
        early = self.backbone.early_stage()
        hook = early.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
        try:
            logits = self(x)
        finally:
            hook.remove()
        features = self.backbone.as_map(outputs[0])
        if features.ndim == 4 and not whole:
            rows, columns = (min(8, side) for side in features.shape[2:])
            features = functional.adaptive_avg_pool2d(features, (rows, columns))
        return logits, features.flatten(1)

    def _prepared(self, x: Tensor) -> Tensor:
        """Checked, normalised, and in the memory layout that convolutions are fast in."""
        self._check(x)
        x = self.normalise(x)
        if isinstance(self.backbone, ImageBackbone):
            x = x.contiguous(memory_format=torch.channels_last)
        return x

    def _check(self, x: Tensor) -> None:
        spec = self.spec
        wanted, got = spec.shape, tuple(x.shape[1:])
        if len(got) != len(wanted) or got[0] != wanted[0]:
            what = "x".join(map(str, got)) or "nothing"
            raise DataError(
                f"the model takes {wanted[0]} bands{_listed(spec.bands)} of {wanted[1]} x "
                f"{wanted[2]} pixels, got {what}: give these bands in this order"
                if spec.is_image
                else f"the model takes embeddings of length {wanted[0]}, got {what}: make them "
                "with the network the training embeddings came from"
            )
        if self.backbone.fixed_size and got != wanted:
            raise DataError(
                f"backbone {spec.backbone} was built for {wanted[1]} x {wanted[2]} pixels, got "
                f"{got[1]} x {got[2]}: resize the images"
            )


def build(
    spec: ModelSpec,
    *,
    seed: int,
    weights: str = "none",
    weight_bands: Sequence[str] | None = None,
    mean: Sequence[float] | Tensor | None = None,
    std: Sequence[float] | Tensor | None = None,
    nodata: float | None = None,
) -> Classifier:
    """Build a network on the CPU; the same seed gives the same weights.

    The state of torch's global random generator is left unchanged.

    Args:
        spec: What to build. If weights are loaded, the spec of the result names their source.
        seed: Seed of all weights that are not loaded. The head's weights do not depend on how the
            backbone gets its own.
        weights: A source of pretrained weights, as in `load_weights`.
        weight_bands: The bands that the weights of a file were trained on, as in `load_weights`.
        mean: Mean of the raw values, one per band; 0 if not given.
        std: Standard deviation of the raw values, one per band; 1 if not given.
        nodata: Number that stands for missing raw values, besides NaN.
    """
    body_seed, head_seed = np.random.SeedSequence(seed).generate_state(2, np.uint64)
    with _seeded(int(body_seed)):
        backbone = make_backbone(spec)
    if weights != "none":
        net = backbone.net if isinstance(backbone, ImageBackbone) else backbone
        report = load_weights(
            net,
            spec.backbone,
            weights,
            bands=spec.bands,
            size=spec.shape[1:] or (1, 1),
            weight_bands=weight_bands,
        )
        spec = dataclasses.replace(spec, weights=report.provenance)
    with _seeded(int(head_seed)):
        head = HEADS[spec.head.kind].build(spec, backbone)
    normalise = Normalise(
        torch.zeros(spec.shape[0]) if mean is None else mean,
        torch.ones(spec.shape[0]) if std is None else std,
        nodata,
    )
    classifier = Classifier(spec, normalise=normalise, backbone=backbone, head=head)
    if isinstance(backbone, ImageBackbone):
        backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return classifier


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch's CPU generator, which layers draw weights from, and restore its state after."""
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would reseed every accelerator too.
        torch.default_generator.manual_seed(seed)
        yield


def _listed(bands: Sequence[str]) -> str:
    """Band names in brackets after a blank; empty without names."""
    return f" ({examples(bands, NAMED)})" if bands else ""
