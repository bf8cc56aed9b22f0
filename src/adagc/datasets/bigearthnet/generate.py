"""Make up a small copy of BigEarthNet in the exact published shape: for tests and the demo.

Landscapes and spectra are those of the synthetic scenes; reference maps have real codes of CORINE
in coherent regions. Nothing of it predicts scores on real images.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from adagc.datasets.bigearthnet.layout import CLOUDY, METADATA
from adagc.datasets.bigearthnet.nomenclature import CLASS_OF_CODE, CLASSES, CORINE, UNLABELLED
from adagc.errors import MissingExtraError
from adagc.images.bigearthnet.bands import BANDS, RADAR, SIDE, SIDES
from adagc.images.synthetic.landcover import MINIMUM_AREA
from adagc.images.synthetic.scenes import SyntheticScenes
from adagc.progress import meter

_TILES: Final = (  # optical tile, radar scene, country, UTM zone
    ("S2A_MSIL2A_20170613T101031_N9999_R022_T33UUP", "S1B_IW_GRDH_1SDV_20170612T165809", "Austria",
     32633),
    ("S2B_MSIL2A_20180421T114349_N9999_R123_T29UPU", "S1A_IW_GRDH_1SDV_20180422T064724", "Ireland",
     32629),
    ("S2A_MSIL2A_20171101T094131_N9999_R036_T35VNJ", "S1B_IW_GRDH_1SDV_20171101T154016", "Finland",
     32635),
    ("S2B_MSIL2A_20170924T093020_N9999_R136_T34TCR", "S1A_IW_GRDH_1SDV_20170925T043256", "Serbia",
     32634),
)  # fmt: skip
# Codes of CORINE that stand for no class: of roads, sports grounds, rocks, and unlabelled pixels.
_NO_CLASS: Final = (122, 142, 332, UNLABELLED)
_COLUMNS: Final = 20  # patches side by side; rows of patches are shared out among the splits
_PATCH = 1200  # metres
_AT_ONCE = 16
_FINE = 2  # pixels of a patch per pixel of its synthetic scene, which takes a fourth of the time
_LABELS_1: Final = {  # one of the 43 names for each of the 19, for version 1
    CLASS_OF_CODE[code]: CORINE[code][0] for code in sorted(CLASS_OF_CODE, reverse=True)
}


@dataclass(frozen=True)
class Generated:
    """What a generated copy holds, in the order of its metadata."""

    root: Path
    names: tuple[str, ...]
    radar: tuple[str, ...]
    splits: tuple[str, ...]  # train, validation, test
    labels: NDArray[np.bool_]  # (N, 19)
    maps: NDArray[np.uint16]  # (N, 120, 120) codes of CORINE
    cloudy: int  # how many of the last ones are in the table of snow, clouds and shadow


def generate(
    root: Path, patches: int = 64, *, version: int = 2, seed: int = 0, cloudy: int = 2
) -> Generated:
    """Write a copy of BigEarthNet.

    Args:
        root: Folder to write to; existing files are replaced.
        patches: Number of patches, of which half are for training, a quarter for validation and a
            quarter for testing, patch after patch.
        version: 2 for reBEN, 1 for the first BigEarthNet, which has no reference maps.
        seed: Seed of all patches.
        cloudy: Number of further patches in the table of snow, clouds and shadow (version 2).
    """
    total = patches + (cloudy if version == 2 else 0)
    made = _Made.of(total, version)
    labels = np.zeros((total, len(CLASSES)), dtype=np.bool_)
    maps = np.empty((total, SIDE, SIDE), dtype=np.uint16)
    with meter("generating patches", total, unit="patches") as shown:
        for start in range(0, total, _AT_ONCE):
            numbers = np.arange(start, min(start + _AT_ONCE, total))
            scenes = SyntheticScenes(numbers, size=SIDE // _FINE, seed=seed)
            present = scenes.areas() >= MINIMUM_AREA
            pixels = scenes.gather(np.arange(len(numbers)))
            for place, number in enumerate(numbers.tolist()):
                rng = np.random.default_rng([seed, number, 2])
                landscape = _finer(scenes.maps[place])
                maps[number] = _codes(landscape, present[place], rng)
                labels[number] = present[place]
                scene = _finer(pixels[place])
                _write(root, made, number, scene, maps[number], rng, version)
                if version == 1:
                    _write_labels(root, made, number, labels[number])
                shown.advance()
    splits = _splits(patches, total)
    if version == 2:
        _write_metadata(root, made, labels, splits, patches)
    else:
        for split in ("train", "validation", "test"):
            lines = [n for n, own in zip(made.names, splits, strict=True) if own == split]
            short = "val" if split == "validation" else split
            (root / f"{short}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Generated(root, made.names, made.radar, splits, labels, maps, total - patches)


@dataclass(frozen=True)
class _Made:
    """Names and places of patches."""

    names: tuple[str, ...]
    radar: tuple[str, ...]
    older: tuple[str, ...]  # names in version 1
    tiles: tuple[int, ...]
    corners: tuple[tuple[int, int], ...]  # upper left, metres

    @classmethod
    def of(cls, count: int, version: int) -> _Made:
        names, radar, older, tiles, corners = [], [], [], [], []
        for number in range(count):
            tile, place = number % len(_TILES), number // len(_TILES)
            row, column = divmod(place, _COLUMNS)
            optical, scene, _, _ = _TILES[tile]
            words = optical.split("_")
            # Names of version 1 have no orbit and tile, and times without a leading zero.
            time = words[2][:9] + words[2][9:].lstrip("0")
            older.append(f"{words[0]}_{words[1]}_{time}_{row}_{column}")
            names.append(f"{optical}_{row:02d}_{column:02d}" if version == 2 else older[-1])
            radar.append(f"{scene}_{words[-1][1:]}_{row}_{column}")
            tiles.append(tile)
            corners.append((300_000 + column * _PATCH, 5_400_000 - row * _PATCH))
        return cls(tuple(names), tuple(radar), tuple(older), tuple(tiles), tuple(corners))


def _splits(patches: int, total: int) -> tuple[str, ...]:
    ends = (patches // 2, patches // 2 + (patches - patches // 2) // 2)
    words = ["train" if i < ends[0] else "validation" if i < ends[1] else "test"
             for i in range(patches)]  # fmt: skip
    return (*words, *(("train", "validation", "test")[i % 3] for i in range(total - patches)))


def _codes(
    classes: NDArray[np.uint8], present: NDArray[np.bool_], rng: np.random.Generator
) -> NDArray[np.uint16]:
    """A reference map: classes that are labels get codes of theirs, the others codes of none."""
    table = np.array([rng.choice(_NO_CLASS) for _ in CLASSES], dtype=np.uint16)
    for number in np.flatnonzero(present).tolist():
        table[number] = rng.choice([c for c, own in CLASS_OF_CODE.items() if own == number])
    codes: NDArray[np.uint16] = table[classes]
    if rng.random() < 0.1:  # a road through the landscape
        column = int(rng.integers(10, SIDE - 10))
        codes[:, column : column + 1] = 122
    # A class must not lose its last pixel to the road.
    lost = present & ~np.isin(np.arange(len(CLASSES)), [CLASS_OF_CODE.get(int(c), -1)
                                                        for c in np.unique(codes)])  # fmt: skip
    return table[classes] if lost.any() else codes


def _finer(values: NDArray[Any]) -> NDArray[Any]:
    return values.repeat(_FINE, axis=-2).repeat(_FINE, axis=-1)


def native(scene: NDArray[np.int16], rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """The bands of a patch as files have them, from a synthetic scene (14, 120, 120)."""
    values: dict[str, NDArray[Any]] = {}
    for place, band in enumerate(BANDS):
        pixels = scene[place]
        if band in RADAR:
            # Real decibels are no multiples of a hundredth.
            values[band] = ((pixels + rng.random(pixels.shape)) / 100).astype(np.float32)
            continue
        pixels = pixels + rng.integers(-8, 9, pixels.shape)  # noise of the sensor
        side = SIDES[band]
        blocks = pixels.reshape(side, SIDE // side, side, SIDE // side)
        values[band] = np.rint(blocks.mean(axis=(1, 3))).clip(0, 65535).astype(np.uint16)
    return values


def _write(
    root: Path,
    made: _Made,
    number: int,
    scene: NDArray[np.int16],
    codes: NDArray[np.uint16],
    rng: np.random.Generator,
    version: int,
) -> None:
    name, radar = made.names[number], made.radar[number]
    tile, west, north = made.tiles[number], *made.corners[number]
    optical, scene_name, _, zone = _TILES[tile]
    suffix = "" if version == 2 else "-v1.0"
    own = root / (f"BigEarthNet-S2/{optical}" if version == 2 else "BigEarthNet-v1.0") / name
    other = root / f"BigEarthNet-S1{suffix}" / (scene_name if version == 2 else "") / radar
    files = {
        (other if band in RADAR else own) / f"{radar if band in RADAR else name}_{band}.tif": values
        for band, values in native(scene, rng).items()
    }
    if version == 2:
        files[root / "Reference_Maps" / optical / name / f"{name}_reference_map.tif"] = codes
    for path, values in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(geotiff(values, west, north, zone))


def geotiff(values: NDArray[Any], west: int, north: int, zone: int) -> bytes:
    """A GeoTIFF file of one band of a patch, without compression, as the originals are.

    Args:
        values: (side, side) of 16-bit integers or 32-bit floats.
        west: Easting of the upper left corner.
        north: Northing of the upper left corner.
        zone: EPSG code of the coordinates.
    """
    side, scale = len(values), _PATCH / len(values)
    bits, form = 8 * values.itemsize, 3 if values.dtype.kind == "f" else 1
    keys = (1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, zone)
    tags: list[tuple[int, str, tuple[float, ...]]] = [
        (256, "H", (side,)), (257, "H", (side,)), (258, "H", (bits,)), (259, "H", (1,)),
        (262, "H", (1,)), (273, "I", (0,)), (277, "H", (1,)), (278, "H", (side,)),
        (279, "I", (values.nbytes,)), (284, "H", (1,)), (339, "H", (form,)),
        (33550, "d", (scale, scale, 0.0)), (33922, "d", (0.0, 0.0, 0.0, west, north, 0.0)),
        (34735, "H", keys),
    ]  # fmt: skip
    types = {"H": 3, "I": 4, "d": 12}
    after = 8 + 2 + 12 * len(tags) + 4  # where values that do not fit into their entry begin
    sizes = [struct.calcsize(f"<{len(content)}{letter}") for _, letter, content in tags]
    begin = after + sum(size for size in sizes if size > 4)
    entries, behind = [], b""
    for (tag, letter, content), size in zip(tags, sizes, strict=True):
        packed = struct.pack(f"<{len(content)}{letter}", *(content if tag != 273 else (begin,)))
        place = packed.ljust(4, b"\0") if size <= 4 else struct.pack("<I", after + len(behind))
        behind += packed if size > 4 else b""
        entries.append(struct.pack("<HHI", tag, types[letter], len(content)) + place)
    head = struct.pack("<2sHIH", b"II", 42, 8, len(tags))
    return b"".join([head, *entries, bytes(4), behind, values.tobytes()])


def _write_labels(root: Path, made: _Made, number: int, labels: NDArray[np.bool_]) -> None:
    """The JSON files of a pair of version 1, some with a class that has no counterpart."""
    name, radar, (west, north) = made.names[number], made.radar[number], made.corners[number]
    words = [_LABELS_1[place] for place in np.flatnonzero(labels).tolist()]
    words += ["Bare rock"] * (number % 5 == 0)
    common = {
        "labels": words,
        "coordinates": {"ulx": west, "uly": north, "lrx": west + _PATCH, "lry": north - _PATCH},
        "projection": f"EPSG:{_TILES[made.tiles[number]][3]}",
    }
    for folder, patch, more in (
        ("BigEarthNet-v1.0", name, {}),
        ("BigEarthNet-S1-v1.0", radar, {"corresponding_s2_patch": name}),
    ):
        path = root / folder / patch / f"{patch}_labels_metadata.json"
        path.write_text(json.dumps({**common, **more}), encoding="utf-8")


def _write_metadata(
    root: Path, made: _Made, labels: NDArray[np.bool_], splits: tuple[str, ...], patches: int
) -> None:
    """The two tables of version 2, of clear patches and of those with snow, clouds or shadow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow, which writes metadata.parquet,", "reben") from None
    for file, rows, cloudy in (
        (METADATA, range(patches), False),
        (CLOUDY, range(patches, len(splits)), True),
    ):
        columns = {
            "patch_id": [made.names[i] for i in rows],
            "labels": [sorted(CLASSES[c] for c in np.flatnonzero(labels[i])) for i in rows],
            "split": [splits[i] for i in rows],
            "country": [_TILES[made.tiles[i]][2] for i in rows],
            "s1_name": [made.radar[i] for i in rows],
            "s2v1_name": [made.older[i] for i in rows],
            "contains_seasonal_snow": [cloudy and i % 2 == 0 for i in rows],
            "contains_cloud_or_shadow": [cloudy and i % 2 == 1 for i in rows],
            "__index_level_0__": list(rows),
        }
        schema = pyarrow.schema(
            [(name, pyarrow.string()) for name in ("patch_id",)]
            + [("labels", pyarrow.list_(pyarrow.string()))]
            + [(name, pyarrow.string()) for name in ("split", "country", "s1_name", "s2v1_name")]
            + [(name, pyarrow.bool_())
               for name in ("contains_seasonal_snow", "contains_cloud_or_shadow")]
            + [("__index_level_0__", pyarrow.int64())]
        )  # fmt: skip
        pyarrow.parquet.write_table(pyarrow.table(columns, schema=schema), root / file)


__all__ = ["Generated", "generate", "geotiff", "native"]
