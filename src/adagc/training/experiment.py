"""One run from images and labels to a trained, tested and saved network."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adagc import ranks
from adagc.datasets.collection import Collection
from adagc.errors import UnsuitedError, UsageError
from adagc.labels import LabelTable, flip_rates, write_labels
from adagc.methods.base import Method
from adagc.models import Classifier, save_model
from adagc.models.spec import PLAIN_BACKBONES
from adagc.options import read
from adagc.training.batches import batch_bounds
from adagc.training.config import RunConfig
from adagc.training.contents import contents, located
from adagc.training.fabric import make_fabric
from adagc.training.inputs import config_of, open_configured, split_text
from adagc.training.loop import Validation, fit
from adagc.training.network import network_maker, resolve, suited
from adagc.training.observe import Observed, observe
from adagc.training.oracle import Oracle, Pair
from adagc.training.records import EpochRecord, ImageCounts, LabelSummary, ModelRecord
from adagc.training.runs import Run
from adagc.training.scoring import check_classes, evaluate, predictions_of
from adagc.training.settings import Settings
from adagc.types import Losses, NetworkRole, Progress, Task, with_role

log = logging.getLogger(__name__)


def options_of(method: Method) -> dict[str, Any]:
    """The hyper-parameters of a method, read back from its constructor's signature."""
    return {name: getattr(method, name) for name in read(type(method))}


def train(
    config: RunConfig,
    method: Method,
    out: Path | str | None = None,
    *,
    resume: bool = False,
    collection: Collection | None = None,
    labels: LabelTable | Path | str | None = None,
    on_step: Callable[[Progress, Losses], None] | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
) -> Run:
    """Train a method as configured and leave a complete run, scores included.

    Args:
        config: All settings.
        method: Freshly built; `setup` is called here.
        out: The run folder; without one nothing is written, and the run is in memory only.
        resume: Continue what is there.
        collection: An already opened data set, instead of opening the configured one; the label
            file that came with it is not read again.
        labels: What was observed, a table or a file, instead of the configured file.
        on_step: Called after every optimiser step.
        on_epoch: Called with every line of the history.
    """
    if out is None and resume:
        raise UsageError("only a run with a folder can be continued: give the folder (out)")
    table = labels if isinstance(labels, LabelTable) else None
    if labels is not None:
        config = replace(config, labels=None if table is not None else str(labels))
    collection = collection or open_configured(config, labels=table)
    config = resolve(config, collection.images)
    observed = observe(
        collection,
        labels=located(vars(config), "labels") if table is None else table,
        scheme=config.scheme,
        label_seed=config.label_seed,
        share=config.share,
    )
    testable = collection.truth is not None and len(collection.splits.get("test", ())) > 0
    if testable:
        check_classes(collection, collection.splits["test"], config.absent)
    settings = Settings.of(config)
    fabric = make_fabric(settings)  # before the task: ranks decide how an epoch is cut
    task = make_task(config, method, collection, observed)
    method.check(task)
    head = method.head()
    images = suited(collection.images, plain=config.backbone in PLAIN_BACKBONES, head=head)
    fresh = network_maker(config, images, collection.classes, observed.train, head)
    task = replace(task, fresh=fresh)
    network = fresh(config.seed)
    # Only now, when no setting can be wrong any more: a refused run leaves no folder behind.
    record = {"method": {"title": method.title, **options_of(method)}, **config.to_dict()}
    if out is None or ranks.rank() == 0:
        run = Run.start(out, record, resume=resume, contents=contents(record))
        _note_inputs(run, collection, observed)
    ranks.wait()
    run = run if out is None else Run.open(out)
    log.info("%s with network %s, weights %s", method.title, config.backbone, config.weights)
    for note in collection.notes:
        log.info(note)
    trained = fit(
        network,
        method,
        task,
        images,
        observed.train,
        Validation(observed.val, observed.values[observed.val]),
        run.files,
        settings,
        resume=resume,
        fabric=fabric,
        observer=make_oracle(collection, observed) if config.oracle else None,
        on_step=on_step,
        on_epoch=on_epoch,
    )
    name = with_role(trained.roles, NetworkRole.DEPLOYED)
    assert name is not None  # as `reported_by` makes sure
    deployed = trained.networks[name]
    assert isinstance(deployed, Classifier)
    made = ModelRecord(
        method=method.title,
        best_epoch=trained.best_epoch,
        epochs=config.epochs,
        training_seconds=round(trained.seconds, 1),
        roles=trained.roles,
    )
    if run.files.written_here:
        save_model(run.files.models, deployed, extra=made.to_dict())
    ranks.wait()  # until the networks can be read, by all
    if testable:
        evaluate(run, collection=collection)
        ranks.wait()  # until the scores can be read
    return run


