"""The real samples of both versions, and how the generated copies compare with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import tifffile

from adagc.datasets.bigearthnet.generate import generate
from adagc.datasets.bigearthnet.metadata import read_parquet
from adagc.datasets.bigearthnet.opening import bigearthnet_collection
from adagc.datasets.bigearthnet.prepare import prepare
from adagc.images.bigearthnet.lmdb import encode
from machine import DATA


@pytest.mark.system(data="reBEN_sample")
def test_the_real_lmdb_store(tmp_path: Path) -> None:
    import lmdb
    from safetensors.numpy import load

    data = bigearthnet_collection(DATA / "reBEN_sample")
    assert len(data.images) == 18
    assert [len(rows) for rows in data.splits.values()] == [6, 6, 6]
    assert data.truth is not None
    first = data.images.names.index("S2A_MSIL2A_20170613T101031_N9999_R022_T33UUP_37_88")
    assert {c for c, there in zip(data.classes, data.truth[first], strict=True) if there} == {
        "Broad-leaved forest", "Coniferous forest", "Inland waters", "Mixed forest", "Pastures",
    }  # fmt: skip
    cloudy = bigearthnet_collection(DATA / "reBEN_sample", cloudy=True)
    assert len(cloudy.images) == 24

    image = data.images.gather(np.array([first]))[0]
    folder = tmp_path / "lmdb"  # the folder of the sample may be read-only
    shutil.copytree(DATA / "reBEN_sample" / "BigEarthNet-V2-LMDB", folder)
    with lmdb.open(str(folder), readonly=True, lock=False) as opened, opened.begin() as read:
        radar = load(read.get(b"S1B_IW_GRDH_1SDV_20170612T165809_33UUP_37_88"))
        entry = read.get(data.images.names[first].encode())
        optical = load(entry)
        assert encode(optical) == entry  # what we write is what the converter writes
        assert encode(radar) == read.get(b"S1B_IW_GRDH_1SDV_20170612T165809_33UUP_37_88")
    assert image[0].tobytes() == radar["VV"].tobytes()  # decibels bit for bit
    assert image[1].tobytes() == radar["VH"].tobytes()
    assert (image[0] != np.rint(image[0])).mean() > 0.99
    assert (image[data.images.bands.index("B08")] == optical["B08"]).all()
    assert (image[data.images.bands.index("B12")][1::2, ::2] == optical["B12"]).all()


@pytest.mark.system(data="reBEN_sample")
@pytest.mark.parametrize("form", ["memmap", "lmdb"])
def test_the_real_store_can_be_prepared(tmp_path: Path, form: str) -> None:
    prepare(DATA / "reBEN_sample", tmp_path / "store", form=form, cloudy=True)  # type: ignore[arg-type]
    before = bigearthnet_collection(DATA / "reBEN_sample", cloudy=True)
    after = bigearthnet_collection(tmp_path / "store", cloudy=True)
    assert after.images.names == before.images.names
    rows = np.arange(24)
    assert after.images.gather(rows).tobytes() == before.images.gather(rows).tobytes()
    assert (after.truth == before.truth).all()


@pytest.mark.system(data="BigEarthNet_sample")
def test_the_real_files_of_version_1() -> None:
    root = DATA / "BigEarthNet_sample"
    data = bigearthnet_collection(root)
    assert len(data.images) == 6
    name = "S2A_MSIL2A_20170613T101031_87_48"
    row = data.images.names.index(name)
    assert data.truth is not None
    assert {c for c, there in zip(data.classes, data.truth[row], strict=True) if there} == {
        "Arable land",
        "Land principally occupied by agriculture, with significant areas of natural vegetation",
    }
    image = data.images.gather(np.array([row]))[0]
    radar = root / "BigEarthNet-S1-Example" / "S1A_IW_GRDH_1SDV_20170613T165043_33UUP_87_48"
    wanted = tifffile.imread(radar / f"{radar.name}_VV.tif")
    assert image[0].tobytes() == wanted.tobytes()


@pytest.mark.system(data="reBEN_sample")
def test_generated_copies_have_the_real_shape(tmp_path: Path) -> None:
    import pyarrow.parquet

    made = generate(tmp_path / "v2", 4)
    for name in ("metadata.parquet", "metadata_for_patches_with_snow_cloud_or_shadow.parquet"):
        real = pyarrow.parquet.read_schema(DATA / "reBEN_sample" / name).remove_metadata()
        assert pyarrow.parquet.read_schema(made.root / name).remove_metadata() == real
        assert read_parquet(DATA / "reBEN_sample" / name).labels.any(axis=1).all()
    prepare(made.root, tmp_path / "store", form="lmdb")
    import lmdb

    folder = tmp_path / "real"
    shutil.copytree(DATA / "reBEN_sample" / "BigEarthNet-V2-LMDB", folder)
    entries = []
    for place in (folder, tmp_path / "store" / "BigEarthNet-LMDB"):
        with lmdb.open(str(place), readonly=True, lock=False) as opened, opened.begin() as read:
            found = dict(read.cursor())
            entries.append({key[:2]: (len(value), value[:800].partition(b"}}")[0])
                            for key, value in found.items()})  # fmt: skip
    assert entries[0] == entries[1]  # headers of safetensors and lengths


@pytest.mark.system(data="BigEarthNet_sample")
def test_generated_files_have_the_real_tags(tmp_path: Path) -> None:
    made = generate(tmp_path / "v1", 1, version=1)
    for band in ("B01", "B02", "B05", "VV"):
        (own,) = made.root.rglob(f"*_{band}.tif")
        real = next((DATA / "BigEarthNet_sample").rglob(f"*_{band}.tif"))
        with tifffile.TiffFile(own) as ours, tifffile.TiffFile(real) as theirs:
            a, b = ours.pages[0], theirs.pages[0]
            assert (a.shape, a.dtype, a.compression) == (b.shape, b.dtype, b.compression)
            assert a.tags["ModelPixelScaleTag"].value == b.tags["ModelPixelScaleTag"].value
