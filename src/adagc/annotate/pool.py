"""Who gets which image: each goes to as many people as are wanted, nobody gets one twice."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence

from adagc.annotate.events import Event, Kind


class Pool:
    """The images by their place in the order, and who has or had them.

    It knows nothing of files and is rebuilt from the events. Every call takes the same time however
    many images there are.

    Args:
        images: Names of the images in the order in which they are labelled.
        wanted: How many people are to answer each.
    """

    def __init__(self, images: Sequence[str], wanted: Sequence[int]) -> None:
        self.images = images
        self._wanted = wanted
        self._place = {name: place for place, name in enumerate(images)}
        # The places in the sequence in which they are given away, and the rank of each in it.
        self._sequence: Sequence[int] = range(len(images))
        self._rank: Sequence[int] = self._sequence
        self._takers: dict[int, list[str]] = defaultdict(list)  # who has it, or has answered
        self._held: dict[str, list[int]] = defaultdict(list)  # images without an answer yet
        self._skipped: dict[str, set[int]] = defaultdict(set)
        self._cursor: dict[str, int] = defaultdict(int)  # no rank before it is free for them
        self._again: dict[str, list[int]] = defaultdict(list)  # a heap: ranks that are again
        self._answers: dict[int, int] = defaultdict(int)
        self.finished = 0  # images that have all the answers that are wanted

    def __len__(self) -> int:
        return len(self.images)

    def holds(self, who: str, image: str) -> bool:
        """Whether it is this person who is to answer this image."""
        return image in self._place and self._place[image] in self._held[who]

    def held(self, who: str) -> list[str]:
        """The images that this person was given and has not answered, the current one first."""
        return [self.images[place] for place in self._held[who]]

    def next(self, who: str) -> str | None:
        """Give this person one more image; None if there is none left for them."""
        place = self._free(who)
        if place is None:
            return None
        self._take(who, place)
        return self.images[place]

    def _free(self, who: str) -> int | None:
        again = self._again[who]
        while again:
            place = self._sequence[heapq.heappop(again)]
            if self._is_free(who, place):
                return place
        for rank in range(self._cursor[who], len(self.images)):
            place = self._sequence[rank]
            if self._is_free(who, place):
                self._cursor[who] = rank + 1
                return place
        self._cursor[who] = len(self.images)
        return None

    def prefer(self, images: Sequence[str]) -> None:
        """Give these images away first, in this order; those that somebody has stay with them."""
        first = [self._place[name] for name in images if name in self._place]
        taken = set(first)
        sequence = [*first, *(place for place in range(len(self)) if place not in taken)]
        rank = [0] * len(self)
        for position, place in enumerate(sequence):
            rank[place] = position
        self._sequence, self._rank = sequence, rank
        self._cursor.clear()  # so that what was free again is found on the way
        self._again.clear()

    @property
    def unfinished(self) -> list[str]:
        """The images that lack answers, in the order of the places."""
        return [
            name
            for name, (place, wanted) in zip(self.images, enumerate(self._wanted), strict=True)
            if self._answers.get(place, 0) < wanted
        ]

    def _is_free(self, who: str, place: int) -> bool:
        takers = self._takers.get(place, ())
        return (
            len(takers) < self._wanted[place]
            and who not in takers
            and place not in self._skipped[who]
        )

    def _take(self, who: str, place: int) -> None:
        self._takers[place].append(who)
        self._held[who].append(place)

    def answer(self, who: str, image: str) -> None:
        """This person has answered an image that they held."""
        place = self._place[image]
        self._held[who].remove(place)
        self._answers[place] += 1
        self.finished += self._answers[place] == self._wanted[place]

    def skip(self, who: str, image: str) -> None:
        """This person has no answer for an image that they held: it goes to others."""
        place = self._place[image]
        self._skipped[who].add(place)
        self._release(who, place)

    def undo(self, who: str, image: str, kind: Kind) -> bool:
        """Give an image back to the person who answered it in this way, as the current one.

        False if it was skipped and others have it by now, or if there is no such image any more.
        """
        place = self._place.get(image)
        if place is None:
            return False
        if kind != "skip":
            self.finished -= self._answers[place] == self._wanted[place]
            self._answers[place] -= 1
        elif len(self._takers[place]) >= self._wanted[place]:
            return False
        else:
            self._takers[place].append(who)
        self._skipped[who].discard(place)
        self._held[who].insert(0, place)
        return True

    def skipped(self, who: str) -> int:
        """How many images this person has skipped."""
        return len(self._skipped[who])

    def reopen(self, who: str) -> None:
        """The images that this person has skipped are free for them again."""
        for place in self._skipped.pop(who, ()):
            heapq.heappush(self._again[who], self._rank[place])

    def abandon(self, who: str) -> None:
        """What this person holds is free for others again, and for themselves."""
        for place in list(self._held[who]):
            self._release(who, place)
            heapq.heappush(self._again[who], self._rank[place])

    def _release(self, who: str, place: int) -> None:
        self._held[who].remove(place)
        self._takers[place].remove(who)
        rank = self._rank[place]
        for other, cursor in self._cursor.items():
            if other != who and rank < cursor:
                heapq.heappush(self._again[other], rank)

    def replay(self, event: Event) -> None:
        """Take over what an event of an earlier session says; unknown images are left out.

        What was undone, and the undoing, must be left out (see `counting`).
        """
        place = self._place.get(event.image)
        if place is None:
            return
        who = event.annotator
        if event.kind == "shown":
            self._show_again(who, place)
        elif event.kind == "import":
            self._show_again(who, place)
            self.answer(who, event.image)
        elif place in self._held[who]:
            if event.kind == "skip":
                self.skip(who, event.image)
            elif event.kind in ("choose", "none", "absent"):
                self.answer(who, event.image)

    def _show_again(self, who: str, place: int) -> None:
        """It was this person's current image at that time."""
        takers = self._takers[place]
        if place in self._held[who]:
            self._held[who].remove(place)
            takers.remove(who)
        for other in list(takers):
            # They had left it, or it would not have been given to somebody else.
            if len(takers) >= self._wanted[place] and place in self._held[other]:
                self._held[other].remove(place)
                takers.remove(other)
        if who not in takers:
            self._skipped[who].discard(place)
            takers.append(who)
            self._held[who].insert(0, place)
