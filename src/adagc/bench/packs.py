"""Results as small files that can be published: everything tables are made from, without weights.

A pack is a folder with one ZIP file per row of the table and `pack.json`. A ZIP file holds what
each run of the row left behind (settings, environment, labels, history of every epoch, test
scores), and for the compared networks the order in which each class ranks the test images, from
which the mean average precision of any resample can be computed. Tables, figures and
recommendations are made from a pack by the same code as from run folders.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from lzma import LZMAError
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from adagc.atomic import replacing, write_text
from adagc.bench.jobs import Job, slug
from adagc.bench.results import Result, Results, read
from adagc.bench.scenarios import Scenario
from adagc.errors import AdagcError, UsageError
from adagc.suggest import require_path
from adagc.training.folders import MemoryFolder
from adagc.training.runs import Run
from adagc.training.views import DEFAULT, VIEWS, View

FORMAT = 1
_INDEX = "pack.json"
_FILES = (
    "environment.json", "inputs.json", "labels.json", "priors.json", "shortlist.json",
    "scores.json", "model.json",
)  # fmt: skip
_ORDER = "order.safetensors"
_PREDICTIONS = "predictions.safetensors"
_CLEAN = "clean"
_MIDNIGHT = (1980, 1, 1, 0, 0, 0)  # the same results give the same bytes on any day
# Settings that are places on the machine where the run was made; only the name is of interest.
_PLACES = (
    "root", "labels", "truth", "split", "cache", "text", "weights", "priors", "selection", "maps",
    "map_classes",
)  # fmt: skip
# What reading a file raises that is not what `pack` wrote.
_DAMAGE = (
    OSError, EOFError, LookupError, TypeError, ValueError, AttributeError, NotImplementedError,
    zipfile.BadZipFile, LZMAError, SafetensorError, yaml.YAMLError,
)  # fmt: skip


def pack(
    scenario: Scenario, results: Results, folder: Path, views: Iterable[View] = (DEFAULT,)
) -> None:
    """Write the results of a scenario; what the folder held before is replaced.

    Args:
        scenario: The scenario.
        results: The results of all its runs.
        folder: Where to write the pack.
        views: Which predictions to keep, that of the recommendation first; of all others a digest
            is kept.
    """
    wanted = tuple(views)
    rows = _named([label for label in results.labels if results.of(label)])
    folder.mkdir(parents=True, exist_ok=True)
    for label, name in rows.items():
        runs = results.of(label)
        with replacing(folder / name) as (temporary,), zipfile.ZipFile(temporary, "w") as file:
            for run in runs:
                job = next(j for j in results.jobs if j.label == label and j.seed == run.seed)
                for path, content in _packed(run, job, wanted):
                    info = zipfile.ZipInfo(f"seed{run.seed}/{path}", _MIDNIGHT)
                    info.compress_type = zipfile.ZIP_LZMA
                    file.writestr(info, content)
    for old in folder.glob("*.zip"):
        if old.name not in rows.values():
            old.unlink()
    index = {
        "format": FORMAT,
        "scenario": {
            # The options of methods are in the job of each run.
            **{
                field.name: getattr(scenario, field.name)
                for field in fields(Scenario)
                if field.name != "methods"
            },
            "settings": _portable(scenario.settings),
            "tuned": PurePath(scenario.tuned).name,
        },
        "views": [view.name for view in wanted],
        "rows": rows,
        "planned": [_portable_job(job) for job in results.jobs if not _finished(results, job)],
        "failed": _portable_reasons(results.failed, results.jobs),
        "unsuited": _portable_reasons(results.unsuited, results.jobs),
    }
    write_text(folder / _INDEX, json.dumps(index, indent=1, ensure_ascii=False) + "\n")


def unpack(folder: Path) -> tuple[Scenario, Results]:
    """The scenario and the results in a pack; AdagcError if there is none, or it is damaged."""
    index = _index(folder)
    finished: list[Result] = []
    jobs: list[Job] = []
    with _readable(folder / _INDEX):
        about = {**index["scenario"], "seeds": tuple(index["scenario"]["seeds"])}
        scenario, rows = Scenario(**about), [folder / name for name in index["rows"].values()]
        planned = [Job(**values) for values in index["planned"]]
        reasons = {
            name: {label: list(texts) for label, texts in index[name].items()}
            for name in ("failed", "unsuited")
        }
    for path in rows:
        with _readable(path):
            for job, result in _read_row(path):
                jobs.append(job)
                finished.append(result)
    return scenario, Results(
        scenario.name,
        (*jobs, *planned),
        tuple(finished),
        statuses={job.folder: "finished" for job in jobs},
        **reasons,
    )


def judge_of(folder: Path) -> View | None:
    """The view that the recommendation of a pack was made in; None if it does not say."""
    index = _index(folder)
    with _readable(folder / _INDEX):
        names = index.get("views", ())
        return VIEWS[names[0]] if names else None


def _index(folder: Path) -> Any:
    """The content of pack.json; AdagcError if there is none that this version can read."""
    require_path("PACK", folder)
    if folder.is_file():
        raise UsageError(f"{folder} is a file: give the folder that adagc bench --pack wrote")
    path = folder / _INDEX
    if not path.is_file():
        inside = sorted(str(index.parent) for index in folder.glob(f"*/{_INDEX}"))
        remedy = f"give {' or '.join(inside)}" if inside else "adagc bench --pack writes one"
        raise UsageError(f"{folder} is not a pack of results: it has no {_INDEX}; {remedy}")
    with _readable(path):
        index = json.loads(path.read_text(encoding="utf-8"))
        newer = index.get("format", 0) > FORMAT
    if newer:
        raise AdagcError(f"{folder} was written by a newer adagc: update adagc to read it")
    return index


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what a damaged file raises while it is read into an AdagcError that names it."""
    try:
        yield
    except _DAMAGE as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise AdagcError(f"{path} is damaged ({reason}): pack the results again") from None
    except AdagcError as error:  # of a file of a run, which knows nothing of the pack
        raise AdagcError(f"{path}: {error}") from None


