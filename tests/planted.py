"""A model whose answer is known, and scenes with objects in known places.

The probability of class c is the mean of band c over the window, missing values counting as zero:
an exported model like any other, in whose answers every pixel can be accounted for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adagc.deploy import ModelFacts

CLASSES = ("field", "water", "road")
BANDS = ("B02", "B03", "B04")
CRS = "EPSG:32633"
LEFT, TOP, PIXEL = 400_000.0, 5_000_000.0, 10.0


def write_model(
    folder: Path,
    *,
    bands: Sequence[str] = BANDS,
    side: int = 8,
    thresholds: Sequence[float] = (0.5, 0.25, 0.75),
    nodata: float | None = None,
) -> Path:
    """Write model.onnx with the mean of every band as its probability."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from onnx import TensorProto, helper

    shape = (len(bands), side, side)
    nodes = [
        helper.make_node("IsNaN", ["images"], ["missing"]),
        helper.make_node("Where", ["missing", "zero", "images"], ["filled"]),
        helper.make_node("ReduceMean", ["filled", "axes"], ["probabilities"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "planted",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", *shape])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", len(bands)])],
        [
            helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
            helper.make_tensor("axes", TensorProto.INT64, [2], [2, 3]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    facts = ModelFacts(
        classes=CLASSES[: len(bands)], bands=tuple(bands), shape=shape,
        thresholds=tuple(thresholds[: len(bands)]), rule="pooled-f1", nodata=nodata,
        method="planted", licence="", version="0",
    )  # fmt: skip
    helper.set_model_props(model, facts.to_metadata())
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(folder / "model.onnx"))
    return folder


def write_scene(
    path: Path,
    values: np.ndarray,
    *,
    bands: Sequence[str | None] = BANDS,
    crs: str | None = CRS,
    nodata: float | None = None,
    **options: Any,
) -> Path:
    """Write (bands, H, W) as a GeoTIFF of ten-metre pixels."""
    rasterio = pytest.importorskip("rasterio", reason="rasterio is not installed")
    from rasterio.transform import from_origin

    placed = {"crs": crs, "transform": from_origin(LEFT, TOP, PIXEL, PIXEL)} if crs else {}
    with rasterio.open(
        path, "w", driver="GTiff", height=values.shape[1], width=values.shape[2],
        count=len(values), dtype=values.dtype, nodata=nodata, **placed, **options,
    ) as file:  # fmt: skip
        file.write(values)
        for number, name in enumerate(bands, 1):
            if name:
                file.set_band_description(number, name)
    return path


def planted(height: int, width: int, *objects: tuple[int, int, int, int, int]) -> np.ndarray:
    """Zeros, with ones in boxes (band, top, left, height, width)."""
    values = np.zeros((len(BANDS), height, width), dtype=np.float32)
    for band, top, left, tall, wide in objects:
        values[band, top : top + tall, left : left + wide] = 1
    return values
