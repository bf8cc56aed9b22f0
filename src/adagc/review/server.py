"""The web server of a review: the page, pictures, evidence, questions. It knows ids, no paths."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import FastAPI, Path, Response
from pydantic import Field
from starlette.exceptions import HTTPException

from adagc.review.desk import Desk, View
from adagc.review.project import Project
from adagc.web.app import Asked, Class, Key, Row, Undo, bare_app, named
from adagc.web.shown import LONGEST, add_pictures

LOADING: Final = "The model is still loading."
_Seconds = Annotated[float | None, Field(ge=0, le=1e6, allow_inf_nan=False)]


class Answered(Asked):
    """What was said about one class, which is a number as in the list that the page was given."""

    image: Row
    request: Key
    label: Class
    value: int = Field(ge=-1, le=1)
    seconds: _Seconds = None


class Accepted(Asked):
    """All open classes of the image from a threshold on are there."""

    image: Row
    request: Key
    threshold: int = Field(ge=1, le=100)
    seconds: _Seconds = None


class Next(Asked):
    """The image is done."""

    image: Row
    request: Key
    seconds: _Seconds = None


def make_app(project: Project) -> FastAPI:
    """The application; `Guard` must stand before it.

    Args:
        project: The review, which may still be loading: until it is there, requests for it are
            answered with 503, and the page with what is going on.
    """
    app = bare_app("adagc review", "adagc.review", ("app.js", "review.css"))
    images, layers = project.images, project.layers
    pictures = add_pictures(app, images)
    rows = {name: row for row, name in enumerate(images.names)}

    def desk() -> Desk:
        if project.desk is None:
            raise HTTPException(503, LOADING)
        return project.desk

    def classes() -> tuple[str, ...]:
        return desk().classes

    def shown(view: View) -> dict[str, Any]:
        """A view as the page gets it: rows and numbers of classes for names."""
        column = {name: number for number, name in enumerate(classes())}
        if layers.ready:
            for image in (view.image, view.upcoming):
                layers.ahead(image or "", desk().asked(image))
        return {
            "image": None if view.image is None else rows[view.image],
            "upcoming": None if view.upcoming is None else rows[view.upcoming],
            "marked": [column[name] for name in view.marked],
            "questions": [
                {"label": column[each.label], "percent": each.percent, "value": each.value}
                for each in view.questions
            ],
            "finished": view.finished,
            "total": view.total,
            "answers": view.answers,
            "yes": view.yes,
            "mine": view.mine,
            "rate": view.rate,
            "counts": [view.per_class[name] for name in classes()],
            "undoable": view.undoable,
            "notice": view.notice,
        }

    @app.get("/api/project")
    def about() -> dict[str, Any]:
        """What does not change while people work, as soon as it is known."""
        return {
            "ready": project.desk is not None,
            "doing": project.doing,
            "failed": project.failure is not None,
            "model": layers.ready,
            "mute": project.mute,
            "classes": () if project.desk is None else classes(),
            "composites": [
                {"name": each.name, "bands": each.bands} for each in pictures.composites
            ],
            "longest": LONGEST,
            "blind": project.options.blind > 0,
            "threshold": project.options.threshold,
        }

    @app.get("/api/evidence/{row}/{label}")
    def evidence(
        row: Annotated[int, Path(ge=0, le=2**31)], label: Annotated[int, Path(ge=0, le=2**16)]
    ) -> Response:
        """Where the model sees a class in an image, as a picture to lay over it."""
        image, name = named(images.names, row), named(classes(), label)
        if name not in desk().asked(image):
            raise HTTPException(404, "that class is not asked about on this image")
        if not layers.ready:
            raise HTTPException(503, LOADING)
        found = layers.of(image, name, desk().asked(image))
        if found is None:
            raise HTTPException(422, "there is no evidence for this image")
        return Response(found, media_type="image/png")

    @app.post("/api/look")
    def look(asked: Asked) -> dict[str, Any]:
        """What a reviewer has before them."""
        return shown(desk().look(asked.name))

    @app.post("/api/answer")
    def answer(given: Answered) -> dict[str, Any]:
        """Keep what was said about one class; it is on the disk when this returns."""
        view = desk().answer(
            given.name,
            named(images.names, given.image),
            named(classes(), given.label),
            given.value,
            seconds=given.seconds,
            request=given.request,
        )
        return shown(view)

    @app.post("/api/accept")
    def accept(given: Accepted) -> dict[str, Any]:
        """Say yes to all open classes that are probable enough."""
        view = desk().accept(
            given.name,
            named(images.names, given.image),
            given.threshold,
            seconds=given.seconds,
            request=given.request,
        )
        return shown(view)

    @app.post("/api/next")
    def go_on(given: Next) -> dict[str, Any]:
        """The image is done; what is open is skipped."""
        view = desk().go_on(
            given.name,
            named(images.names, given.image),
            seconds=given.seconds,
            request=given.request,
        )
        return shown(view)

    @app.post("/api/undo")
    def undo(asked: Undo) -> dict[str, Any]:
        """Take back what was done last."""
        return shown(desk().undo(asked.name, asked.request))

    return app
