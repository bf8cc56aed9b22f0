"""The description a network can be rebuilt from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adagc.errors import AdagcError
from adagc.models.heads import HEADS

PLAIN_BACKBONES = ("linear", "mlp")  # defined in this package; every other name is timm's


@dataclass(frozen=True)
class HeadSpec:
    """Which last layer a network has; most methods use "linear".

    "linear" works on pooled features. The others need a feature map with positions: "class-map"
    has logits at every position, boosted where positive, and averages them; "label-wise" pools
    the map for every class by its own attention; "bottleneck" puts a Gaussian code behind that;
    "any-position" takes a soft maximum over positions; in "areas" classes compete for positions.
    More kinds are added with `register_head`.
    """

    kind: str = "linear"
    boost: float = 1.0  # factor of the positive values of a class map
    width: int = 256  # number of features of a label-wise embedding
    latent: int = 256  # number of features of a bottleneck's code
    looks: float = 9.0  # number of positions that decide whether a class has a share in the areas

    def __post_init__(self) -> None:
        if self.kind not in HEADS:
            raise AdagcError(
                f"no head of kind {self.kind!r} is known ({', '.join(HEADS)}): import the module"
                " that registers it first"
            )

    @property
    def on_map(self) -> bool:
        """Whether the head takes a feature map instead of pooled features."""
        return HEADS[self.kind].on_map

    @property
    def on_stages(self) -> bool:
        """Whether it takes the maps of several stages of the network."""
        return HEADS[self.kind].on_stages


@dataclass(frozen=True)
class ModelSpec:
    """Everything about a network except its weights; can be written as JSON and read back.

    A plain backbone ("linear", "mlp") takes embeddings of shape (D,), or feature maps of shape
    (bands, H, W) that it averages over space first. A timm backbone takes images.
    """

    backbone: str  # a timm name, "mlp" or "linear"
    shape: tuple[int, ...]  # shape of one input: (bands, H, W) or (D,)
    classes: tuple[str, ...]  # names, in the order of the logits
    bands: tuple[str, ...]  # names in the order of the first axis; any or none for embeddings
    hidden: int = 512  # width of the hidden layer of "mlp"
    dropout: float = 0.0  # share dropped before the last layer; in an mlp before both layers
    weights: str = "none"  # where the backbone's initial weights came from
    head: HeadSpec = HeadSpec()

    def __post_init__(self) -> None:
        if len(self.shape) not in (1, 3) or min(self.shape, default=0) < 1:
            raise AdagcError(
                f"a model input has the shape (bands, height, width) or (length,), not {self.shape}"
            )
        if self.is_image and len(self.bands) != self.shape[0]:
            raise AdagcError(
                f"{len(self.bands)} band names ({', '.join(self.bands)}) for images of "
                f"{self.shape[0]} bands: name every band once"
            )
        if len(set(self.bands)) != len(self.bands):
            raise AdagcError(f"a band is named twice in {', '.join(self.bands)}: rename one")
        if not self.classes or len(set(self.classes)) != len(self.classes):
            raise AdagcError(f"a model needs distinct classes, got ({', '.join(self.classes)})")
        if not self.is_image and not self.is_plain:
            raise AdagcError(
                f"backbone {self.backbone} takes images, and the data are embeddings of length "
                f"{self.shape[0]}: use backbone mlp or linear"
            )
        if self.head.on_map and not self.is_image:
            raise AdagcError(
                f"the head {self.head.kind!r} needs positions, and embeddings of length "
                f"{self.shape[0]} have none: give images or stored feature maps (N x D x h x w)"
            )
        if self.hidden < 1:
            raise AdagcError(f"hidden must be at least 1, got {self.hidden}")
        if not 0 <= self.dropout < 1:
            raise AdagcError(f"dropout must be at least 0 and below 1, got {self.dropout}")

    @property
    def is_image(self) -> bool:
        """Whether an input has height and width; otherwise it is an embedding."""
        return len(self.shape) == 3

    @property
    def is_plain(self) -> bool:
        """Whether the backbone is "linear" or "mlp", which do not need timm."""
        return self.backbone in PLAIN_BACKBONES

    def to_dict(self) -> dict[str, Any]:
        """The fields as lists, strings and numbers, ready for JSON."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in dataclasses.asdict(self).items()
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelSpec:
        """The inverse of `to_dict`; raises AdagcError if a key is unknown or missing."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - set(fields))
        required = {n for n, field in fields.items() if field.default is dataclasses.MISSING}
        missing = sorted(required - set(values))
        if unknown or missing:
            raise AdagcError(
                "not a model description of this version of adagc"
                + (f"; unknown: {', '.join(unknown)}" if unknown else "")
                + (f"; missing: {', '.join(missing)}" if missing else "")
            )
        restored: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
        }
        if "head" in restored:
            try:
                restored["head"] = HeadSpec(**restored["head"])
            except TypeError as error:
                raise AdagcError(
                    f"not a head this version of adagc knows: {restored['head']}"
                ) from error
        return cls(**restored)
