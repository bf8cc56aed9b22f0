"""The web server: the page, the pictures, and what the page asks for. It knows ids, no paths."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from typing import Annotated, Any, Final

from fastapi import FastAPI, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.exceptions import HTTPException

from adagc.annotate.context import Neighbours, surroundings
from adagc.annotate.desk import Desk, View
from adagc.annotate.pictures import Composite, Picture, composites, picture
from adagc.annotate.protocol import Answer
from adagc.errors import AdagcError, NoSpaceError
from adagc.images.base import SceneDataset

LONGEST: Final = 1024  # pixels of a picture; the whole image is loaded when somebody zooms in
_WHOLE: Final = 16_384  # no browser shows more
_KEPT: Final = 64  # pictures that are kept, for those who go back
_AT_ONCE: Final = 4  # pictures that are made at the same time
_FILES: Final = {
    "": ("index.html", "text/html; charset=utf-8"),
    "style.css": ("style.css", "text/css; charset=utf-8"),
    "app.js": ("app.js", "text/javascript; charset=utf-8"),
    "stage.js": ("stage.js", "text/javascript; charset=utf-8"),
    "favicon.ico": ("icon.svg", "image/svg+xml"),
}
DISK_FULL: Final = "The disk is full: this is not saved. Free some space, then try again."
BROKEN: Final = "This image cannot be read. Skip it; the window of adagc annotate says more."

log = logging.getLogger(__name__)

Name = Annotated[
    str,
    StringConstraints(
        strip_whitespace=True, min_length=1, max_length=60, pattern=r"^[^\x00-\x1f\x7f]+$"
    ),
]
Key = Annotated[str, StringConstraints(min_length=8, max_length=64, pattern=r"^[0-9a-zA-Z-]+$")]
Row = Annotated[int, Field(ge=0, le=2**31)]
Class = Annotated[int, Field(ge=0, le=2**16)]


class _Asked(BaseModel):
    """What all requests say: who asks."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: Name


class Again(_Asked):
    """Other candidates for this image."""

    image: Row


class Undo(_Asked):
    """Take the last answer back; `request` makes sure that this happens once."""

    request: Key


class Answered(_Asked):
    """An answer; classes are numbers, as in the list that the page was given."""

    image: Row
    request: Key
    kind: Answer
    present: list[Class] = Field(default=[], max_length=1000)
    absent: list[Class] = Field(default=[], max_length=1000)
    key: int | None = Field(default=None, ge=0, le=8)
    seconds: float | None = Field(default=None, ge=0, le=1e6, allow_inf_nan=False)


