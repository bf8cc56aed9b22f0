"""What BigEarthNet costs at full scale: reading, preparing, starting, training; ratios in one run.

    python benchmarks/reben.py [--patches 256] [--folder FOLDER] [--only PART ...] [--record FILE]

Generates a copy in the published shape, prepares it as LMDB and as memmap, and reads all patches in
random order, by batches of 14 x 120 x 120 float32: CPU seconds, in turns, the files read before.
"Today" is reading one patch at a time: LMDB get, safetensors decode, enlarge band by band with
torch, stack, normalise; and fourteen GeoTIFF files with rasterio. Beside them what no reader can
do without, a copy of finished batches, and what compressed patches would cost. Where the real
sample is at hand (ADAGC_DATA), how small its patches become and what rounding its radar to whole
decibels costs. Then the parts of `reben_volume.py`: two workers of `adagc prepare`, starting on
549,488 patches, and memory over five epochs on them. Exits with 1 if a limit is missed.

From what --record keeps, `make pages` writes docs/results/scale.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from adagc.atomic import write_text
from adagc.datasets.bigearthnet.generate import generate
from adagc.datasets.bigearthnet.opening import bigearthnet_collection
from adagc.datasets.bigearthnet.prepare import prepare
from adagc.images.bigearthnet.bands import BANDS, RADAR
from adagc.training.environment import environment
from reben_volume import in_child, large_index, multiplied, preparing

BATCH, TURNS, ROUNDS = 64, 4, 5  # a reader that trains reads batch after batch: several rounds
RESAMPLED = ("nearest", "bicubic")
FORMS = ("memmap", "lmdb")
WANTED = {  # of every ratio, at least
    "LMDB, nearest": 5.0,
    "LMDB, bicubic": 5.0,
    "memmap, nearest": 20.0,
    "memmap, bicubic": 20.0,
    "memmap, nearest, to rasterio": 50.0,
}
WORKERS = 1.7  # how many times faster two workers are, at least
SECONDS, MEGABYTES = 5.0, 600.0  # of starting, at most
# MB from the third epoch on, at most: a number per image and class would be 21. The first epochs
# make what every epoch needs: tables of the second stage, snapshots.
GROWTH = 2.0
PER_IMAGE = 19 * 4 * 2  # bytes of AdaGC's state, at most
CODECS = ("zstd", "lz4")  # of imagecodecs, which is installed anyway
PARTS = ("reading", "sample", "preparing", "start-up", "epochs", "step")

SAMPLE = Path(os.environ.get("ADAGC_DATA", "")) / "reBEN_sample"

Reader = Callable[[np.ndarray], Any]


def today(store: Path, names: tuple[str, ...], radar: tuple[str, ...]) -> dict[str, Reader]:
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

    def reader(mode: str) -> Reader:
        return lambda rows: torch.stack([one(row, mode) for row in rows.tolist()])

    return {f"LMDB, {mode}, today": reader(mode) for mode in RESAMPLED}


def with_rasterio(root: Path, names: tuple[str, ...], radar: tuple[str, ...]) -> Reader:
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


def finished(count: int) -> Reader:
    """A copy of patches that are float32 in memory already, into memory that was used before."""
    patches = np.ones((count, 14, 120, 120), np.float32)
    batch = np.ones((BATCH, 14, 120, 120), np.float32)

    def read(rows: np.ndarray) -> np.ndarray:
        for target, row in zip(batch, rows.tolist(), strict=False):
            target[...] = patches[row]
        return batch

    return read


def compressed(images: Any) -> dict[str, tuple[Reader, float]]:
    """Reading patches that are compressed one by one, and their size against the plain ones.

    Optical values as differences to the pixel on the left, bytes of equal weight side by side:
    what makes such images smallest. Into memory that was used before.
    """
    import imagecodecs

    whole = images.gather(np.arange(len(images)))
    radar, optical = whole[:, :2], whole[:, 2:].astype(np.uint16)
    plain = radar.nbytes + optical.nbytes
    batch = np.ones((BATCH, 14, 120, 120), np.float32)

    def shuffled(values: np.ndarray) -> bytes:
        return imagecodecs.byteshuffle_encode(np.ascontiguousarray(values)).tobytes()

    def reader(codec: str) -> tuple[Reader, float]:
        encode = getattr(imagecodecs, f"{codec}_encode")
        decode = getattr(imagecodecs, f"{codec}_decode")
        differences = imagecodecs.delta_encode(optical, axis=-1)
        kept = [
            (encode(shuffled(one)), encode(shuffled(other)))
            for one, other in zip(radar, differences, strict=True)
        ]

        def read(rows: np.ndarray) -> np.ndarray:
            for target, row in zip(batch, rows.tolist(), strict=False):
                for part, stored, dtype in (
                    (target[:2], kept[row][0], np.float32),
                    (target[2:], kept[row][1], np.uint16),
                ):
                    values = np.empty(part.shape, dtype)
                    bytes_ = decode(stored, out=values.nbytes)
                    values = imagecodecs.byteshuffle_decode(
                        np.frombuffer(bytes_, dtype).reshape(part.shape)
                    )
                    if dtype is np.uint16:
                        values = imagecodecs.delta_decode(values, axis=-1)
                    part[...] = values
            return batch

        return read, sum(len(one) + len(other) for one, other in kept) / plain

    found = {codec: reader(codec) for codec in CODECS}
    for read, _ in found.values():
        assert (read(np.arange(3))[:3] == whole[:3]).all()
    return found


def cost(read: Reader, batches: list[np.ndarray]) -> float:
    """CPU seconds per patch, reading it once."""
    began = time.process_time()
    for rows in batches:
        read(rows)
    return (time.process_time() - began) / sum(map(len, batches))


def reading(root: Path, folder: Path) -> dict[str, Any]:
    """Patches per CPU-second of every reader, and the sizes of what is compressed."""
    import torch

    torch.set_num_threads(1)
    data = {}
    for form in FORMS:
        for how in RESAMPLED:
            store = folder / f"{form}-{how}"
            prepare(root, store, form=form, resample=how)  # type: ignore[arg-type]
            title = "LMDB" if form == "lmdb" else form
            data[f"{title}, {how}"] = bigearthnet_collection(store).images
    tree = bigearthnet_collection(root).images
    names, count = tree.names, len(tree)
    radar = tuple(place.rpartition("/")[2] for place in tree.source._patches[True])
    order = np.random.default_rng(0).permutation(count)
    batches = [order[i : i + BATCH] for i in range(0, count, BATCH)]
    # Not the store that is measured: LMDB may be opened only once per process.
    other = folder / "lmdb-today"
    prepare(root, other, form="lmdb")
    readers = today(other, names, radar)
    readers |= {name: images.gather for name, images in data.items()}
    readers["a copy of finished batches"] = finished(count)
    packed = compressed(data["memmap, nearest"])
    readers |= {f"memmap, {codec}": read for codec, (read, _) in packed.items()}
    readers["GeoTIFF"] = tree.gather
    if find_spec("rasterio") is not None:
        readers["GeoTIFF, today"] = with_rasterio(root, names, radar)
    first = readers["LMDB, nearest, today"](batches[0]).numpy()
    assert (first == data["memmap, nearest"].gather(batches[0])).all()
    found: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(TURNS):
        for name, read in readers.items():
            slow = "GeoTIFF" in name
            found[name] += [
                cost(read, batches[: 2 if slow else None]) for _ in range(1 if slow else ROUNDS)
            ]
    rates = {name: 1 / min(values) for name, values in found.items()}
    ratios = {
        name: rates[name] / rates[f"{name.replace('memmap', 'LMDB')}, today"] for name in data
    }
    if "GeoTIFF, today" in rates:
        ratios["memmap, nearest, to rasterio"] = rates["memmap, nearest"] / rates["GeoTIFF, today"]
        ratios["GeoTIFF, to rasterio"] = rates["GeoTIFF"] / rates["GeoTIFF, today"]
    sizes = {codec: share for codec, (_, share) in packed.items()}
    return {"patches": count, "batch": BATCH, "rates": rates, "ratios": ratios, "sizes": sizes}


def sample(root: Path, folder: Path) -> dict[str, Any]:
    """Of the patches of the real sample: sizes when compressed, and radar in whole decibels."""
    store = folder / "sample"
    prepare(root, store, cloudy=True)
    images = bigearthnet_collection(store, cloudy=True).images
    found: dict[str, Any] = {"patches": len(images)}
    found["sizes"] = {codec: share for codec, (_, share) in compressed(images).items()}
    radar = images.gather(np.arange(len(images)))[:, :2].astype(np.float64)
    for place, band in enumerate(RADAR):
        values = radar[:, place]
        lost = values - np.rint(values)
        within = (values - values.mean(axis=(1, 2), keepdims=True)).var()
        found[band] = {
            "values": len(np.unique(values)), "rounded": len(np.unique(np.rint(values))),
            "error": float((lost**2).mean() ** 0.5), "share": float((lost**2).mean() / within),
        }  # fmt: skip
    return found


def step(batch: int = 16, rounds: int = 3) -> dict[str, float]:
    """CPU seconds per patch of a step of AN with ResNet-34, and what a pass computes."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from adagc.models import ModelSpec, build

    torch.set_num_threads(1)
    spec = ModelSpec("resnet34", (14, 120, 120), tuple(map(str, range(19))), tuple(BANDS))
    network = build(spec, seed=0).train()
    images = torch.randn(batch, 14, 120, 120)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    seconds = []
    for _ in range(rounds + 1):
        began = time.process_time()
        torch.nn.functional.softplus(network(images)).mean().backward()
        optimiser.step()
        optimiser.zero_grad()
        seconds.append((time.process_time() - began) / batch)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.eval()(images[:1])
    weights = sum(value.numel() for value in network.parameters())
    return {
        "seconds": min(seconds[1:]), "gflop": counter.get_total_flops() / 1e9, "weights": weights,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--patches", type=int, default=256)
    parser.add_argument("--folder", type=Path, help="keeps what is generated for another call")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    parser.add_argument("--record", type=Path, help="JSON file to which the figures are added")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        root = (options.folder or folder) / f"reBEN-{options.patches}"
        if {"reading", "preparing"} & set(options.only) and not root.exists():
            generate(root, options.patches, cloudy=0)
        parts = [part for part in PARTS if part in options.only]
        if "sample" in parts and not SAMPLE.is_dir():
            print("the real sample is not here: set ADAGC_DATA", file=sys.stderr)
            parts.remove("sample")
        met = True
        for part in parts:
            began, load = time.monotonic(), os.getloadavg()[0]
            found = _measured(part, root, folder)
            print(f"{part}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            met &= SHOWN[part](found)
            if options.record is not None:  # at once: what is interrupted has lost one part only
                _keep(options.record, part, {**found, "load": load})
    return 0 if met else 1


def _keep(file: Path, part: str, found: dict[str, Any]) -> None:
    """Put the figures of a part into the record, in place of those it had."""
    known = json.loads(file.read_text()) if file.exists() else {}
    known[part] = {**found, "machine": environment()}
    write_text(file, json.dumps(known, indent=1) + "\n")


def _measured(part: str, root: Path, folder: Path) -> dict[str, Any]:
    if part == "reading":
        return reading(root, folder)
    if part == "preparing":
        large = multiplied(root, folder / "large")
        return {form: preparing(large, folder, form) for form in FORMS}
    if part == "sample":
        return sample(SAMPLE, folder)
    if part == "step":
        return step()
    store = folder / "index"
    if not store.exists():
        large_index(store)
    size = sum(path.stat().st_size for path in store.iterdir() if path.name != "moments.npy")
    return {"index": size / 1e6, **in_child(part, store)}


def _show_reading(found: dict[str, Any]) -> bool:
    print(
        f"{found['patches']} generated patches, 14 bands of 120 x 120 as float32, batches of"
        f" {found['batch']}, CPU time of one thread"
    )
    for name, rate in sorted(found["rates"].items(), key=lambda item: item[1]):
        print(f"{name:30} {rate:10,.0f} patches per CPU-second")
    for name, ratio in found["ratios"].items():
        wanted = f"  (wanted: {WANTED[name]:g})" if name in WANTED else ""
        print(f"{name:30} {ratio:10.1f} times the reader of today{wanted}")
    for codec, share in found["sizes"].items():
        print(f"{f'memmap, {codec}':30} {share:10.0%} of the size")
    return all(found["ratios"].get(name, least) >= least for name, least in WANTED.items())


def _show_sample(found: dict[str, Any]) -> bool:
    sizes = ", ".join(f"{codec} {share:.0%}" for codec, share in found["sizes"].items())
    print(f"{found['patches']} real patches, size when compressed: {sizes}")
    for band in RADAR:
        own = found[band]
        print(
            f"{band} in whole decibels: {own['rounded']} of {own['values']:,} values,"
            f" {own['error']:.2f} dB, {own['share']:.1%} of the variance within a patch"
        )
    return True


def _show_preparing(found: dict[str, Any]) -> bool:
    met = True
    for form in FORMS:
        own = found[form]
        gain = own["seconds_1"] / own["seconds_2"]
        met &= gain >= WORKERS
        print(
            f"preparing {own['patches']:,} patches as {form}: {own['seconds_1']:.1f} s by the"
            f" clock, {own['seconds_2']:.1f} s with two workers, {gain:.2f} times (wanted:"
            f" {WORKERS:g}); {own['cpu_1']:.1f} and {own['cpu_2']:.1f} s of CPU, of which the"
            f" parent of two workers has {own['parent_2']:.2f} s"
        )
    return met


def _show_start_up(found: dict[str, Any]) -> bool:
    print(
        f"starting on {found['patches']:,} patches: index {found['index']:.0f} MB, opened in"
        f" {found['opened']:.1f} s, with labels drawn {found['seconds']:.1f} s of CPU (wanted:"
        f" {SECONDS:g}), peak memory {found['peak']:.0f} MB with torch (wanted: {MEGABYTES:g})"
    )
    return bool(found["seconds"] < SECONDS and found["peak"] < MEGABYTES)


def _show_epochs(found: dict[str, Any]) -> bool:
    resident = found["resident"]
    growth = resident[-1] - resident[2]
    print(
        f"{len(resident)} epochs of AdaGC on {found['training']:,} of {found['patches']:,} patches:"
        f" {', '.join(f'{own:.1f}' for own in resident)} MB after each, {growth:+.1f} MB from the"
        f" third to the last (wanted: {GROWTH:g}), {found['bytes_per_image']:g} bytes of state per"
        f" image (wanted: {PER_IMAGE})"
    )
    return bool(growth < GROWTH and found["bytes_per_image"] <= PER_IMAGE)


def _show_step(found: dict[str, Any]) -> bool:
    print(
        f"a step of AN with ResNet-34: {found['seconds']:.3f} s of CPU per patch;"
        f" {found['gflop']:.2f} GFLOP forward, {found['weights'] / 1e6:.1f} million weights"
    )
    return True


SHOWN: dict[str, Callable[[dict[str, Any]], bool]] = {
    "reading": _show_reading,
    "sample": _show_sample,
    "preparing": _show_preparing,
    "start-up": _show_start_up,
    "epochs": _show_epochs,
    "step": _show_step,
}

if __name__ == "__main__":
    sys.exit(main())
