"""The settings of a run in parts: source of the data, labels, network, training.

The parts are frozen and hashable, so that each can serve as the key of a cache for what it decides,
such as opened data. `RunConfig` combines all of them in one flat class.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, Self

from adagc.errors import UsageError, check_range
from adagc.metrics.noisy import DEFAULT, CriterionName
from adagc.options import Choices


def _kinds() -> Collection[str]:
    """The names of all registered data sets."""
    from adagc.datasets.registry import names

    return names()


def require_labels(labels: object, scheme: str | None) -> None:
    """Raise UsageError unless exactly one of label file and simulation scheme is given."""
    if (labels is None) == (scheme is None):
        raise UsageError(
            "it is not clear which labels to use: give either --labels FILE or --scheme random"
        )


@dataclass(frozen=True)
class _Part:
    """The base of all parts: selecting a part of the settings, and converting it for files."""

    def __post_init__(self) -> None:
        """Each part checks its own values here and calls the method of its base."""

    @classmethod
    def of(cls, config: _Part) -> Self:
        """This part of settings that have further parts."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})

    def to_dict(self) -> dict[str, Any]:
        """Names and values for YAML and JSON; tuples become lists."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


@dataclass(frozen=True)
class Settings(_Part):
    """How to train; methods that are compared should have the same values.

    Args:
        epochs: Number of passes over all training images.
        batch_size: Images in one step of the optimiser.
        device_batch: Images of a batch that go through the network at a time, to save memory; the
            step takes longer and is that of the whole batch (except for batch normalisation).
        optimiser: Rule by which a step changes the weights. Adam is that of most methods; the
            originals of MIME use adamax, LAC adamw, RCML sgd (momentum 0.9).
        learning_rate: Learning rate of the optimiser.
        head_learning_rate: Learning rate of the last layer, by default that of the others. The
            originals of LL, BoostLU, GR and MIME fine-tune with ten times the other rate.
        head_epochs: Number of epochs at the start in which only the last layer is trained and the
            pretrained part of the network stays as it is (LinearInit of ROLE); 0 for none.
        weight_decay: Weight decay; 0 for none.
        schedule: How the learning rate changes over the run: constant keeps it, cosine lowers it
            from its full value to zero along half a cosine.
        augment: Random changes to training images: dihedral mirrors them and turns them by
            multiples of 90 degrees, none leaves them as they are.
        clip: Largest norm of the gradient of a step; gradients with a larger norm are scaled down
            to it. By default there is no limit.
        precision: Number format; auto uses bfloat16 on GPUs that have it, else
            32-bit numbers.
        average: Momentum, at least 0 and below 1, of an averaged copy of the network's weights,
            which is scored beside the network, with any method. By default there is none.
        select: What chooses the best epoch from the observed labels of the validation images: auc,
            how often an image with a label scores above one without it; noisy-map, the mean average
            precision if every other label counts as absent; likelihood, how likely the observed
            labels are if classes are named in proportion to their probabilities; tempered, the same
            with a fitted power of the probabilities; rank, how many classes score below the
            observed one.
        seed: Seed of everything random in training: initial weights, order of the images,
            augmentation, dropout.
        accelerator: Kind of device to train on; auto uses a GPU if there is one.
    """

    epochs: int = 40
    batch_size: int = 32
    device_batch: int | None = None
    optimiser: Literal["adam", "adamw", "adamax", "sgd"] = "adam"
    learning_rate: float = 5e-4
    head_learning_rate: float | None = None
    head_epochs: int = 0
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    augment: Literal["dihedral", "none"] = "dihedral"
    clip: float | None = None
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = "auto"
    average: float | None = None
    select: CriterionName = DEFAULT
    seed: int = 0
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("epochs", self.epochs, 1)
        check_range("batch_size", self.batch_size, 2)  # batch normalisation needs a variance
        check_range("device_batch", self.device_batch, 2)
        check_range("learning_rate", self.learning_rate, 0)
        check_range("head_learning_rate", self.head_learning_rate, 0)
        check_range("head_epochs", self.head_epochs, 0)
        check_range("weight_decay", self.weight_decay, 0)
        check_range("clip", self.clip, 1e-12)
        check_range("average", self.average, 0, 1, below=True)
        check_range("seed", self.seed, 0)


@dataclass(frozen=True)
class SourceSettings(_Part):
    """Where images and labels come from, and how images are split.

    Args:
        data: Kind of data set, as listed by adagc datasets; folder is for your own images.
        root: Folder of the data set, or its array file; synthetic scenes need none.
        size: Height and width in pixels to which all images are scaled. By default images keep
            their size, or get that of the published benchmark.
        split_seed: Seed of the random split into training, validation and test images, and of
            generated scenes.
        split: CSV file with the columns image,split that assigns each image to train, val or test,
            instead of a random split.
        labels: Label file with the observed labels to train on.
        truth: Label file with all labels (clean labels) of some or all images, for testing and for
            methods that need it.
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

        find(self.data)  # raises UsageError if there is no such data set
        check_range("size", self.size, 1)
        check_range("split_seed", self.split_seed, 0)


