"""Completing the labels of images by a trained run."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adagc.completion.completed import HELD_OUT, IN_SAMPLE, OUT_OF_FOLD, Completed, Summary
from adagc.completion.folds import out_of_fold
from adagc.completion.quality import judge
from adagc.completion.subjects import Subjects, open_new, open_subjects
from adagc.datasets.collection import Collection
from adagc.errors import AdagcError, UsageError, check_range
from adagc.inference import predict
from adagc.limits import Thresholds
from adagc.models import Classifier
from adagc.priors import Presence, find_cuts, fit_presence
from adagc.priors.checks import FEW_LABELS
from adagc.priors.recovery import ABSENCE, PRECISION
from adagc.training.fabric import make_fabric
from adagc.training.held_out import of_network
from adagc.training.inputs import config_of
from adagc.training.network import suited
from adagc.training.records import parse
from adagc.training.runs import Run
from adagc.training.scoring import chosen_limits
from adagc.training.stability import stable_epochs
from adagc.types import NetworkRole, with_role

log = logging.getLogger(__name__)

Part = Literal["train", "val", "test", "all"]
PARTS: dict[str | None, tuple[str, ...]] = {
    None: ("train", "val"),
    "train": ("train",),
    "val": ("val",),
    "test": ("test",),
    "all": ("train", "val", "test"),
}
SUMMARY = "completion.json"
_DOMINANT = (
    "The labels were simulated as those of dominant classes: how sure recovered ones are is"
    " estimated as if labels had been drawn at random, and may be far off."
)
_NOT_CLEAN = "Probabilities of in-sample images come from a network that was trained on them."


def complete(
    run: Run | Path | str,
    *,
    part: Part | None = None,
    images: Path | str | None = None,
    folds: int | None = None,
    precision: float = PRECISION,
    absence: float = ABSENCE,
    thresholds: str | None = None,
    root: str | None = None,
    truth: str | None = None,
    other_data: bool = False,
    collection: Collection | None = None,
) -> Completed:
    """Complete the labels of images: what was observed stays, and missing labels are recovered.

    No clean label is used. Where clean labels exist, `Completed.quality` says how good the
    recovered ones are.

    Example:
        >>> from adagc import RunConfig, complete, train
        >>> config = RunConfig(data="synthetic", scenes=24, size=16, scheme="random", epochs=1,
        ...                    backbone="test_resnet", weights="none")
        >>> done = complete(train(config, "AN"))
        >>> done.probability.shape, done.counts["observed"]  # an image has one observed label
        ((36, 19), 36)
        >>> done.table()["source"].shape
        (684,)

    Args:
        run: A finished run, or its folder.
        part: Images of the run: "train", "val", "test" or "all"; by default those for training and
            validation.
        images: Folder or file of other images of the same kind, in place of those of the run.
        folds: Train as many networks again, each without a part of the training images, so that
            probabilities of training images come from a network that has not seen them.
        precision: Share of recovered labels that should be right, as far as observed labels tell.
        absence: Share of labels called absent that should be.
        thresholds: Decide by thresholds instead, without any unsure: "half", "estimated" or a
            file, see `adagc.limits`.
        root: Folder of the data, if it has moved since training.
        truth: File with clean labels to judge the result by, instead of that of the run.
        other_data: Do not insist on the images that the run was trained with.
        collection: The data set of the run, if it is already open.

    Raises:
        AdagcError: If the run is not finished, or its data is not what it was.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    for name, value in (("precision", precision), ("absence", absence)):
        check_range(name, value, 0, 1, below=True)
    if images is not None and (part is not None or folds is not None):
        raise UsageError("--images are not those of the run: leave out --part and --folds")
    if folds is not None and part in ("val", "test"):
        raise UsageError(f"--folds is about training images: leave it out with --part {part}")
    if part not in PARTS:
        raise UsageError(f"there is no part {part!r}: choose from train, val, test, all")
    if not run.finished:
        raise AdagcError(f"{run} is not finished: adagc train --resume completes it")
    model = run.model()
    limits = None if thresholds is None else chosen_limits(run, thresholds)
    if images is not None:
        subjects = open_new(run, model.spec, str(images))
    else:
        subjects = open_subjects(
            run,
            model.spec,
            PARTS[part],
            collection=collection,
            root=root,
            truth=truth,
            other_data=other_data,
        )
    groups = _predicted(run, model, subjects, folds)
    return _decided(run, model, subjects, groups, limits, precision, absence)


def read_summary(run: Run) -> Summary | None:
    """What the last completion of a run has left in its folder; None if there was none."""
    if not run.exists(SUMMARY):
        return None
    remedy = f"run  adagc complete {run}  again, or delete it"
    try:
        values = run.read_json(SUMMARY)
    except AdagcError as error:
        raise AdagcError(f"{run}/{SUMMARY} is damaged: {remedy}") from error
    return parse(Summary, values, f"{run}/{SUMMARY}", remedy)


@dataclass(frozen=True)
class _Group:
    """Images that were predicted in the same way, and what this way can be calibrated by."""

    sample: str
    where: NDArray[np.int64]  # positions among the subjects
    probabilities: NDArray[np.float32]  # (len(where), C)
    known: NDArray[np.float32]  # (M, C) predictions of images that no network was trained on
    labels: NDArray[np.int8]  # (M, C) observed labels of these images


