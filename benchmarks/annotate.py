"""The annotation page: its start on 100,000 images, and how soon the next image is there.

    python benchmarks/annotate.py [--answers 100] [--images 100000] [--folder FOLDER]

Start: from the command to the first image on the screen of a Chromium that is already open (limit:
2 s), and the CPU seconds of the command until it answers. Answers: from pressing a key to the next
image on the screen, measured inside the page (limits: 100 ms in the median, 250 ms in the 95th
percentile), with 512 x 512 JPEG files and with an array of 120 x 120 pixels and 14 bands, and the
CPU time of the command for each. Takes two minutes on an otherwise idle machine, which wall-clock
times need; the exit code is 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ", ".join(f"class {i}" for i in range(19))
START, MEDIAN, SLOW = 2.0, 0.100, 0.250

# From the key to the frame after the one in which the next image was put into the page.
WATCH = """
() => {
  window.waits = [];
  let pressed = null;
  addEventListener("keydown", () => { pressed = performance.now(); }, true);
  new MutationObserver(() => requestAnimationFrame(() => requestAnimationFrame(() => {
    if (pressed !== null) window.waits.push(performance.now() - pressed);
    pressed = null;
  }))).observe(document.body, { attributes: true, attributeFilter: ["data-shown"] });
}
"""


def make_files(folder: Path, count: int) -> Path:
    """A folder of JPEG files of 512 x 512 pixels: a hundred of them, and links to these."""
    made = folder / "files"
    if made.is_dir():
        return made
    luck = np.random.default_rng(0)
    (folder / "few").mkdir(parents=True)
    for n in range(100):
        coarse = luck.integers(0, 255, (32, 32, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((512, 512), Image.Resampling.BICUBIC)
        picture.save(folder / "few" / f"{n}.jpg", quality=90)
    for n in range(count):
        place = made / f"{n // 1000:03}"
        place.mkdir(parents=True, exist_ok=True)
        os.link(folder / "few" / f"{n % 100}.jpg", place / f"{n:06}.jpg")
    return made


def make_array(folder: Path) -> Path:
    """An array of 2,000 images of 120 x 120 pixels and 14 bands."""
    path = folder / "images.npy"
    if not path.exists():
        luck = np.random.default_rng(0)
        np.save(path, luck.integers(0, 4000, (2000, 14, 120, 120), dtype=np.uint16))
    return path


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    """What a process has computed so far, its children left out."""
    ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def annotating(images: Path, out: Path) -> Iterator[tuple[subprocess.Popen[str], str, float]]:
    """The running command, its address, and when it was started."""
    words = ["annotate", str(images), "--classes", CLASSES, "--out", str(out), "--no-browser"]
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "adagc", *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        yield process, address, began
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def said(what: str, seconds: float, limit: float) -> bool:
    """Print what something took and whether that is within its limit; True if it is missed."""
    verdict = "met" if seconds <= limit else "MISSED"
    print(f"    {what:36} {seconds:7.3f} s  (limit {limit:g}: {verdict})")
    return seconds > limit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=100)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where images are kept for the next time")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium is not installed: make system-deps")
    missed = 0
    with tempfile.TemporaryDirectory() as made, sync_playwright() as driver:
        folder = options.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        alone = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=chromium, args=alone)
        kinds = {
            f"{options.images:,} JPEG files": make_files(folder, options.images),
            "array of 14 bands": make_array(folder),
        }
        print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
        for name, images in kinds.items():
            out = Path(made) / f"{re.sub(r'[^a-z]', '', name)}.csv"
            with annotating(images, out) as (process, address, began):
                used = cpu_seconds(process)
                context = browser.new_context(viewport={"width": 1280, "height": 800})
                page = context.new_page()
                page.add_init_script("localStorage.setItem('adagc-annotate-name', 'benchmark')")
                page.goto(address)
                page.wait_for_selector("#frame img")
                start = time.perf_counter() - began
                page.evaluate(WATCH)
                before = cpu_seconds(process)
                for _ in range(options.answers):
                    count = page.evaluate("window.waits.length")
                    page.keyboard.press("1")
                    # A function, because the page forbids texts to be run.
                    page.wait_for_function("count => window.waits.length > count", arg=count)
                    page.wait_for_timeout(150)  # nobody is faster; the next one is loaded meanwhile
                each_answer = (cpu_seconds(process) - before) / options.answers
                waits = sorted(each / 1000 for each in page.evaluate("window.waits"))
                context.close()
            median, slow = statistics.median(waits), waits[int(0.95 * len(waits))]
            print(f"{name}:")
            missed += said("first image", start, START)
            print(f"    CPU of the command until it answers  {used:7.3f} s")
            missed += said("next image, median", median, MEDIAN)
            missed += said("next image, 95th percentile", slow, SLOW)
            print(f"    CPU of the command for each          {each_answer:7.3f} s", flush=True)
        browser.close()
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