def _named(labels: Iterable[str]) -> dict[str, str]:
    """The name of the ZIP file of each row; rows whose titles differ in signs only get a number."""
    names: dict[str, str] = {}
    for label in labels:
        stem = slug(label)
        number = sum(other == stem or other.startswith(f"{stem}~") for other in names.values())
        names[label] = f"{stem}~{number + 1}" if number else stem
    return {label: f"{name}.zip" for label, name in names.items()}


def _packed(result: Result, job: Job, wanted: Sequence[View]) -> Iterable[tuple[str, bytes]]:
    """The files of one run as they go into the pack, by name."""
    run = result.run
    yield "job.json", _json(_portable_job(job))
    yield "config.yaml", yaml.safe_dump(_portable(run.config), sort_keys=False).encode()
    for name in _FILES:
        if run.exists(name):
            yield name, run.files.read(name)
    yield "history.jsonl", run.files.read("history.jsonl")
    if not run.exists(_PREDICTIONS):
        return
    raw = run.files.read(_PREDICTIONS)
    arrays = load_arrays(raw)
    kept = {f"{view.of(result.networks)}-{view.choice}" for view in wanted}
    order = {name: ranks_of(arrays[name]) for name in sorted(kept & arrays.keys())}
    if order:
        clean = {_CLEAN: arrays[_CLEAN]} if _CLEAN in arrays else {}
        yield _ORDER, save_arrays({**order, **clean})
    digests = {"file": hashlib.sha256(raw).hexdigest()}
    digests |= {
        name: hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
        for name, values in sorted(arrays.items())
    }
    yield "predictions.sha256.json", _json(digests)


def ranks_of(values: NDArray[Any]) -> NDArray[np.uint16]:
    """(N, C) place of each image in the order of each class, from 0; equal values share a place.

    >>> ranks_of(np.array([[0.3], [0.9], [0.3]], np.float32)).T
    array([[0, 1, 0]], dtype=uint16)
    """
    columns = [np.unique(column, return_inverse=True)[1] for column in values.T]
    if values.shape[0] > np.iinfo(np.uint16).max:
        raise AdagcError("a pack holds the order of at most 65,535 test images")
    return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.uint16))


def _read_row(path: Path) -> Iterable[tuple[Job, Result]]:
    """The runs in one ZIP file, by seed."""
    with zipfile.ZipFile(path) as file:
        names = file.namelist()
        seeds = sorted({int(name.partition("/")[0].removeprefix("seed")) for name in names})
        for seed in seeds:
            start = f"seed{seed}/"
            content = {
                name.removeprefix(start): file.read(name)
                for name in names
                if name.startswith(start)
            }
            yield _read_run(content)


def _read_run(content: dict[str, bytes]) -> tuple[Job, Result]:
    job = Job(**json.loads(content.pop("job.json")))
    if _ORDER in content:
        arrays = load_arrays(content.pop(_ORDER))
        values = {
            # From 0 to 1: only their order within a class is that of the probabilities.
            name: places
            if name == _CLEAN
            else (places / np.float32(len(places))).astype(np.float32)
            for name, places in arrays.items()
        }
        content[_PREDICTIONS] = save_arrays(values)
    return job, read(job, Run(MemoryFolder(content)))


def _portable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without the places of one machine: of a path only its last part is kept."""
    return {
        key: PurePath(value).name if key in _PLACES and isinstance(value, str) else value
        for key, value in settings.items()
    }


def _portable_job(job: Job) -> dict[str, Any]:
    values = job.to_dict()
    return {
        **values,
        "options": dict(values["options"]),
        "settings": _portable(values["settings"]),
        "folder": PurePath(job.folder).name,
    }


def _portable_reasons(
    reasons: Mapping[str, Sequence[str]], jobs: Sequence[Job]
) -> dict[str, list[str]]:
    """Why runs are missing, by row, without the places of one machine."""
    places = {place for job in jobs for place in _places(job)}
    found = {}
    for label, texts in reasons.items():
        found[label] = list(texts)
        for place in sorted(places, key=len, reverse=True):  # a folder after what is inside it
            name = PurePath(place).name
            found[label] = [text.replace(place, name) for text in found[label]]
    return found


def _places(job: Job) -> Iterator[str]:
    """The places on this machine that messages about a job may name."""
    yield job.folder
    named = (job.settings.get(key) for key in _PLACES)
    yield from (str(place) for place in named if place and PurePath(place).is_absolute())


def _finished(results: Results, job: Job) -> bool:
    return any(run.label == job.label and run.seed == job.seed for run in results.finished)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n").encode()


__all__ = ["judge_of", "pack", "ranks_of", "unpack"]
