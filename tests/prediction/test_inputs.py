"""Files, folders, arrays and stores go the same way as in training."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from PIL import Image

from adagc import predict
from adagc.cli import main
from adagc.datasets.folder import folder_collection
from adagc.errors import DataError, UsageError
from adagc.images.decode import load
from planted import BANDS, CLASSES, planted, write_model, write_scene

RED, GREEN, BLUE = "red", "green", "blue"


@pytest.fixture
def colours(tmp_path):
    """A model of colours."""
    return write_model(tmp_path / "colours", bands=(RED, GREEN, BLUE))


def picture(path, size=(20, 30), mode="RGB", seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    bands = len(mode)
    values = np.random.default_rng(seed).integers(0, 255, (*size, bands), dtype=np.uint8)
    Image.fromarray(values, mode).save(path)
    return path


def mean_of(path, **options) -> np.ndarray:
    """What the model says of a file that is decoded and resized as for training."""
    return load(path, 8, **options).astype(np.float32).mean(axis=(1, 2))


@pytest.mark.parametrize("name", ["one.png", "one.jpg", "one.tif"])
def test_one_file(tmp_path, colours, name):
    path = picture(tmp_path / name, size=(90, 70))
    found = predict(colours, path)
    assert found.names == ("one",)
    np.testing.assert_allclose(found.probabilities[0], mean_of(path), rtol=1e-6)


def test_a_folder_is_decoded_as_training_decodes_it(tmp_path, colours):
    root = tmp_path / "photos"
    for number in range(70):
        picture(root / f"part{number % 3}" / f"{number:03}.png", seed=number)
    picture(root / "large.jpg", size=(200, 150))
    picture(root / "seen_through.png", mode="RGBA")
    Image.fromarray(np.full((9, 9), 7, dtype=np.uint8)).convert("RGB").save(root / "small.png")
    found = predict(colours, root)
    trained = folder_collection(root, size=8, bands=(RED, GREEN, BLUE), cache=tmp_path / "cache")
    assert found.names == trained.images.names
    values = trained.images.gather(np.arange(len(found.names))).astype(np.float32)
    np.testing.assert_array_equal(found.probabilities, values.mean(axis=(2, 3)))
    # The store of these decoded images can be predicted, too, without the files.
    (index,) = (tmp_path / "cache").rglob("index.safetensors")
    stored = predict(colours, index.parent)
    assert stored.names == found.names
    np.testing.assert_array_equal(stored.probabilities, found.probabilities)


def test_missing_values_in_files(tmp_path, model):
    values = planted(8, 8, (0, 0, 0, 8, 8)).astype(np.int16)
    values[:, :4] = -9999
    (tmp_path / "files").mkdir()
    write_scene(tmp_path / "files" / "a.tif", values, nodata=-9999)
    write_scene(tmp_path / "files" / "b.tif", np.full_like(values, -9999), nodata=-9999)
    found = predict(model, tmp_path / "files")
    assert (found.names, found.without) == (("a",), 1)
    assert found.known.tolist() == [0.5]
    assert found.probabilities[0, 0] == 0.5


def test_bands_of_tiff_images_are_found_by_name(tmp_path, model):
    values = planted(8, 8, (0, 0, 0, 8, 8))
    (tmp_path / "files").mkdir()
    write_scene(tmp_path / "files" / "a.tif", values)
    write_scene(tmp_path / "files" / "b.tif", values[[2, 1, 0]], bands=("B04", "B03", "B02"))
    found = predict(model, tmp_path / "files")
    assert found.probabilities.tolist() == [[1, 0, 0], [1, 0, 0]]
    write_scene(tmp_path / "files" / "c.tif", values, bands=("B02", "B03", "B08"))
    with pytest.raises(DataError, match=r"c\.tif has no band B04"):
        predict(model, tmp_path / "files")


@pytest.mark.parametrize("form", ["object", "npy", "npz", "folder"])
def test_arrays(tmp_path, model, form):
    values = np.random.default_rng(0).random((150, 3, 8, 8)).astype(np.float32)
    names = [f"row{i}" for i in range(150)] if form in ("npz", "folder") else None
    if form == "object":
        given = values
    elif form == "npy":
        np.save(tmp_path / "rows.npy", values)
        given = tmp_path / "rows.npy"
    elif form == "npz":
        np.savez(tmp_path / "rows.npz", images=values, names=np.array(names))
        given = tmp_path / "rows.npz"
    else:
        given = tmp_path / "rows"
        given.mkdir()
        np.save(given / "images.npy", values)
        (given / "names.txt").write_text("\n".join(names))
    found = predict(model, given)
    np.testing.assert_allclose(found.probabilities, values.mean(axis=(2, 3)), rtol=1e-5)
    assert found.names == tuple(names or (f"{i:05d}" for i in range(150)))
    reordered = predict(model, given, bands=list(BANDS[::-1]))
    np.testing.assert_array_equal(reordered.probabilities, found.probabilities[:, ::-1])


def test_an_array_of_another_shape_is_refused(model):
    with pytest.raises(DataError, match="3 x 9 x 9, and the model takes 3 x 8 x 8"):
        predict(model, np.zeros((2, 3, 9, 9), dtype=np.float32))
    with pytest.raises(DataError, match="4 bands, and the model takes 3"):
        predict(model, np.zeros((2, 4, 8, 8), dtype=np.float32))


def test_an_empty_npy_file_is_named(tmp_path, model):
    (tmp_path / "none.npy").touch()
    with pytest.raises(DataError, match=r"none\.npy"):
        predict(model, tmp_path / "none.npy")


def test_a_single_picture_in_an_npy_file(tmp_path, model):
    np.save(tmp_path / "one.npy", np.moveaxis(planted(8, 8, (1, 0, 0, 8, 4)), 0, -1))
    assert predict(model, tmp_path / "one.npy").probabilities.tolist() == [[0, 0.5, 0]]


def test_a_table_of_images(tmp_path, model):
    values = np.stack([planted(8, 8, (1, 0, 0, 4, 8), (0, 0, 0, 8, 8)), planted(8, 8)])
    found = predict(model, values, tmp_path / "rows.csv")
    assert found.labels == [("field", "water"), ()]
    with (tmp_path / "rows.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert lines[0] == {
        "image": "00000", "labels": "field;water", "p_field": "1.0", "p_water": "0.5",
        "p_road": "0.0",
    }  # fmt: skip
    assert lines[1]["labels"] == ""
    with pytest.raises(UsageError, match="a place on earth"):
        predict(model, values, tmp_path / "rows.gpkg")
    with pytest.raises(UsageError, match="is made of a scene"):
        predict(model, tmp_path, tmp_path / "map.tif")


def test_thresholds(tmp_path, model):
    values = np.full((1, 3, 8, 8), 0.5, dtype=np.float32)
    assert predict(model, values).labels == [("field", "water")]  # 0.5, 0.25, 0.75 are stored
    assert predict(model, values, thresholds="half").labels == [CLASSES]
    assert predict(model, values, thresholds="estimated").labels == [("field", "water")]
    (tmp_path / "t.csv").write_text("class,threshold\nfield,0.6\nroad,0.4\nwater,0.1\n")
    found = predict(model, values, thresholds=str(tmp_path / "t.csv"))
    assert found.labels == [("water", "road")]
    assert found.about == "given in t.csv"
    (tmp_path / "t.csv").write_text("class,threshold\nfield,0.6\n")
    with pytest.raises(UsageError, match="lacks water, road"):
        predict(model, values, thresholds=str(tmp_path / "t.csv"))


def test_unreadable_images(tmp_path, colours):
    root = tmp_path / "photos"
    picture(root / "good.png")
    (root / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\nno")
    whole = picture(root / "cut.png", size=(90, 90), seed=3)
    whole.write_bytes(whole.read_bytes()[:4000])  # its header is whole, its pixels are not
    with pytest.raises(DataError, match=r"(bad|cut)\.png: cannot be read"):
        predict(colours, root)
    found = predict(colours, root, skip_unreadable=True)
    assert found.names == ("good",)


def test_one_line_for_what_cannot_be_predicted(tmp_path, colours, capsys):
    (tmp_path / "empty").mkdir()
    for given, message, code in (
        (tmp_path / "none.tif", "there is no such file or folder", 2),
        (tmp_path / "empty", "no images found", 1),
        (tmp_path / "colours" / "model.onnx", "cannot be read", 1),
    ):
        out = tmp_path / "rows.csv"
        assert main(["predict", str(colours), str(given), "--out", str(out)]) == code
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("adagc predict: ")
        assert message in line
        assert not out.exists()
    words = ["predict", str(tmp_path / "gone"), str(tmp_path), "--out", "x.csv"]
    assert main(words) == 2
    assert (
        "does not exist: give the folder of a run or an exported model" in capsys.readouterr().err
    )
    words = ["predict", str(colours), str(tmp_path), "--out", str(tmp_path / "x.shp")]
    assert main(words) == 2
    assert "'.shp' cannot be written" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_opened(tmp_path):
    for out, reason in (("new.xlsx", ".xlsx"), ("folder.tif", "is a folder")):
        (tmp_path / "folder.tif").mkdir(exist_ok=True)
        with pytest.raises(UsageError, match=reason):
            predict(tmp_path / "no model", tmp_path / "no image", tmp_path / out)


def test_footprints_of_a_folder_are_kept(tmp_path, model):
    for package in ("rasterio", "geopandas", "pyarrow", "pyogrio"):
        pytest.importorskip(package, reason=f"needs {package}")
    import geopandas
    from rasterio.transform import from_origin

    (tmp_path / "files").mkdir()
    values = planted(8, 8, (0, 0, 0, 8, 8))
    write_scene(tmp_path / "files" / "a.tif", values)
    write_scene(tmp_path / "files" / "c.tif", planted(8, 8, (1, 0, 0, 8, 8)), crs=None)
    write_scene(tmp_path / "files" / "d.tif", np.full_like(values, np.nan))  # is left out
    write_scene(tmp_path / "files" / "b.tif", planted(8, 8, (2, 0, 0, 8, 8)))
    import rasterio

    with rasterio.open(tmp_path / "files" / "b.tif", "r+") as file:
        file.transform = from_origin(400_080, 5_000_000, 10, 10)
    found = predict(model, tmp_path / "files", tmp_path / "rows.parquet")
    assert (found.names, found.without) == (("a", "b", "c"), 1)
    for frame in (geopandas.read_parquet(tmp_path / "rows.parquet"), found.table().frame()):
        assert frame.crs.to_epsg() == 32633
        bounds = [None if shape is None else shape.bounds for shape in frame.geometry]
        top = 5_000_000
        assert bounds == [
            (400_000, top - 80, 400_080, top), (400_080, top - 80, 400_160, top), None,
        ]  # fmt: skip
        assert list(frame["labels"]) == ["field", "road", "water"]
    (tmp_path / "files" / "c.tif").unlink()
    predict(model, tmp_path / "files", tmp_path / "rows.geojson")
    assert len(geopandas.read_file(tmp_path / "rows.geojson")) == 2
    predict(model, tmp_path / "files" / "a.tif", tmp_path / "one.gpkg", windows="never")
    assert geopandas.read_file(tmp_path / "one.gpkg").crs.to_epsg() == 32633


def test_rows_of_an_embedding_product_keep_their_places(tmp_path):
    for package in ("geopandas", "pyarrow"):
        pytest.importorskip(package, reason=f"needs {package}")
    import geopandas

    from adagc.tables import Table, write
    from scripted import train_scripted

    run = train_scripted(tmp_path / "run")
    values = np.random.default_rng(0).random((5, 6)).astype(np.float32)
    ring = np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)], dtype="<f8")
    from adagc.images.footprint import polygon

    places = [polygon(tuple((x + i, y) for x, y in ring[:4])) for i in range(5)]
    columns = {"id": [f"tile{i}" for i in range(5)], "embedding": values}
    write(tmp_path / "tiles.parquet", Table(columns, places, "EPSG:4326"))
    found = predict(run.folder, tmp_path / "tiles.parquet", tmp_path / "rows.parquet")
    np.testing.assert_allclose(
        found.probabilities, predict(run.folder, values).probabilities, atol=1e-6
    )
    frame = geopandas.read_parquet(tmp_path / "rows.parquet")
    assert list(frame["image"]) == columns["id"]
    assert [shape.bounds[0] for shape in frame.geometry] == [0, 1, 2, 3, 4]