def _predicted(run: Run, model: Classifier, subjects: Subjects, folds: int | None) -> list[_Group]:
    """The probabilities of all subjects, in groups."""
    name = with_role(run.made.roles, NetworkRole.DEPLOYED)
    assert name is not None
    held = of_network(run, name, "last")
    groups: list[_Group] = []
    fresh = np.ones(len(subjects.rows), dtype=np.bool_)
    if folds is not None:
        labels = subjects.labels
        assert labels is not None
        every = out_of_fold(run, model.spec, subjects, folds)
        place = {row: i for i, row in enumerate(labels.train.tolist())}
        where = np.flatnonzero(subjects.trained)
        chosen = every[[place[row] for row in subjects.rows[where].tolist()]]
        seen = labels.values[labels.train]
        groups.append(_Group(OUT_OF_FOLD, where, chosen, every, seen))
        fresh[where] = False
    config = config_of(run)
    device = make_fabric(config).device
    scenes = suited(subjects.images, plain=model.spec.is_plain, head=model.spec.head)
    rows = np.flatnonzero(fresh)
    if len(rows):
        values = predict(model.to(device), scenes, subjects.rows[rows], device=device)
        trained = subjects.trained[rows]
        for sample, chosen_rows in ((IN_SAMPLE, trained), (HELD_OUT, ~trained)):
            if chosen_rows.any():
                groups.append(
                    _Group(
                        sample,
                        rows[chosen_rows],
                        values[chosen_rows],
                        held.probabilities,
                        held.observed,
                    )
                )
    return groups


def _decided(
    run: Run,
    model: Classifier,
    subjects: Subjects,
    groups: list[_Group],
    limits: Thresholds | None,
    precision: float,
    absence: float,
) -> Completed:
    """Decide about every entry, and judge the result where clean labels exist."""
    shape = subjects.observed.shape
    probability = np.zeros(shape, dtype=np.float32)
    presence = np.zeros(shape)
    decision = np.zeros(shape, dtype=np.int8)
    samples = np.full(len(subjects.rows), "", dtype=object)
    notes = []
    can = all(_tells(group) for group in groups)
    if limits is None and not can:
        limits = chosen_limits(run, None)
        notes.append(_untold(groups, limits, subjects))
    fitted: dict[int, Presence] = {}  # groups may share what they are calibrated by
    for group in groups:
        seen = subjects.observed[group.where]
        probability[group.where] = group.probabilities
        samples[group.where] = group.sample
        if can:
            if id(group.known) not in fitted:
                fitted[id(group.known)] = fit_presence(group.known, group.labels)
            found = fitted[id(group.known)]
            presence[group.where] = found.given(group.probabilities, seen)
            if limits is None:
                cuts = find_cuts(
                    found, group.probabilities, seen, precision=precision, absence=absence
                )
                decision[group.where] = cuts.decide(presence[group.where], seen)
    if limits is None:
        told = sorted({len(group.labels) for group in groups})
        rule = (
            f"at least {precision:g} of recovered labels right and {absence:g} of absent ones,"
            f" estimated from the observed labels of {' and '.join(f'{n:,}' for n in told)} images"
        )
    else:
        above = probability >= np.array(limits.values, dtype=np.float32)
        made = np.where(above, 1, -1)
        seen = subjects.observed
        decision = np.where(seen != 0, np.sign(seen), made).astype(np.int8)
        rule = f"thresholds, {limits.words}"
    labels = run.labels
    if limits is None and labels is not None and labels.scheme == "dominant":
        notes.append(_DOMINANT)
    if IN_SAMPLE in samples:
        notes.append(f"{_NOT_CLEAN} --folds 5 gives honest ones.")
    for note in notes:
        log.warning(note)
    geometry, crs = subjects.places()
    classes = model.spec.classes
    quality, known = None, subjects.truth(classes)
    if known is not None:
        true, of = known
        order = presence if can else probability.astype(np.float64)
        quality = judge(order[of], decision[of], subjects.observed[of], true[of])
    return Completed(
        method=run.made.method,
        classes=classes,
        images=subjects.names,
        parts=subjects.parts,
        samples=tuple(samples.tolist()),
        probability=probability,
        presence=presence if can else None,
        observed=subjects.observed,
        decision=decision,
        rule=rule,
        stable=_stable(run, subjects),
        geometry=geometry,
        crs=crs,
        quality=quality,
        notes=tuple(notes),
    )


def _tells(group: _Group) -> bool:
    """Whether labels tell what the probabilities of these images mean."""
    return _labelled(group.labels) >= FEW_LABELS and group.labels.shape[1] > 1


def _labelled(observed: NDArray[np.int8]) -> int:
    return int((observed > 0).any(axis=1).sum())


def _untold(groups: list[_Group], limits: Thresholds, subjects: Subjects) -> str:
    """That nothing tells how sure a label is, why, and what would."""
    then = f"thresholds decide ({limits.words}), and nothing is unsure"
    if groups[0].labels.shape[1] < 2:
        return f"A single class does not tell how sure a label is: {then}."
    few = min(_labelled(group.labels) for group in groups)
    remedy = ""
    training = subjects.labels
    if training is not None and _labelled(training.values[training.train]) >= FEW_LABELS:
        remedy = " --folds 5 --part train learns it from the labels of all training images."
    return (
        f"How sure a label is cannot be told from {few} labelled images that the network was not"
        f" trained on ({FEW_LABELS} are needed): {then}.{remedy}"
    )


def _stable(run: Run, subjects: Subjects) -> NDArray[np.int64] | None:
    """(N, C) for how many epochs the method has not changed its mind; -1 where it has none."""
    kept = stable_epochs(run)
    if kept is None or subjects.labels is None:
        return None
    place = {row: i for i, row in enumerate(subjects.labels.train.tolist())}
    if len(kept) != len(place):
        return None
    found = np.full(subjects.observed.shape, -1, dtype=np.int64)
    for position, row in enumerate(subjects.rows.tolist()):
        if row in place:
            found[position] = kept[place[row]]
    return found if (found >= 0).any() else None
