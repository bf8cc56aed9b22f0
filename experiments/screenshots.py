"""Take the pictures of docs/annotate.md and docs/review.md: the real commands, in Chromium.

    python experiments/screenshots.py [--folder FOLDER]       (some minutes, most of them training)

The images are made-up scenes, written as GeoTIFF with names of bands and places, so that no licence
forbids showing them. What is in FOLDER is used again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from PIL import Image
from rasterio.transform import from_origin

from adagc.datasets.collection import Collection
from adagc.datasets.synthetic import synthetic_collection
from adagc.labels import LabelTable, write_labels

DOCS = Path(__file__).parents[1] / "docs"
SIDE, METRES = 120, 10  # pixels of a scene, and what a pixel is wide
DESK = {"viewport": {"width": 1120, "height": 680}}
PHONE = {
    "viewport": {"width": 390, "height": 760}, "has_touch": True, "is_mobile": True,
    "color_scheme": "dark", "device_scale_factor": 1,
}  # fmt: skip
PACE = 4000  # milliseconds that somebody takes for an answer
CLASSES, LONG = 5, 40  # classes of an image that is worth showing; letters of a name, at most


def make_scenes(folder: Path) -> Collection:
    """GeoTIFFs of made-up scenes, far from each other, and the file of their classes."""
    made = synthetic_collection(n_train=300, n_val=100, n_test=0, size=SIDE, seed=5)
    (folder / "classes.txt").write_text("\n".join(made.classes) + "\n")
    assert made.truth is not None
    names = tuple(f"{name}.tif" for name in made.images.names)
    truth = LabelTable(names, made.classes, made.truth.astype(np.int8), "multi", {})
    write_labels(truth, folder / "truth.csv")
    (folder / "photos").mkdir(exist_ok=True)
    for row, name in enumerate(names):
        place = from_origin(
            400_000 + 5000 * (row % 30), 5_300_000 - 5000 * (row // 30), METRES, METRES
        )
        with rasterio.open(
            folder / "photos" / name, "w", driver="GTiff", dtype="int16", crs="EPSG:32632",
            count=len(made.images.bands), height=SIDE, width=SIDE, transform=place,
            compress="deflate",
        ) as file:  # fmt: skip
            file.write(made.images.gather(np.array([row]))[0])
            file.descriptions = made.images.bands
    return made


def adagc(*words: object) -> None:
    """Run a command to its end."""
    subprocess.run([sys.executable, "-m", "adagc", *map(str, words)], check=True)


@contextmanager
def serving(*words: object) -> Iterator[str]:
    """The address of the page that a command serves."""
    command = [sys.executable, "-m", "adagc", *map(str, words), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=60)


@contextmanager
def visiting(browser: Any, address: str, name: str, window: dict[str, Any]) -> Iterator[Any]:
    """Somebody at the page, who has said who they are."""
    context = browser.new_context(**window)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#welcome[open]", timeout=300_000)
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    yield page
    context.close()


def shot(page: Any, name: str) -> None:
    """Keep what is on the screen, in 256 colours, which keeps the file small."""
    page.wait_for_timeout(1000)
    page.screenshot(path=DOCS / name)
    picture = Image.open(DOCS / name).convert("RGB")
    picture.quantize(256, Image.Quantize.MAXCOVERAGE).save(DOCS / name, optimize=True)
    print(DOCS / name)


def annotate(browser: Any, folder: Path, truth: Collection) -> None:
    """The page of `adagc annotate`, on a desk and on a phone."""
    with tempfile.TemporaryDirectory() as made:
        words = ["annotate", folder / "photos", "--classes", folder / "classes.txt"]
        words += ["--bands", *truth.images.bands, "--out", Path(made) / "labels.csv"]
        with serving(*words) as address:
            with visiting(browser, address, "ann", DESK) as page:
                for _ in range(12):
                    page.wait_for_timeout(PACE)
                    press(page, key_of(page, truth))
                seek(page, truth)
                shot(page, "annotate.png")
            with visiting(browser, address, "bob", PHONE) as page:
                press(page, key_of(page, truth))
                seek(page, truth)
                shot(page, "annotate-phone.png")


READY = "#candidates button:enabled"


def press(page: Any, key: str) -> None:
    """Answer, and wait for the next image."""
    page.wait_for_selector(READY)
    row = page.evaluate("document.body.dataset.shown")
    page.keyboard.press(key)
    page.wait_for_function(
        f"row => document.body.dataset.shown !== row && document.querySelector('{READY}')", arg=row
    )


def seek(page: Any, truth: Collection) -> None:
    """Skip to an image with several classes, of which one is on offer."""
    assert truth.truth is not None
    while True:
        row = int(page.evaluate("document.body.dataset.shown"))
        offered = page.locator("#candidates span").all_inner_texts()
        there = {
            name for name, is_there in zip(truth.classes, truth.truth[row], strict=True) if is_there
        }
        if len(there) >= CLASSES and there & set(offered) and max(map(len, offered)) < LONG:
            return
        press(page, "s")


def key_of(page: Any, truth: Collection) -> str:
    """The key of a class that is there, or another one."""
    page.wait_for_selector(READY)
    assert truth.truth is not None
    row = int(page.evaluate("document.body.dataset.shown"))
    there = {
        name for name, is_there in zip(truth.classes, truth.truth[row], strict=True) if is_there
    }
    offered = page.locator("#candidates span").all_inner_texts()
    return str(1 + next((n for n, name in enumerate(offered) if name in there), 0))


def review(browser: Any, folder: Path, truth: Collection) -> None:
    """The page of `adagc review`, on a run that is trained for it."""
    run = folder / "run"
    if not (run / "model.json").exists():
        labels = folder / "labels.csv"
        if not labels.exists():
            adagc("simulate", folder / "truth.csv", "--scheme", "random", "--out", labels)
        adagc(
            "train", folder / "photos", "--labels", labels, "--size", SIDE, "--out", run,
            "--backbone", "test_resnet", "--weights", "none", "--epochs", 12,
            "--bands", *truth.images.bands, "--method", "Cover label",
            "--learning-rate", 0.004, "--batch-size", 16, "--cache", folder / "cache",
        )  # fmt: skip
    with (
        tempfile.TemporaryDirectory() as made,
        serving("review", run, "--out", Path(made) / "reviewed.csv", "--count", 200) as address,
        visiting(browser, address, "ann", DESK) as page,
    ):
        page.wait_for_selector("#evidence:enabled", timeout=300_000)
        for keys in ("yny", "yyn", "ynny", "yny", "yn"):
            row = page.evaluate("document.body.dataset.shown")
            for key in keys:
                page.wait_for_timeout(PACE / 2)
                page.keyboard.press(key)
            page.keyboard.press("Enter")
            page.wait_for_function(
                "row => document.body.dataset.shown !== row"
                " && document.querySelector('.choice:enabled')",
                arg=row,
            )
        page.keyboard.press("y")
        page.wait_for_selector("#frame img.over")
        shot(page, "review.png")


def main() -> None:
    """All of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, help="where scenes and run are kept")
    given = parser.parse_args().folder
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as made, sync_playwright() as driver:
        folder = given or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        truth = make_scenes(folder)
        alone = ["--no-sandbox"] if os.geteuid() == 0 else []
        found = shutil.which("chromium")
        browser = driver.chromium.launch(executable_path=found, args=alone)
        annotate(browser, folder, truth)
        review(browser, folder, truth)
        browser.close()


if __name__ == "__main__":
    main()
