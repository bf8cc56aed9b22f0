"""Backbones turn an input into features: any timm network, or a plain layer for embeddings."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from adagc.errors import AdagcError, UsageError
from adagc.models.heads import drop
from adagc.models.spec import PLAIN_BACKBONES, ModelSpec
from adagc.models.vision import import_timm
from adagc.suggest import hint

# Reduction of the finest map that heads on several stages see. Features of finer ones see so little
# of the image that they tell colours from each other and not much else.
FINEST = 8


class Backbone(nn.Module):
    """Normalised input -> feature map -> pooled features; `forward` does both steps."""

    width: int  # number of pooled features
    map_width: int  # number of channels of the feature map
    stage_widths: tuple[int, ...]  # number of channels of the maps of `stages`
    pools_by_mean: bool  # whether pooling is the mean over positions and nothing else
    fixed_size: bool = False  # whether it takes only images of the size it was built for
    frozen: bool = False  # whether its weights and statistics are held fixed

    @abstractmethod
    def feature_map(self, x: Tensor) -> Tensor:
        """The feature map (B, map_width, h, w) of normalised inputs (B, bands, H, W)."""

    @abstractmethod
    def pool(self, features: Tensor) -> Tensor:
        """Pooled features (B, width) of a feature map (B, map_width, h, w)."""

    def stages(self, x: Tensor) -> tuple[Tensor, ...]:
        """Maps (B, D_k, h_k, w_k) of several stages of normalised inputs, finest first.

        The last one is the feature map; a backbone that has no other gives only this.
        """
        return (self.feature_map(x),)

    def forward(self, x: Tensor) -> Tensor:
        """Pooled features (B, width) of normalised inputs (B, bands, H, W)."""
        return self.pool(self.feature_map(x))

    def freeze(self, frozen: bool) -> None:
        """Hold weights and statistics fixed, also in training mode, or release them again."""
        self.frozen = frozen
        self.requires_grad_(not frozen)
        self.train(not frozen)

    def train(self, mode: bool = True) -> Self:
        """Training mode, unless it is frozen: then it computes as in evaluation."""
        return super().train(mode and not self.frozen)

    @abstractmethod
    def early_stage(self) -> nn.Module:
        """The module whose output are the features of the first layers."""

    def as_map(self, output: Tensor) -> Tensor:
        """The output of an inner module as (B, D, h, w), or as (B, D) if it has no positions."""
        return output


class PlainBackbone(Backbone):
    """Passes embeddings on unchanged ("linear") or through one hidden layer ("mlp").

    Args:
        name: "linear" or "mlp".
        channels: Length of an embedding, or number of channels of a stored feature map.
        hidden: Width of the hidden layer of "mlp".
        dropout: Share of the embedding's values that "mlp" drops in training. Stored features
            cannot be augmented like images; without dropout a head memorises 1,800 of them, and
            which labels are missing, in ten epochs.
    """

    def __init__(self, name: str, *, channels: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.name = name
        self.dropout = dropout
        self.map_width = channels
        self.pools_by_mean = name == "linear"
        self.width = channels if name == "linear" else hidden
        self.stage_widths = (self.width,)
        self.layers = (
            nn.Identity()
            if name == "linear"
            else nn.Sequential(nn.Linear(channels, hidden), nn.GELU())
        )

    def feature_map(self, x: Tensor) -> Tensor:
        """The input itself if it is a feature map; raises AdagcError for embeddings."""
        if x.ndim != 4:
            raise AdagcError(
                f"backbone {self.name} on embeddings has no feature map: use images or stored "
                "feature maps (bands, H, W), or a method that does not need one"
            )
        return x

    def pool(self, features: Tensor) -> Tensor:
        """The mean over positions, passed through the hidden layer of "mlp"."""
        return self._pooled(features.mean(dim=(2, 3)))

    def stages(self, x: Tensor) -> tuple[Tensor, ...]:
        """The feature map, every position of it passed through the hidden layer of "mlp"."""
        features = self.feature_map(x)
        if self.name == "mlp":
            features = drop(features, self.dropout, self.training)
            # As a convolution a linear layer at every position takes half the time.
            linear, bend = self.layers.children()
            weight, bias = linear.parameters()
            features = bend(functional.conv2d(features, weight[:, :, None, None], bias))
        return (features,)

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, width) of embeddings (B, D) or feature maps (B, D, H, W)."""
        return self._pooled(x) if x.ndim == 2 else self.pool(x)

    def early_stage(self) -> nn.Module:
        """The only layer there is."""
        return self.layers

    def _pooled(self, x: Tensor) -> Tensor:
        if self.name == "mlp":
            x = drop(x, self.dropout, self.training)
        features: Tensor = self.layers(x)
        return features


