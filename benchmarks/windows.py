"""What predicting a scene by windows costs beside the network, and how much memory it takes.

    python benchmarks/windows.py [--side 20000] [--windows 600]

Prints windows per second of `adagc predict` on a scene of 14 bands, in compressed tiles and in
tiles as they are, and of the same network on the same patches in memory, in turns, and the same per
second of CPU: a thread reads the file ahead of the network, which takes CPU but on two cores hardly
any time. What reading takes is told apart, as no program that reads this file does without it. Then
the largest memory of a process that predicts a scene of side x side x 14 values in a sparse file,
once with a stand-in for a network, which costs nothing, and once with a small network. Exits with 1
if windows come at less than 90 % of the rate, or if a process takes more than 2 GB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

BANDS, PIXELS, ROUNDS, WANTED, MOST = 14, 120, 3, 0.9, 2.0
NAMES = tuple(f"B{i:02d}" for i in range(1, BANDS + 1))
CLASSES = tuple(f"class {i}" for i in range(1, 20))


class Means:
    """A stand-in for a network: 19 means."""

    classes, bands, shape = CLASSES, NAMES, (BANDS, PIXELS, PIXELS)
    nodata, trained_on = None, None
    thresholds = np.full(len(CLASSES), 0.5, dtype=np.float32)

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        """The mean of every band, some of them twice."""
        means = values.mean(axis=(2, 3)) / 1e4
        return np.concatenate([means, means[:, : len(CLASSES) - BANDS]], axis=1)


def save_network(folder: Path, backbone: str) -> Path:
    """Write a network with initial weights as the model of a run."""
    from adagc.models import ModelSpec, build, save_model

    spec = ModelSpec(backbone, (BANDS, PIXELS, PIXELS), CLASSES, NAMES)
    save_model(folder, build(spec, seed=0, std=[1000.0] * BANDS).eval())
    return folder


def write_scene(path: Path, side: int, *, sparse: bool = False, packed: bool = True) -> Path:
    """Write a scene in tiles, as noisy as Sentinel-2; a sparse one is nearly empty.

    Tiles are compressed, or as they are.
    """
    import rasterio
    from rasterio.transform import from_origin
    from rasterio.windows import Window

    rng = np.random.default_rng(0)
    form = {"compress": "deflate", "predictor": 2} if packed else {}
    with rasterio.open(
        path, "w", driver="GTiff", height=side, width=side, count=BANDS, dtype="uint16",
        crs="EPSG:32633", transform=from_origin(4e5, 5e6, 10, 10), tiled=True, blockxsize=256,
        blockysize=256, sparse_ok=True, bigtiff="yes", **form,
    ) as file:  # fmt: skip
        for number, name in enumerate(NAMES, 1):
            file.set_band_description(number, name)
        for top in range(0, side, 5120 if sparse else 256):
            size = min(256, side - top)
            width = size if sparse else side
            values = rng.normal(0, 60, (BANDS, size, width))
            values += 2000 + 1000 * np.sin(np.arange(width) / 50 + rng.random((BANDS, 1, 1)))
            file.write(values.clip(1, 10_000).astype(np.uint16), window=Window(0, top, width, size))
    return path


def rates(folder: Path, scene: Path) -> tuple[np.ndarray, np.ndarray, float]:
    """Windows per second and per CPU-second, by windows and from memory: the best rounds.

    The third number is the CPU that reading the file alone takes, in seconds per window.
    """
    from adagc.prediction.inputs import Reading, open_input
    from adagc.prediction.journal import MemoryRecords
    from adagc.prediction.models import RunModel, batch_of
    from adagc.prediction.work import Work, perform

    model = RunModel(folder, threads=1)
    batch = batch_of(model, None)
    opened = open_input(scene, model, Reading(batch=batch))
    source = opened.source
    blocks = [source.read(block) for block in range(len(source.counts))]
    patches = np.concatenate([one.gather(np.arange(len(one.known))) for one in blocks])
    del blocks
    model.probabilities(patches[:batch])  # warms up

    def clocks() -> np.ndarray:
        return np.array([time.perf_counter(), time.process_time()])

    windowed, memory, reading = np.zeros(2), np.zeros(2), np.inf
    for _ in range(ROUNDS):  # in turns, as other programs may slow down both
        began = clocks()
        perform(Work(source, model.probabilities, len(CLASSES), batch), MemoryRecords())
        windowed = np.maximum(windowed, len(patches) / (clocks() - began))
        began = clocks()
        for start in range(0, len(patches), batch):
            model.probabilities(patches[start : start + batch])
        memory = np.maximum(memory, len(patches) / (clocks() - began))
        began = clocks()
        for block in range(len(source.counts)):
            source.scene.read(source.grid.box(block), range(BANDS))
        reading = min(reading, (clocks() - began)[1] / len(patches))
    return windowed, memory, float(reading)


def largest_memory() -> float:
    """The largest memory of this process so far, in GB.

    Not what getrusage says: on Linux that begins with the memory of the process that started it.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if "VmHWM" in line)) / 1e6


