"""Files of class frequencies: priors.json of a run, or what `adagc priors RUN --json` printed."""

from __future__ import annotations

import json
from pathlib import Path

from adagc.errors import AdagcError, UsageError
from adagc.methods.told import WORDS
from adagc.suggest import hint
from adagc.training.records import PriorsRecord, parse

PRIORS = "priors.json"


def read_priors(path: Path) -> PriorsRecord:
    """The frequencies in a file; UsageError if there is no such file, or it holds none."""
    remedy = "give priors.json of a run, or what  adagc priors RUN --json  prints"
    if not path.is_file():
        near = hint(str(path), WORDS) or f"; {remedy}"
        raise UsageError(f"--priors {path} is neither a file nor one of {', '.join(WORDS)}{near}")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return parse(PriorsRecord, values, f"--priors {path}", remedy)
    except (OSError, ValueError) as error:
        raise UsageError(f"--priors {path} cannot be read ({error}): {remedy}") from None
    except AdagcError as error:
        raise UsageError(str(error)) from None
