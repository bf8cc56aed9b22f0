"""A real server for tests, on small images."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from adagc.annotate.server import make_app
from adagc.web.images import open_images
from adagc.web.serve import Server
from annotate.projects import Project
from web.visitors import Client


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
    app = make_app(project.desk, images, places and places(images))
    server = Server(host=host)
    ready = threading.Event()
    work = threading.Thread(target=server.run, args=(app, ready.set))
    work.start()
    try:
        assert ready.wait(60)
        yield project, Client(server.port), server
    finally:
        server.stop()
        work.join(30)
        project.close()
    assert not work.is_alive()