def predict_all(scene: Path, folder: str, out: Path) -> None:
    """Predict a scene into a map, and print seconds, windows and the largest memory in GB."""
    from adagc.limits import choose
    from adagc.prediction import predicting
    from adagc.prediction.inputs import Reading, open_input
    from adagc.prediction.maps import write_map
    from adagc.prediction.models import batch_of
    from adagc.prediction.shared import Journals
    from adagc.prediction.work import Work, perform

    began = time.perf_counter()
    if folder == "means":
        model = Means()
        reading = Reading(batch=batch_of(model, None))
        opened = open_input(scene, model, reading, mapped=True)
        assert opened.scene is not None
        work = Work(opened.source, model.probabilities, len(CLASSES), reading.batch)
        journals = Journals(out, bytes(32), work.sizes)
        perform(work, journals)
        limits = choose("half", CLASSES, model.thresholds.tolist())
        count = write_map(out, opened.scene, journals, CLASSES, limits).windows
        journals.remove()
    else:
        found = predicting.predict(folder, scene, out)
        assert isinstance(found, predicting.Mapped)
        count = found.windows
    print(f"{time.perf_counter() - began:.0f} {count} {largest_memory():.2f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--side", type=int, default=20_000, help="of the sparse scene, in pixels")
    parser.add_argument("--windows", type=int, default=600, help="about how many to compare")
    parser.add_argument("--backbone", default="resnet18", help="of the network that is compared")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        scene, folder, out = options.child
        predict_all(Path(scene), folder, Path(out))
        return 0
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        side = PIXELS * round(options.windows**0.5)
        network = save_network(place / "network", options.backbone)
        print(
            f"{side} x {side} x {BANDS} scenes, {options.backbone} at {PIXELS} pixels, one thread"
        )
        for name, packed in (("compressed", True), ("as they are", False)):
            scene = write_scene(place / "scene.tif", side, packed=packed)
            windowed, memory, reading = rates(network, scene)
            ratio = windowed / memory
            good &= bool(ratio[0] >= WANTED)
            print(f"tiles {name:12}  per second  per CPU-second")
            print(f"  by windows        {windowed[0]:9.1f}  {windowed[1]:14.1f}")
            print(f"  from memory       {memory[0]:9.1f}  {memory[1]:14.1f}")
            print(
                f"  ratio             {ratio[0]:9.2f}  {ratio[1]:14.2f}  (wanted: {WANTED:g} per s)"
            )
            rest = 1 / (1 / windowed[1] - reading) / memory[1]
            print(
                f"  {1e3 * reading:.2f} ms of CPU per window read the file; without that {rest:.2f}"
            )
        large = write_scene(place / "large.tif", options.side, sparse=True)
        small = save_network(place / "small", "test_resnet")
        for name, folder in (("a stand-in", "means"), ("test_resnet", str(small))):
            command = [sys.executable, __file__, "--child", str(large), folder]
            done = subprocess.run(
                [*command, str(place / "map.tif")], stdout=subprocess.PIPE, text=True, check=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            seconds, count, largest = map(float, done.stdout.split())
            good &= largest < MOST
            print(
                f"{options.side} x {options.side} x {BANDS} with {name}: {count:,.0f} windows in"
                f" {seconds:.0f} s, {largest:.2f} GB of memory (wanted: below {MOST:g})"
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
