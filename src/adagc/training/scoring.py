"""Scores of a finished run on clean labels.

Clean labels of the test images are used here and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from adagc.datasets.collection import Collection
from adagc.errors import AdagcError, UsageError, examples
from adagc.images.band_names import band_names
from adagc.images.base import SceneDataset
from adagc.inference import predict
from adagc.limits import Thresholds, choose
from adagc.metrics import score
from adagc.models import THRESHOLD, Classifier, ModelSpec, read_description
from adagc.priors import Rule
from adagc.training.fabric import make_fabric
from adagc.training.held_out import limits
from adagc.training.inputs import check_same_data, config_of, open_configured, rows_of_split
from adagc.training.network import suited
from adagc.training.records import FORMAT, Choice, TestedEpoch, TestedNetwork, TestRecord
from adagc.training.runs import Run
from adagc.training.snapshots import saved_weights
from adagc.types import NetworkRole, with_role

_RULE: Rule = "pooled-f1"  # of estimates for a run that was trained without
_CLEAN = "clean"  # name of the clean labels in the file of predictions
_ABOUT = "adagc"  # name of the metadata in that file: JSON with the names of images and classes


def evaluate(
    run: Run | Path | str,
    *,
    split: str = "test",
    collection: Collection | None = None,
    absent: str | None = None,
    root: str | None = None,
    truth: str | None = None,
    other_data: bool = False,
    thresholds: str | None = None,
) -> TestRecord:
    """Score every network of a run on clean labels and write scores.json.

    The predictions are written, too. With several ranks all of them call this function, and each
    predicts its share of the images. Raises DataError if the images or their clean labels are not
    those of the run.

    Example:
        >>> from adagc import RunConfig, evaluate, train
        >>> config = RunConfig(data="synthetic", scenes=24, size=16, scheme="random", epochs=1,
        ...                    backbone="test_resnet", weights="none")
        >>> run = train(config, "AN")
        >>> tested = evaluate(run, split="val")
        >>> tested.images, 0 < tested.final.mean_average_precision < 1
        (12, True)
        >>> tested.table()["mean_f1"].shape
        (2,)

    Args:
        run: A finished run, or its folder.
        split: Name of the split to test on. Files of other splits than "test" have its name in
            theirs, as in scores-val.json.
        collection: The data set, if it is already open.
        absent: What to do about classes that no image contains, "error" or "skip"; by default the
            setting of the run.
        root: Folder of the images, if they have moved since training.
        truth: File with the clean labels, instead of that of the run.
        other_data: Score any images of the same kind, in the split that they have when they are
            opened. The scores go to other files, as in scores-other.json.
        thresholds: From which probability on a class counts as predicted: "half", "estimated" or a
            file, see `adagc.limits`; by default what the run was trained with. With another wish
            the scores go to another file, as in scores-half.json.
    """
    run = Run.of(run)
    if not run.finished:
        raise AdagcError(f"{run} is not finished: adagc train --resume completes it")
    config = config_of(run)
    config = replace(config, root=root or config.root, truth=truth or config.truth)
    # Observed labels do not matter here, and which images are tested is in split.csv. Without these
    # files a run can be tested where they do not exist, and so can other data.
    config = replace(config, labels=None, split=None)
    collection = collection or open_configured(config)
    if collection.truth is None:
        raise AdagcError("this data has no clean labels to evaluate against: give --truth FILE")
    if not other_data:
        rows = rows_of_split(run, collection, split)
    elif split in collection.splits:
        rows = collection.splits[split]
    else:
        raise UsageError(f"there is no split {split!r}: choose from {', '.join(collection.splits)}")
    tested = score_networks(
        run, collection, rows, split, absent, other_data=other_data, thresholds=thresholds
    )
    with run.files.claimed():
        tested.write(run)
    return tested.record


@dataclass(frozen=True)
class Tested:
    """The outcome of a test: scores, and the predictions that they were computed from."""

    record: TestRecord
    predictions: Mapping[str, NDArray[np.float32]]  # "<network>-<last|best>" -> (N, C)
    clean: NDArray[np.bool_]  # (N, C)
    images: tuple[str, ...]  # names of the images

    def write(self, run: Run) -> None:
        """Write scores and predictions into the folder of the run, if this rank writes."""
        if not run.files.written_here:
            return
        # With the clean labels, runs can be compared image by image without opening their data.
        arrays = {**self.predictions, _CLEAN: self.clean.astype(np.uint8)}
        # Safetensors ignores strides, so the arrays must be contiguous.
        ordered = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
        about = {
            "format": FORMAT,
            "method": self.record.method,
            "split": self.record.split,
            "classes": list(self.record.classes),
            "images": list(self.images),
        }
        # A single value, because safetensors writes several in any order.
        content = save_arrays(ordered, metadata={_ABOUT: json.dumps(about, ensure_ascii=False)})
        suffix = _suffix(self.record.split, other_data=self.record.other_data)
        run.files.write(f"predictions{suffix}.safetensors", content)
        if self.record.thresholds_from:  # scores.json is what tables compare: it stays
            suffix += f"-{Path(self.record.thresholds_from).stem}"
        run.write_json(f"scores{suffix}.json", self.record.to_dict())


def score_networks(
    run: Run,
    collection: Collection,
    rows: NDArray[np.int64],
    split: str = "test",
    absent: str | None = None,
    *,
    known: bool = False,
    other_data: bool = False,
    thresholds: str | None = None,
) -> Tested:
    """Predict these images with every network of a finished run, and score the predictions.

    Args:
        run: A finished run.
        collection: The data set, with clean labels of these images.
        rows: The images to test on.
        split: Name of their split, for the record.
        absent: What to do about classes that no image contains; see `evaluate`.
        known: These are the images of the run for certain, because it has just been trained.
        other_data: These may be any images; the record says so.
        thresholds: From which probability on a class counts as predicted; see `evaluate`.
    """
    config = config_of(run)
    model = run.model()
    wanted = None if thresholds is None else chosen_limits(run, thresholds)
    images = suited(collection.images, plain=model.spec.is_plain, head=model.spec.head)
    clean = clean_labels(replace(collection, images=images), model.spec, rows)
    if not (known or other_data):
        check_same_data(run, collection, split)
    check_classes(collection, rows, absent or config.absent)
    device = make_fabric(config).device
    model = model.to(device)
    made = run.made
    learnt = _learnt(run, config.thresholds, model)
    predictions: dict[str, NDArray[np.float32]] = {}
    table: dict[str, dict[Choice, TestedEpoch]] = {}
    for name, which, weights in saved_weights(run.files):
        if name not in made.best_epoch:
            continue
        model.load_state_dict(weights)
        values = predict(model, images, rows, device=device, together=True)
        choice: Choice = "last" if which == "last" else "best"
        # Networks of a run differ in how high their probabilities are: each has thresholds by the
        # same rule.
        deployed = made.roles[name].role is NetworkRole.DEPLOYED and choice == "last"
        own = limits(run, name, choice, config.thresholds) if learnt and not deployed else None
        if wanted is not None:
            own = _wanted(run, name, choice, wanted)
        used = model.thresholds.cpu().numpy() if own is None else np.array(own, dtype=np.float32)
        scores = score(clean, values, used, absent="skip")
        epoch = config.epochs if choice == "last" else made.best_epoch[name]
        table.setdefault(name, {})[choice] = TestedEpoch(
            epoch, scores, None if own is None or deployed else tuple(own)
        )
        predictions[f"{name}-{which}"] = values
    record = TestRecord(
        split=split,
        images=len(rows),
        thresholds=tuple(model.short_thresholds()) if wanted is None else wanted.values,
        classes=model.spec.classes,
        method=made.method,
        networks={
            name: TestedNetwork(made.roles[name].role, made.roles[name].title, epochs)
            for name, epochs in table.items()
        },
        other_data=other_data,
        thresholds_from="" if wanted is None else wanted.source,
    )
    names = tuple(collection.images.names[row] for row in rows.tolist())
    return Tested(record, predictions, clean, names)


def chosen_limits(run: Run, wanted: str | None) -> Thresholds:
    """The thresholds of the deployed network that a user asks for (`adagc.limits.choose`).

    Of a run that was trained without estimates they are made now, from what it has kept of its
    validation images.
    """
    described = read_description(run.files.models)
    stored: Sequence[float] = described.thresholds
    if wanted == "estimated" and set(stored) == {THRESHOLD}:
        name = with_role(run.made.roles, NetworkRole.DEPLOYED)
        assert name is not None
        return Thresholds(tuple(limits(run, name, "last", _RULE)), "estimated")
    return choose(wanted, described.spec.classes, stored)


def rescored(run: Run, thresholds: str) -> TestRecord | None:
    """The test of a run with other thresholds, from its saved predictions; None without a test.

    Args:
        run: A finished run.
        thresholds: "half", "estimated" or a file, see `adagc.limits`.
    """
    tested, wanted = run.scores, chosen_limits(run, thresholds)
    if tested is None:
        return None
    saved, clean = predictions_of(run), truth_of(run)

    def again(name: str, choice: Choice, at: TestedEpoch) -> TestedEpoch:
        own = _wanted(run, name, choice, wanted)
        used = np.array(own, dtype=np.float32)
        scores = score(clean, saved[f"{name}-{choice}"], used, absent="skip")
        return replace(at, scores=scores, thresholds=tuple(own) if wanted.estimated else None)

    networks = {
        name: replace(
            one, epochs={choice: again(name, choice, at) for choice, at in one.epochs.items()}
        )
        for name, one in tested.networks.items()
    }
    return replace(
        tested, networks=networks, thresholds=wanted.values, thresholds_from=wanted.source
    )


def _wanted(run: Run, name: str, choice: Choice, wanted: Thresholds) -> list[float]:
    """The thresholds for one of the networks: estimates are made for each, others are for all."""
    deployed = run.made.roles[name].role is NetworkRole.DEPLOYED and choice == "last"
    if wanted.estimated and not deployed:
        rule = config_of(run).thresholds
        return limits(run, name, choice, _RULE if rule == "half" else rule)
    return list(wanted.values)


def _learnt(run: Run, rule: Rule, model: Classifier) -> bool:
    """Whether the model has the thresholds that were learnt for it, and not those of somebody."""
    name = with_role(run.made.roles, NetworkRole.DEPLOYED)
    if rule == "half" or name is None:
        return False
    found = torch.tensor(limits(run, name, "last", rule), dtype=torch.float32)
    return bool(torch.equal(found, model.thresholds.cpu())) and set(found.tolist()) != {THRESHOLD}


def clean_labels(
    collection: Collection, spec: ModelSpec, rows: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """(N, C) clean labels of these rows, in the order of the model's classes.

    Raises AdagcError if bands, image size or classes differ from those of the model, or if an image
    has no clean labels.
    """
    assert collection.truth is not None
    check_input(collection.images, spec)
    if set(collection.classes) != set(spec.classes):
        different = sorted(set(collection.classes) ^ set(spec.classes))
        raise AdagcError(
            f"the classes of the clean labels are not those of the model ({different[0]!r} is"
            " only in one of them): use the same classes"
        )
    unknown = int((~collection.has_truth(rows)).sum())
    if unknown:
        raise AdagcError(
            f"{unknown} of {len(rows)} images have no clean labels: add them to the file of"
            " --truth, or evaluate another split"
        )
    order = [collection.classes.index(name) for name in spec.classes]
    return collection.truth[rows][:, order]


def check_input(images: SceneDataset, spec: ModelSpec) -> None:
    """Raise AdagcError if bands or size of these images differ from those of the model."""
    unnamed = band_names(len(spec.bands)) in (images.bands, spec.bands)  # counted, if either is
    if (images.bands != spec.bands and not unnamed) or images.shape != spec.shape:
        raise AdagcError(
            f"the model was trained on images of shape {spec.shape} with the bands"
            f" {', '.join(spec.bands[:4])}..., but these have shape {images.shape} and the bands"
            f" {', '.join(images.bands[:4])}...: use images as in training"
        )


def check_classes(collection: Collection, rows: NDArray[np.int64], absent: str) -> list[str]:
    """The classes that no image contains; AdagcError if there are any and `absent` is "error".

    Training calls this before it begins, so that no time is lost.
    """
    assert collection.truth is not None
    counts = collection.truth[rows].sum(axis=0)
    empty = [name for name, count in zip(collection.classes, counts, strict=True) if not count]
    if empty and absent == "error":
        raise AdagcError(
            f"no test image contains {examples(empty, 5)}: leave such classes out of the mAP with"
            " --absent skip, or test on more images"
        )
    if len(empty) == len(collection.classes):
        raise AdagcError(
            f"none of the {len(rows)} test images contains any class: check the clean labels"
        )
    return empty


def predictions_of(run: Run, split: str = "test") -> dict[str, NDArray[np.float32]]:
    """The saved probabilities (N, C) of a tested run, by "<network>-<last|best>"."""
    return {name: values for name, values in _tested(run, split)[0].items() if name != _CLEAN}


def truth_of(run: Run, split: str = "test") -> NDArray[np.bool_]:
    """(N, C) clean labels with which the saved probabilities were scored."""
    clean = _tested(run, split)[0].get(_CLEAN)
    if clean is None:
        raise AdagcError(
            f"{run} was tested by an older adagc, without clean labels in its predictions: run "
            f" adagc evaluate {run}"
        )
    return clean.astype(bool)


def images_of(run: Run, split: str = "test") -> tuple[str, ...] | None:
    """Names of the images of the saved probabilities, row by row; None in files without names."""
    about = _tested(run, split)[1].get(_ABOUT)
    return None if about is None else tuple(json.loads(about)["images"])


def _suffix(split: str, *, other_data: bool = False) -> str:
    """What distinguishes the names of the files from those of the test of a run."""
    return f"{'-other' if other_data else ''}{'' if split == 'test' else f'-{split}'}"


def _tested(run: Run, split: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """All arrays in the file of predictions, and its metadata.

    AdagcError if it is missing or damaged.
    """
    name = f"predictions{_suffix(split)}.safetensors"
    if not run.exists(name):
        raise AdagcError(f"{run} has no predictions: run  adagc evaluate {run}")
    try:
        content = run.files.read(name)
        arrays = dict(load_arrays(content))
        # The length of the header, then the header: the library reads metadata from paths only.
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return arrays, header.get("__metadata__", {})
    except (SafetensorError, OSError, ValueError) as error:
        raise AdagcError(f"{run}/{name} is damaged ({error}): run  adagc evaluate {run}") from error
