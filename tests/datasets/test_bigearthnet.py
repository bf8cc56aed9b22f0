from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from adagc.cli import main
from adagc.datasets.bigearthnet import DATASET, maps, nomenclature
from adagc.datasets.bigearthnet.generate import Generated, generate, geotiff
from adagc.datasets.bigearthnet.layout import find_layout
from adagc.datasets.bigearthnet.nomenclature import CLASS_OF_CODE, CLASSES
from adagc.datasets.bigearthnet.opening import bigearthnet_collection
from adagc.datasets.bigearthnet.patches import read_arrays, write_arrays
from adagc.datasets.bigearthnet.prepare import prepare
from adagc.datasets.collection import Collection
from adagc.errors import DataError, MissingExtraError, UsageError
from adagc.images.bigearthnet import measured
from adagc.images.bigearthnet.bands import BANDS
from adagc.images.bigearthnet.plain import read_band
from adagc.images.bigearthnet.shards import SHARD, runs_of
from adagc.images.moments import Moments
from adagc.images.synthetic import landcover
from adagc.labels import read_labels
from reference.slow_patches import ORDER, slow_areas, slow_patch

FORMS = ("tree", "memmap", "lmdb")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    return generate(tmp_path_factory.mktemp("reben") / "reBEN", 12, cloudy=3)


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    return generate(tmp_path_factory.mktemp("ben") / "BEN", 8, version=1, seed=1)


