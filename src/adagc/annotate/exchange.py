"""Labels and records of annotators in files of other programs, and back."""

from __future__ import annotations

import io
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args
from urllib.parse import parse_qs, quote, unquote, urlsplit

import numpy as np

from adagc.annotate.events import Event, Kind, counting
from adagc.atomic import write_bytes, write_json
from adagc.errors import LabelFileError, MissingExtraError
from adagc.labels import LabelTable, read_labels
from adagc.suggest import hint_or_list

_LISTS = ("candidates", "present", "absent")
_LARGEST = 512_000_000  # bytes of a JSON file that is read; it takes ten times as much memory
# Uploaded files get eight hexadecimal digits and a hyphen in front of their names.
_UPLOADED = re.compile(r"^[0-9a-f]{8}-(?=.)")


# -- labels ----------------------------------------------------------------------------------------


def labels_of(events: Iterable[Event], classes: Sequence[str]) -> LabelTable:
    """The labels that these events record, as a table that training takes.

    +1 and -1 are what people said, reviews included. Of several people the majority counts, of
    equally many who said so and otherwise those who said it is there; of one person the last
    answer. Images that were skipped, or of which somebody said that none of the classes is there,
    have a row without a label, so that they are not offered again.

    Args:
        events: The record; what was taken back does not count.
        classes: Names of all classes.

    Raises:
        LabelFileError: An event names another class.
    """
    column = {name: c for c, name in enumerate(classes)}
    said: dict[tuple[str, str, int], int] = {}
    images: dict[str, int] = {}
    for event in sorted(counting(list(events)), key=lambda one: one.number):
        if event.kind in ("shown", "refresh"):
            continue
        images.setdefault(event.image, len(images))
        for names, value in ((event.present, 1), (event.absent, -1)):
            for name in names:
                if name not in column:
                    raise LabelFileError(
                        f"event {event.number} names the class {name!r}, which is not among the"
                        " classes" + hint_or_list(name, classes, "classes")
                    )
                said[event.annotator, event.image, column[name]] = value
    votes: dict[tuple[int, int], int] = defaultdict(int)
    voted: set[tuple[int, int]] = set()
    for (_, image, c), value in said.items():
        votes[images[image], c] += value
        voted.add((images[image], c))
    values = np.zeros((len(images), len(classes)), dtype=np.int8)
    for row, c in voted:
        values[row, c] = 1 if votes[row, c] >= 0 else -1
    most = int((values > 0).sum(axis=1).max(initial=0))
    plain = most <= 1 and not (values < 0).any()
    return LabelTable(
        tuple(images), tuple(classes), values, "single" if plain else "multi", _meta(said)
    )


def _meta(said: Iterable[tuple[str, str, int]]) -> dict[str, str]:
    people = {name for name, _, _ in said}
    return {"scheme": "manual", "annotators": str(len(people))}


def events_of(
    table: LabelTable, *, annotator: str = "import", number: int = 1, at: float | None = None
) -> list[Event]:
    """Labels as imported events; images without a label are left out.

    Args:
        table: The labels.
        annotator: Who is said to have given them.
        number: Number of the first event.
        at: Time of all events; now by default.
    """
    now = time.time() if at is None else at
    found: list[Event] = []
    for row, image in enumerate(table.images):
        present = tuple(table.classes[c] for c in np.flatnonzero(table.values[row] > 0))
        absent = tuple(table.classes[c] for c in np.flatnonzero(table.values[row] < 0))
        if present or absent:
            found.append(
                Event(number + len(found), now, annotator, image, "import", (), present, absent)
            )
    return found


def read_any(path: Path, classes: Sequence[str]) -> LabelTable:
    """Labels from a label file, or from an export of Label Studio if it ends in .json.

    Raises:
        LabelFileError: The file cannot be used; the message says why, in one line.
    """
    path = Path(path)
    if path.suffix.lower() == ".json":
        return read_label_studio(path, classes)
    return read_labels(path, classes=tuple(classes))


# -- Label Studio ----------------------------------------------------------------------------------


