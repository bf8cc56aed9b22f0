"""The web server: the page, the pictures, and what the page asks for. It knows ids, no paths."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import Field

from adagc.annotate.desk import Desk, View
from adagc.annotate.protocol import Answer
from adagc.images.base import SceneDataset
from adagc.web.app import Asked, Class, Key, Row, Undo, bare_app, named
from adagc.web.context import Neighbours
from adagc.web.shown import LONGEST, add_pictures


class Again(Asked):
    """Other candidates for this image."""

    image: Row


class Answered(Asked):
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
    app = bare_app("adagc annotate", "adagc.annotate", ("app.js",))
    pictures = add_pictures(app, images, neighbours)
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

    @app.post("/api/look")
    def look(asked: Asked) -> dict[str, Any]:
        """What an annotator has before them."""
        return shown(desk.look(asked.name))

    @app.post("/api/refresh")
    def refresh(asked: Again) -> dict[str, Any]:
        """Other candidates."""
        return shown(desk.refresh(asked.name, named(images.names, asked.image)))

    @app.post("/api/answer")
    def answer(given: Answered) -> dict[str, Any]:
        """Keep an answer; it is on the disk when this returns."""
        view = desk.answer(
            given.name,
            named(images.names, given.image),
            given.kind,
            present=[named(classes, number) for number in given.present],
            absent=[named(classes, number) for number in given.absent],
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
    def reopen(asked: Asked) -> dict[str, Any]:
        """Show the images again that were skipped."""
        return shown(desk.reopen(asked.name))

    return app
