"""How the labels of a run came about: what two runs with opposite suppositions say together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from adagc.choice import compare, hint
from adagc.errors import AdagcError
from adagc.methods.supposed import opposed
from adagc.report.record import Record
from adagc.training import held_out


def origin(records: Sequence[Record]) -> str:
    """Whether labels look random or dominant, in words; empty if these runs do not tell.

    One of them has to suppose dominant labels and one random ones, and both must have kept their
    predictions for the same validation images with the same labels. Clean labels play no part.
    """
    pair = opposed(record.method for record in records if record.run.finished)
    if pair is None:
        return ""
    sides = ([one for one in records if one.method == title] for title in pair)
    for one, other in product(*sides):
        try:
            first, second = held_out.load(one.run), held_out.load(other.run)
            if np.array_equal(first.observed, second.observed):
                found = compare(first.probabilities, second.probabilities, first.observed)
                return hint(found, *pair)
        except AdagcError:  # an older version trained one of them, or hardly any image has a label
            continue
    return ""
