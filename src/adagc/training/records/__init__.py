"""What the files of a run say, as dataclasses: the only place that knows the keys in them.

Every file carries a format number. One without it is of the first format, 0, and is read like any
other; one with a higher number than this version knows is refused by name.
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
    Choice,
    ImageCounts,
    LabelSummary,
    ModelRecord,
    RunSettings,
    TestedEpoch,
    TestedNetwork,
    TestRecord,
)

__all__ = [
    "FORMAT",
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
    "PseudoLabelQuality",
    "RunSettings",
    "Summary",
    "TestRecord",
    "TestedEpoch",
    "TestedNetwork",
    "parse",
    "parse_history",
    "roles_of",
]
