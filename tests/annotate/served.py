"""A real server for tests, and a client that speaks to it over a real connection."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from adagc.annotate.images import open_images
from adagc.annotate.serve import Server
from adagc.annotate.server import make_app
from annotate.projects import Project


class Client:
    """One visitor, with the cookies that the server has set."""

    def __init__(self, port: int, *, host: str | None = None, cookie: str = "") -> None:
        self.port, self.cookie = port, cookie
        self.host = f"127.0.0.1:{port}" if host is None else host

    def send(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer; `body` is JSON unless it is bytes."""
        told = {
            "Host": self.host,
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        if self.cookie:
            told.setdefault("Cookie", self.cookie)
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if method == "POST":
            told.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers=told)
            answer = connection.getresponse()
            found = {name.lower(): text for name, text in answer.getheaders()}
            return answer.status, found, answer.read()
        finally:
            connection.close()

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """The JSON of an answer that must be a success."""
        status, _, content = self.send("POST", f"/api/{path}", body)
        assert status == 200, (status, content)
        return json.loads(content)


def make_images(folder: Path, count: int = 6) -> list[str]:
    """Small pictures in a folder, of which the last one is broken; their names in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    luck = np.random.default_rng(0)
    for n in range(count - 1):
        pixels = luck.integers(0, 255, (24, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"i{n}.png")
    (folder / f"i{count - 1}.png").write_bytes(b"\x89PNG\r\n\x1a\n and then nothing that is one")
    return [f"i{n}" for n in range(count)]


@contextmanager
def serving(
    folder: Path, *, host: str | None = None, bands: Sequence[str] | None = None, **options: Any
) -> Iterator[tuple[Project, Client, Server]]:
    """A project on the images in `folder`/images, served; with `places` their neighbours, too."""
    images = open_images(folder / "images", bands=bands)
    places = options.pop("places", None)
    project = Project(folder, images.names, **options)
    server = Server(make_app(project.desk, images, places and places(images)), host=host)
    ready = threading.Event()
    work = threading.Thread(target=server.run, args=(ready.set,))
    work.start()
    try:
        assert ready.wait(60)
        yield project, Client(server.port), server
    finally:
        server.stop()
        work.join(30)
        project.close()
    assert not work.is_alive()
