"""Whether a run was told how frequent labels are, by the value of an option.

Some options have a right value that follows from the true number of labels per image, which
somebody with one label per image does not know. Left at their default, or tuned on noisy validation
labels, they tell a method nothing; chosen in another way they may. Tables mark such runs like those
of methods that need label frequencies, and none of them is recommended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from adagc.options import read

if TYPE_CHECKING:
    from adagc.methods import Method

MARK = "ᵃ"  # of such runs, and of methods that need label frequencies, in tables
TOLD = "is told the true label frequencies or the mean number of labels per image"  # what it means
# Labels by which options were chosen: observed ones of validation images, or true ones.
TunedOn = Literal["noisy", "clean"]


def told_by(
    method: type[Method], options: Mapping[str, Any], tuned_on: TunedOn | None = None
) -> tuple[str, ...]:
    """The options through which a run is told how frequent labels are; empty if it is not.

    Args:
        method: The method, or its outline.
        options: Values by name; options that are left out have their defaults.
        tuned_on: Labels by which the options were chosen; None if nobody says.
    """
    changed = [
        name
        for name, option in read(method).items()
        if options.get(name, option.default) != option.default
    ]
    if tuned_on == "clean":
        return tuple(changed)
    # Tuning searches the grid and leaves all other options as somebody has set them.
    tuned = method.grid if tuned_on == "noisy" else ()
    return tuple(name for name in changed if name in method.frequencies and name not in tuned)


def caveat(method: type[Method], options: Mapping[str, Any]) -> str:
    """What a reader of a single run's scores must know of what it was told; empty if nothing.

    The folder of a run does not say how its options were chosen.
    """
    if "priors" in method.needs:
        return f"{method.title} {TOLD}."
    names = told_by(method, options)
    if not names:
        return ""
    several = len(names) > 1
    return (
        f"{method.title} is told how frequent labels are by its option{'s' * several}"
        f" {' and '.join(names)}, unless {'they were' if several else 'it was'} tuned on noisy"
        " validation labels."
    )
