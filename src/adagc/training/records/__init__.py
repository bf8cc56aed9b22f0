"""The content of the files of a run as dataclasses; no other module knows the keys in the files.

The files have a format number. A file without one is of the first format, 0, and can be read, too.
A file with a higher number than this version knows is refused, with an error that says so.
"""

from __future__ import annotations

from adagc.training.records.common import (
    FORMAT,
    NamedRole,
    NewerFormatError,
    Summary,
    parse,
    roles_of,
)
from adagc.training.records.epoch import (
    ClassCounts,
    ClassScores,
    EpochRecord,
    OracleRecord,
    PseudoLabelQuality,
    parse_history,
)
from adagc.training.records.outcome import (
    FORMER,
    Choice,
    ImageCounts,
    LabelSummary,
    ModelRecord,
    RunSettings,
    TestedEpoch,
    TestedNetwork,
    TestRecord,
    fewer_classes,
)
from adagc.training.records.priors import PriorsRecord
from adagc.training.records.shortlist import ShortlistRecord

__all__ = [
    "FORMAT",
    "FORMER",
    "Choice",
    "ClassCounts",
    "ClassScores",
    "EpochRecord",
    "ImageCounts",
    "LabelSummary",
    "ModelRecord",
    "NamedRole",
    "NewerFormatError",
    "OracleRecord",
    "PriorsRecord",
    "PseudoLabelQuality",
    "RunSettings",
    "ShortlistRecord",
    "Summary",
    "TestRecord",
    "TestedEpoch",
    "TestedNetwork",
    "fewer_classes",
    "parse",
    "parse_history",
    "roles_of",
]
