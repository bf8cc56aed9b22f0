"""Requests at random, by the server's own description: never status 500."""

from __future__ import annotations

import json

import pytest

from adagc.annotate.server import make_app
from adagc.web.images import open_images
from annotate.projects import check_events
from annotate.served import make_images, serving
from web.random_requests import storm


def send(folder, count: int, seed: int) -> None:
    make_images(folder / "images")
    (folder / "secret.txt").write_text("not for the page")
    images = open_images(folder / "images")
    with serving(folder, several=True, absent=True) as (project, client, _):
        schema = make_app(project.desk, images).openapi()
        statuses = storm(client, schema, count, seed=seed, hidden=["not for the page", str(folder)])
        assert sum(statuses.values()) == count
        view = client.post("look", name="somebody new")
        assert json.loads(client.send("GET", "/api/project")[2])["images"] == 6
        assert view["total"] == 6
        check_events(project.events)


def test_200_random_requests(tmp_path):
    send(tmp_path, 200, seed=1)


@pytest.mark.slow
def test_10000_random_requests(tmp_path):
    send(tmp_path, 10_000, seed=2)
