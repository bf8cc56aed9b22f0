"""A whole run: open the data, train the network, save it, and test it."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc import ranks
from adagc.atomic import encoded
from adagc.datasets.collection import Collection
from adagc.datasets.inspect.labels import class_warnings, contradictions
from adagc.errors import UsageError
from adagc.labels import LabelTable, flip_rates, write_labels
from adagc.methods import DEFAULT, find
from adagc.methods.base import Method
from adagc.methods.told import source_of
from adagc.models import THRESHOLD, Classifier, save_model
from adagc.options import read
from adagc.suggest import require_path
from adagc.training.config import RunConfig
from adagc.training.contents import contents, data_digests, located
from adagc.training.fabric import make_fabric
from adagc.training.held_out import limits
from adagc.training.inputs import (
    check_values,
    config_of,
    open_configured,
    recorded_split,
    rows_of_split,
    split_text,
)
from adagc.training.lock import writing
from adagc.training.loop import Validation, fit
from adagc.training.network import furnished, resolve
from adagc.training.observe import Observed, count_images, observe
from adagc.training.oracle import Oracle, Pair
from adagc.training.pilot import (
    estimated_priors,
    informed,
    known_priors,
    stand_in,
)
from adagc.training.prior_files import PRIORS
from adagc.training.records import EpochRecord, LabelSummary, ModelRecord, fewer_classes
from adagc.training.runs import Run
from adagc.training.scoring import check_classes, evaluate, predictions_of, score_networks
from adagc.training.settings import Settings
from adagc.training.short import Material, Spent, spent_on
from adagc.training.shortlist import decided
from adagc.training.task import make_task
from adagc.types import Losses, NetworkRole, Progress, with_role

log = logging.getLogger(__name__)


def _defaults(method: type[Method]) -> dict[str, Any]:
    """The defaults of a method's options and of all settings, in the form of config.yaml."""
    own = {name: option.default for name, option in read(method).items()}
    return {"method": own, **RunConfig().to_dict()}


def options_of(method: Method) -> dict[str, Any]:
    """The options of a method, by the names of its constructor's parameters."""
    return {name: getattr(method, name) for name in read(type(method))}


def _published(method: Method) -> dict[str, Any]:
    """The options of a method, open ones as published; so config.yaml has always named them."""
    return {
        name: method.fixed.get(name) if value is None else value
        for name, value in options_of(method).items()
    }


def train(
    config: RunConfig,
    method: Method | type[Method] | str = DEFAULT,
    out: Path | str | None = None,
    *,
    resume: bool = False,
    collection: Collection | None = None,
    labels: LabelTable | Path | str | None = None,
    on_step: Callable[[Progress, Losses], None] | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    pilots: Path | None = None,
) -> Run:
    """Train a method with these settings, and test it if there are clean labels of test images.

    Returns the complete run: its model, history, predictions and scores.

    Example:
        >>> from adagc import RunConfig, train
        >>> config = RunConfig(data="synthetic", scenes=24, size=16, scheme="random", epochs=1,
        ...                    backbone="test_resnet", weights="none")
        >>> run = train(config, "AN")  # or with options: train(config, AssumeNegative(...))
        >>> run.scores.final.mean_average_precision > 0.1
        True

    Args:
        config: All settings of the run.
        method: What to train: a name that `adagc methods` lists, or a new object of a method, which
            may have options; its `setup` is called here.
        out: The run folder. Without one nothing is written, and the run is kept in memory.
        resume: Continue the run that is already in the folder, if there is one.
        collection: A data set that is already open, to be used instead of opening the one that
            `config` names; its label file is not read again.
        labels: The observed labels, as a table or as the path of a file, to be used instead of the
            file that `config` names.
        on_step: Called after every optimiser step.
        on_epoch: Called after every epoch with its line of the history.
        pilots: Folder of estimated class frequencies, which runs of several methods with the same
            data and seed share; without one every run estimates its own.
    """
    made = find(method) if isinstance(method, str) else method
    method = made() if isinstance(made, type) else made
    if out is None and resume:
        raise UsageError("only a run with a folder can be continued: give the folder (out)")
    with ExitStack() as claims:
        return _train(
            config, method, out, resume, collection, labels, on_step, on_epoch, pilots, claims
        )


