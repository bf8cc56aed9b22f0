"""What a run can be told, in parts: where data comes from, labels, network, training.

The parts are frozen and hashable, so that each can be the key of what it decides. `RunConfig` is
all of them in one flat place, which is at once command line and YAML.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, Self

from adagc.errors import UsageError, check_range
from adagc.options import Choices


def _kinds() -> Collection[str]:
    from adagc.datasets.registry import names

    return names()


def require_labels(labels: object, scheme: str | None) -> None:
    """Observed labels are either given or drawn."""
    if (labels is None) == (scheme is None):
        raise UsageError("say where labels come from: either --labels FILE or --scheme random")


@dataclass(frozen=True)
class _Part:
    """What all parts can do."""

    def __post_init__(self) -> None:
        """Each part checks its own values and passes on."""

    @classmethod
    def of(cls, config: _Part) -> Self:
        """This part of a configuration that has more."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})

    def to_dict(self) -> dict[str, Any]:
        """Names and values as they are written to YAML and JSON, which know no tuples."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


@dataclass(frozen=True)
class Settings(_Part):
    """How to train; the same for every method that is to be compared.

    Args:
        epochs: How often training goes over all training images.
        batch_size: Number of images in one step of the optimiser.
        learning_rate: Learning rate of the optimiser, Adam.
        weight_decay: Weight decay of the optimiser, Adam; 0 for none.
        schedule: How the learning rate changes over the run: constant, or cosine for half a
            cosine from its full value down to zero.
        augment: Random changes to the training images: dihedral mirrors them and turns them by
            quarter turns, none leaves them as they are.
        clip: Largest norm that the gradient of a step may have; longer ones are shortened to it.
            Not limited by default.
        precision: Number format of the computation; auto uses bfloat16 on GPUs that have it and
            32-bit numbers elsewhere.
        average: Momentum, below 1, of an averaged copy of the network that is scored beside it.
            Any method can have one, which keeps comparisons fair with those that bring an average
            of their own. None by default.
        seed: Seed of everything random in training: first weights, order of the images,
            augmentation, dropout.
        accelerator: Device that computes; auto takes a GPU if there is one.
    """

    epochs: int = 40
    batch_size: int = 32
    learning_rate: float = 5e-4
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    augment: Literal["dihedral", "none"] = "dihedral"
    clip: float | None = None
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = "auto"
    average: float | None = None
    seed: int = 0
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("epochs", self.epochs, 1)
        check_range("batch_size", self.batch_size, 2)  # batch normalisation needs a variance
        check_range("learning_rate", self.learning_rate, 0)
        check_range("weight_decay", self.weight_decay, 0)
        check_range("clip", self.clip, 1e-12)
        check_range("average", self.average, 0, 1, below=True)
        check_range("seed", self.seed, 0)


@dataclass(frozen=True)
class SourceSettings(_Part):
    """Where images and labels come from, and how images are set apart.

    Args:
        data: Kind of data set, as listed by adagc datasets; folder is for your own images.
        root: Folder of the data set, or its array file; synthetic scenes need none.
        size: Height and width in pixels that all images are scaled to. By default images keep
            their size, or get that of the published benchmark.
        split_seed: Seed that draws which images are for training, validation and test.
        split: CSV file with the columns image,split that says which image is for what, instead of
            drawing it.
        labels: Label file with the observed labels to train on.
        truth: Label file with all labels of some images: to test with, and for methods that
            declare that they need it.
    """

    data: Annotated[str, Choices(_kinds)] = "folder"
    root: str | None = None
    size: int | None = None
    split_seed: int = 0
    split: str | None = None
    labels: str | None = None
    truth: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        from adagc.datasets.registry import find

        find(self.data)  # which says so if there is none
        check_range("size", self.size, 1)
        check_range("split_seed", self.split_seed, 0)


@dataclass(frozen=True)
class LabelSettings(SourceSettings):
    """What is observed of the images of a source.

    Args:
        scheme: Draw the observed labels from the clean ones instead of reading a label file: one
            random label per image, the one that covers most of it (dominant), or all (clean).
        label_seed: Seed of that draw.
        share: Share of the labelled training images to use, above 0 and at most 1.
        text: File with embeddings of the class names, as adagc text writes it, for methods that
            use them. For the classes of reBEN, AID and UC Merced they are built in.
    """

    scheme: Literal["random", "dominant", "clean"] | None = None
    label_seed: int = 0
    share: float = 1.0
    text: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("label_seed", self.label_seed, 0)
        check_range("share", self.share, 1e-6, 1)


@dataclass(frozen=True)
class DataSettings(SourceSettings):
    """Everything that decides which data is opened, and nothing else.

    Args:
        bands: Names of the bands of the images, in their order.
        cache: Folder in which decoded images are kept; by default that of the variable
            ADAGC_CACHE, or the user's cache folder.
        skip_unreadable: Leave out images that cannot be read instead of stopping.
        scenes: Number of training scenes of synthetic data; half as many are made for validation
            and as many for the test.
    """

    bands: tuple[str, ...] | None = None
    cache: str | None = None
    skip_unreadable: bool = False
    scenes: int = 1500

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bands is not None:  # a list can be given, too
            object.__setattr__(self, "bands", tuple(self.bands))
        check_range("scenes", self.scenes, 4)


@dataclass(frozen=True)
class ModelSettings(_Part):
    """Which network is trained.

    Args:
        backbone: Name of a timm model, or mlp or linear for embeddings; auto chooses by the data.
        weights: Pretrained weights: none, registry (an installed package), hub (a download), or a
            file; auto takes the package where it fits the backbone.
        hidden: Width of the hidden layer of the backbone mlp.
        dropout: Share of the values set to zero in training before the last layer; with the
            backbone mlp also in the embedding itself.
        normalise: Where the mean and deviation of each band come from: measured on the training
            images, or those that the pretrained weights were made with; auto takes the latter
            where they apply.
    """

    backbone: str = "auto"
    weights: str = "auto"
    hidden: int = 512
    dropout: float = 0.0
    normalise: Literal["auto", "measured", "pretrained"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("hidden", self.hidden, 1)
        check_range("dropout", self.dropout, 0, 1, below=True)
