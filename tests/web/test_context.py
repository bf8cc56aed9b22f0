"""What lies around an image: only what is known to, in the right place, and nobody waits for it."""

from __future__ import annotations

import io
import json
import time

import numpy as np
import pytest
from PIL import Image

from adagc.web.context import SIDE, Neighbours, surroundings
from adagc.web.images import open_images
from adagc.web.pictures import composites
from annotate.served import Client, make_images, serving
from annotate.test_importing import session

rasterio = pytest.importorskip("rasterio")

TILE = 16


def write_tile(path, column: int, row: int, colour, *, crs: str | None = "EPSG:32633") -> None:
    """A tile of 16 pixels of ten metres, in one colour; columns go east, rows south."""
    from rasterio.transform import from_origin

    place = {}
    if crs is not None:
        place = {
            "crs": crs,
            "transform": from_origin(500_000 + column * 160, 5_000_000 - row * 160, 10, 10),
        }
    with rasterio.open(
        path, "w", driver="GTiff", width=TILE, height=TILE, count=3, dtype="uint8", **place
    ) as file:
        file.write(np.full((3, TILE, TILE), np.array(colour)[:, None, None], dtype=np.uint8))


def colour_of(column: int, row: int) -> tuple[int, int, int]:
    return 40 + 80 * column, 40 + 80 * row, 120


@pytest.fixture
def folder(tmp_path):
    """Nine tiles side by side, and four that are not neighbours of any."""
    place = tmp_path / "images"
    place.mkdir()
    for row in range(3):
        for column in range(3):
            write_tile(place / f"t{row}{column}.tif", column, row, colour_of(column, row))
    write_tile(place / "far.tif", 500, 500, (1, 1, 1))
    write_tile(place / "zone.tif", 1, 1, (2, 2, 2), crs="EPSG:32634")
    write_tile(place / "nowhere.tif", 0, 0, (3, 3, 3), crs=None)
    (place / "broken.tif").write_bytes(b"II*\x00 and no more")
    return place


def looked(images) -> Neighbours:
    """Neighbours whose places have all been read."""
    from adagc.web.context import _look

    found = Neighbours(images)
    for places in _look(images, list(range(len(images)))):
        found.add(places)
    return found


def test_neighbours_are_those_beside_an_image(folder):
    images = open_images(folder)
    found, rows = looked(images), {name: row for row, name in enumerate(images.names)}

    def around(name: str) -> set[str]:
        return {images.names[row] for row in found.around(rows[name])}

    assert around("t11") == {f"t{r}{c}" for r in range(3) for c in range(3)} - {"t11"}
    assert around("t00") == {"t01", "t10", "t11"}
    for alone in ("far", "zone", "nowhere", "broken"):
        assert around(alone) == set()
    nearest = [images.names[row] for row in found.around(rows["t11"])][:4]
    assert set(nearest) == {"t01", "t10", "t12", "t21"}


def test_every_neighbour_is_drawn_in_its_place_and_the_image_is_outlined(folder):
    images = open_images(folder)
    found, row = looked(images), images.names.index("t11")
    shown = surroundings(images, found, row, composites(images)[0])
    picture = np.asarray(Image.open(io.BytesIO(shown.data)).convert("RGB")).astype(int)
    assert picture.shape == (SIDE, SIDE, 3)
    third = SIDE // 3
    for down in range(3):
        for right in range(3):
            seen = picture[down * third + third // 2, right * third + third // 2]
            assert np.abs(seen - colour_of(right, down)).max() < 12
    edge = picture[third - 2 : third + 2, third + 40 : third + 60].reshape(-1, 3)
    assert edge.max() > 220, "a light line"
    assert picture[third + 20, third + 20].max() < 220


def test_a_neighbour_that_cannot_be_read_leaves_a_gap(folder):
    images = open_images(folder)
    found, row = looked(images), images.names.index("t11")
    (folder / "t00.tif").write_bytes(b"II*\x00 and no more")
    shown = surroundings(images, found, row, composites(images)[0])
    picture = np.asarray(Image.open(io.BytesIO(shown.data)).convert("RGB")).astype(int)
    assert picture[100, 100].max() < 60
    assert np.abs(picture[100, SIDE - 100] - colour_of(2, 0)).max() < 12


def test_without_neighbours_there_is_nothing_to_show(folder, tmp_path):
    images = open_images(folder)
    for name in ("far", "nowhere"):
        row = images.names.index(name)
        assert surroundings(images, looked(images), row, composites(images)[0]) is None
    make_images(tmp_path / "plain", 3)
    plain = open_images(tmp_path / "plain")
    found = Neighbours(plain)
    found.start()  # nothing to read
    assert found.around(0) == []


def test_100000_places_are_searched_in_no_time():
    class Many:
        def __len__(self) -> int:
            return 100_000

    found = Neighbours(Many())
    found.add(
        [
            (row, (x := 10.0 * (row % 400), y := 10.0 * (row // 400), x + 10, y + 10), "EPSG:1")
            for row in range(100_000)
        ]
    )
    began = time.process_time()
    for row in range(0, 100_000, 5000):
        assert 3 <= len(found.around(row)) <= 8
    assert (time.process_time() - began) / 20 < 0.02


def test_the_page_does_not_wait_for_places_and_gets_them_later(folder, tmp_path):
    """The command: at first nothing is known around an image, and soon it is."""
    rows = {name: row for row, name in enumerate(open_images(folder).names)}

    def work(client: Client) -> tuple[int, int, int]:
        end = time.monotonic() + 120
        while (told := place(client, rows["t11"]))["around"] != 8:
            assert time.monotonic() < end, told
            time.sleep(0.1)
        statuses = [
            client.send("GET", f"/api/context/{rows[name]}/0")[0] for name in ("t11", "far")
        ]
        return *statuses, place(client, rows["far"])["around"]

    def place(client: Client, row: int) -> dict:
        return json.loads(client.send("GET", f"/api/place/{row}")[2])

    words = [str(folder), "--classes", "a, b", "--out", str(tmp_path / "labels.csv")]
    _, found = session(*words, work=work)
    assert found == (200, 404, 0)


@pytest.mark.parametrize("path", ["99/0", "0/9", "-1/0", "x/0", "0/x", "0"])
def test_nothing_is_shown_around_what_is_not_there(folder, tmp_path, path):
    with serving(tmp_path, places=looked) as (_, client, _):
        status, _, content = client.send("GET", f"/api/context/{path}")
        assert status in (404, 422)
        assert str(tmp_path).encode() not in content
