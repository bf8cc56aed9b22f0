"""What happened while people labelled: one event for everything they were shown and did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["shown", "refresh", "choose", "none", "skip", "absent", "undo", "review", "import"]


@dataclass(frozen=True)
class Event:
    """One thing that an annotator was shown or did. Events are added, never changed or deleted.

    Attributes:
        number: Order of events in the file, counted from 1.
        time: Seconds since 1970 (UTC) by the server's clock.
        annotator: Name that the annotator gave; of an "import" the name of the file.
        image: Name of the image.
        kind: "shown": candidates were offered; "refresh": the annotator asked for others;
            "choose": classes were said to be there; "none": none of all classes is there; "skip":
            no answer; "absent": classes were said not to be there; "undo": the event `undoes` no
            longer counts; "review": a suggested class was confirmed or rejected; "import": labels
            of a file were taken over, of which nobody knows what was offered.
        candidates: Classes on offer at that time, in the order of their keys.
        present: Classes that were said to be there.
        absent: Classes that were said not to be there.
        key: Place (from 0) among the candidates of the chosen class; None if it was searched for
            or clicked in a list of all classes.
        seconds: Time on screen before the answer, measured by the page; None for "shown".
        undoes: Number of the event that an "undo" takes back.
        gain: Of an image that was "shown" because a model is expected to learn much from it: how
            much, see `adagc.annotate.active`; None if the order does not depend on the images.
    """

    number: int
    time: float
    annotator: str
    image: str
    kind: Kind
    candidates: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    key: int | None = None
    seconds: float | None = None
    undoes: int | None = None
    gain: float | None = None


def counting(events: list[Event]) -> list[Event]:
    """The events that still count: neither undone ones nor the undoing itself."""
    undone = {event.undoes for event in events if event.kind == "undo"}
    return [event for event in events if event.kind != "undo" and event.number not in undone]
