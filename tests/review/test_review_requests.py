"""Requests at random, by the description that the server of a review gives of itself."""

from __future__ import annotations

import pytest

from adagc.review.server import make_app
from review.reviews import make_pictures, serving
from web.random_requests import storm


def send(folder, count: int, seed: int, **options) -> None:
    make_pictures(folder / "images", 6)
    (folder / "secret.txt").write_text("not for the page")
    with serving(folder, **options) as (review, waiting, client, _):
        schema = make_app(waiting).openapi()
        statuses = storm(client, schema, count, seed=seed, hidden=["not for the page", str(folder)])
        assert sum(statuses.values()) == count
        assert client.post("look", name="somebody new")["total"] == 6
        review.check()


@pytest.mark.parametrize("blind", [False, True])
def test_150_random_requests(tmp_path, blind):
    send(tmp_path, 150, seed=1, blind=blind)


@pytest.mark.slow
def test_10000_random_requests_to_a_review(tmp_path):
    send(tmp_path, 10_000, seed=2)
