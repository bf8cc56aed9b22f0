"""Everything a run can be told, in one flat place that is at once command line and YAML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from adagc.datasets.registry import DEFAULT, find
from adagc.errors import check_range
from adagc.training.settings import Settings


@dataclass(frozen=True)
class RunConfig(Settings):
    """One run: which images, which labels, which network, how to train.

    Args:
        data: Name of the data set (adagc datasets); "folder" for your own images.
        root: Folder (or array file) of the data set; not needed for synthetic scenes.
        size: Side in pixels that images are brought to.
        split_seed: Seed of the split into training, validation and test.
        split: CSV with the columns image,split instead of a drawn split.
        labels: Label file with what was observed.
        truth: Multi-label file with clean labels, for the test and for methods that declare them.
        scheme: Simulate observed labels from clean ones instead of reading them; "clean" keeps
            all labels.
        label_seed: Seed of that simulation.
        share: Share of the labelled training images to use; all by default, fewer for a search.
        text: Embeddings of the class names for methods that use them (made by adagc text); for the
            classes of reBEN, AID and UC Merced they are built in.
        bands: Names of the bands, in order.
        cache: Where decoded images are kept; ADAGC_CACHE or the user's cache folder by default.
        skip_unreadable: Leave out images that cannot be read instead of stopping.
        scenes: Training scenes of the synthetic data; half as many again validate, as many test.
        backbone: Any timm model, or "mlp" or "linear" for embeddings; "auto" chooses.
        weights: Pretrained weights: "none", "registry" (installable package), "hub", or a file;
            "auto" takes the package where it fits the backbone.
        hidden: Width of the hidden layer of the "mlp".
        dropout: Before the last layer; of the "mlp" also of the embedding itself.
        normalise: Per-band statistics "measured" on the training images or those the "pretrained"
            weights were made with; "auto" takes the latter where they apply.
        absent: What to do with classes that no test image contains: stop before training
            ("error"), or leave them out of the mean average precision ("skip").
        oracle: Record clean scores beside the noisy ones where clean labels exist; they are
            never used.
    """

    data: str = DEFAULT
    root: str | None = None
    size: int | None = None
    split_seed: int = 0
    split: str | None = None
    labels: str | None = None
    truth: str | None = None
    scheme: Literal["random", "dominant", "clean"] | None = None
    label_seed: int = 0
    share: float = 1.0
    text: str | None = None
    bands: list[str] | None = None
    cache: str | None = None
    skip_unreadable: bool = False
    scenes: int = 1500
    backbone: str = "auto"
    weights: str = "auto"
    hidden: int = 512
    dropout: float = 0.0
    normalise: Literal["auto", "measured", "pretrained"] = "auto"
    absent: Literal["error", "skip"] = "error"
    oracle: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        find(self.data)
        check_range("size", self.size, 1)
        check_range("split_seed", self.split_seed, 0)
        check_range("label_seed", self.label_seed, 0)
        check_range("share", self.share, 1e-6, 1)
        check_range("scenes", self.scenes, 4)
        check_range("hidden", self.hidden, 1)
        check_range("dropout", self.dropout, 0, 1, below=True)
