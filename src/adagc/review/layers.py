"""Evidence maps for the page: made ahead in the background or when asked for, and kept."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Final

_KEPT: Final = 256  # images whose maps are kept; a map has some kilobytes

log = logging.getLogger(__name__)

Maker = Callable[[str, Sequence[str]], dict[str, bytes]]


class Layers:
    """Maps of images, all classes of an image at once, since they share most of the work.

    Until the model is there nobody can have one; `furnish` brings it.
    """

    def __init__(self) -> None:
        self._make: Maker | None = None
        self._kept: OrderedDict[str, dict[str, bytes]] = OrderedDict()
        self._ahead: deque[tuple[str, tuple[str, ...]]] = deque(maxlen=4)
        self._lock = threading.Lock()  # of what is kept
        self._work = threading.Lock()  # one image at a time
        self._more = threading.Event()

    @property
    def ready(self) -> bool:
        """Whether the model is there."""
        return self._make is not None

    def furnish(self, make: Maker) -> None:
        """Give the function that makes the maps of an image for some classes."""
        self._make = make
        threading.Thread(target=self._run, daemon=True).start()

    def of(self, image: str, label: str, others: Sequence[str] = ()) -> bytes | None:
        """The map of an image for a class; None if it has none.

        Args:
            image: The image.
            label: The class.
            others: Classes of the image that will be asked for next.
        """
        kept = self._get(image)
        if label not in kept:
            with self._work:
                kept = self._get(image)  # it may have been made meanwhile
                if label not in kept:
                    kept = self._made(image, tuple(dict.fromkeys((label, *others))))
        return kept.get(label)

    def ahead(self, image: str, labels: Sequence[str]) -> None:
        """Make the maps of an image soon, in the background."""
        if labels and not self._get(image):
            self._ahead.append((image, tuple(labels)))
            self._more.set()

    def _run(self) -> None:
        while self._more.wait():
            self._more.clear()
            while self._ahead:
                image, labels = self._ahead.popleft()
                with self._work:
                    if not self._get(image):
                        self._made(image, labels)

    def _get(self, image: str) -> dict[str, bytes]:
        with self._lock:
            if image in self._kept:
                self._kept.move_to_end(image)
            return self._kept.get(image, {})

    def _made(self, image: str, labels: tuple[str, ...]) -> dict[str, bytes]:
        assert self._make is not None
        try:
            made = self._make(image, labels)
        except Exception as error:  # whatever an image holds, the work must go on
            log.warning("%s: %s", image, error)
            made = {}
        with self._lock:
            made = self._kept.get(image, {}) | made
            self._kept[image] = made
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return made
