"""What a run was told of how frequent labels are: nothing, an estimate, or the truth.

Some options have a right value that follows from the true number of labels per image, which
somebody with one label per image does not know. Left alone they follow from an estimate (`--priors
estimated`, made from observed labels), or have a fixed published number (`--priors published`);
tuned on noisy validation labels they tell a method nothing either. Chosen in another way they may.
Tables mark such runs like those of methods that are given true frequencies, and none of them is
recommended. Runs with an estimate have a mark of their own, and may be recommended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from adagc.options import read

if TYPE_CHECKING:
    from adagc.methods import Method

MARK = "ᵃ"  # of such runs, and of methods that are given true label frequencies, in tables
ESTIMATED = "ᵉ"  # of runs that are given estimated label frequencies, in tables
TOLD = "is told the true label frequencies or the mean number of labels per image"  # what it means
GUESSED = "is given label frequencies that were estimated from observed labels"
# Labels by which options were chosen: observed ones of validation images, or true ones.
TunedOn = Literal["noisy", "clean"]
# What a run knows of label frequencies besides its observed labels.
Knowledge = Literal["told", "estimated", "none"]
# Where it has them from: estimated here, counted in clean labels, or read from a file.
Source = Literal["estimated", "truth", "file"]
WORDS = ("estimated", "truth", "published")  # values of --priors that are not files


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
        if options.get(name, option.default) not in (option.default, method.fixed.get(name))
    ]
    if tuned_on == "clean":
        return tuple(changed)
    # Tuning searches the grid and leaves all other options as somebody has set them.
    tuned = method.grid if tuned_on == "noisy" else ()
    return tuple(name for name in changed if name in method.frequencies and name not in tuned)


def awaits(method: type[Method], options: Mapping[str, Any]) -> bool:
    """Whether a method with these options takes label frequencies from elsewhere.

    It does if it can (`needs` or `fixed`), and all of its `frequencies` are left alone.
    """
    if "priors" not in method.needs and not method.fixed:
        return False
    known = read(method)
    return all(
        options.get(name, known[name].default) == known[name].default for name in method.frequencies
    )


def source_of(method: type[Method], options: Mapping[str, Any], priors: str) -> Source | None:
    """Where a run has label frequencies from; None if it has none.

    Args:
        method: The method, or its outline.
        options: Values by name.
        priors: The setting of that name.
    """
    if not awaits(method, options):
        return None
    if method.oracle:
        return "truth"
    if priors == "published":
        return "truth" if "priors" in method.needs else None
    if priors in ("estimated", "truth"):
        return "truth" if priors == "truth" else "estimated"
    return "file"


def knowledge(told: bool, source: Source | None) -> Knowledge:
    """What a run knows, from what its options tell it and where it has frequencies from.

    A file that does not say that it holds an estimate counts as told.
    """
    if told or source in ("truth", "file"):
        return "told"
    return "none" if source is None else "estimated"


def caveat(method: type[Method], options: Mapping[str, Any], knows: Knowledge | None = None) -> str:
    """What a reader of a single run's scores must know of what it was told; empty if nothing.

    The folder of a run does not say how its options were chosen.

    Args:
        method: The method, or its outline.
        options: Values by name.
        knows: What the run was given besides; None if it does not say, being of an older version,
            in which methods that need frequencies were given true ones.
    """
    if knows is None:
        knows = "told" if "priors" in method.needs else "none"
    if knows != "none":
        return f"{method.title} {TOLD if knows == 'told' else GUESSED}."
    names = told_by(method, options)
    if not names:
        return ""
    several = len(names) > 1
    return (
        f"{method.title} is told how frequent labels are by its option{'s' * several}"
        f" {' and '.join(names)}, unless {'they were' if several else 'it was'} tuned on noisy"
        " validation labels."
    )
