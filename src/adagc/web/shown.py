"""Pictures and places of images for a page: made when asked for, and the last ones kept."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import FastAPI, Path, Response
from starlette.exceptions import HTTPException

from adagc.images.base import SceneDataset
from adagc.web.context import Neighbours, surroundings
from adagc.web.pictures import Composite, Picture, composites, picture

LONGEST: Final = 1024  # pixels of a picture; the whole image is loaded when somebody zooms in
_WHOLE: Final = 16_384  # no browser shows more
_KEPT: Final = 64  # pictures that are kept, for those who go back
_AT_ONCE: Final = 4  # pictures that are made at the same time
BROKEN: Final = "This image cannot be read. Skip it; the window of the command says more."

log = logging.getLogger(__name__)


class Pictures:
    """The last pictures that were made, because an image is asked for ahead and again."""

    def __init__(self, images: SceneDataset, neighbours: Neighbours | None) -> None:
        self.composites: Sequence[Composite] = composites(images)
        self._images, self._neighbours = images, neighbours
        self._made: OrderedDict[tuple[int, int, bool, bool], Picture | None] = OrderedDict()
        self._lock = threading.Lock()
        # Decoding many large images at once would take all memory.
        self._places = threading.BoundedSemaphore(_AT_ONCE)

    def of(
        self, row: int, composite: int, *, whole: bool = False, alone: bool = False
    ) -> Picture | None:
        """A picture, perhaps stretched by this image alone; None if the image is broken."""
        key = row, composite, whole, alone
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]
        with self._places:
            longest = _WHOLE if whole else LONGEST
            try:
                made = picture(
                    self._images,
                    row,
                    self.composites[composite],
                    longest=longest,
                    stretch="image" if alone else "data set",
                )
            except Exception as error:  # whatever a file holds, the work must go on
                log.warning("%s: %s", self._images.names[row], error)
                made = None
        with self._lock:
            self._made[key] = made
            while len(self._made) > _KEPT:
                self._made.popitem(last=False)
        return made

    def place(self, row: int) -> dict[str, float]:
        """Centre in degrees, size in metres and number of neighbours; empty if not known."""
        try:
            found = self._images.place(row)
        except Exception as error:  # as above; the place is not worth a message
            log.info("%s: %s", self._images.names[row], error)
            found = None
        around = 0 if self._neighbours is None else len(self._neighbours.around(row))
        return {} if found is None else asdict(found) | {"around": around}

    def context(self, row: int, composite: int) -> Picture | None:
        """An image among its neighbours; None if there are none, or it cannot be drawn."""
        if self._neighbours is None:
            return None
        with self._places:
            try:
                return surroundings(self._images, self._neighbours, row, self.composites[composite])
            except Exception as error:  # as above
                log.warning("%s: %s", self._images.names[row], error)
                return None


def add_pictures(
    app: FastAPI, images: SceneDataset, neighbours: Neighbours | None = None
) -> Pictures:
    """Let an application show images, which the page calls by their rows, and their neighbours."""
    pictures = Pictures(images, neighbours)

    @app.get("/api/picture/{row}/{composite}")
    def show(
        row: Annotated[int, Path(ge=0, le=2**31)],
        composite: Annotated[int, Path(ge=0, le=1000)],
        whole: bool = False,
        alone: bool = False,
    ) -> Response:
        """An image as a picture, in one of the composites of the project."""
        if row >= len(images) or composite >= len(pictures.composites):
            raise HTTPException(404, "there is no such image")
        found = pictures.of(row, composite, whole=whole, alone=alone)
        if found is None:
            raise HTTPException(422, BROKEN)
        # A new start may have other images under the same number, so browsers ask again.
        return Response(found.data, media_type=found.media_type)

    @app.get("/api/place/{row}")
    def where(row: Annotated[int, Path(ge=0, le=2**31)]) -> dict[str, Any]:
        """Where an image lies on earth and how many lie around it; nothing if not known."""
        if row >= len(images):
            raise HTTPException(404, "there is no such image")
        return pictures.place(row)

    @app.get("/api/context/{row}/{composite}")
    def around(
        row: Annotated[int, Path(ge=0, le=2**31)],
        composite: Annotated[int, Path(ge=0, le=1000)],
    ) -> Response:
        """An image among those that lie around it, outlined."""
        if row >= len(images) or composite >= len(pictures.composites):
            raise HTTPException(404, "there is no such image")
        found = pictures.context(row, composite)
        if found is None:
            raise HTTPException(404, "nothing is known of what lies around this image")
        return Response(found.data, media_type=found.media_type)

    return pictures
