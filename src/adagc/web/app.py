"""What the applications of all pages share: files of the page, fields of requests, refusals."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Annotated, Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.exceptions import HTTPException

from adagc.errors import AdagcError, NoSpaceError

DISK_FULL: Final = "The disk is full: this is not saved. Free some space, then try again."
_KINDS: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# Package and file behind each address, of the files that all pages share.
SHARED: Final = {
    "style.css": ("adagc.web", "style.css"),
    "stage.js": ("adagc.web", "stage.js"),
    "talk.js": ("adagc.web", "talk.js"),
    "pictures.js": ("adagc.web", "pictures.js"),
    "favicon.ico": ("adagc.web", "icon.svg"),
}

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


class Asked(BaseModel):
    """What all requests say: who asks."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: Name


class Undo(Asked):
    """Take the last answer back; `request` makes sure that this happens once."""

    request: Key


def bare_app(title: str, package: str, files: Sequence[str]) -> FastAPI:
    """An application that gives the files of a page, and refuses everything else in plain words.

    `Guard` must stand before it.

    Args:
        title: The command that serves it.
        package: Package whose folder `page` holds the files.
        files: Their names, besides those that all pages share.
    """
    app = FastAPI(title=title, docs_url=None, redoc_url=None, openapi_url=None)
    known: Mapping[str, tuple[str, str]] = {
        **SHARED,
        **{name: (package, name) for name in files},
        "": (package, "index.html"),
    }

    @app.get("/")
    @app.get("/{file}", include_in_schema=False)
    def page(file: str = "") -> Response:
        """The page and what belongs to it."""
        if file not in known:
            raise HTTPException(404, "there is no such page")
        home, name = known[file]
        content = resources.files(home).joinpath("page", name).read_bytes()
        return Response(content, media_type=_KINDS[name.rpartition(".")[2]])

    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _misspelt)
    app.add_exception_handler(NoSpaceError, _full)
    app.add_exception_handler(AdagcError, _wrong)
    return app


def named(names: Sequence[str], number: int) -> str:
    """The image or class of a number; the request is refused if there is none."""
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
