"""How images and classes are offered: pure functions of a seed and of what happened before.

The rules are those under which single labels are comparable with random ones: the order of the
images and the candidates of each image do not depend on what the images show. Nothing here keeps a
state, so an interrupted session goes on with the same offers.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from adagc.errors import UsageError, check_range

Answer = Literal["choose", "none", "skip", "absent"]


@dataclass(frozen=True)
class Rules:
    """What annotators are offered and may answer.

    Attributes:
        classes: All classes.
        candidates: How many of them are offered at a time.
        everything: All classes are offered, in their order, with a field to search them.
        repeats: The class just given may be offered for the next image.
        several: An answer may name several classes.
        absent: An answer may name classes that were seen to be absent.
        seed: Of the order of images and of all offers.
    """

    classes: tuple[str, ...]
    candidates: int = 4
    everything: bool = False
    repeats: bool = False
    several: bool = False
    absent: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("candidates", self.candidates, 1, 9)  # the digits that keys have
        check_range("seed", self.seed, 0, 2**63 - 1)
        if len(self.classes) < 2:
            only = ", ".join(map(repr, self.classes))
            raise UsageError(
                f"--classes names {only or 'nothing'}, and there must be two classes to choose"
                " from: add one, or correct the path of the file"
            )

    @property
    def simple(self) -> bool:
        """Whether an answer is one class, so that the label file has one label per image."""
        return not (self.several or self.absent)


def order(names: Sequence[str], seed: int) -> list[int]:
    """The rows of the images in the order in which they are labelled.

    It sorts by a keyed digest of the names: images that are added later fall between the others,
    whose order among themselves stays.
    """
    key = seed.to_bytes(8, "little")
    digests = [
        hashlib.blake2b(name.encode(errors="surrogateescape"), key=key, digest_size=8).digest()
        for name in names
    ]
    return sorted(range(len(names)), key=digests.__getitem__)


def chance(name: str, seed: int) -> float:
    """A number from 0 to 1 that belongs to an image and is independent of its place in `order`."""
    key = seed.to_bytes(8, "little")
    text = name.encode(errors="surrogateescape")
    digest = hashlib.blake2b(text, key=key, digest_size=8, person=b"share").digest()
    return int.from_bytes(digest, "little") / 2**64


def offer(
    rules: Rules,
    counts: Sequence[int],
    shown: Sequence[Sequence[int]] = (),
    given: Collection[int] = (),
    draw: str = "",
) -> tuple[int, ...]:
    """The classes to offer next, in the order of their keys.

    Those come first that were offered for the fewest images so far; among equals the draw decides,
    and it decides the order. So every class is offered for equally many images in the long run,
    and nothing about it depends on the images.

    Args:
        rules: What may be offered.
        counts: For how many images each class was offered to this annotator before this one.
        shown: The offers that this image had already: all classes are shown before one is repeated,
            so the last of a round may have fewer candidates.
        given: The classes of the answer before this one, which are left out.
        draw: What makes this draw differ from others, such as annotator, image and round.
    """
    everyone = range(len(rules.classes))
    if rules.everything:
        return tuple(everyone)
    barred = set() if rules.repeats else set(given)
    pool = [each for each in everyone if each not in barred] or list(everyone)
    left = set(pool)
    for earlier in shown:
        left = left.difference(earlier) or set(pool)
    luck = random.Random(f"{rules.seed}/{draw}/{len(shown)}")
    shuffled = luck.sample(pool, len(pool))
    ranked = sorted((each for each in shuffled if each in left), key=counts.__getitem__)
    return tuple(luck.sample(ranked[: rules.candidates], min(rules.candidates, len(ranked))))


def check_answer(
    rules: Rules,
    kind: Answer,
    offers: Sequence[Sequence[str]],
    present: Sequence[str],
    absent: Sequence[str],
    key: int | None,
) -> None:
    """Raise UsageError if the rules do not allow an answer.

    Args:
        rules: What may be answered.
        kind: What was answered.
        offers: What was offered for the image, the last offer last.
        present: Classes that were said to be there.
        absent: Classes that were said not to be there.
        key: Place of the chosen class in the last offer, if a key chose it.
    """
    named = [*present, *absent]
    offered = {name for names in offers for name in names}
    last = offers[-1]
    if (kind == "choose") != bool(present) or (kind in ("none", "skip") and absent):
        problem = f"an answer {kind!r} cannot name these classes"
    elif kind == "absent" and not absent:
        problem = "an answer 'absent' must name a class"
    elif len(set(named)) != len(named):
        problem = "an answer names a class twice"
    elif not offered.issuperset(named):
        problem = "an answer names a class that was not offered"
    elif absent and not rules.absent:
        problem = "absent classes are not asked for (--absent)"
    elif len(present) > 1 and not rules.several:
        problem = "one class is asked for, not several (--several)"
    elif key is not None and not (key < len(last) and tuple(present) == (last[key],)):
        problem = "the key does not belong to the class"
    else:
        return
    raise UsageError(problem)
