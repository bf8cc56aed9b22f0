"""Out-of-fold probabilities: of every training image, by a network that has never seen it.

What a network says about images that it was trained on is too sure of itself, and of their missing
labels too sure that they are missing. Here the method of the run is trained again, once per fold,
without the images of the fold, and predicts them. What is done is kept beside the run, so that a
call that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from adagc.completion.subjects import Subjects
from adagc.errors import AdagcError, UsageError
from adagc.inference import predict
from adagc.methods import find
from adagc.models import ModelSpec
from adagc.progress import Meter, meter
from adagc.training.experiment import train
from adagc.training.fabric import make_fabric
from adagc.training.inputs import config_of
from adagc.training.network import suited
from adagc.training.runs import Run
from adagc.types import Losses, Progress

_RECIPE = 1  # raise it when the same run would be divided or trained in another way


def assign(observed: NDArray[np.int8], folds: int, seed: int) -> NDArray[np.int64]:
    """(N,) the fold of each image, from 0; every fold has its share of every observed class.

    >>> assign(np.eye(4, dtype=np.int8)[[0, 0, 1, 1]], 2, seed=0).tolist() in (
    ...     [0, 1, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0], [1, 0, 1, 0])
    True
    """
    order = np.random.default_rng(seed).permutation(len(observed))
    labels = (observed > 0).argmax(axis=1)[order]
    order = order[np.argsort(labels, kind="stable")]
    found = np.empty(len(observed), dtype=np.int64)
    found[order] = np.arange(len(observed)) % folds
    return found


def out_of_fold(run: Run, spec: ModelSpec, subjects: Subjects, folds: int) -> NDArray[np.float32]:
    """(len(train), C) probabilities of the training images, each by a network without it.

    Args:
        run: A finished run; what is done is kept in its folder.
        spec: Its model.
        subjects: Any images of the run: all its training images are predicted.
        folds: Number of networks to train.
    """
    labels, table = subjects.labels, subjects.table
    assert labels is not None
    assert table is not None
    rows, config = labels.train, config_of(run)
    if not 2 <= folds <= len(rows):
        raise UsageError(f"--folds must be at least 2 and at most {len(rows)}, not {folds}")
    fold_of = assign(labels.values[rows], folds, config.seed)
    key = _key(run, subjects, folds)
    found = np.empty((len(rows), len(spec.classes)), dtype=np.float32)
    device = make_fabric(config).device
    settings = replace(config, labels=None, scheme=None, split=None, share=1.0, oracle=False)
    with run.files.claimed(), meter("out of fold", folds, unit="folds", marks=True) as shown:
        for fold in range(folds):
            mine = np.flatnonzero(fold_of == fold)
            name = f"folds-{folds}/{fold + 1}.safetensors"
            kept = _load(run, name, key, (len(mine), len(spec.classes)))
            if kept is None:
                splits = {"train": rows[fold_of != fold], "val": labels.val}
                collection = replace(subjects.collection, splits=splits)
                method = find(run.settings.method)(**run.settings.options)
                with _quietly():
                    part = train(
                        settings,
                        method,
                        collection=collection,
                        labels=table,
                        on_step=_told(shown, fold, folds),
                    )
                model = part.model().to(device)
                order = [model.spec.classes.index(name) for name in spec.classes]
                images = suited(subjects.images, plain=model.spec.is_plain, head=model.spec.head)
                kept = predict(model, images, rows[mine], device=device)[:, order]
                _save(run, name, key, kept)
            found[mine] = kept
            shown.update(fold + 1)
            shown.mark(f"fold {fold + 1} of {folds} is predicted")
    return found


def _told(shown: Meter, fold: int, folds: int) -> Callable[[Progress, Losses], None]:
    """What to call after an optimiser step, to show how far the training of a fold is."""

    def step(where: Progress, _losses: Losses) -> None:
        if shown.due:
            done = (where.step + 1) / (where.epochs * where.steps_per_epoch)
            note = f"fold {fold + 1} of {folds}, epoch {where.epoch}/{where.epochs}"
            shown.update(fold + min(done, 1.0), note=note)

    return step


@contextmanager
def _quietly() -> Iterator[None]:
    """Leave out the log lines of training, which every fold would repeat."""
    chatty = logging.getLogger("adagc.training")
    before = chatty.level
    chatty.setLevel(logging.ERROR)
    try:
        yield
    finally:
        chatty.setLevel(before)


def _key(run: Run, subjects: Subjects, folds: int) -> str:
    """Digest of what the predictions of the folds depend on."""
    assert subjects.table is not None
    assert subjects.labels is not None
    names = [subjects.images.names[row] for row in subjects.labels.train.tolist()]
    known = [_RECIPE, folds, run.config, subjects.table.hash, names, dict(run.inputs)]
    return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()


def _save(run: Run, name: str, key: str, values: NDArray[np.float32]) -> None:
    if run.files.written_here:
        content: dict[str, NDArray[Any]] = {
            "probabilities": np.ascontiguousarray(values),
            "key": np.frombuffer(bytes.fromhex(key), dtype=np.uint8).copy(),
        }
        run.files.write(name, save_arrays(content))


def _load(run: Run, name: str, key: str, shape: tuple[int, int]) -> NDArray[np.float32] | None:
    """The predictions that an earlier call has kept; None if there are none that can be used."""
    if not run.exists(name):
        return None
    try:
        content = load_arrays(run.files.read(name))
        values = content["probabilities"].astype(np.float32)
        same = content["key"].tobytes().hex() == key and values.shape == shape
    except (SafetensorError, KeyError, OSError, ValueError, AdagcError):
        return None
    return values if same else None
