"""What is said on the command line reaches the desk, the images, the server and the browser."""

from __future__ import annotations

import socket
import time

import numpy as np
import pytest

from adagc.annotate.protocol import Rules
from adagc.cli import main
from adagc.commands import annotate as command
from adagc.errors import AdagcError
from adagc.web import context, serve
from annotate.projects import CLASSES
from annotate.served import make_images

NAMES = ", ".join(CLASSES)


@pytest.fixture
def images(tmp_path):
    make_images(tmp_path / "photos", 5)
    (tmp_path / "photos" / "i4.png").unlink()  # the broken one
    return tmp_path / "photos"


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """A function that opens the project that a command line describes."""
    from adagc.annotate.project import open_project

    def of(images, *words: str):
        caught = []
        monkeypatch.setattr(command, "_serve", caught.append)
        told = [str(images), "--classes", NAMES, "--out", str(tmp_path / "labels.csv"), *words]
        assert main(["annotate", *told]) == 0
        return open_project(caught[0])

    return of


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ([], {}),
        (["--candidates", "6"], {"candidates": 6}),
        (["--all-classes"], {"everything": True}),
        (["--repeats"], {"repeats": True}),
        (["--several"], {"several": True}),
        (["--absent"], {"absent": True}),
        (["--seed", "7"], {"seed": 7}),
    ],
)
def test_rules(images, opened, words, wanted):
    with opened(images, *words) as project:
        assert project.desk.rules == Rules(CLASSES, **wanted)


def test_overlap(images, opened):
    with opened(images, "--overlap", "2", "--overlap-share", "1") as project:
        desk = project.desk
        for who, finished in (("ann", 0), ("bob", 4)):
            while (view := desk.look(who)).image is not None:
                desk.answer(who, view.image, "none")
            assert desk.progress == (finished, 4)


@pytest.mark.parametrize(("minutes", "waits"), [("0.01", True), ("15", False)])
def test_patience(images, opened, minutes, waits):
    with opened(images, "--patience", minutes) as project:
        image = project.desk.look("ann").image
        time.sleep(0.7)
        assert (project.desk.look("bob").image == image) is waits


def test_bands_and_nodata(tmp_path, opened):
    (tmp_path / "photos").mkdir()
    values = np.full((3, 4, 8, 8), 500, np.int16)
    values[:, :, 0] = -9
    np.save(tmp_path / "photos" / "images.npy", values)
    words = ["--bands", "nir", "red", "green", "blue", "--nodata", "-9"]
    with opened(tmp_path / "photos", *words) as project:
        assert project.images.bands == ("nir", "red", "green", "blue")
        assert np.isnan(project.images.gather(np.array([1]))[0, :, 0]).all()


def test_names_that_no_label_file_can_hold(tmp_path, images, opened):
    (images / "i0.png").rename(images / "a\nb.png")
    with pytest.raises(AdagcError, match="image name"), opened(images):
        pass
    assert not (tmp_path / "labels.sqlite").exists()


@pytest.fixture
def served(monkeypatch, tmp_path, images):
    """A function that runs the command up to its first line; the server, and what was opened."""
    import webbrowser

    def of(*words: str) -> tuple[serve.Server, list[str]]:
        servers, visited = [], []

        def run(self, app, ready) -> None:
            servers.append(self)
            ready()
            time.sleep(0.3)  # the browser is opened in a thread
            self._socket.close()

        monkeypatch.setattr(serve.Server, "run", run)
        monkeypatch.setattr(webbrowser, "open", visited.append)
        told = [str(images), "--classes", NAMES, "--out", str(tmp_path / "labels.csv"), *words]
        assert main(["annotate", *told]) == 0
        return servers[0], visited

    return of


def test_the_browser_opens_the_address_that_is_printed(served, capsys):
    server, visited = served()
    assert visited == [server.address]
    assert capsys.readouterr().out.splitlines()[0] == server.address
    _, visited = served("--no-browser")
    assert visited == []


def test_port_and_host(served):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    server, _ = served("--port", str(port), "--no-browser")
    assert server.port == port
    assert server.token is None
    server, _ = served("--host", "127.0.0.1", "--no-browser")
    assert server.token is not None
    assert server.token in server.address


def test_where_images_lie_is_looked_for_beside_the_page(served, monkeypatch):
    started = []
    monkeypatch.setattr(context.Neighbours, "start", lambda self: started.append(self))
    served("--no-browser")
    assert len(started) == 1