def make_app(desk: Desk, images: SceneDataset, neighbours: Neighbours | None = None) -> FastAPI:
    """The application; `Guard` must stand before it.

    Args:
        desk: The work.
        images: The images, by whose rows the page calls them.
        neighbours: Where they lie, if somebody looks for that.
    """
    app = FastAPI(title="adagc annotate", docs_url=None, redoc_url=None, openapi_url=None)
    pictures = _Pictures(images, neighbours or Neighbours(images))
    rows = {name: row for row, name in enumerate(images.names)}
    classes = desk.rules.classes

    def shown(view: View) -> dict[str, Any]:
        """A view as the page gets it: rows and numbers of classes for names."""
        column = {name: number for number, name in enumerate(classes)}
        return {
            "image": None if view.image is None else rows[view.image],
            "upcoming": None if view.upcoming is None else rows[view.upcoming],
            "candidates": [column[name] for name in view.candidates],
            "offered": view.offered,
            "finished": view.finished,
            "total": view.total,
            "mine": view.mine,
            "skipped": view.skipped,
            "rate": view.rate,
            "counts": [view.per_class[name] for name in classes],
            "undoable": view.undoable,
            "notice": view.notice,
            "bias": view.bias,
        }

    @app.get("/")
    @app.get("/{file}", include_in_schema=False)
    def page(file: str = "") -> Response:
        """The page and what belongs to it."""
        if file not in _FILES:
            raise HTTPException(404, "there is no such page")
        name, kind = _FILES[file]
        content = resources.files("adagc.annotate").joinpath("page", name).read_bytes()
        return Response(content, media_type=kind)

    @app.get("/api/project")
    def project() -> dict[str, Any]:
        """What does not change while people work."""
        rules = desk.rules
        return {
            "classes": classes,
            "composites": [
                {"name": each.name, "bands": each.bands} for each in pictures.composites
            ],
            "candidates": rules.candidates,
            "everything": rules.everything,
            "several": rules.several,
            "absent": rules.absent,
            "images": len(images),
            "longest": LONGEST,
        }

    @app.get("/api/picture/{row}/{composite}")
    def show(
        row: Annotated[int, Path(ge=0, le=2**31)],
        composite: Annotated[int, Path(ge=0, le=1000)],
        whole: bool = False,
    ) -> Response:
        """An image as a picture, in one of the composites of the project."""
        if row >= len(images) or composite >= len(pictures.composites):
            raise HTTPException(404, "there is no such image")
        found = pictures.of(row, composite, whole=whole)
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

    @app.post("/api/look")
    def look(asked: _Asked) -> dict[str, Any]:
        """What an annotator has before them."""
        return shown(desk.look(asked.name))

    @app.post("/api/refresh")
    def refresh(asked: Again) -> dict[str, Any]:
        """Other candidates."""
        return shown(desk.refresh(asked.name, _name(images.names, asked.image)))

    @app.post("/api/answer")
    def answer(given: Answered) -> dict[str, Any]:
        """Keep an answer; it is on the disk when this returns."""
        view = desk.answer(
            given.name,
            _name(images.names, given.image),
            given.kind,
            present=[_name(classes, number) for number in given.present],
            absent=[_name(classes, number) for number in given.absent],
            key=given.key,
            seconds=given.seconds,
            request=given.request,
        )
        return shown(view)

    @app.post("/api/undo")
    def undo(asked: Undo) -> dict[str, Any]:
        """Take the last answer back."""
        return shown(desk.undo(asked.name, asked.request))

    @app.post("/api/reopen")
    def reopen(asked: _Asked) -> dict[str, Any]:
        """Show the images again that were skipped."""
        return shown(desk.reopen(asked.name))

    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _misspelt)
    app.add_exception_handler(NoSpaceError, _full)
    app.add_exception_handler(AdagcError, _wrong)
    return app


class _Pictures:
    """The last pictures that were made, because an image is asked for ahead and again."""

    def __init__(self, images: SceneDataset, neighbours: Neighbours) -> None:
        self.composites: Sequence[Composite] = composites(images)
        self._images, self._neighbours = images, neighbours
        self._made: OrderedDict[tuple[int, int, bool], Picture | None] = OrderedDict()
        self._lock = threading.Lock()
        # Decoding many large images at once would take all memory.
        self._places = threading.BoundedSemaphore(_AT_ONCE)

    def of(self, row: int, composite: int, *, whole: bool) -> Picture | None:
        """A picture; None if the image is broken."""
        key = row, composite, whole
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]
        with self._places:
            longest = _WHOLE if whole else LONGEST
            try:
                made = picture(self._images, row, self.composites[composite], longest=longest)
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
        around = len(self._neighbours.around(row))
        return {} if found is None else asdict(found) | {"around": around}

    def context(self, row: int, composite: int) -> Picture | None:
        """An image among its neighbours; None if there are none, or it cannot be drawn."""
        with self._places:
            try:
                return surroundings(self._images, self._neighbours, row, self.composites[composite])
            except Exception as error:  # as above
                log.warning("%s: %s", self._images.names[row], error)
                return None


def _name(names: Sequence[str], number: int) -> str:
    if number >= len(names):
        raise HTTPException(404, "there is no such image or class")
    return names[number]


def _problem(status: int, text: str) -> JSONResponse:
    return JSONResponse({"problem": text}, status)


async def _refused(request: Request, error: Any) -> Response:
    return _problem(error.status_code, str(error.detail))


async def _misspelt(request: Request, error: Any) -> Response:
    return _problem(422, "the request is not as the page makes it")


async def _full(request: Request, error: Exception) -> Response:
    log.warning("%s", error)  # names the file, which is not for the page
    return _problem(507, DISK_FULL)


async def _wrong(request: Request, error: Exception) -> Response:
    log.warning("%s", error)
    return _problem(409, "that cannot be done now: load the page again")
