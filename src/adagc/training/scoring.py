"""Scores on clean labels: the one place where those of the test images are read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from adagc.datasets.collection import Collection
from adagc.errors import AdagcError
from adagc.inference import predict
from adagc.metrics import score
from adagc.models import ModelSpec
from adagc.training.fabric import make_fabric
from adagc.training.inputs import config_of, open_configured, rows_of_split
from adagc.training.network import suited
from adagc.training.records import Choice, TestedEpoch, TestedNetwork, TestRecord
from adagc.training.runs import Run
from adagc.training.snapshots import saved_weights

_CLEAN = "clean"  # beside the probabilities


def evaluate(
    run: Run,
    *,
    split: str = "test",
    collection: Collection | None = None,
    absent: str | None = None,
    root: str | None = None,
    truth: str | None = None,
) -> TestRecord:
    """Score every network of a run on clean labels and write scores.json.

    This is the one place where clean labels of the test images are read. With several ranks all of
    them call it, and each predicts its share of the images.
    """
    if not run.finished:
        raise AdagcError(f"{run} is not finished: adagc train --resume completes it")
    config = config_of(run)
    config = replace(config, root=root or config.root, truth=truth or config.truth)
    collection = collection or open_configured(config)
    if collection.truth is None:
        raise AdagcError("this data has no clean labels to evaluate against: give --truth FILE")
    model = run.model()
    rows = rows_of_split(run, collection, split)
    images = suited(collection.images, plain=model.spec.is_plain, head=model.spec.head)
    clean = clean_labels(replace(collection, images=images), model.spec, rows)
    check_classes(collection, rows, absent or config.absent)
    device = make_fabric(config).device
    model = model.to(device)
    made = run.made
    predictions: dict[str, NDArray[Any]] = {}
    table: dict[str, dict[Choice, TestedEpoch]] = {}
    for name, which, weights in saved_weights(run.files):
        if name not in made.best_epoch:
            continue
        model.load_state_dict(weights)
        values = predict(model, images, rows, device=device, together=True)
        scores = score(clean, values, model.thresholds.cpu().numpy(), absent="skip")
        choice: Choice = "last" if which == "last" else "best"
        epoch = config.epochs if choice == "last" else made.best_epoch[name]
        table.setdefault(name, {})[choice] = TestedEpoch(epoch, scores)
        predictions[f"{name}-{which}"] = values
    # So that runs can be compared image by image without opening their data again.
    predictions[_CLEAN] = clean.astype(np.uint8)
    result = TestRecord(
        split=split,
        images=len(rows),
        thresholds=tuple(model.short_thresholds()),
        classes=model.spec.classes,
        method=made.method,
        networks={
            name: TestedNetwork(made.roles[name].role, made.roles[name].title, epochs)
            for name, epochs in table.items()
        },
    )
    suffix = "" if split == "test" else f"-{split}"
    # Safetensors writes memory as it lies: rows and columns must lie in the usual order.
    ordered = {name: np.ascontiguousarray(values) for name, values in predictions.items()}
    if run.files.written_here:
        run.files.write(f"predictions{suffix}.safetensors", save_arrays(ordered))
        run.write_json(f"scores{suffix}.json", result.to_dict())
    return result


def clean_labels(
    collection: Collection, spec: ModelSpec, rows: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """The clean labels of these rows in the order of the model's classes; refuses other data."""
    assert collection.truth is not None
    images = collection.images
    if images.bands != spec.bands or images.shape != spec.shape:
        raise AdagcError(
            f"the model was trained on {spec.shape} with the bands {', '.join(spec.bands[:4])}...,"
            f" this data has {images.shape} with {', '.join(images.bands[:4])}...: open it as for"
            " training"
        )
    if set(collection.classes) != set(spec.classes):
        strange = sorted(set(collection.classes) ^ set(spec.classes))
        raise AdagcError(
            f"the classes of the clean labels are not those of the model ({strange[0]!r} is in one"
            " only): use the same classes"
        )
    unknown = int((~collection.has_truth(rows)).sum())
    if unknown:
        raise AdagcError(
            f"{unknown} of {len(rows)} images have no clean labels: complete the truth, or evaluate"
            " another split"
        )
    order = [collection.classes.index(name) for name in spec.classes]
    return collection.truth[rows][:, order]


def check_classes(collection: Collection, rows: NDArray[np.int64], absent: str) -> None:
    """Refuse to test on a class that no image contains, before any time is spent."""
    assert collection.truth is not None
    counts = collection.truth[rows].sum(axis=0)
    empty = [name for name, count in zip(collection.classes, counts, strict=True) if not count]
    if empty and absent == "error":
        raise AdagcError(
            f"no test image contains {', '.join(empty[:5])}: leave such classes out of the mAP with"
            " absent: skip (--absent skip), or test on more images"
        )


def predictions_of(run: Run, split: str = "test") -> dict[str, NDArray[np.float32]]:
    """Saved probabilities, "<network>-<last|best>" to (N, C)."""
    return {name: values for name, values in _tested(run, split).items() if name != _CLEAN}


def truth_of(run: Run, split: str = "test") -> NDArray[np.bool_]:
    """(N, C) the clean labels that the saved probabilities were scored with."""
    found = _tested(run, split).get(_CLEAN)
    if found is None:
        raise AdagcError(f"{run} was tested before: run  adagc evaluate {run}")
    return found.astype(bool)


def _tested(run: Run, split: str) -> dict[str, NDArray[Any]]:
    name = f"predictions{'' if split == 'test' else f'-{split}'}.safetensors"
    if not run.exists(name):
        raise AdagcError(f"{run} has no predictions: run  adagc evaluate {run}")
    try:
        return dict(load_arrays(run.files.read(name)))
    except (SafetensorError, OSError) as error:
        raise AdagcError(f"{run}/{name} is damaged ({error}): run  adagc evaluate {run}") from error