class ImageBackbone(Backbone):
    """A timm network without its classifier; handles every layout of features that timm has.

    Convolutional networks keep timm's own pooling, with the norm some families put behind it.
    Transformers, which work on tokens, are pooled by the mean over patches (then their `fc_norm`,
    if any), so that their feature map has positions; class tokens still take part in the
    attention. The few families that attend to the patches only through a separate class token are
    refused.
    """

    def __init__(self, net: Any, *, spec: ModelSpec) -> None:
        super().__init__()
        self.net = net
        self.fixed_size = takes_one_size(spec.backbone)
        if getattr(net, "attn_pool", None) is not None:
            net.attn_pool = None  # replaced by the mean; its weights would never get gradients
        self._probe(spec)

    def feature_map(self, x: Tensor) -> Tensor:
        """The output of timm's `forward_features` as (B, D, h, w); tokens become positions."""
        features: Tensor = self.net.forward_features(x)
        if features.ndim == 3:
            tokens = features[:, getattr(self.net, "num_prefix_tokens", 0) :]
            rows, columns = _grid(tokens.shape[1], (x.shape[-2], x.shape[-1]))
            # Not len(x), which an export would take for a constant.
            return tokens.transpose(1, 2).reshape(x.shape[0], -1, rows, columns)
        return self.as_map(features)

    def stages(self, x: Tensor) -> tuple[Tensor, ...]:
        """Maps at an eighth of the resolution and less, as far as timm names their modules."""
        maps: list[Tensor] = []
        hooks = [
            self.net.get_submodule(name).register_forward_hook(
                lambda _module, _inputs, output: maps.append(self.as_map(output))
            )
            for name in self._stages
        ]
        try:
            last = self.feature_map(x)
        finally:
            for hook in hooks:
                hook.remove()
        return (*maps, last)

    def early_stage(self) -> nn.Module:
        """The last module of the first stage that timm lists at a quarter resolution or less."""
        info = getattr(self.net, "feature_info", None) or []
        names = [stage["module"] for stage in info if stage["reduction"] >= 4]
        stage: nn.Module = self.net.get_submodule(names[0]) if names else self.net
        return stage

    def as_map(self, output: Tensor) -> Tensor:
        """The output with channels first, (B, D, h, w); tokens are averaged to (B, D)."""
        if output.ndim == 3:
            return output.mean(dim=1)
        return output.permute(0, 3, 1, 2) if self._channels_last_layout else output

    def pool(self, features: Tensor) -> Tensor:
        """Pooled features (B, width), by the pooling that the class docstring describes."""
        if self._tokens:
            pooled = features.mean(dim=(2, 3))
            norm = getattr(self.net, "fc_norm", None)
            return norm(pooled) if isinstance(norm, nn.Module) else pooled
        if self._channels_last_layout:
            features = features.permute(0, 2, 3, 1)
        head_input: Tensor = self.net.forward_head(features, pre_logits=True)
        return head_input.flatten(1)

    @property
    def _channels_last_layout(self) -> bool:
        return str(getattr(self.net, "output_fmt", "NCHW")).endswith("NHWC")

    @torch.no_grad()
    def _probe(self, spec: ModelSpec) -> None:
        """Find out widths and pooling with one small batch, so that errors occur here at once."""
        training = self.training
        self.eval()
        x = torch.randn(2, *spec.shape, generator=torch.Generator().manual_seed(0))
        try:
            self._tokens = self.net.forward_features(x[:1]).ndim == 3
            features = self.feature_map(x)
            pooled = self.pool(features)
            self._stages = [] if self._tokens else _finer(self.net)
            self.stage_widths = tuple(one.shape[1] for one in self.stages(x))
        except (RuntimeError, AssertionError, ValueError, TypeError, AttributeError) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise AdagcError(
                f"backbone {spec.backbone} cannot take images of shape {spec.shape} ({reason}): "
                "choose another image size or backbone"
            ) from error
        self.map_width, self.width = features.shape[1], pooled.shape[1]
        self.pools_by_mean = pooled.shape[1] == features.shape[1] and torch.allclose(
            pooled, features.mean(dim=(2, 3)), rtol=1e-4, atol=1e-5
        )
        self.train(training)