def _train(
    config: RunConfig,
    method: Method,
    out: Path | str | None,
    resume: bool,
    collection: Collection | None,
    labels: LabelTable | Path | str | None,
    on_step: Callable[[Progress, Losses], None] | None,
    on_epoch: Callable[[EpochRecord], None] | None,
    pilots: Path | None,
    claims: ExitStack,
) -> Run:
    """Train and test; arguments as for `train`.

    The lock of the folder is taken only when all settings are checked, and put into `claims`, which
    the caller closes.
    """
    if out is not None and resume:
        config = _as_started(config, Run(out))
    table = labels if isinstance(labels, LabelTable) else None
    if labels is not None:
        config = replace(config, labels=None if table is not None else str(labels))
    collection = collection or open_configured(config, labels=table)
    config = resolve(config, collection.images)
    file = located(vars(config), "labels")
    if table is None and config.scheme is None:
        require_path("labels", file)
    observed = observe(
        collection,
        labels=file if table is None else table,
        scheme=config.scheme,
        label_seed=config.label_seed,
        share=config.share,
    )
    log.info(count_images(collection, observed).sentence)
    for remark in label_remarks(collection, observed, simulated=config.scheme is not None):
        log.warning(remark)
    test = collection.splits.get("test", np.zeros(0, dtype=np.int64))
    testable = collection.truth is not None and len(test) > 0
    if testable:
        absent = check_classes(collection, test, config.absent)
        if absent:
            log.warning(fewer_classes(absent, len(collection.classes)))
    check_values(collection.images, np.concatenate([observed.train, observed.val, test]))
    settings = Settings.of(config)
    fabric = make_fabric(settings)  # before the task, whose steps depend on the ranks
    source = source_of(type(method), options_of(method), config.priors)
    priors = known_priors(source, config, method, collection, observed)
    task = informed(make_task(config, method, collection, observed), priors)
    method.check(stand_in(task) if source == "estimated" else task)
    images, fresh = furnished(config, method.head(), collection, observed.train)
    network = fresh(config.seed)
    encoded(split_text(collection))  # UnicodeEncodeError for a name that no file can hold
    # The folder is made only now that all settings are checked: a refused run leaves none behind.
    options = _published(method) if config.priors == "published" else options_of(method)
    record = {"method": {"title": method.title, **options}, **config.to_dict()}
    if out is None or ranks.rank() == 0:
        if out is not None:
            Run(out).check_place(resume=resume)  # before a lock file is made in that folder
            claims.enter_context(writing(Path(out)))
        run = Run.start(
            out, record, resume=resume, contents=contents(record), defaults=_defaults(type(method))
        )
        _note_inputs(run, collection, observed)
        if priors is not None:
            run.write_json(PRIORS, priors.to_dict())
    ranks.wait()
    run = run if out is None else Run.open(out)
    log.info("%s with network %s, weights %s", method.title, config.backbone, config.weights)
    for note in collection.notes:
        log.log(logging.WARNING if note in collection.images.notes else logging.INFO, note)
    material = Material(config, collection, observed, task, fabric)
    if source == "estimated":
        priors = estimated_priors(run, material, method, pilots)
        task = informed(task, priors)
    shortlist = decided(run, material, method)
    if shortlist is not None:  # another last layer may be wanted now
        images, fresh = furnished(config, method.head(), collection, observed.train)
        network = fresh(config.seed)
    task = replace(task, fresh=fresh)
    for remark in method.remarks(task):
        log.warning(remark)
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
    assert name is not None  # `reported_by` checks that one network is deployed
    deployed = trained.networks[name]
    assert isinstance(deployed, Classifier)
    spent = Spent(trained.seconds, trained.cpu_seconds) + spent_on(priors) + spent_on(shortlist)
    made = ModelRecord(
        method=method.title,
        best_epoch=trained.best_epoch,
        epochs=config.epochs,
        training_seconds=round(spent.seconds, 3),
        roles=trained.roles,
        remark=str(method.status().get("remark", "")),
        cpu_seconds=None if spent.cpu_seconds is None else round(spent.cpu_seconds, 3),
        trained_on=collection.images.side,
    )
    if config.thresholds != "half" and set(deployed.short_thresholds()) == {THRESHOLD}:
        # Else the method has set them.
        ranks.wait()  # until the first rank has written what validation images tell
        deployed.set_thresholds(limits(run, name, "last", config.thresholds))
    if run.files.written_here:
        save_model(run.files.models, deployed, extra=made.to_dict())
    ranks.wait()  # until all ranks can read the networks
    if testable:
        rows = rows_of_split(run, collection, "test")
        score_networks(run, collection, rows, known=True).write(run)
        ranks.wait()  # until all ranks can read the scores
    return run


