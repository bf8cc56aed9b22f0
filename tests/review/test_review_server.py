"""The server of a review over real connections: what the page gets, and what nobody gets."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

from adagc.review import layers
from full_disk import FullDisk
from review.reviews import CLASSES, make_pictures, serving
from web.visitors import Client


@pytest.fixture
def served(tmp_path):
    make_pictures(tmp_path / "images", 5)
    with serving(tmp_path) as found:
        yield found


def test_the_page_comes_with_what_belongs_to_it(served):
    client = served[2]
    for path in (
        "/",
        "/app.js",
        "/review.css",
        "/style.css",
        "/stage.js",
        "/talk.js",
        "/pictures.js",
    ):
        status, headers, content = client.send("GET", path)
        assert status == 200
        assert len(content) > 500
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    page = client.send("GET", "/")[2].decode()
    assert "<style" not in page
    assert "http://" not in page
    assert "https://" not in page


def test_numbers_go_out_and_no_names_or_paths(served, tmp_path):
    review, _, client, _ = served
    view = client.post("look", name="ann")
    about = json.loads(client.send("GET", "/api/project")[2])
    assert about["classes"] == list(CLASSES)
    assert (about["ready"], about["model"], about["threshold"]) == (True, True, 60)
    one = next(each for each in review.plan if each.image == review.names[view["image"]])
    assert [about["classes"][label] for label in view["marked"]] == list(one.marked)
    assert [about["classes"][q["label"]] for q in view["questions"]] == [
        q.label for q in one.questions
    ]
    assert [q["percent"] for q in view["questions"]] == [q.percent for q in one.questions]
    said = json.dumps([view, about])
    assert str(tmp_path) not in said
    assert "i00" not in said


def test_answers_reach_the_desk(served):
    review, _, client, _ = served
    view = client.post("look", name="ann")
    image, labels = view["image"], [each["label"] for each in view["questions"]]
    view = client.post(
        "answer", name="ann", image=image, label=labels[1], value=-1, request="request-1", seconds=2
    )
    assert view["questions"][1]["value"] == -1
    view = client.post("accept", name="ann", image=image, threshold=1, request="request-2")
    assert {each["value"] for each in view["questions"]} == {1, -1}
    view = client.post("next", name="ann", image=image, request="request-3", seconds=1.5)
    assert view["image"] != image
    assert view["finished"] == 1
    assert view["counts"][labels[1]] == [0, 1, 0]
    assert client.post("undo", name="ann", request="request-4")["image"] == image
    kinds = [event.kind for event in review.events]
    assert kinds == ["shown", "answer", "accept", "next", "shown", "undo", "shown"]
    review.check()


def test_evidence_is_a_picture_to_lay_over_the_image(served):
    _, _, client, _ = served
    view = client.post("look", name="ann")
    image, label = view["image"], view["questions"][0]["label"]
    status, headers, content = client.send("GET", f"/api/evidence/{image}/{label}")
    assert (status, headers["content-type"]) == (200, "image/png")
    shown = np.asarray(Image.open(io.BytesIO(content)))
    assert shown.shape == (256, 256, 4)
    assert shown[128, 128, 3] > 140
    assert shown[5, 5, 3] < 20
    marked = view["marked"][0]
    for path in (f"{image}/{marked}", f"{image}/999", f"999/{label}"):
        assert client.send("GET", f"/api/evidence/{path}")[0] == 404


def test_before_the_model_is_there_the_page_is_told(tmp_path):
    make_pictures(tmp_path / "images", 3)
    with serving(tmp_path, ready=False) as (_, waiting, client, _):
        desk, waiting.desk = waiting.desk, None
        about = json.loads(client.send("GET", "/api/project")[2])
        assert (about["ready"], about["model"], about["doing"]) == (
            False,
            False,
            "loading the model",
        )
        status, _, content = client.send("POST", "/api/look", {"name": "ann"})
        assert (status, json.loads(content)["problem"]) == (503, "The model is still loading.")
        assert client.send("GET", "/api/picture/0/0")[0] == 200
        waiting.desk = desk  # the questions are there before the model is
        view = client.post("look", name="ann")
        path = f"/api/evidence/{view['image']}/{view['questions'][0]['label']}"
        assert client.send("GET", path)[0] == 503
        waiting.furnish()
        assert client.send("GET", path)[0] == 200
        assert json.loads(client.send("GET", "/api/project")[2])["model"]


def test_evidence_of_what_comes_next_is_made_ahead(tmp_path):
    make_pictures(tmp_path / "images", 4)
    made = []
    with serving(tmp_path, ready=False) as (review, waiting, client, _):
        waiting.layers.furnish(
            lambda image, labels: made.append((image, labels)) or dict.fromkeys(labels, b"x")
        )
        view = client.post("look", name="ann")
        for _ in range(200):
            if len(made) == 2:
                break
            client.send("GET", "/api/project")
        assert [image for image, _ in made] == [
            review.names[view["image"]], review.names[view["upcoming"]]
        ]  # fmt: skip
        assert len(made[0][1]) == len(view["questions"]), "all classes of an image at once"
        label = view["questions"][0]["label"]
        assert client.send("GET", f"/api/evidence/{view['image']}/{label}")[2] == b"x"
        assert len(made) == 2


def test_an_image_without_evidence_does_not_stop_the_work(tmp_path):
    make_pictures(tmp_path / "images", 3)

    def fail(image, labels):
        raise ValueError("whatever")

    with serving(tmp_path, ready=False) as (_, waiting, client, _):
        waiting.layers.furnish(fail)
        view = client.post("look", name="ann")
        label = view["questions"][0]["label"]
        status, _, content = client.send("GET", f"/api/evidence/{view['image']}/{label}")
        assert status == 422
        assert b"whatever" not in content
        assert client.post("next", name="ann", image=view["image"], request="request-1")["finished"]


def test_in_blind_mode_probabilities_stay_on_the_server(tmp_path):
    make_pictures(tmp_path / "images", 4)
    with serving(tmp_path, blind=True) as (_, _, client, _):
        view = client.post("look", name="ann")
        assert {each["percent"] for each in view["questions"]} == {None}
        assert all(set(each) == {"label", "percent", "value"} for each in view["questions"])
        body = {"name": "ann", "image": view["image"], "threshold": 50, "request": "request-1"}
        assert client.send("POST", "/api/accept", body)[0] == 409


@pytest.mark.parametrize(
    "changed",
    [
        {"value": 2}, {"value": True}, {"value": "1"}, {"label": -1}, {"image": 10**9},
        {"request": "x"}, {"name": ""}, {"seconds": -1}, {"seconds": float("nan")}, {"more": 1},
        {"label": None},
    ],
)  # fmt: skip
def test_answers_that_the_page_does_not_make_are_refused(served, changed):
    review, _, client, _ = served
    view = client.post("look", name="ann")
    body = {
        "name": "ann", "image": view["image"], "label": view["questions"][0]["label"],
        "value": 1, "request": "request-1",
    }  # fmt: skip
    status, _, content = client.send("POST", "/api/answer", body | changed)
    assert status in (404, 422)
    assert "problem" in json.loads(content)
    assert len(review.events) == 1


def test_others_may_not_come_in(tmp_path):
    make_pictures(tmp_path / "images", 3)
    with serving(tmp_path, host="127.0.0.1") as (_, _, client, server):
        assert client.send("GET", "/")[0] == 403
        assert client.send("POST", "/api/look", {"name": "ann"})[0] == 403
        path = server.address.partition(str(server.port))[2]
        status, headers, _ = client.send("GET", path)
        assert status == 303
        known = Client(server.port, cookie=headers["set-cookie"].partition(";")[0])
        assert known.post("look", name="ann")["total"] == 3
        stranger = {"Origin": "http://elsewhere.example"}
        assert known.send("POST", "/api/look", {"name": "x"}, **stranger)[0] == 403
        assert (
            Client(server.port, host="evil.example", cookie=known.cookie).send("GET", "/")[0] == 421
        )


@pytest.mark.parametrize(
    "path",
    ["/../secret.txt", "/%2e%2e/secret.txt", "/api/picture/../0", "/server.py", "/page/app.js"],
)
def test_no_file_but_those_of_the_page(served, tmp_path, path):
    (tmp_path / "secret.txt").write_text("not for the page")
    status, _, content = served[2].send("GET", path)
    assert status in (404, 422)
    assert b"not for" not in content


def test_a_full_disk_is_told_before_anything_is_acknowledged(tmp_path, monkeypatch):
    make_pictures(tmp_path / "images", 3)
    with serving(tmp_path) as (review, _, client, _):
        view = client.post("look", name="ann")
        body = {
            "name": "ann", "image": view["image"], "label": view["questions"][0]["label"],
            "value": 1, "request": "request-1",
        }  # fmt: skip
        disk = FullDisk(monkeypatch, "reviewed.csv")
        assert client.send("POST", "/api/answer", body)[0] == 507
        disk.free()
        assert client.send("POST", "/api/answer", body)[0] == 200
        review.check()


def test_requests_that_tell_the_server_what_it_cannot_know(served):
    """Somebody with an old page: the image is no longer before them."""
    _, _, client, _ = served
    view = client.post("look", name="ann")
    other = next(n for n in range(5) if n != view["image"])
    told = client.post("next", name="ann", image=other, request="request-1")
    assert told["image"] == view["image"]
    assert "somebody else" in told["notice"]


def test_the_maps_of_the_last_images_are_kept(monkeypatch):
    monkeypatch.setattr(layers, "_KEPT", 2)
    made: list[str] = []
    kept = layers.Layers()
    kept.furnish(lambda image, labels: made.append(image) or dict.fromkeys(labels, b"x"))
    for image in ("a", "b", "a", "c", "a", "b"):
        assert kept.of(image, "water") == b"x"
    assert made == ["a", "b", "c", "b"]