def read_label_studio(path: Path, classes: Sequence[str]) -> LabelTable:
    """Labels from a JSON export of Label Studio (JSON or JSON-MIN) with choices of classes.

    All choices of the annotations that were not cancelled count as present; of several people
    those that most of them made. Predictions are not labels. An image is named by the path at the
    end of its address, without what an upload puts in front of it.
    """
    tasks = _json(path)
    if not isinstance(tasks, list):
        raise LabelFileError(f"{path} is no export of Label Studio: it must be a list of tasks")
    column = {name: c for c, name in enumerate(classes)}
    votes: dict[str, Counter[int]] = {}
    people: Counter[str] = Counter()
    for number, task in enumerate(tasks, start=1):
        where = f"{path}, task {number}"
        if not isinstance(task, dict):
            raise LabelFileError(f"{where}: it must be an object with data and annotations")
        image, answers = _task(task, where)
        counter = votes.setdefault(image, Counter())
        people[image] += len(answers)
        for choices in answers:
            for choice in choices:
                if choice not in column:
                    raise LabelFileError(
                        f"{where}: there is no class {choice!r}"
                        + hint_or_list(choice, classes, "classes")
                    )
                counter[column[choice]] += 1
    values = np.zeros((len(votes), len(classes)), dtype=np.int8)
    for row, (image, counter) in enumerate(votes.items()):
        for c, count in counter.items():
            values[row, c] = 2 * count >= people[image]
    single = int(values.sum(axis=1).max(initial=0)) <= 1
    meta = {"scheme": "manual", "source": "Label Studio"}
    kind = "single" if single else "multi"
    return LabelTable(tuple(votes), tuple(classes), values, kind, meta, path)  # type: ignore[arg-type]


def _json(path: Path) -> Any:
    try:
        if path.stat().st_size > _LARGEST:
            raise LabelFileError(
                f"{path} is larger than {_LARGEST // 1_000_000} MB: export fewer tasks at a time"
            )
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise LabelFileError(f"{path} cannot be read ({error.strerror}); check it") from None
    except (ValueError, RecursionError):
        raise LabelFileError(f"{path} is no JSON; export it again") from None


def _task(task: dict[str, Any], where: str) -> tuple[str, list[list[str]]]:
    """Name of the image of a task, and the choices of each of its annotations."""
    data = task.get("data", task)
    if not isinstance(data, dict):
        raise LabelFileError(f"{where}: its data must be an object with the image")
    address = data.get("image", data.get("img"))
    if not isinstance(address, str) or not (name := image_name(address)):
        raise LabelFileError(f"{where}: it has no image; export tasks whose data has an 'image'")
    if "annotations" not in task and "completions" not in task:
        return name, [_choices(task.get("choice", task.get("choices", [])), where)]
    annotations = task.get("annotations", task.get("completions"))
    if not isinstance(annotations, list):
        raise LabelFileError(f"{where}: its annotations must be a list")
    answers = []
    for one in annotations:
        results = one.get("result") if isinstance(one, dict) else None
        if not isinstance(results, list):
            raise LabelFileError(f"{where}: an annotation has no list of results")
        if one.get("was_cancelled"):
            continue
        chosen: list[str] = []
        for result in results:
            if isinstance(result, dict) and result.get("type") == "choices":
                value = result.get("value")
                chosen += _choices(value if isinstance(value, dict) else None, where)
        answers.append(chosen)
    return name, answers


def _choices(value: Any, where: str) -> list[str]:
    """What was chosen: a name, a list of names, or an object that holds such a list."""
    if isinstance(value, dict):
        value = value.get("choices")
    if isinstance(value, str):
        value = [value] if value else []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise LabelFileError(f"{where}: its choices must be a list of class names")
    return [one.strip() for one in value]


def image_name(address: str) -> str:
    """The relative path of an image at the end of an address, without scheme, host and parents.

    >>> image_name("/data/upload/3/0a1b2c3d-river_12.jpg")
    'river_12.jpg'
    >>> image_name("/data/local-files/?d=scenes/river%2012.tif")
    'scenes/river 12.tif'
    """
    try:
        parts = urlsplit(address)
        local = parse_qs(parts.query).get("d")
    except ValueError:  # brackets that are no address of a host
        return ""
    path = local[0] if local else unquote(parts.path)
    names = [name for name in re.split(r"[/\\]+", path) if name not in ("", ".", "..")]
    if not local and names[:2] == ["data", "upload"]:
        return _UPLOADED.sub("", names[-1]) if len(names) > 2 else ""
    return "/".join(names)