@pytest.fixture(scope="module")
def places(made: Generated, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same patches in every form, with those under clouds."""
    top = tmp_path_factory.mktemp("stores")
    for form in ("memmap", "lmdb"):
        prepare(made.root, top / form, form=form, cloudy=True)
    return {"tree": made.root, "memmap": top / "memmap", "lmdb": top / "lmdb"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAGC_CACHE", str(tmp_path / "cache"))


def rows_of(data: Collection) -> np.ndarray:
    return np.arange(len(data.images), dtype=np.int64)


# -- pixels -------------------------------------------------------------------------------------


def test_the_order_of_the_bands_is_that_of_the_paper():
    assert list(BANDS) == ORDER


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_values_of_the_files_bit_for_bit(made, places, form):
    data = bigearthnet_collection(places[form])
    assert data.images.names == made.names[:12]
    assert data.images.dtype == np.float32
    wanted = np.stack([slow_patch(made.root, made.names[i], made.radar[i]) for i in (7, 0, 11)])
    found = data.images.gather(np.array([7, 0, 11]))
    assert found.dtype == np.float32
    assert (found == wanted).all()
    assert (found[:, 0] % 1 != 0).mean() > 0.9  # decibels are not rounded


@pytest.mark.parametrize("form", FORMS)
def test_bicubic_is_that_of_torch_rounded_and_the_same_in_every_form(made, places, form, tmp_path):
    root = places[form]
    if form == "memmap":  # which has it decided
        root = tmp_path / "bicubic"
        prepare(made.root, root, resample="bicubic")
    data = bigearthnet_collection(root, resample="bicubic")
    found = data.images.gather(rows_of(data)[::-1])
    wanted = slow_patch(made.root, made.names[3], made.radar[3], "bicubic")
    away = np.abs(found[8] - wanted)
    assert away.max() <= 1  # where a value is a half, 32 bits may round it to the other side
    assert (away > 0).mean() < 2e-3
    tree = bigearthnet_collection(made.root, resample="bicubic")
    assert (found[::-1] == tree.images.gather(rows_of(tree))).all()
    assert (tree.images.gather(np.array([3]))[0] == found[8]).all()  # also alone


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("bands", "names", "dtype"),
    [
        (["rgb"], ["B04", "B03", "B02"], np.uint16),
        (["s2"], ORDER[2:], np.uint16),
        (["S1"], ["VV", "VH"], np.float32),
        (["b12", "VH", "B01"], ["B12", "VH", "B01"], np.float32),
        (["10m"], ["B02", "B03", "B04", "B08"], np.uint16),
    ],
)
def test_any_subset_in_any_order(made, places, form, bands, names, dtype):
    every = bigearthnet_collection(places[form]).images.gather(np.array([4, 2]))
    data = bigearthnet_collection(places[form], bands=bands)
    assert list(data.images.bands) == names
    found = data.images.gather(np.array([4, 2]))
    assert found.dtype == data.images.dtype == dtype
    assert (found == every[:, [ORDER.index(name) for name in names]]).all()


@pytest.mark.parametrize(
    ("bands", "said"),
    [
        (["B10"], "there is no band 'B10'"),
        (["rgb", "B04"], "names B04 twice"),
        (["vvv"], "did you mean 'VV'"),
    ],
)
def test_wrong_bands_are_named(made, bands, said):
    with pytest.raises(UsageError, match=said):
        bigearthnet_collection(made.root, bands=bands)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bands", [None, ["B05", "VH"], ["s2"]])
def test_statistics_are_those_of_the_pixels(places, form, bands):
    data = bigearthnet_collection(places[form], bands=bands)
    rows = np.array([9, 1, 4])
    values = data.images.gather(rows).astype(np.float64)
    kept = data.images.moments(rows)
    assert kept is not None
    found = kept.statistics(data.images.bands)
    np.testing.assert_allclose(found.mean, values.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(found.std, values.std((0, 2, 3)), rtol=1e-9)
    assert (found.minimum == values.min((0, 2, 3))).all()
    assert (found.maximum == values.max((0, 2, 3))).all()
    assert (found.count == 3 * 14_400).all()


def test_a_prepared_store_reads_no_pixel_for_its_statistics(places, monkeypatch):
    data = bigearthnet_collection(places["memmap"])
    monkeypatch.setattr(type(data.images), "gather", None)
    kept = data.images.moments(rows_of(data))
    assert kept is not None
    assert (kept.count > 0).all()
    assert not np.any(data.images.flaws(rows_of(data)))


def test_records_know_missing_infinite_and_saturated_values():
    rng = np.random.default_rng(0)
    radar = rng.normal(-12, 4, (3, 2, 120, 120)).astype(np.float32)
    radar[1, 1, 5, 5:9] = np.nan
    radar[2, 0, 0, 0] = np.inf
    optical = rng.integers(0, 9000, (3, 12, 120, 120)).astype(np.uint16)
    optical[0, 3, :7] = 65535
    records = measured.measure_patches(3, radar, optical)
    rows = np.array([2, 0, 1])
    missing, infinite = measured.flaws(records, rows, BANDS)
    assert missing.tolist() == [False, False, True]
    assert infinite.tolist() == [True, False, False]
    assert not any(map(np.any, measured.flaws(records, rows, BANDS[2:])))
    found = measured.combined(records, rows, BANDS).statistics(BANDS)
    for part, values in ((slice(0, 2), radar), (slice(2, 14), optical)):
        direct = Moments(values.shape[1])
        direct.add(values)
        wanted = direct.statistics(BANDS[part])
        np.testing.assert_allclose(found.mean[part], wanted.mean, rtol=1e-12)
        np.testing.assert_allclose(found.std[part], wanted.std, rtol=1e-12)
        for name in ("minimum", "maximum", "count", "missing", "infinite", "saturated"):
            assert (getattr(found, name)[part] == getattr(wanted, name)).all(), name


def test_runs_copy_neighbours_together():
    assert runs_of(BANDS, BANDS[:2]) == [(slice(0, 2), slice(0, 2))]
    assert runs_of(["B04", "B03", "B02"], BANDS[2:]) == [
        (slice(0, 1), slice(3, 4)), (slice(1, 2), slice(2, 3)), (slice(2, 3), slice(1, 2)),
    ]  # fmt: skip
    assert SHARD % 64 == 0  # a chunk of prepare lies in one shard


@pytest.mark.parametrize("kind", ["plain", "deflate", "lzw", "tiled", "big endian"])
def test_bands_are_read_from_any_tiff(tmp_path, kind):
    import tifffile

    values = np.random.default_rng(0).integers(0, 60000, (120, 120)).astype(np.uint16)
    how = {
        "plain": {},
        "deflate": {"compression": "zlib", "rowsperstrip": 17},
        "lzw": {"compression": "lzw"},
        "tiled": {"tile": (32, 32)},
        "big endian": {"byteorder": ">"},
    }[kind]
    tifffile.imwrite(tmp_path / "x.tif", values, **how)
    found = read_band(tmp_path / "x.tif")
    assert found.dtype == np.uint16
    assert (found == values).all()


def test_generated_files_lie_where_they_say(made):
    rasterio = pytest.importorskip("rasterio")
    path = made.root / "BigEarthNet-S2" / made.names[5].rsplit("_", 2)[0] / made.names[5]
    with rasterio.open(path / f"{made.names[5]}_B05.tif") as small:
        assert (small.shape, small.crs.to_epsg()) == ((60, 60), 32629)
        corner = small.bounds.left, small.bounds.top
        assert small.transform.a == 20
    with rasterio.open(path / f"{made.names[5]}_B02.tif") as large:
        assert (large.bounds.left, large.bounds.top) == corner
        assert (large.bounds.right, large.bounds.bottom) == (corner[0] + 1200, corner[1] - 1200)


# -- labels, splits, areas ------------------------------------------------------------------------


def test_the_19_classes_are_those_of_the_synthetic_scenes():
    assert CLASSES == landcover.CLASSES


def test_43_classes_become_19_by_name():
    """As printed in the papers of BigEarthNet, name by name."""
    land = "Land principally occupied by agriculture, with significant areas of natural vegetation"
    printed = {
        "Urban fabric": ["Continuous urban fabric", "Discontinuous urban fabric"],
        "Industrial or commercial units": ["Industrial or commercial units"],
        "Arable land": [
            "Non-irrigated arable land", "Permanently irrigated land", "Rice fields",
        ],
        "Permanent crops": [
            "Vineyards", "Fruit trees and berry plantations", "Olive groves",
            "Annual crops associated with permanent crops",
        ],
        "Pastures": ["Pastures"],
        "Complex cultivation patterns": ["Complex cultivation patterns"],
        land: [land],
        "Agro-forestry areas": ["Agro-forestry areas"],
        "Broad-leaved forest": ["Broad-leaved forest"],
        "Coniferous forest": ["Coniferous forest"],
        "Mixed forest": ["Mixed forest"],
        "Natural grassland and sparsely vegetated areas": [
            "Natural grassland", "Sparsely vegetated areas",
        ],
        "Moors, heathland and sclerophyllous vegetation": [
            "Moors and heathland", "Sclerophyllous vegetation",
        ],
        "Transitional woodland, shrub": ["Transitional woodland/shrub"],
        "Beaches, dunes, sands": ["Beaches, dunes, sands"],
        "Inland wetlands": ["Inland marshes", "Peatbogs"],
        "Coastal wetlands": ["Salt marshes", "Salines"],
        "Inland waters": ["Water courses", "Water bodies"],
        "Marine waters": ["Coastal lagoons", "Estuaries", "Sea and ocean"],
    }  # fmt: skip
    dropped = [
        "Road and rail networks and associated land", "Port areas", "Airports",
        "Mineral extraction sites", "Dump sites", "Construction sites", "Green urban areas",
        "Sport and leisure facilities", "Bare rock", "Burnt areas", "Intertidal flats",
    ]  # fmt: skip
    assert sum(map(len, printed.values())) + len(dropped) == 43
    assert tuple(printed) == CLASSES
    for new, names in printed.items():
        for old in names:
            assert CLASSES[nomenclature.class_of(old, "here")] == new
    assert [nomenclature.class_of(old, "here") for old in dropped] == [None] * 11
    with pytest.raises(DataError, match=r"here: unknown class 'Glaciers'"):
        nomenclature.class_of("Glaciers", "here")


def test_codes_of_corine_follow_its_hierarchy():
    codes = {111: 0, 211: 2, 223: 3, 241: 3, 312: 9, 333: 11, 412: 15, 421: 16, 512: 17, 523: 18}
    assert codes.items() <= CLASS_OF_CODE.items()
    assert not {122, 142, 332, 334, 335, 423, 999} & CLASS_OF_CODE.keys()
    assert len(CLASS_OF_CODE) == 32


@pytest.mark.parametrize("form", FORMS)
def test_labels_and_published_splits(made, places, form):
    data = bigearthnet_collection(places[form])
    assert data.classes == CLASSES
    assert data.truth is not None
    assert (data.truth == made.labels[:12]).all()
    parts = {"train": "train", "val": "validation", "test": "test"}
    for part, word in parts.items():
        assert [made.splits[row] for row in data.splits[part]] == [word] * len(data.splits[part])
    assert [len(data.splits[part]) for part in parts] == [6, 3, 3]
    assert "published splits: 6 train, 3 val, 3 test (2 : 1 : 1)" in data.notes


@pytest.mark.parametrize("form", FORMS)
def test_patches_under_clouds_only_if_asked_for(made, places, form):
    data = bigearthnet_collection(places[form], cloudy=True)
    assert data.images.names == made.names
    assert [len(rows) for rows in data.splits.values()] == [7, 4, 4]
    clear = bigearthnet_collection(places[form])
    assert (data.images.gather(np.array([11])) == clear.images.gather(np.array([11]))).all()


@pytest.mark.parametrize("form", ["memmap", "lmdb"])
def test_areas_of_a_store_are_those_of_the_maps(made, places, form):
    data = bigearthnet_collection(places[form])
    assert data.areas is not None
    wanted = [slow_areas(codes, CLASS_OF_CODE, 19) for codes in made.maps[:12]]
    np.testing.assert_allclose(data.areas, wanted, atol=1e-6)
    assert ((data.areas > 0) == made.labels[:12]).all()


def test_dominant_labels_from_the_maps_of_a_folder(made, tmp_path, capsys):
    assert bigearthnet_collection(made.root).areas is None  # counting them all takes minutes
    out = tmp_path / "dominant.csv"
    command = ["simulate", "--scheme", "dominant", "--root", str(made.root), "--out", str(out)]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "0.91" in said  # of industry in the paper's Table I
    assert "88,236" in said
    assert "of the 6 training images, beside Table I of the paper" in " ".join(said.split())
    table = read_labels(out, classes=CLASSES)
    areas = np.stack([slow_areas(codes, CLASS_OF_CODE, 19) for codes in made.maps[:12]])
    row_of = {name: row for row, name in enumerate(table.images)}
    for number, name in enumerate(made.names[:12]):
        chosen = int(table.values[row_of[name]].argmax())
        assert areas[number, chosen] == pytest.approx(areas[number].max())
    assert main(command) == 2
    assert "exists" in capsys.readouterr().err
    # What was counted is kept: now training has the areas too.
    data = bigearthnet_collection(made.root)
    np.testing.assert_allclose(data.areas, areas, atol=1e-6)


def test_what_goes_with_a_file_of_labels_is_refused_beside_a_data_set(made, tmp_path, capsys):
    out = tmp_path / "dominant.csv"
    command = ["simulate", "--scheme", "dominant", "--root", str(made.root), "--out", str(out)]
    assert main([*command, "--maps", str(made.root), "--map-classes", "codes.csv"]) == 2
    assert "--maps goes with TRUTH" in capsys.readouterr().err
    assert main([*command, "--ignore", "3"]) == 2
    assert not out.exists()


def test_seed_and_threads_are_handed_on_and_a_part_of_the_copy_is_told(
    made, tmp_path, capsys, monkeypatch
):
    threads: list[int] = []
    count = maps.class_areas
    monkeypatch.setattr(
        maps, "class_areas",
        lambda *given, **more: threads.append(more["workers"]) or count(*given, **more),
    )  # fmt: skip
    command = ["simulate", "--root", str(made.root), "--workers", "3", "--force", "--out"]
    out = tmp_path / "labels.csv"
    kept = {}
    for seed in ("1", "2"):
        assert main([*command, str(out), "--scheme", "random", "--seed", seed]) == 0
        assert "warning: this is not the whole reBEN" in " ".join(capsys.readouterr().err.split())
        kept[seed] = read_labels(out, classes=CLASSES).values
    assert (kept["1"] != kept["2"]).any()
    assert threads == []  # a random label needs no map
    assert main([*command, str(out), "--scheme", "dominant"]) == 0
    assert threads == [3]


def test_labels_need_no_pixels(made, tmp_path, capsys):
    copy, out = tmp_path / "copy", tmp_path / "labels.csv"
    shutil.copytree(made.root, copy, ignore=shutil.ignore_patterns("BigEarthNet-S1"))
    command = ["simulate", "--scheme", "dominant", "--root", str(copy), "--out", str(out)]
    assert main(command) == 0
    assert "warning: the Sentinel-1 half" in capsys.readouterr().err
    assert set(read_labels(out, classes=CLASSES).images) == {*made.names[:12]}
    assert main([*command, "--force", "--cloudy"]) == 0
    assert set(read_labels(out, classes=CLASSES).images) == {*made.names}
    words = ["simulate", str(out), "--cloudy", "--out", str(tmp_path / "more.csv")]
    assert main(words) == 2
    assert "--cloudy goes with --root" in capsys.readouterr().err


def test_patches_without_a_map_get_no_label_and_are_counted(made, tmp_path, capsys):
    copy, out = tmp_path / "copy", tmp_path / "dominant.csv"
    shutil.copytree(made.root, copy)
    next((copy / "Reference_Maps").glob(f"*/{made.names[1]}/*.tif")).unlink()
    command = ["simulate", "--scheme", "dominant", "--root", str(copy), "--out", str(out)]
    assert main(command) == 0
    assert "warning: 1 images get no label" in capsys.readouterr().err
    table = read_labels(out, classes=CLASSES)
    labelled = {n for n, row in zip(table.images, table.values, strict=True) if row.any()}
    assert labelled == {*made.names[:12]} - {made.names[1]}
    assert any(note.startswith("1 patches have no reference map") for note in
               bigearthnet_collection(copy).notes)  # fmt: skip


def test_whether_there_are_maps_is_told(made, older, places, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(made.root, copy, ignore=shutil.ignore_patterns("Reference_Maps"))
    none = "There are no reference maps, so that no dominant labels can be simulated."
    assert none in bigearthnet_collection(copy).notes
    prepare(copy, tmp_path / "store")
    assert none in bigearthnet_collection(tmp_path / "store").notes
    assert none not in bigearthnet_collection(places["memmap"]).notes
    command = ["simulate", "--scheme", "dominant", "--out", str(tmp_path / "x.csv"), "--root"]
    assert main([*command, str(copy)]) == 1
    assert "put that folder of reBEN beside its images" in capsys.readouterr().err
    assert main([*command, str(older.root)]) == 1
    assert "version 1 has none" in capsys.readouterr().err


def test_version_1_has_its_labels_mapped(older):
    data = bigearthnet_collection(older.root)
    order = [older.names.index(name) for name in data.images.names]
    assert sorted(order) == list(range(8))
    assert data.truth is not None
    assert (data.truth == older.labels[order]).all()  # "Bare rock" of some is dropped
    assert {part: len(rows) for part, rows in data.splits.items()} == {
        "train": 4, "val": 2, "test": 2,
    }  # fmt: skip
    wanted = slow_patch(older.root, older.names[order[3]], older.radar[order[3]])
    assert (data.images.gather(np.array([3]))[0] == wanted).all()


def test_version_1_without_its_splits_draws_them(older, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(older.root, copy)
    (copy / "val.csv").unlink()
    first, second = (bigearthnet_collection(copy, seed=seed).splits for seed in (0, 1))
    assert [len(rows) for rows in first.values()] == [4, 2, 2]
    assert sorted(np.concatenate(list(first.values()))) == list(range(8))
    assert any((first[part] != second[part]).any() for part in first)


def test_a_patch_whose_classes_were_all_dropped_is_in_no_split(older, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(older.root, copy)
    name = older.names[0]
    path = copy / "BigEarthNet-v1.0" / name / f"{name}_labels_metadata.json"
    path.write_text(json.dumps({"labels": ["Airports", "Burnt areas"]}))
    data = bigearthnet_collection(copy)
    row = data.images.names.index(name)
    assert row not in np.concatenate(list(data.splits.values()))
    assert any(note.startswith("1 patches have none of the 19 classes") for note in data.notes)


def test_a_split_file_takes_the_place_of_the_published_splits(made, tmp_path):
    file = tmp_path / "split.csv"
    words = ["test", "train", "val"] * 4
    lines = [f"{name},{word}" for name, word in zip(made.names[:12], words, strict=True)]
    file.write_text("\n".join(["image,split", *lines]))
    data = bigearthnet_collection(made.root, split=file)
    assert data.splits["train"].tolist() == [1, 4, 7, 10]


TRAIN = (
    *("train", "--data", "bigearthnet", "--scheme", "random", "--method", "AN", "--epochs", "1"),
    *("--backbone", "test_resnet", "--weights", "none", "--batch-size", "4", "--absent", "skip"),
    *("--report", "false"),
)


def test_training_takes_the_options_of_this_data_set(made, places, tmp_path, capsys):
    def trained(name: str, *words: str) -> list[str]:
        assert main([*TRAIN, "--out", str(tmp_path / name), *words]) == 0
        return (tmp_path / name / "split.csv").read_text().splitlines()[1:]

    root = ["--root", str(places["lmdb"])]
    assert len(trained("clear", *root)) == 12
    assert len(trained("cloudy", *root, "--cloudy")) == 15
    trained("bicubic", *root, "--resample", "bicubic")
    stores = {"clear": "nearest", "bicubic": "bicubic"}
    moments = {}
    for name, how in stores.items():
        model = json.loads((tmp_path / name / "model.json").read_text())
        moments[how] = np.array(model["normalisation"]["std"])
        data = bigearthnet_collection(places["lmdb"], resample=how)
        own = Moments(14)
        own.add(data.images.gather(data.splits["train"]))
        np.testing.assert_allclose(moments[how], own.statistics(BANDS).std, rtol=1e-4)
    smooth = [BANDS.index(band) for band in ("B01", "B05", "B12")]
    assert (moments["bicubic"][smooth] != moments["nearest"][smooth]).all()
    capsys.readouterr()
    assert main([*TRAIN, *root, "--out", str(tmp_path / "x"), "--resample", "cubic"]) == 2
    assert "--resample must be nearest or bicubic" in capsys.readouterr().err
    folder = [word if word != "bigearthnet" else "folder" for word in TRAIN]
    assert main([*folder, *root, "--out", str(tmp_path / "x"), "--cloudy"]) == 2
    assert "--cloudy means nothing for --data folder" in capsys.readouterr().err


def test_inspect_takes_them_too(places, older, capsys):
    words = ["inspect", str(places["memmap"]), "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["splits"] == {"train": 6, "val": 3, "test": 3}
    assert any(note.startswith("3 patches with snow") for note in found["notes"])
    assert main([*words, "--data", "bigearthnet", "--cloudy"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(found["splits"].values()) == 15
    assert not any("with --cloudy only" in note for note in found["notes"])
    assert main([*words, "--cloudy"]) == 2
    assert "--cloudy needs --data" in capsys.readouterr().err
    assert main(["inspect", str(older.root), "--data", "bigearthnet", "--cloudy"]) == 2
    assert "--cloudy means nothing for version 1" in capsys.readouterr().err


def test_a_resumed_run_looks_at_what_says_which_patches_there_are(places, older):
    assert DATASET.files({"root": str(places["memmap"])}) == {
        "root/store.json": places["memmap"] / "store.json"
    }
    assert DATASET.files({"root": str(places["tree"])}) == {
        "root/metadata.parquet": places["tree"] / "metadata.parquet"
    }
    assert DATASET.files({"root": str(older.root)}) == {}


@pytest.mark.parametrize("form", FORMS)
def test_tiles_may_be_kept_together_in_place_of_the_published_splits(places, form):
    data = bigearthnet_collection(places[form], split_by_place="tile", seed=1)
    tiles = np.array([name.split("_")[5] for name in data.images.names])
    inside = [set(tiles[rows]) for rows in data.splits.values()]
    assert list(data.splits) == ["train", "val", "test"]
    assert len(set.union(*inside)) == sum(map(len, inside)) == 4
    assert any(note.startswith("split by place into tiles") for note in data.notes)
    assert not any("whole reBEN" in note for note in data.notes)  # nothing to be compared


def test_blocks_in_metres_need_files_that_say_where_they_lie(made, places):
    pytest.importorskip("rasterio")
    data = bigearthnet_collection(made.root, split_by_place="50000")
    assert any("the distance between parts is" in note for note in data.notes)
    place = data.images.place(0)
    assert place is not None
    assert place.width == pytest.approx(1200, rel=0.01)
    with pytest.raises(DataError, match="do not say where on earth they lie"):
        bigearthnet_collection(places["memmap"], split_by_place="50000")
    with pytest.raises(UsageError, match="cannot be given both"):
        bigearthnet_collection(made.root, split=made.root / "x", split_by_place="tile")


# -- what is missing ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lost", "half", "other", "count"),
    [("BigEarthNet-S1", "Sentinel-1", "s2", 12), ("BigEarthNet-S2", "Sentinel-2", "s1", 2)],
)
def test_a_missing_half_is_named(made, tmp_path, capsys, lost, half, other, count):
    copy = tmp_path / "copy"
    shutil.copytree(made.root, copy, ignore=shutil.ignore_patterns(lost))
    with pytest.raises(DataError, match=rf"the {half} half .* is missing: .*--bands {other}"):
        bigearthnet_collection(copy)
    data = bigearthnet_collection(copy, bands=[other])
    assert len(data.images) == 12
    assert main(["inspect", str(copy), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["bands"]) == count
    assert any(f"the {half} half" in note for note in found["notes"])


def test_missing_metadata_is_named(made, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(made.root, copy, ignore=shutil.ignore_patterns("*.parquet"))
    with pytest.raises(DataError, match=r"metadata\.parquet is missing"):
        bigearthnet_collection(copy)


def test_patches_that_are_not_there_are_counted(made, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(made.root, copy)
    shutil.rmtree(next((copy / "BigEarthNet-S2").glob(f"*/{made.names[1]}")))
    shutil.rmtree(next((copy / "BigEarthNet-S1").glob(f"*/{made.radar[2]}")))
    data = bigearthnet_collection(copy)
    assert data.images.names == (made.names[0], *made.names[3:12])
    assert any(note.startswith("2 of 12 patches") for note in data.notes)
    wanted = slow_patch(made.root, made.names[3], made.radar[3])
    assert (data.images.gather(np.array([1]))[0] == wanted).all()


def test_files_that_cannot_be_read_do_not_stop_inspect(made, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(made.root, copy)
    for number in (2, 5):
        next((copy / "BigEarthNet-S2").glob(f"*/{made.names[number]}/*_B04.tif")).write_bytes(b"II")
    assert main(["inspect", str(copy), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["unreadable"]) == {made.names[2], made.names[5]}
    assert "_B04.tif" in found["unreadable"][made.names[2]]
    assert found["shapes"] == {"14 x 120 x 120": 10}
    assert any("2 files cannot be read" in warning for warning in found["warnings"])
    good = [row for row in range(12) if row not in (2, 5)]
    wanted = bigearthnet_collection(made.root).images.gather(np.array(good))
    np.testing.assert_allclose(
        found["statistics"]["mean"], wanted.mean(axis=(0, 2, 3), dtype=np.float64), rtol=1e-5
    )


@pytest.mark.parametrize("form", FORMS)
def test_inspect_says_what_it_is(places, form, capsys):
    assert main(["inspect", str(places[form])]) == 0
    said = " ".join(capsys.readouterr().out.split())
    words = {"tree": "version 2 as GeoTIFF", "memmap": "memory-mapped", "lmdb": "safetensors"}
    assert words[form] in said
    assert "published splits: 6 train, 3 val, 3 test" in said


def test_a_part_leads_to_the_whole_and_other_folders_are_not_taken_for_it(made, tmp_path):
    layout = find_layout(made.root / "BigEarthNet-S2")
    assert layout is not None
    assert layout.radar == made.root.resolve() / "BigEarthNet-S1"
    (tmp_path / "S2A_MSIL2A_something").mkdir()
    (tmp_path / "photos" / "forest").mkdir(parents=True)
    assert find_layout(tmp_path) is None
    with pytest.raises(DataError, match=r"no copy of BigEarthNet; expected BigEarthNet-S2/"):
        bigearthnet_collection(tmp_path)


@pytest.mark.parametrize("module", ["lmdb", "pyarrow"])
def test_a_missing_package_is_one_line(made, places, module, monkeypatch, tmp_path):
    import sys

    monkeypatch.setitem(sys.modules, module, None)
    root = made.root if module == "pyarrow" else places["lmdb"]
    if module == "lmdb":  # the store may be open already
        shutil.copytree(root, tmp_path / "copy")
        root = tmp_path / "copy"
    with pytest.raises(MissingExtraError, match=r"pip install 'adagc\[reben\]'"):
        bigearthnet_collection(root).images.gather(np.array([0]))


def test_a_file_with_another_shape_is_named(made, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(made.root, copy)
    path = next((copy / "BigEarthNet-S2").glob(f"*/{made.names[1]}/*_B05.tif"))
    path.write_bytes(geotiff(np.zeros((120, 120), np.uint16), 0, 0, 32633))
    with pytest.raises(DataError, match=r"_B05\.tif: band B05 has uint16 of 120 x 120 pixels"):
        bigearthnet_collection(copy).images.gather(np.array([1]))


# -- the index ------------------------------------------------------------------------------------


def test_patches_survive_their_file(made, tmp_path):
    data = bigearthnet_collection(made.root, cloudy=True)
    from adagc.datasets.bigearthnet.metadata import read_metadata

    layout = find_layout(made.root)
    assert layout is not None
    patches = read_metadata(layout, cloudy=True)
    write_arrays(tmp_path / "x.safetensors", patches, rows=np.arange(15, dtype=np.uint32))
    again, more = read_arrays(tmp_path / "x.safetensors")
    assert again.names == patches.names == data.images.names
    assert again.radar == patches.radar
    for name in ("split", "labels", "flags"):
        assert (getattr(again, name) == getattr(patches, name)).all()
    assert more["rows"].tolist() == list(range(15))
    whole = (tmp_path / "x.safetensors").read_bytes()
    (tmp_path / "x.safetensors").write_bytes(whole[:-5])
    with pytest.raises(DataError, match="prepare the store again"):
        read_arrays(tmp_path / "x.safetensors")
