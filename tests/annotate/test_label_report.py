"""The report on labels, for a terminal, as a page, and for training."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

from adagc.annotate.events import Event
from adagc.annotate.report import report
from adagc.errors import UsageError
from adagc.labels import LabelTable
from adagc.labels.selection import read_selection
from simulated_annotators import CLASSES, annotate, by_weights, mixed, scenes


def table(truth: np.ndarray) -> LabelTable:
    return LabelTable(
        tuple(f"i{row:05d}" for row in range(len(truth))), CLASSES, truth.astype(np.int8)
    )


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)
        self.handle_startendtag(tag, attrs)

    def handle_startendtag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_report_says_what_was_measured(tmp_path):
    truth, areas = scenes(600)
    events = annotate(truth, mixed(areas, 0.5), candidates=4, wrong=0.1, first_key=0.6)
    events += annotate(truth[:80], mixed(areas, 0.5), candidates=4, name="bob", number=90_000)
    page = tmp_path / "report.html"
    text = report(events, CLASSES, table(truth), areas=areas, page=page)
    for said in (
        "680 answers on 600 images",
        "an hour",
        "chosen for their place",
        "Fleiss' kappa",
        "ada and bob agree",
        "of labels are wrong",
        "Between Random (0) and Dominant",
    ):
        assert said in text, said
    for name in CLASSES:
        assert sum(line.startswith(name) for line in text.splitlines()) == 1
    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    assert reader.open == []
    assert reader.addresses == []
    assert "680 answers on 600 images" in reader.text
    assert "<script" not in page.read_text(encoding="utf-8")


def test_measured_rates_reach_training(tmp_path):
    weights = np.linspace(0.5, 2, len(CLASSES))
    truth, _ = scenes(2500, seed=4)
    path = tmp_path / "selection.json"
    report(annotate(truth, by_weights(weights)), CLASSES, table(truth), selection=path)
    found = np.array(read_selection(path).of(CLASSES))
    assert np.abs(np.log(found / weights) - np.log(found / weights).mean()).max() < 0.25
    assert read_selection(path).images == 2500


def test_rates_without_truth_are_refused(tmp_path):
    events = annotate(scenes(50)[0], by_weights([1.0] * len(CLASSES)))
    with pytest.raises(UsageError, match="give --truth"):
        report(events, CLASSES, selection=tmp_path / "selection.json")
    assert not list(tmp_path.iterdir())


def test_names_of_classes_cannot_break_the_page(tmp_path):
    names = ("<script>alert(1)</script>", "b&b'\"")
    truth = np.ones((30, 2), dtype=bool)
    events = [
        Event(row + 1, 0.0, "<b>", f"i{row}", "choose", names, names[:1], key=0)
        for row in range(len(truth))
    ]
    page = tmp_path / "page.html"
    report(events, names, page=page)
    assert "<script" not in page.read_text(encoding="utf-8")
    assert "&lt;script" in page.read_text(encoding="utf-8")


def test_an_empty_record_has_a_report(tmp_path):
    text = report([], CLASSES, page=tmp_path / "page.html")
    assert text.startswith("0 answers on 0 images")
    assert "nan" not in text
