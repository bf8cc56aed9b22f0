"""What to ask people about: classes that a trained model believes in and nobody has marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adagc.completion.completed import Completed
from adagc.completion.work import Part, complete
from adagc.datasets.collection import Collection
from adagc.errors import check_range
from adagc.review.answers import NO, SKIP, YES, Answer
from adagc.review.order import LEAST, MOST, Order, ranked, suggested
from adagc.review.questions import Question, Suggestion
from adagc.training.runs import Run


def suggestions(
    run: Run | Path | str,
    images: Path | str | None = None,
    *,
    part: Part | None = None,
    order: Order = "informative",
    count: int | None = None,
    least: float = LEAST,
    most: int = MOST,
    blind: float = 0.0,
    seed: int = 0,
    collection: Collection | None = None,
    completed: Completed | None = None,
) -> tuple[Suggestion, ...]:
    """The images to review, the first ones first, with what to ask about each.

    Args:
        run: A finished run, or its folder.
        images: Folder or file of other images; by default those of the run.
        part: Images of the run: "train", "val", "test" or "all"; by default those for training and
            validation.
        order: Which images come first; see `adagc.review.order.ranked`.
        count: Number of images; all of which there is something to ask by default.
        least: Smallest probability of a suggestion.
        most: Largest number of questions about an image.
        blind: Blind mode: share of the questions that are about classes drawn at random.
        seed: Seed of what is random.
        collection: The data set of the run, if it is already open.
        completed: What `complete` has found, if that is there already.
    """
    check_range("blind", blind, 0, 1, below=True)
    check_range("least", least, 0, 1)
    check_range("most", most, 1)
    made = completed or complete(run, part=part, images=images, collection=collection)
    presence = made.probability.astype(np.float64) if made.presence is None else made.presence
    asked = suggested(presence, made.observed, least=least, most=most)
    rows = ranked(presence, asked, made.observed, order=order, count=count, seed=seed)
    found = []
    for row in rows.tolist():
        columns = np.flatnonzero(asked[row])
        columns = columns[np.argsort(-presence[row, columns], kind="stable")]
        questions = [Question(made.classes[c], float(presence[row, c])) for c in columns.tolist()]
        marked = np.flatnonzero(made.observed[row] > 0).tolist()
        found.append(
            Suggestion(made.images[row], tuple(made.classes[c] for c in marked), tuple(questions))
        )
    if not blind:
        return tuple(found)
    open_ = {made.images[row]: made.observed[row] == 0 for row in rows.tolist()}
    chances = {made.images[row]: presence[row] for row in rows.tolist()}
    return blinded(found, made.classes, open_, chances, share=blind, seed=seed)


def blinded(
    given: Sequence[Suggestion],
    classes: Sequence[str],
    unknown: dict[str, NDArray[np.bool_]],
    chances: dict[str, NDArray[np.float64]],
    *,
    share: float,
    seed: int = 0,
) -> tuple[Suggestion, ...]:
    """The suggestions with each question replaced, with this probability, by a random class.

    The class is drawn from all that are not known on the image, suggested ones included: so the
    share of random classes that are there says how frequent unmarked classes are, and no answer can
    be told from which it is. Questions of an image are shuffled, and none is asked twice.
    """
    generator = np.random.default_rng(seed)
    found = []
    for one in given:
        questions: dict[str, Question] = {}
        pool = np.flatnonzero(unknown[one.image])
        for question in one.questions:
            asked = question
            if generator.random() < share:
                c = int(generator.choice(pool))
                asked = Question(classes[c], float(chances[one.image][c]), blind=True)
            # A class that was drawn and is suggested too is asked once, as what it was drawn as.
            known = questions.get(asked.label)
            questions[asked.label] = asked if known is None or asked.blind else known
        order = generator.permutation(len(questions)).tolist()
        every = list(questions.values())
        found.append(replace(one, questions=tuple(every[i] for i in order)))
    return tuple(found)


def accept(given: Iterable[Suggestion], threshold: float) -> list[Answer]:
    """Yes to all suggestions that are at least as probable as this, without asking anybody."""
    check_range("threshold", threshold, 0, 1)
    return [
        Answer(one.image, question.label, YES)
        for one in given
        for question in one.questions
        if not question.blind and question.probability >= threshold
    ]


__all__ = [
    "NO",
    "SKIP",
    "YES",
    "Answer",
    "Question",
    "Suggestion",
    "accept",
    "blinded",
    "suggestions",
]