def write_label_studio(
    events: Iterable[Event],
    path: Path,
    *,
    files: Mapping[str, str] | None = None,
) -> int:
    """Write labels as tasks that Label Studio imports; returns how many there are.

    Each image that somebody answered is a task, each person who did an annotation: the classes that
    they said are there, none if they said that none is. Label Studio's choices cannot say that a
    class is absent, so this is left out, as are images that were only skipped.

    Args:
        events: The record; what was taken back does not count.
        path: The JSON file.
        files: The file of each image in its folder, with its extension; by default its name.
    """
    said: dict[str, dict[str, tuple[dict[str, bool], float | None]]] = {}
    for event in sorted(counting(list(events)), key=lambda one: one.number):
        if event.kind in ("shown", "refresh", "skip"):
            continue
        chosen, seconds = said.setdefault(event.image, {}).get(event.annotator, ({}, None))
        chosen |= dict.fromkeys(event.present, True) | dict.fromkeys(event.absent, False)
        said[event.image][event.annotator] = chosen, event.seconds or seconds
    named = files or {}
    tasks = [
        {
            "data": {"image": f"/data/local-files/?d={quote(named.get(image, image))}"},
            "annotations": [_annotation(*answer) for answer in people.values()],
        }
        for image, people in said.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, tasks)
    return len(tasks)


def _annotation(chosen: Mapping[str, bool], seconds: float | None) -> dict[str, Any]:
    names = [name for name, there in chosen.items() if there]
    result = {
        "from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": names},
    }  # fmt: skip
    return {"result": [result] if names else [], "lead_time": seconds}


# -- all events ------------------------------------------------------------------------------------


def write_events(events: Sequence[Event], path: Path) -> None:
    """Write all events to a Parquet file, one row each, as a whole or not at all.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    arrow, parquet = _arrow()
    text = arrow.string()
    kinds = {
        "number": arrow.int64(), "time": arrow.float64(), "annotator": text, "image": text,
        "kind": text, "key": arrow.int32(), "seconds": arrow.float64(), "undoes": arrow.int64(),
        "gain": arrow.float64(),
        **dict.fromkeys(_LISTS, arrow.list_(text)),
    }  # fmt: skip
    names = [field.name for field in fields(Event)]
    columns = {
        name: arrow.array(
            [
                list(value) if name in _LISTS else value
                for value in (getattr(event, name) for event in events)
            ],
            kinds[name],
        )
        for name in names
    }
    buffer = io.BytesIO()
    parquet.write_table(arrow.table(columns), buffer, compression="zstd")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, buffer.getvalue())


def read_events(path: Path) -> list[Event]:
    """The events in a Parquet file that `write_events` has written.

    Raises:
        LabelFileError: The file holds no events.
        MissingExtraError: pyarrow is not installed.
    """
    arrow, parquet = _arrow()
    names = [field.name for field in fields(Event)]
    try:
        rows: list[Any] = parquet.ParquetFile(path).read(columns=names).to_pylist()
        events = [_event(row) for row in rows]
        good = all(
            event.kind in get_args(Kind)
            and isinstance(event.number, int)
            and isinstance(event.image, str)
            for event in events
        )
    except (OSError, arrow.ArrowException, TypeError, KeyError) as error:
        raise LabelFileError(f"{path} holds no events ({' '.join(str(error).split())})") from None
    if not good:
        raise LabelFileError(f"{path} holds no events: a row has no number, image or known kind")
    return events


def _event(row: dict[str, Any]) -> Event:
    values: Any = {k: tuple(v or ()) if k in _LISTS else v for k, v in row.items()}
    return Event(**values)


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow, which writes Parquet files,", "geo") from error
    return pyarrow, pyarrow.parquet