@dataclass(frozen=True)
class LabelSettings(SourceSettings):
    """The data, and which labels of its images count as observed.

    Args:
        scheme: Simulate the observed labels from the clean ones instead of reading a label file:
            random keeps one random label per image, dominant the label that covers most of the
            image, clean all labels.
        label_seed: Seed of this simulation, and of the choice of images for share.
        share: Share of the labelled training images to use, above 0 and at most 1.
        text: File with embeddings of the class names, as written by adagc text, for methods that
            use them. Those of the classes of reBEN, AID and UC Merced are built in.
        priors: Class frequencies for methods that want them (as EPR, LL-R): estimated by a short
            training before the run, truth, a file (priors.json), or published: truth where a
            method cannot do without, fixed numbers elsewhere.
        selection: File of rates at which annotators choose each class that is there, for Random
            label, Auto and other likelihood methods.
    """

    scheme: Literal["random", "dominant", "clean"] | None = None
    label_seed: int = 0
    share: float = 1.0
    text: str | None = None
    priors: str = "estimated"
    selection: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("label_seed", self.label_seed, 0)
        check_range("share", self.share, 1e-6, 1)


@dataclass(frozen=True)
class DataSettings(SourceSettings):
    """The settings that decide which data is opened, and no others.

    Args:
        bands: Names of the bands of the images, in their order; by default those in GeoTIFFs.
        nodata: Number that stands for missing values in the images, such as -9999; NaN, and the
            no-data value that a TIFF file names, always do. Statistics leave them out, and the
            network sees the band's mean there.
        cache: Folder in which decoded images are kept; by default that of the variable ADAGC_CACHE,
            or else the user's cache folder.
        skip_unreadable: Leave out images that cannot be read instead of stopping with an error.
        scenes: Number of training scenes of generated data (synthetic, mosaic); half as many are
            made for validation, and as many for testing.
        maps: Folder with a map of classes of each image, for areas (--scheme dominant) and, without
            --truth, clean labels.
        map_classes: CSV file (code,class): what numbers in maps mean; others are unlabelled.
        map_share: Share of a map from which on a class counts as present.
        split_by_place: Divide images by where they lie, in square blocks of so many metres, or by
            tile: the Sentinel-2 tile in their names.
        cloudy: Use also the patches of BigEarthNet with snow, clouds or shadow.
        resample: How bands of 20 and 60 m of BigEarthNet are enlarged: nearest or bicubic. By
            default nearest, or as the prepared store has it.
    """

    bands: tuple[str, ...] | None = None
    nodata: float | None = None
    cache: str | None = None
    skip_unreadable: bool = False
    scenes: int = 1500
    maps: str | None = None
    map_classes: str | None = None
    map_share: float = 0.03
    split_by_place: str | None = None
    cloudy: bool = False
    resample: Literal["nearest", "bicubic"] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bands is not None:  # YAML gives a list, which is not hashable
            object.__setattr__(self, "bands", tuple(self.bands))
        if self.nodata is not None and not math.isfinite(self.nodata):
            raise UsageError("--nodata must be a finite number; NaN always means missing")
        check_range("scenes", self.scenes, 4)
        check_range("map_share", self.map_share, 1e-9, 1)
        if self.split_by_place is not None:
            from adagc.datasets.places import read_place

            read_place(self.split_by_place)


@dataclass(frozen=True)
class ModelSettings(_Part):
    """Which network is trained.

    Args:
        backbone: Name of a timm model, or mlp or linear for embeddings and stored
            feature maps; auto chooses by the data.
        weights: Pretrained weights: none, registry (an installed package), hub (a download), or
            the path of a file; auto uses the installed package if it fits the backbone.
        weight_bands: Bands that the weights in a file were trained on, in their order, such as VH
            VV; known for weights published by reBEN and torchgeo.
        hidden: Width of the hidden layer of mlp.
        dropout: Share of the features that are set to zero in training before the last layer; with
            the backbone mlp also of the values of the embedding itself.
        normalise: Where mean and standard deviation of each band come from: measured on the
            training images, or those that the pretrained weights were made with; auto uses the
            latter if they apply.
    """

    backbone: str = "auto"
    weights: str = "auto"
    weight_bands: tuple[str, ...] | None = None
    hidden: int = 512
    dropout: float = 0.0
    normalise: Literal["auto", "measured", "pretrained"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight_bands is not None:  # YAML gives a list, which is not hashable
            object.__setattr__(self, "weight_bands", tuple(self.weight_bands))
            if self.weights in ("auto", "none", "registry", "hub"):
                raise UsageError("--weight-bands needs --weights FILE, whose bands it names")
        check_range("hidden", self.hidden, 1)
        check_range("dropout", self.dropout, 0, 1, below=True)