def _finer(net: Any) -> list[str]:
    """Modules whose outputs are maps of at most an eighth of the resolution, finest first.

    Without the coarsest ones, which are behind the feature map or as coarse as it.
    """
    info = getattr(net, "feature_info", None) or []
    coarsest = max((stage["reduction"] for stage in info), default=0)
    return [stage["module"] for stage in info if FINEST <= stage["reduction"] < coarsest]


def positions(backbone: str, shape: tuple[int, ...]) -> int:
    """About how many positions the finest map of `stages` has; 0 for embeddings.

    Known before the network is built, from its name and the shape of its inputs.
    """
    if len(shape) != 3:
        return 0
    reduction = 1 if backbone in PLAIN_BACKBONES else FINEST
    return -(-shape[1] // reduction) * -(-shape[2] // reduction)


def make_backbone(spec: ModelSpec) -> Backbone:
    """The backbone that `spec` names, with weights drawn from torch's global generator."""
    if spec.is_plain:
        # A head on the feature map itself takes it before the pooling, so a hidden layer behind
        # the pooling would never be used.
        name = "linear" if spec.head.on_map and not spec.head.on_stages else spec.backbone
        return PlainBackbone(name, channels=spec.shape[0], hidden=spec.hidden, dropout=spec.dropout)
    net = create_network(spec.backbone, channels=spec.shape[0], size=spec.shape[1:])
    return ImageBackbone(net, spec=spec)


def create_network(
    name: str, *, channels: int, size: tuple[int, ...], pretrained: bool = False
) -> nn.Module:
    """A timm network without classifier; `size` only matters for networks of a fixed size."""
    check_backbone(name)
    timm = import_timm()
    options: dict[str, Any] = {"in_chans": channels, "num_classes": 0, "pretrained": pretrained}
    if takes_one_size(name):
        options["img_size"] = size
    try:
        net: nn.Module = timm.create_model(name, **options)
    except (AssertionError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise AdagcError(
            f"backbone {name} cannot be built for {channels} bands of {size} pixels ({reason}): "
            "choose another image size or backbone"
        ) from error
    return net


def takes_one_size(name: str) -> bool:
    """Whether a timm network is built for one image size, as those with position codes are."""
    config = import_timm().get_pretrained_cfg(name)
    return bool(config is not None and config.fixed_input_size)


def check_backbone(name: str) -> None:
    """Raise UsageError for a name that is no backbone, with suggestions of similar names."""
    if name in PLAIN_BACKBONES:
        return
    timm = import_timm()
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        known = [*PLAIN_BACKBONES, *timm.list_models()]
        near = hint(name, known, count=4) or "; try resnet18 or mlp"
        raise UsageError(f"there is no backbone {name!r}{near}")
    tags = [m.partition(".")[2] for m in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in tags:
        raise UsageError(
            f"backbone {architecture} has no weights {tag!r}: use one of {', '.join(tags) or '-'}, "
            f"or {architecture} alone"
        )


def _grid(tokens: int, size: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of `tokens` square patches that tile an image of this size."""
    rows = max(1, round((tokens * size[0] / size[1]) ** 0.5))
    if tokens % rows:
        raise ValueError(f"{tokens} tokens do not tile an image of {size[0]} x {size[1]}")
    return rows, tokens // rows
