"""What an exported model says about itself: the metadata of model.onnx."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adagc.errors import AdagcError

FORMAT = 1  # raise it when readers of the previous format would misunderstand a file
# How thresholds came about, by the rule; all other rules estimate them.
HALF, METHOD = "half", "method"
_ABOUT = {
    HALF: "the default of one half for every class, not estimated",
    METHOD: "set by the method of training",
}
_ESTIMATES = "estimates from observed labels of validation images; no clean label was used"


@dataclass(frozen=True)
class ModelFacts:
    """What a program must know to use a model, and what it may be used for."""

    classes: tuple[str, ...]  # in the order of the probabilities
    bands: tuple[str, ...]  # in the order of the first axis; embeddings may have none
    shape: tuple[int, ...]  # of one input: (bands, height, width) or (length,)
    thresholds: tuple[float, ...]  # a class is predicted from this probability on
    rule: str  # how the thresholds were found: "half", "method", or a rule that estimates them
    nodata: float | None  # number that stands for missing values, besides NaN
    method: str  # how the model was trained
    licence: str  # under which conditions it may be used, as far as that is known
    version: str  # of adagc, which wrote the model
    trained_on: int | None = None  # side of the training images in pixels, before resizing

    @property
    def is_image(self) -> bool:
        """Whether an input has height and width; otherwise it is an embedding."""
        return len(self.shape) == 3

    @property
    def estimated(self) -> bool:
        """Whether the thresholds are estimates."""
        return self.rule not in _ABOUT

    @property
    def about_thresholds(self) -> str:
        """What the thresholds are, in words."""
        return _ABOUT.get(self.rule, f"{_ESTIMATES} (rule {self.rule})")

    def to_metadata(self) -> dict[str, str]:
        """The metadata of an ONNX file: every value is JSON."""
        values = {
            "format": FORMAT,
            "adagc": self.version,
            "classes": self.classes,
            "bands": self.bands,
            "input_shape": self.shape,
            "nodata": self.nodata,
            "thresholds": self.thresholds,
            "thresholds_rule": self.rule,
            "thresholds_are": self.about_thresholds,
            "method": self.method,
            "licence": self.licence,
            "trained_on": self.trained_on,
        }
        return {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str], place: str) -> ModelFacts:
        """The inverse of `to_metadata`; AdagcError if these are not the metadata of an export.

        Args:
            metadata: The metadata of an ONNX file.
            place: The file, for error messages.
        """
        if "adagc" not in metadata or "format" not in metadata:
            raise AdagcError(
                f"{place} was not exported by adagc (its metadata do not say which classes and"
                " bands it has): give a model.onnx that adagc export wrote"
            )
        try:
            values: dict[str, Any] = {key: json.loads(text) for key, text in metadata.items()}
            if int(values["format"]) > FORMAT:
                raise AdagcError(
                    f"{place} was exported by a newer adagc (format {values['format']}): update"
                    " adagc"
                )
            facts = cls(
                classes=tuple(map(str, values["classes"])),
                bands=tuple(map(str, values["bands"])),
                shape=tuple(map(int, values["input_shape"])),
                thresholds=tuple(map(float, values["thresholds"])),
                rule=str(values["thresholds_rule"]),
                nodata=None if (nodata := values["nodata"]) is None else float(nodata),
                method=str(values["method"]),
                licence=str(values["licence"]),
                version=str(values["adagc"]),
                trained_on=None if (side := values.get("trained_on")) is None else int(side),
            )
            if len(facts.shape) not in (1, 3) or len(facts.thresholds) != len(facts.classes):
                raise ValueError("its shape or thresholds do not fit")
        except (KeyError, TypeError, ValueError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else error
            raise AdagcError(
                f"the metadata of {place} are damaged ({reason}): export the run again"
            ) from error
        return facts