def _note_inputs(run: Run, collection: Collection, observed: Observed) -> None:
    """Write down labels and splits; a run that continues must find the same ones."""
    split = split_text(collection)
    before = run.labels
    if before is None:
        text = io.StringIO(newline="")
        write_labels(observed.table, text)
        run.files.write("labels.csv", text.getvalue())
        run.files.write("split.csv", split)
        run.write_json("labels.json", describe_labels(collection, observed).to_dict())
        return
    if before.hash != observed.table.hash:
        what = "labels (hash in labels.json): use the same label file"
    elif run.files.read("split.csv").decode() != split:
        what = "images or another split (split.csv): use the same images"
    else:
        return
    raise UsageError(f"{run} was started with other {what}, or choose another --out")


def make_task(
    config: RunConfig, method: Method, collection: Collection, observed: Observed
) -> Task:
    """All that training may know: clean labels enter only as far as the method declares."""
    truth = priors = text = None
    if "feature_map" in method.needs and not collection.images.is_image:
        raise UnsuitedError(
            f"{method.title} needs to know where things are, and pooled embeddings do not say: give"
            " images or stored feature maps (N x D x h x w)"
        )
    if "text" in method.needs:
        text = _text(config.text, collection.classes)
    known = collection.has_truth(observed.train)
    if "truth" in method.needs and known.any() and not known.all():
        raise UnsuitedError(
            f"{method.title} needs clean labels of all training images, {(~known).sum()} of"
            f" {len(known)} have none: complete the truth, or use another method"
        )
    if collection.truth is not None and known.any():
        clean = torch.from_numpy(collection.truth[observed.train].astype(np.float32))
        truth = clean if "truth" in method.needs else None
        priors = clean[torch.from_numpy(known)].mean(dim=0) if "priors" in method.needs else None
    return Task(
        classes=collection.classes,
        observed=torch.from_numpy(observed.values[observed.train]),
        epochs=config.epochs,
        steps_per_epoch=len(batch_bounds(len(observed.train), config.batch_size, ranks.world())),
        seed=config.seed,
        truth=truth,
        priors=priors,
        text=text,
    )


def make_oracle(collection: Collection, observed: Observed) -> Oracle | None:
    """Who watches training with clean labels in hand, if there are any."""
    truth = collection.truth
    if truth is None:
        return None

    def pair(rows: NDArray[np.int64]) -> Pair:
        return Pair(truth[rows], collection.has_truth(rows), observed.values[rows])

    return Oracle(val=pair(observed.val), train=pair(observed.train))


def _text(path: str | None, classes: tuple[str, ...]) -> torch.Tensor | None:
    """Embeddings of the class names: the user's, or those that come with the package."""
    from adagc.text import read_text, shipped

    values = read_text(path, classes) if path is not None else shipped(classes)
    return None if values is None else torch.from_numpy(np.asarray(values, dtype=np.float32))


def describe_labels(collection: Collection, observed: Observed) -> LabelSummary:
    """What labels.json says of the observed labels."""
    train, table = observed.values[observed.train], observed.table
    known = collection.has_truth(observed.train)
    rates = None
    if collection.truth is not None and known.any():
        rates = flip_rates(collection.truth[observed.train][known], train[known])
    return LabelSummary(
        hash=table.hash,
        classes=collection.classes,
        images=ImageCounts(
            train=len(observed.train),
            val=len(observed.val),
            test=len(collection.splits.get("test", ())),
            left_out=observed.left_out,
        ),
        observed_counts=tuple((train > 0).sum(axis=0).tolist()),
        source=table.meta.get("source") or (Path(table.source).name if table.source else None),
        flip_rates=rates,
        meta=table.meta,
    )


__all__ = ["config_of", "evaluate", "open_configured", "predictions_of", "train"]
