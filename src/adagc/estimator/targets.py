"""What `fit` and `score` take as y: class ids, one-hot rows, or three-valued rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from adagc.errors import UsageError


class InputError(UsageError, ValueError):
    """Arrays or parameters that cannot be used; a ValueError, as scikit-learn raises."""


@dataclass(frozen=True)
class Targets:
    """Observed labels, and the classes that their columns stand for."""

    classes: NDArray[Any]  # (C,) class ids, or names or numbers of the columns
    values: NDArray[np.int8]  # (N, C) +1 seen, 0 not known, -1 seen to be absent

    @property
    def names(self) -> tuple[str, ...]:
        """The classes as text, as label tables and messages name them."""
        return tuple(map(str, self.classes.tolist()))

    @property
    def complete(self) -> bool:
        """Whether these can be all labels of the rows: only 0 and 1, and several in some row.

        A row of observed labels has one class, or says of some that they were seen to be absent.
        """
        several = (self.values > 0).sum(axis=1) > 1
        return bool(several.any()) and not (self.values < 0).any()


def targets(y: Any, *, columns: Any = None, classes: NDArray[Any] | None = None) -> Targets:
    """Read y, in whichever of its forms it comes.

    Args:
        y: (N,) one class id per row, or (N, C) rows of +1, 0 and -1.
        columns: Names of the columns, if y was a data frame; None numbers them.
        classes: The classes of a fitted estimator, which y must have; None takes those of y.

    Raises:
        InputError: y has another form or other values, or a class that is not among `classes`.
    """
    given = np.asarray(y.todense() if hasattr(y, "todense") else y)
    if given.ndim == 2 and given.shape[1] == 1 and columns is None:
        given = column_or_1d(given, warn=True)  # a column of ids, as scikit-learn reads it
    if given.ndim == 1:
        return _of_ids(given, classes)
    if given.ndim != 2:
        raise InputError(
            f"y has {given.ndim} axes: give one class id per row, or a matrix with one column per"
            " class"
        )
    return _of_rows(given, columns, classes)


def _of_ids(ids: NDArray[Any], classes: NDArray[Any] | None) -> Targets:
    check_classification_targets(ids)
    known, places = np.unique(ids, return_inverse=True)
    if classes is not None:
        lookup = {value: column for column, value in enumerate(classes.tolist())}
        strange = [value for value in known.tolist() if value not in lookup]
        if strange:
            raise InputError(
                f"y has the class {strange[0]!r}, which fit has not seen: leave such rows out"
            )
        places = np.array([lookup[value] for value in known.tolist()])[places]
        known = classes
    values = np.zeros((len(ids), len(known)), dtype=np.int8)
    values[np.arange(len(ids)), places] = 1
    return Targets(known, values)


def _of_rows(rows: NDArray[Any], columns: Any, classes: NDArray[Any] | None) -> Targets:
    if rows.dtype.kind not in "biuf" or not np.isin(rows, (-1, 0, 1)).all():
        raise InputError(
            "a matrix y may hold only +1 (seen), 0 (not known) and -1 (seen to be absent): give it"
            " one column per class"
        )
    if classes is not None and rows.shape[1] != len(classes):
        raise InputError(
            f"y has {rows.shape[1]} columns for {len(classes)} classes: give one column per class,"
            " in the order of classes_"
        )
    named = np.arange(rows.shape[1]) if columns is None else np.asarray(columns)
    return Targets(named if classes is None else classes, rows.astype(np.int8))
