"""Bands by name, by number, and refused."""

from __future__ import annotations

import pytest

from adagc.errors import DataError, UsageError
from adagc.prediction.bands import choose

WANTED = ("B02", "B03", "B04")


def test_the_same_bands_need_no_word():
    chosen = choose(WANTED, WANTED)
    assert (chosen.numbers, chosen.note) == ((0, 1, 2), "")


def test_another_order_and_more_bands():
    chosen = choose(WANTED, ("b04", "SCL", "B03", None, "B02"))
    assert chosen.numbers == (4, 2, 0)
    assert chosen.note == (
        "bands are put into the order of the model (B02, B03, B04); SCL, band 4 are not used"
    )


def test_missing_bands_are_named():
    with pytest.raises(DataError, match=r"x\.tif has no band B03, which .*\(it has B02, B04\)"):
        choose(WANTED, ("B02", "B04"), place="x.tif")
    with pytest.raises(DataError, match="has no band B02 and no band B03 and no band B04"):
        choose(WANTED, ("VV", "VH", "HH"))  # as many bands, but others


def test_without_names_the_number_must_match():
    chosen = choose(WANTED, (None, None, None))
    assert chosen.numbers == (0, 1, 2)
    assert "taken to be in the order B02, B03, B04" in chosen.note
    with pytest.raises(DataError, match=r"4 bands, and the model takes 3 .*--bands"):
        choose(WANTED, (None,) * 4)


def test_a_model_without_names_of_bands():
    bare = ("band_1", "band_2", "band_3", "band_4")
    assert choose(bare, (None,) * 4).note == ""
    assert "trained on bands without names" in choose(bare, ("B02", "B03", "B04", "B08")).note
    with pytest.raises(DataError, match="give images with as many bands"):
        choose(bare, (None,) * 5)


def test_names_that_the_user_gives_count_more_than_those_of_the_file():
    chosen = choose(WANTED, ("a", "b", "c", "d"), given=("x", "B04", "B03", "B02"))
    assert chosen.numbers == (3, 2, 1)
    with pytest.raises(UsageError, match="--bands names 2 bands"):
        choose(WANTED, (None,) * 3, given=("B02", "B03"))
    with pytest.raises(DataError, match="has no band B04"):
        choose(WANTED, (None,) * 3, given=("B02", "B03", "B08"))


def test_colours_count_only_for_a_model_of_colours():
    shown = ("red", "green", "blue", "alpha")
    assert choose(("blue", "green", "red"), (None,) * 4, colours=shown).numbers == (2, 1, 0)
    # Files of any three bands may be shown as red, green and blue.
    assert choose(WANTED, (None,) * 3, colours=shown[:3]).numbers == (0, 1, 2)


def test_two_bands_of_one_name():
    with pytest.raises(DataError, match="two bands called B03"):
        choose(WANTED, ("B02", "B03", "b03", "B04"))
