"""One run from images and labels to a trained, tested and saved network."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save as save_arrays

from adagc.atomic import write_bytes
from adagc.data import Collection, open_collection
from adagc.errors import AdagcError, UsageError
from adagc.labels import flip_rates, write_labels
from adagc.methods.base import Method
from adagc.metrics import score
from adagc.models import Classifier, load_model, save_model
from adagc.models.tensors import read_safetensors
from adagc.training.batches import batch_bounds
from adagc.training.config import RunConfig
from adagc.training.evaluate import Oracle, predict
from adagc.training.loop import Settings, Validation, fit
from adagc.training.network import make_network
from adagc.training.observe import Observed, observe
from adagc.training.runs import Run
from adagc.types import Losses, Progress, Task

log = logging.getLogger(__name__)


def options_of(method: Method) -> dict[str, Any]:
    """The hyper-parameters of a method, read back from its constructor's signature."""
    names = inspect.signature(type(method).__init__).parameters
    return {name: getattr(method, name) for name in names if name not in ("self", "args", "kwargs")}


def train(
    config: RunConfig,
    method: Method,
    out: Path | str,
    *,
    resume: bool = False,
    collection: Collection | None = None,
    on_step: Callable[[Progress, Losses], None] | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
) -> Run:
    """Train a method as configured and leave a complete run folder, scores included.

    Args:
        config: All settings.
        method: Freshly built; `setup` is called here.
        out: The run folder.
        resume: Continue what is there.
        collection: An already opened data set, instead of opening the configured one.
        on_step: Called after every optimiser step.
        on_epoch: Called with every line of the history.
    """
    collection = collection or open_configured(config)
    observed = observe(
        collection, labels=config.labels, scheme=config.scheme, label_seed=config.label_seed
    )
    testable = collection.truth is not None and len(collection.splits.get("test", ())) > 0
    if testable:
        check_classes(collection, collection.splits["test"], config.absent)
    task = make_task(config, method, collection, observed)
    method.check(task)
    network = make_network(config, collection.images, collection.classes, observed.train)
    # Only now, when no setting can be wrong any more: a refused run leaves no folder behind.
    record = {"method": {"title": method.title, **options_of(method)}, **asdict(config)}
    run = Run.start(out, record, resume=resume)
    if not run.path("labels.json").exists():
        write_labels(observed.table, run.path("labels.csv"))
        run.write_json("labels.json", describe_labels(collection, observed))
    elif run.read_json("labels.json")["hash"] != observed.table.hash:
        raise UsageError(
            f"{out} was started with other labels (hash in labels.json): use the same label file,"
            " or choose another --out"
        )
    oracle = None
    if config.oracle and collection.truth is not None:
        oracle = Oracle(
            collection.truth[observed.val],
            collection.truth[observed.train],
            observed.values[observed.train],
        )
    trained = fit(
        network,
        method,
        task,
        collection.images,
        observed.train,
        Validation(observed.val, observed.values[observed.val] > 0),
        run.folder,
        Settings(**{name: getattr(config, name) for name in Settings.__dataclass_fields__}),
        resume=resume,
        observer=oracle,
        on_step=on_step,
        on_epoch=on_epoch,
    )
    deployed = trained.networks["network"]
    assert isinstance(deployed, Classifier)
    save_model(
        run.folder,
        deployed,
        extra={
            "method": method.title,
            "best_epoch": trained.best_epoch,
            "epochs": config.epochs,
            "training_seconds": round(trained.seconds, 1),
        },
    )
    if testable:
        evaluate(run, collection=collection)
    return run


def open_configured(config: RunConfig) -> Collection:
    """The data set a configuration names."""
    return open_collection(
        config.data,
        config.root,
        size=config.size,
        seed=config.split_seed,
        split=config.split,
        labels=config.labels,
        truth=config.truth,
        bands=config.bands,
        cache=config.cache,
        skip_unreadable=config.skip_unreadable,
        scenes=config.scenes,
    )