def _as_started(config: RunConfig, run: Run) -> RunConfig:
    """The settings for continuing a run that may have been started before some of them existed.

    Such a setting is what it was then, unless another value than its default is asked for, which
    `Run.start` refuses.
    """
    if not run.exists("config.yaml"):
        return config
    unasked = {
        name: value
        for name, value in run.former.items()
        if getattr(config, name) == getattr(RunConfig, name)
    }
    return replace(config, **unasked)


def _note_inputs(run: Run, collection: Collection, observed: Observed) -> None:
    """Write the labels and splits of a new run; UsageError if a resumed run had other ones."""
    split = split_text(collection)
    before = run.labels if run.begun else None
    if before is None:
        text = io.StringIO(newline="")
        write_labels(observed.table, text)
        run.files.write("labels.csv", text.getvalue())
        run.files.write("split.csv", split)
        run.write_json("inputs.json", {**run.inputs, **data_digests(collection)})
        run.write_json("labels.json", describe_labels(collection, observed).to_dict())
        return
    if before.hash != observed.table.hash:
        change = "labels (hash in labels.json): use the same label file"
    elif recorded_split(run) != split:
        change = "images or another split (split.csv): use the same images"
    else:
        run.check_inputs(data_digests(collection))
        return
    raise UsageError(f"{run} was started with other {change}, or choose another --out")


def make_oracle(collection: Collection, observed: Observed) -> Oracle | None:
    """The observer that records scores on clean labels during training; None without them."""
    truth = collection.truth
    if truth is None:
        return None

    def pair(rows: NDArray[np.int64]) -> Pair:
        return Pair(truth[rows], collection.has_truth(rows), observed.values[rows])

    return Oracle(val=pair(observed.val), train=pair(observed.train))


def label_remarks(collection: Collection, observed: Observed, *, simulated: bool) -> list[str]:
    """What `adagc inspect` would warn of in the labels, as far as training goes on with it.

    Args:
        collection: The data set.
        observed: The observed labels.
        simulated: They were made from the clean ones, which they cannot contradict.
    """
    remarks = class_warnings("labels", collection.classes)
    if collection.truth is not None and not simulated:
        every = np.arange(len(collection.images))
        rows = every[collection.has_truth(every)]
        names = [collection.images.names[row] for row in rows]
        seen, true = observed.values[rows], collection.truth[rows]
        remarks += contradictions(seen, true, names, collection.classes)
    return remarks


def describe_labels(collection: Collection, observed: Observed) -> LabelSummary:
    """The content of labels.json: counts, and how the labels differ from clean ones if known."""
    train, table = observed.values[observed.train], observed.table
    known = collection.has_truth(observed.train)
    rates = None
    if collection.truth is not None and known.any():
        rates = flip_rates(collection.truth[observed.train][known], train[known])
    return LabelSummary(
        hash=table.hash,
        classes=collection.classes,
        images=count_images(collection, observed),
        observed_counts=tuple((train > 0).sum(axis=0).tolist()),
        source=table.meta.get("source") or (Path(table.source).name if table.source else None),
        flip_rates=rates,
        meta=table.meta,
    )


__all__ = ["config_of", "evaluate", "open_configured", "predictions_of", "train"]
