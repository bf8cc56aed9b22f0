"""Tiny copies of published collections, in the real folder shapes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

# fmt: off
CLASSES = [
    "airplane", "bare-soil", "buildings", "cars", "chaparral", "court", "dock", "field", "grass",
    "mobile-home", "pavement", "sand", "sea", "ship", "tanks", "trees", "water",
]
# fmt: on


def picture(path: Path, *, side: tuple[int, int] = (16, 16), seed: int = 0, bands: int = 3) -> Path:
    """One smooth random 8-bit image; `side` is (height, width)."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (4, 4, bands), dtype=np.uint8)
    image = Image.fromarray(small[:, :, 0] if bands == 1 else small)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.resize((side[1], side[0]), Image.Resampling.BILINEAR).save(path)
    return path


def fake_classes(
    root: Path,
    *,
    classes: Sequence[str] = ("beach", "forest", "meadow", "port"),
    each: int = 8,
    side: int = 20,
) -> None:
    """One folder of images per class.

    Red says which class it is, green which image of it, blue is different in every pixel of a row
    and of a column.
    """
    for c, name in enumerate(classes):
        for i in range(each):
            image = np.zeros((side, side, 3), dtype=np.uint8)
            image[..., 0], image[..., 1] = 10 * c, 10 * i
            image[..., 2] = np.add.outer(7 * np.arange(side), 3 * np.arange(side)) % 251
            path = root / name / f"{name}_{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)


def table(path: Path, images: Sequence[str], *, separator: str, end: str = "\n") -> np.ndarray:
    """A published label table; returns what it says, (N, 17)."""
    values = np.random.default_rng(len(images)).random((len(images), len(CLASSES))) < 0.3
    lines = [separator.join(["IMAGE\\LABEL", *CLASSES])]
    lines += [
        separator.join([name, *map(str, row.astype(int))])
        for name, row in zip(images, values, strict=True)
    ]
    path.write_bytes((end.join(lines) + end).encode())
    return values


def fake_aid(
    root: Path,
    *,
    scenes: Sequence[str] = ("Airport", "Beach"),
    train: int = 8,
    test: int = 2,
    suffix: str = ".jpg",
    scene_folders: bool = True,
) -> dict[str, np.ndarray]:
    """AID-multilabel; returns the true labels by image."""
    names = []
    for scene in scenes:
        for i in range(train + test):
            name = f"{scene.lower()}_{i + 1}"
            part = "images_tr" if i < train else "images_test"
            folder = root / part / scene if scene_folders else root / part
            picture(folder / f"{name}{suffix}", seed=len(names))
            names.append(name)
    values = table(root / "multilabel.csv", names, separator=",", end="\r\n")
    return dict(zip(names, values, strict=True))


def fake_ucmerced(
    root: Path,
    *,
    scenes: Sequence[str] = ("agricultural", "airplane"),
    each: int = 10,
    suffix: str = ".tif",
    table_name: str = "LandUse_Multilabeled.txt",
) -> dict[str, np.ndarray]:
    """UC Merced with one image a few pixels short; returns the true labels by image."""
    names = []
    for scene in scenes:
        for i in range(each):
            name = f"{scene}{i:02d}"
            side = (14, 16) if not names else (16, 16)
            picture(root / "Images" / scene / f"{name}{suffix}", side=side, seed=len(names))
            names.append(name)
    separator = "," if table_name.endswith(".csv") else "\t"
    values = table(root / table_name, names, separator=separator)
    return dict(zip(names, values, strict=True))


def make_embedding_product(
    path: Path, layout: str, vectors: np.ndarray, *, start: int = 0, **more: Any
) -> list[str]:
    """A GeoParquet file with the columns that a publisher of embeddings uses; returns the ids.

    Args:
        path: The file.
        layout: Clay, Major TOM or Earth Index.
        vectors: (N, D).
        start: Number of the first row, for files of one folder.
        more: Further columns, such as labels.
    """
    import geopandas
    import pandas
    import shapely

    numbers = range(start, start + len(vectors))
    shapes = [shapely.box(0.1 * i, 50, 0.1 * i + 0.1, 50.1) for i in numbers]
    day = pandas.Timestamp("2021-05-03")
    if layout == "Clay":
        folder = "s3://tiles/02/32VLM/2021-05-03"
        ids = [f"{folder}/claytile_32VLM_20210503_v02_{i:04d}.tif" for i in numbers]
        columns = {"source_url": ids, "date": [day.date()] * len(ids), "embeddings": list(vectors)}
    elif layout == "Major TOM":
        ids = [f"{i:064x}" for i in numbers]
        columns = {
            "unique_id": ids,
            "embedding": list(vectors),
            "timestamp": [day.isoformat()] * len(ids),
            "product_id": ["S2A_MSIL2A_20210503T102021_N0500"] * len(ids),
            "grid_cell": [f"{i // 4}U_12R" for i in numbers],  # several fragments of a cell
            "grid_row_u": np.array([i // 4 for i in numbers], dtype=np.int16),
            "grid_col_r": np.full(len(ids), 12, dtype=np.int16),
            "centre_lat": np.full(len(ids), 50.05, dtype=np.float32),
            "centre_lon": np.array([0.1 * i + 0.05 for i in numbers], dtype=np.float32),
            "utm_footprint": [shape.wkt for shape in shapes],
            "utm_crs": ["EPSG:32631"] * len(ids),
            "pixel_bbox": [[0, 0, 224, 224]] * len(ids),
        }
    else:
        ids = [f"31UDQ_{i}" for i in numbers]
        columns = {"id": ids, "embedding": list(vectors)}
    frame = geopandas.GeoDataFrame({**columns, **more}, geometry=shapes, crs="EPSG:4326")
    frame.to_parquet(path, row_group_size=7)
    return ids