def make_task(
    config: RunConfig, method: Method, collection: Collection, observed: Observed
) -> Task:
    """All that training may know: clean labels enter only as far as the method declares."""
    truth = priors = None
    if collection.truth is not None:
        clean = torch.from_numpy(collection.truth[observed.train].astype(np.float32))
        truth = clean if "truth" in method.needs else None
        priors = clean.mean(dim=0) if "priors" in method.needs else None
    return Task(
        classes=collection.classes,
        observed=torch.from_numpy(observed.values[observed.train]),
        epochs=config.epochs,
        steps_per_epoch=len(batch_bounds(len(observed.train), config.batch_size)),
        seed=config.seed,
        truth=truth,
        priors=priors,
    )


def describe_labels(collection: Collection, observed: Observed) -> dict[str, Any]:
    """What labels.json says of the observed labels."""
    train = observed.values[observed.train]
    record: dict[str, Any] = {
        "hash": observed.table.hash,
        "source": Path(observed.table.source).name if observed.table.source else None,
        **observed.table.meta,
        "classes": list(collection.classes),
        "images": {
            "train": len(observed.train),
            "val": len(observed.val),
            "test": len(collection.splits.get("test", ())),
            "left_out": observed.left_out,
        },
        "observed_counts": (train > 0).sum(axis=0).tolist(),
    }
    if collection.truth is not None:
        record["flip_rates"] = flip_rates(collection.truth[observed.train], train).to_dict()
    return record


def evaluate(
    run: Run,
    *,
    split: str = "test",
    collection: Collection | None = None,
    absent: str | None = None,
) -> dict[str, Any]:
    """Score every network of a run on clean labels and write scores.json.

    This is the one place where clean labels of the test images are read.
    """
    if not run.finished:
        raise AdagcError(f"{run.folder} is not finished: adagc train --resume completes it")
    config = config_of(run)
    collection = collection or open_configured(config)
    if collection.truth is None:
        raise AdagcError("this data has no clean labels to evaluate against: give --truth FILE")
    rows = collection.splits.get(split)
    if rows is None or len(rows) == 0:
        raise AdagcError(f"there is no split {split!r}: choose from {', '.join(collection.splits)}")
    check_classes(collection, rows, absent or config.absent)
    model = load_model(run.folder)
    description = run.read_json("model.json")["extra"]
    predictions: dict[str, NDArray[np.float32]] = {}
    table: dict[str, Any] = {}
    for path in sorted((run.folder / "weights").glob("*.safetensors")):
        name, _, which = path.stem.rpartition("-")
        if name not in description["best_epoch"]:
            continue
        model.load_state_dict(read_safetensors(path)[0])
        values = predict(model, collection.images, rows)
        scores = score(collection.truth[rows], values, absent="skip")
        epoch = config.epochs if which == "last" else description["best_epoch"][name]
        table.setdefault(name, {})[which] = {"epoch": epoch, **scores.to_dict()}
        predictions[f"{name}-{which}"] = values
    result = {
        "split": split,
        "images": len(rows),
        "threshold": 0.5,
        "classes": list(collection.classes),
        "method": description["method"],
        "networks": table,
    }
    suffix = "" if split == "test" else f"-{split}"
    write_bytes(run.path(f"predictions{suffix}.safetensors"), save_arrays(predictions))
    run.write_json(f"scores{suffix}.json", result)
    return result


def check_classes(collection: Collection, rows: NDArray[np.int64], absent: str) -> None:
    """Refuse to test on a class that no image contains, before any time is spent."""
    assert collection.truth is not None
    counts = collection.truth[rows].sum(axis=0)
    empty = [name for name, count in zip(collection.classes, counts, strict=True) if not count]
    if empty and absent == "error":
        raise AdagcError(
            f"no test image contains {', '.join(empty[:5])}: leave such classes out of the mAP with"
            " --absent skip, or test on more images"
        )


def config_of(run: Run) -> RunConfig:
    """The settings of a finished or unfinished run."""
    fields = RunConfig.__dataclass_fields__
    return RunConfig(**{name: value for name, value in run.config.items() if name in fields})


def predictions_of(run: Run, split: str = "test") -> dict[str, NDArray[np.float32]]:
    """Saved probabilities, "<network>-<last|best>" to (N, C)."""
    suffix = "" if split == "test" else f"-{split}"
    path = run.path(f"predictions{suffix}.safetensors")
    if not path.exists():
        raise AdagcError(f"{run.folder} has no predictions: run  adagc evaluate {run.folder}")
    return dict(load_arrays(path))


__all__ = ["config_of", "evaluate", "open_configured", "predictions_of", "train"]
