from __future__ import annotations

from pathlib import Path

import pytest

from adagc.labels import flip_rates, match, read_labels, simulate_random
from machine import DATA


def images_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.jpg"))


@pytest.mark.system(data="AID_multilabel/multilabel.csv")
def test_aid_table_as_it_is():
    path = DATA / "AID_multilabel/multilabel.csv"
    table = read_labels(path)
    assert table.values.shape == (3000, 17)
    assert (table.classes[0], table.classes[-1]) == ("airplane", "water")
    assert table.images[0] == "airport_1"
    assert table.counts[table.classes.index("mobile-home")] == 2
    assert set(table.values.ravel().tolist()) == {0, 1}
    assert table.unlabelled == 0
    assert table.kind == "multi"


@pytest.mark.system(data="AID_multilabel/images_tr")
def test_aid_table_finds_all_images():
    folder = DATA / "AID_multilabel"
    names = images_below(folder)
    table = read_labels(folder / "multilabel.csv")
    aligned = match(table, names)
    assert len(names) == 3000
    assert aligned.any(axis=1).all()
    row = table.images.index("viaduct_98")
    position = next(i for i, name in enumerate(names) if name.endswith("/viaduct_98.jpg"))
    assert aligned[position].tolist() == table.values[row].tolist()


@pytest.mark.system(data="AID_multilabel/multilabel.csv")
def test_random_labels_of_aid_flip_as_in_the_paper():
    table = read_labels(DATA / "AID_multilabel/multilabel.csv")
    table = table.select([name for name in table.classes if name != "mobile-home"])
    rates = flip_rates(table.positive, simulate_random(table.positive, seed=0))
    assert rates.micro == pytest.approx(0.81, abs=0.02)
    assert rates.macro == pytest.approx(0.79, abs=0.02)
    assert rates.mean_cardinality == pytest.approx(5.2, abs=0.1)
    assert rates.wrong == 0


@pytest.mark.system(data="UCMerced_sample")
def test_uc_merced_table_as_it_is():
    folder = DATA / "UCMerced_sample"
    table = read_labels(folder / "LandUse_Multilabeled.txt")
    assert table.values.shape == (105, 17)
    assert table.images[0] == "agricultural00"
    first = [table.classes[c] for c in range(17) if table.values[0, c] == 1]
    assert first == ["field", "trees"]
    assert match(table, images_below(folder)).any(axis=1).all()
