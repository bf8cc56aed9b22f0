"""How a run goes on if its method has a shortlist: as what explains held-out labels best.

Every entry of the shortlist is trained for some epochs on the same images and observed labels, from
the same seed as the run. The one under which the observed labels of validation images are most
probable (`adagc.choice.likelihood`) is handed to the method; of those that tie with it, the first
on the list. No clean label reaches this. The result is shortlist.json in the folder of the run,
which a run that is resumed reads.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from adagc import ranks
from adagc.choice import TIE
from adagc.methods.base import Method
from adagc.methods.pilot import Pilot
from adagc.training.records import ShortlistRecord
from adagc.training.runs import Run
from adagc.training.short import Material, Spent

SHORTLIST = "shortlist.json"
_RECIPE = 2  # raise it when the same settings would give another choice

log = logging.getLogger(__name__)


def decided(run: Run, material: Material, method: Method) -> ShortlistRecord | None:
    """Let the method go on as the best of its shortlist; None if it has none.

    With several ranks all of them call this, and come to the same.

    Args:
        run: The run, which has been started; shortlist.json is written here.
        material: What it is made from.
        method: Its method, which is told the result.
    """
    entries = method.shortlist(material.task)
    if not entries:
        return None
    key = material.key({"shortlist": sorted(entries), "recipe": _RECIPE})
    if not _usable(run, key, entries):
        _compare(run, material, method, entries, key)
    ranks.wait()  # until the first rank has written
    found = run.shortlist
    assert found is not None
    method.take(found.taken, found.lead)
    return found


def _usable(run: Run, key: str, entries: Mapping[str, Pilot]) -> bool:
    """Whether the run has a result that is its own.

    Once an epoch is finished, it is the one that the run goes on as. Before that the run may still
    get other labels or images.
    """
    found = run.shortlist
    return found is not None and found.taken in entries and (run.begun or found.key == key)


def _compare(
    run: Run, material: Material, method: Method, entries: Mapping[str, Pilot], key: str
) -> None:
    """Train all entries and write which is best; nothing is written before the last has ended."""
    log.info(
        "%s first tries %s, at most %d epochs each, and goes on as what explains the observed"
        " labels of validation images best, of ties as the first",
        method.title, " and ".join(entries), max(pilot.most for pilot in entries.values()),
    )  # fmt: skip
    spent = Spent()
    for name, pilot in entries.items():
        spent += material.train(pilot, f"trying {name}")
    likelihoods = {name: pilot.best_value for name, pilot in entries.items()}
    best = max(likelihoods.values())
    taken = next(name for name, value in likelihoods.items() if value >= best - TIE)
    record = ShortlistRecord(
        taken,
        likelihoods,
        {name: pilot.epochs for name, pilot in entries.items()},
        images=len(material.observed.val),  # all of them have a label
        seconds=round(spent.seconds, 3),
        cpu_seconds=None if spent.cpu_seconds is None else round(spent.cpu_seconds, 3),
        key=key,
    )
    log.info("%s goes on as %s (%+.3f per label)", method.title, taken, record.lead)
    if run.files.written_here:
        run.write_json(SHORTLIST, record.to_dict())
