"""Why a job failed, written beside its folder and read back by whoever makes tables or plans."""

from __future__ import annotations

import json
import traceback
from typing import Any

from adagc.atomic import write_json
from adagc.bench.jobs import Job
from adagc.errors import UnsuitedError


def note_failure(job: Job, error: BaseException) -> None:
    """Say beside the folder why the job failed; the folder itself stays fit to be continued."""
    job.failure.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        job.failure,
        {
            "error": reason(error),
            "kind": type(error).__name__,
            "traceback": "".join(traceback.format_exception(error)),
        },
    )


def reason(error: BaseException) -> str:
    """An error in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def failure_of(job: Job) -> str:
    """One line why the last attempt failed."""
    return str(_noted(job).get("error", "unknown"))


def is_unsuited(job: Job) -> bool:
    """Whether the method cannot be used on this data, which is nobody's failure."""
    return _noted(job).get("kind") == UnsuitedError.__name__


def _noted(job: Job) -> dict[str, Any]:
    try:
        found = json.loads(job.failure.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
