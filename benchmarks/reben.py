"""How fast batches of BigEarthNet are read, against the readers that users have today.

    python benchmarks/reben.py [--patches 512] [--folder FOLDER]

Generates a copy in the published shape, prepares it as LMDB and as memmap, and reads all patches in
random order, by batches of 14 x 120 x 120 float32: CPU seconds, in turns, the files read before.
"Today" is reading one patch at a time: LMDB get, safetensors decode, enlarge band by band with
torch, stack, normalise; and fourteen GeoTIFF files with rasterio. Then what start-up takes on an
index of 549,488 patches, in a process of its own. Exits with 1 if a wanted ratio is missed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from adagc.datasets.bigearthnet.generate import generate
from adagc.datasets.bigearthnet.opening import bigearthnet_collection
from adagc.datasets.bigearthnet.prepare import prepare
from adagc.images.bigearthnet.bands import BANDS, RADAR

BATCH, ROUNDS = 64, 3
WANTED = {"lmdb": 5.0, "memmap": 20.0, "memmap / rasterio": 50.0}
FULL = 549_488


def today(store: Path, names: tuple[str, ...], radar: tuple[str, ...]) -> dict[str, Callable]:
    """One patch at a time from LMDB, as the reader that comes with reBEN's converter does it."""
    import lmdb
    import torch
    from safetensors.numpy import load

    environment = lmdb.open(
        str(store / "BigEarthNet-LMDB"), readonly=True, lock=False, meminit=False, readahead=True
    )
    mean, std = torch.zeros(14, 1, 1), torch.ones(14, 1, 1)

    def one(row: int, mode: str) -> torch.Tensor:
        with environment.begin(write=False) as read:
            values = load(read.get(names[row].encode())) | load(read.get(radar[row].encode()))
        bands = []
        for band in BANDS:
            image = torch.from_numpy(values[band].astype(np.float32))
            if image.shape[-1] != 120:
                image = torch.nn.functional.interpolate(
                    image[None, None], size=(120, 120), mode=mode,
                    align_corners=None if mode == "nearest" else False,
                )[0, 0]  # fmt: skip
            bands.append(image)
        return (torch.stack(bands) - mean) / std

    def reader(mode: str) -> Callable:
        return lambda rows: torch.stack([one(row, mode) for row in rows.tolist()])

    return {f"today, LMDB, {mode}": reader(mode) for mode in ("nearest", "bicubic")}


def with_rasterio(root: Path, names: tuple[str, ...], radar: tuple[str, ...]) -> Callable:
    """Fourteen GeoTIFF files of a patch, each enlarged by GDAL while it is read."""
    import rasterio
    from rasterio.enums import Resampling

    def one(row: int) -> np.ndarray:
        image = np.empty((14, 120, 120), dtype=np.float32)
        for place, band in enumerate(BANDS):
            name = radar[row] if band in RADAR else names[row]
            folder = (
                root / "BigEarthNet-S1" / name.rsplit("_", 3)[0]
                if band in RADAR
                else root / "BigEarthNet-S2" / name.rsplit("_", 2)[0]
            )
            with rasterio.open(folder / name / f"{name}_{band}.tif") as file:
                image[place] = file.read(
                    1, out_shape=(120, 120), resampling=Resampling.nearest, out_dtype="float32"
                )
        return image

    return lambda rows: np.stack([one(row) for row in rows.tolist()])


def cost(read: Callable[[np.ndarray], object], batches: list[np.ndarray]) -> float:
    """CPU seconds per patch, reading it once."""
    began = time.process_time()
    for rows in batches:
        read(rows)
    return (time.process_time() - began) / sum(map(len, batches))


START_UP = """
import sys, time
began, cpu = time.perf_counter(), time.process_time()
from adagc.datasets.registry import open_collection
from adagc.training.observe import observe
data = open_collection("bigearthnet", sys.argv[1])
opened = time.process_time() - cpu
seen = observe(data, labels=None, scheme="random", label_seed=0)
spent = time.process_time() - cpu
import torch  # as training needs it
# Not ru_maxrss, which knows the process that started this one too.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(len(data.images), opened, spent, int(peak.split()[1]) / 1000)
"""


