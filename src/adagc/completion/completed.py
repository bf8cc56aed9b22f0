"""The result of completing labels: a table, and its summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adagc._version import __version__
from adagc.atomic import write_json
from adagc.completion.quality import Quality
from adagc.tables import Table, check_format, write
from adagc.tables.table import plain_values

FORMAT = 1
_DECISIONS = np.array(["absent", "unsure", "present"], dtype=object)
_SOURCES = np.array(["absent", "unsure", "recovered"], dtype=object)
# Whether a network was trained on the images that it predicts.
IN_SAMPLE, HELD_OUT, OUT_OF_FOLD = "in-sample", "held-out", "out-of-fold"


@dataclass(frozen=True, eq=False)
class Completed:
    """Labels of images and classes: observed ones, recovered ones, and what else was decided."""

    method: str
    classes: tuple[str, ...]
    images: tuple[str, ...]
    parts: tuple[str, ...]  # of each image: train, val, test or new
    samples: tuple[str, ...]  # of each image: in-sample, held-out or out-of-fold
    probability: NDArray[np.float32]  # (N, C) by the network
    presence: NDArray[np.float64] | None  # (N, C) how probable, calibrated by observed labels
    observed: NDArray[np.int8]  # (N, C) +1, 0, -1
    decision: NDArray[np.int8]  # (N, C) +1 present, 0 unsure, -1 absent
    rule: str  # how it was decided, in words
    stable: NDArray[np.int64] | None = None  # (N, C) epochs for which the method has not changed
    geometry: Sequence[bytes | None] | None = None
    crs: str | None = None
    quality: Quality | None = None  # where clean labels exist
    notes: tuple[str, ...] = ()  # what a reader must know

    def __len__(self) -> int:
        """The number of entries, one for every image and class."""
        return len(self.images) * len(self.classes)

    @property
    def decisions(self) -> NDArray[Any]:
        """(N, C) present, absent or unsure."""
        return _DECISIONS[self.decision.astype(np.int64) + 1]

    @property
    def sources(self) -> NDArray[Any]:
        """(N, C) observed, recovered, absent or unsure."""
        made = _SOURCES[self.decision.astype(np.int64) + 1]
        return np.where(self.observed != 0, "observed", made)

    @property
    def counts(self) -> dict[str, int]:
        """How many entries have each source."""
        seen = Counter(self.sources.ravel().tolist())
        return {name: seen[name] for name in ("observed", "recovered", "absent", "unsure")}

    def table(self, *, wide: bool = False) -> Table:
        """The labels as a table, which `adagc.tables.write` writes.

        Args:
            wide: A row per image and a column per class with 1 for present, -1 for absent and 0
                for unsure, as label files have it. By default a row per image and class.
        """
        meta = {key: str(value) for key, value in self._about().items()}
        if wide:
            columns: dict[str, Any] = {"image": list(self.images)}
            columns |= {name: self.decision[:, c] for c, name in enumerate(self.classes)}
            return Table(columns, self.geometry, self.crs, meta)
        count = len(self.classes)
        columns = {
            "image": np.repeat(np.array(self.images, dtype=object), count),
            "class": np.tile(np.array(self.classes, dtype=object), len(self.images)),
            "probability": self.probability.ravel(),
            "decision": self.decisions.ravel(),
            "source": self.sources.ravel(),
        }
        if self.presence is not None:
            columns["presence"] = self.presence.ravel().astype(np.float32)
        if self.stable is not None:
            columns["stable_epochs"] = [None if v < 0 else v for v in self.stable.ravel().tolist()]
        columns["sample"] = np.repeat(np.array(self.samples, dtype=object), count)
        columns["part"] = np.repeat(np.array(self.parts, dtype=object), count)
        places = self.geometry
        if places is not None:
            places = [place for place in places for _ in range(count)]
        return Table(columns, places, self.crs, meta)

    def write(self, path: Path | str, *, wide: bool = False) -> None:
        """Write the labels to a file, whose suffix decides on its form; see `adagc.tables.write`.

        A .json file has the form of COCO: images, categories and, for every class that is present,
        an annotation; classes that are absent or unsure are lists of their own.
        """
        path = Path(path)
        if path.suffix.lower() == ".json" and not wide:
            check_format(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, self.coco())
        else:
            write(path, self.table(wide=wide))

    def coco(self) -> dict[str, Any]:
        """The labels in the form of COCO, without boxes."""
        images = [
            {"id": i + 1, "file_name": name, "part": self.parts[i], "sample": self.samples[i]}
            for i, name in enumerate(self.images)
        ]
        categories = [{"id": c + 1, "name": name} for c, name in enumerate(self.classes)]
        columns = [
            ("probability", plain_values(self.probability.ravel())),
            ("source", self.sources.ravel().tolist()),
        ]
        if self.presence is not None:
            presence = plain_values(self.presence.ravel().astype(np.float32))
            columns.append(("presence", presence))
        if self.stable is not None:
            epochs = [None if v < 0 else v for v in self.stable.ravel().tolist()]
            columns.append(("stable_epochs", epochs))
        lists: dict[str, list[dict[str, Any]]] = {"present": [], "unsure": [], "absent": []}
        for number, decided in enumerate(self.decisions.ravel().tolist()):
            image, c = divmod(number, len(self.classes))
            one = {"id": number + 1, "image_id": image + 1, "category_id": c + 1}
            lists[decided].append(one | {name: values[number] for name, values in columns})
        return {
            "info": {"description": "labels completed by adagc", **self._about()},
            "images": images,
            "categories": categories,
            "annotations": lists["present"],
            "unsure": lists["unsure"],
            "absent": lists["absent"],
        }

    def _about(self) -> dict[str, str]:
        return {
            "adagc": __version__,
            "method": self.method,
            "decided_by": self.rule,
            "probabilities": self.samples_in_words,
            "notes": " ".join(self.notes),
        }

    @property
    def samples_in_words(self) -> str:
        """Of how many images a network was trained on what it predicts: "1,800 in-sample"."""
        seen = Counter(self.samples)
        return ", ".join(f"{count:,} {kind}" for kind, count in sorted(seen.items()))

    def to_dict(self) -> dict[str, Any]:
        """The summary, ready for JSON: completion.json in the folder of the run."""
        return {
            "format": FORMAT,
            "method": self.method,
            "images": len(self.images),
            "classes": list(self.classes),
            "parts": dict(Counter(self.parts)),
            "samples": dict(Counter(self.samples)),
            "rule": self.rule,
            "counts": self.counts,
            "quality": None if self.quality is None else self.quality.to_dict(),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Summary:
    """The content of completion.json: what was completed last, and how good it is."""

    images: int
    rule: str
    samples: Mapping[str, int]
    counts: Mapping[str, int]
    quality: Quality | None
    notes: tuple[str, ...]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Summary:
        """Make it from the content of the file."""
        quality = values["quality"]
        return cls(
            int(values["images"]),
            str(values["rule"]),
            {str(k): int(v) for k, v in values["samples"].items()},
            {str(k): int(v) for k, v in values["counts"].items()},
            None if quality is None else Quality.from_dict(quality),
            tuple(map(str, values["notes"])),
        )