def large_index(folder: Path) -> Path:
    """The files of a finished store of FULL patches, without their pixels."""
    from adagc.atomic import write_json
    from adagc.datasets.bigearthnet.layout import PLAN, STORE
    from adagc.datasets.bigearthnet.patches import Patches, write_arrays
    from adagc.datasets.bigearthnet.store import INDEX, MOMENTS, Plan
    from adagc.images.bigearthnet.measured import RECORD

    rng = np.random.default_rng(0)
    tile = "S2A_MSIL2A_20170613T101031_N9999_R022_T33UUP"
    names = tuple(f"{tile}_{i // 1000:03d}_{i % 1000:03d}" for i in range(FULL))
    radar = tuple(f"S1B_IW_GRDH_1SDV_20170612T165809_33UUP_{i}" for i in range(FULL))
    split = np.repeat(np.arange(3, dtype=np.int8), (FULL // 2, FULL // 4, FULL - 3 * (FULL // 4)))
    labels = rng.random((FULL, 19)) < 0.15
    labels[~labels.any(axis=1), 2] = True
    patches = Patches(names, radar, split, labels, np.zeros(FULL, np.uint8))
    folder.mkdir()
    plan = Plan("memmap", "nearest", 2, FULL, "", True, True, False)
    write_json(folder / PLAN, plan.to_dict())
    rows = np.arange(FULL, dtype=np.uint32)
    write_arrays(folder / INDEX, patches, rows=rows, checksums=np.zeros((FULL, 2), np.uint32))
    np.lib.format.open_memmap(folder / MOMENTS, mode="w+", dtype=RECORD, shape=(FULL,))
    write_json(folder / STORE, plan.to_dict())
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--patches", type=int, default=512)
    parser.add_argument("--folder", type=Path, help="keeps what is generated for another call")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        root, count = folder / f"reBEN-{options.patches}", options.patches
        if not root.exists():
            generate(root, count, cloudy=0)
        stores = {}
        for form in ("lmdb", "memmap"):
            for how in ("nearest", "bicubic"):
                stores[form, how] = folder / f"{form}-{how}-{count}"
                prepare(root, stores[form, how], form=form, resample=how)
        data = {key: bigearthnet_collection(store) for key, store in stores.items()}
        tree = bigearthnet_collection(root)
        names = tree.images.names
        radar = tuple(tree.images.source._patches[True])
        radar = tuple(place.rpartition("/")[2] for place in radar)
        order = np.random.default_rng(0).permutation(count)
        batches = [order[i : i + BATCH] for i in range(0, count, BATCH)]
        # Not the store that is measured: LMDB may be opened only once per process.
        other = folder / f"lmdb-today-{count}"
        prepare(root, other, form="lmdb")
        readers = today(other, names, radar)
        readers |= {f"{form}, {how}": own.images.gather for (form, how), own in data.items()}
        readers["GeoTIFF, ours"] = tree.images.gather
        if find_spec("rasterio") is not None:
            readers["today, GeoTIFF, rasterio"] = with_rasterio(root, names, radar)
        first = readers["today, LMDB, nearest"](batches[0]).numpy()
        assert (first == data["memmap", "nearest"].images.gather(batches[0])).all()
        found: dict[str, list[float]] = {name: [] for name in readers}
        for _ in range(ROUNDS):
            for name, read in readers.items():  # slow ones read less
                found[name].append(cost(read, batches[: 2 if "GeoTIFF" in name else None]))
    best = {name: min(values) for name, values in found.items()}
    print(f"{count} generated patches, 14 bands of 120 x 120 as float32, batches of {BATCH}")
    for name, seconds in sorted(best.items(), key=lambda item: -item[1]):
        print(f"{name:26} {1 / seconds:10,.0f} patches per CPU-second")
    ratios = {
        "lmdb": best["today, LMDB, nearest"] / best["lmdb, nearest"],
        "memmap": best["today, LMDB, nearest"] / best["memmap, nearest"],
        "lmdb, bicubic": best["today, LMDB, bicubic"] / best["lmdb, bicubic"],
        "memmap, bicubic": best["today, LMDB, bicubic"] / best["memmap, bicubic"],
    }
    if "today, GeoTIFF, rasterio" in best:
        ratios["memmap / rasterio"] = best["today, GeoTIFF, rasterio"] / best["memmap, nearest"]
        ratios["GeoTIFF / rasterio"] = best["today, GeoTIFF, rasterio"] / best["GeoTIFF, ours"]
    for name, ratio in ratios.items():
        wanted = f"  (wanted: {WANTED[name]:g})" if name in WANTED else ""
        print(f"{name:26} {ratio:10.1f} times{wanted}")
    met = all(ratios.get(name, wanted) >= wanted for name, wanted in WANTED.items())
    return 0 if _start_up() and met else 1


def _start_up() -> bool:
    """Whether opening FULL patches and drawing their labels takes less than 5 s and 600 MB."""
    with tempfile.TemporaryDirectory() as temporary:
        store = large_index(Path(temporary) / "store")
        size = sum(path.stat().st_size for path in store.iterdir() if path.name != "moments.npy")
        done = subprocess.run(
            [sys.executable, "-c", START_UP, str(store)], stdout=subprocess.PIPE, text=True,
            check=True,
        )  # fmt: skip
    count, opened, seen, peak = map(float, done.stdout.split())
    print(f"start-up on {count:,.0f} patches: index {size / 1e6:.0f} MB, opened in {opened:.1f} s,")
    print(f"with labels drawn {seen:.1f} s of CPU (wanted: 5),")
    print(f"peak memory {peak:.0f} MB with torch (wanted: 600)")
    return seen < 5 and peak < 600


if __name__ == "__main__":
    sys.exit(main())
