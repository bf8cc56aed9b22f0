from __future__ import annotations

import dataclasses
import json
import re
import shutil
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from adagc.datasets.collection import Collection
from adagc.errors import AdagcError, UsageError
from adagc.images.array import ArrayScenes
from adagc.methods import find
from adagc.metrics import METRICS
from adagc.report import write_report
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.runs import Run

NASTY = '<b>&"'
CLASSES = ("water", NASTY, "trees", "dock's")
VOID = {"meta", "link", "img", "br", "path", "rect", "circle"}


class Checker(HTMLParser):
    """Balanced tags, and everything a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.links += [values[key] or "" for key in ("src", "href") if key in values]
        if tag == "img":
            self.images.append(values)
        if "id" in values:
            self.ids.append(values["id"] or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass  # closed in itself, as in <path .../>

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open, f"</{tag}> closes nothing"
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def check(path: Path) -> Checker:
    page = path.read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert all(link.startswith(("#", "data:")) for link in checker.links), checker.links
    assert {link[1:] for link in checker.links if link.startswith("#")} <= set(checker.ids)
    assert not re.search(r"url\(|@import|<script|<b>&\"", page)
    assert len(checker.ids) == len(set(checker.ids))
    assert all(image.get("alt") for image in checker.images)
    assert "None" not in checker.text
    assert "nan" not in re.findall(r"\w+", checker.text)
    return checker


def make_collection(*, truth: bool = True) -> Collection:
    generator = np.random.default_rng(0)
    labels = generator.random((80, len(CLASSES))) < 0.4
    labels[np.arange(80), np.arange(80) % len(CLASSES)] = True
    pixels = generator.integers(0, 4000, (80, 4, 32, 32)).astype(np.uint16)
    names = [f"place/{NASTY}{i}.tif" for i in range(80)]
    return Collection(
        images=ArrayScenes(pixels, names, ("B02", "B03", "B04", "B08")),
        classes=CLASSES,
        splits={"train": np.arange(40), "val": np.arange(40, 56), "test": np.arange(56, 80)},
        truth=labels if truth else None,
        notes=("A note on the data.",),
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("runs")
    config = RunConfig(data="array", scheme="random", epochs=5, backbone="test_resnet")
    methods = {
        "adagc": find("AdaGC")(weight=4.0, patience=1, minimum_warm_up=1, force_trigger=0.6),
        "an": find("AN")(),
        "gt": find("GT")(),
    }
    collection = make_collection()
    return {
        name: train(config, method, folder / name, collection=collection)
        for name, method in methods.items()
    }


@pytest.fixture
def copy(runs, tmp_path) -> Run:
    """A run to take things out of."""
    shutil.copytree(runs["adagc"].folder, tmp_path / "run")
    return Run.open(tmp_path / "run")


def edit(run: Run, name: str, change) -> None:
    values = run.read_json(name)
    change(values)
    run.write_json(name, values)


def test_page_holds_every_score_and_class(runs, tmp_path):
    others = [runs["an"], runs["gt"], runs["adagc"]]
    path = write_report(
        runs["adagc"],
        against=others,
        out=tmp_path / "new" / "page.html",
        collection=make_collection(),
    )
    assert path == tmp_path / "new" / "page.html"
    checker = check(path)
    for run in runs.values():
        for name, choices in run.read_json("scores.json")["networks"].items():
            for scores in choices.values():
                for key, metric in METRICS.items():
                    assert f"{scores[key] * metric.scale:.{metric.decimals}f}" in checker.text, (
                        name,
                        key,
                    )
    for name in CLASSES:
        assert name in checker.text
    assert checker.text.count("GT w/ BCE") >= 2
    assert "A note on the data." in checker.text
    assert len(path.read_bytes()) < 2_000_000


def test_trigger_is_marked_and_told(runs, tmp_path):
    status = runs["adagc"].history[-1].status
    assert status["triggered_after"] is not None
    page = write_report(runs["adagc"], out=tmp_path / "p.html", collection=make_collection())
    checker = check(page)
    how = "was ended by force (force_trigger)" if status["forced"] else "ended"
    assert f"Warm-up {how} after epoch {status['triggered_after']}" in checker.text
    # noisy, clean, loss, quality, added
    assert checker.text.count(f"triggered after {status['triggered_after']}") == 5
    assert "recorded, never used" in checker.text


def test_what_a_run_was_told_and_how_it_went_stands_below_the_scores(copy, tmp_path):
    config = RunConfig(data="array", scheme="random", epochs=1, backbone="test_resnet")
    told = train(config, find("LL-R")(final=0.25), tmp_path / "ll", collection=make_collection())
    lines = [line.to_dict() for line in copy.history]
    lines[-1]["status"]["remark"] = "it began by force"
    copy.path("history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    alone = check(write_report(copy)).text
    assert "AdaGC: it began by force." in alone
    assert "LL-R is told" not in alone
    both = check(write_report(told, against=[copy, told], out=tmp_path / "both.html")).text
    assert "AdaGC: it began by force." in both
    assert both.count("LL-R is told how frequent labels are by its option final, unless it") == 1


def test_the_way_back_is_drawn(copy):
    lines = [line.to_dict() for line in copy.history]
    for line in lines:
        line["status"] |= {"best_epoch": 2, "triggered_after": 4, "forced": False}
    lines[3]["verdict"] = "restore"
    copy.path("history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    checker = check(write_report(copy))
    assert "Warm-up ended after epoch 4, and calibration began. The noisy" in checker.text
    assert "The epochs of the second stage are shaded in the charts." in checker.text
    assert "best in epoch 2: training went back there" in checker.text
    assert checker.text.count("back to epoch 2") == 5
    assert checker.text.count("best: 2") == 5


def test_headline_takes_the_last_epoch_of_the_deployed_network(copy, runs, tmp_path):
    def set_map(run: Run, last: float) -> None:
        def change(scores):
            for name, choices in scores["networks"].items():
                for which, values in choices.items():
                    chosen = (name, which) == ("network", "last")
                    values["mean_average_precision"] = last if chosen else 0.99

        edit(run, "scores.json", change)

    others = []
    for name, value in (("an", 0.604), ("gt", 0.794)):
        shutil.copytree(runs[name].folder, tmp_path / name)
        others.append(Run.open(tmp_path / name))
        set_map(others[-1], value)
    set_map(copy, 0.673)
    text = check(write_report(copy, against=others, collection=make_collection())).text
    assert "AdaGC reaches 67.3 mAP on 24 test images after seeing one label per image." in text
    assert (
        "Trained networks after the last epoch: AdaGC 67.3, compared with AN 60.4, clean labels"
        " 79.4: 36 % of the gap between AN and clean labels closed." in text
    )
    # AdaGC's teacher is an average; AN and GT have none to compare it with.
    assert "Averaged networks" not in text

    set_map(copy, 0.594)
    text = check(write_report(copy, against=others, collection=make_collection())).text
    assert "1.0 points below AN" in text
    assert "of the gap" not in text

    edit(others[0], "scores.json", lambda scores: scores.update(images=25))
    text = check(write_report(copy, against=others, collection=make_collection())).text
    assert "AdaGC 59.4, compared with clean labels 79.4." in text
    assert "AN (an) was tested on other images or classes: do not compare." in text


def test_averages_are_compared_with_averages(copy, runs, tmp_path):
    """A teacher of 67.3 beside the averages of AN (66.3) and GT (76.3), not their networks."""

    def add(run: Run, name: str, value: float) -> None:
        def change(scores):
            tested = json.loads(json.dumps(scores["networks"]["network"]))
            tested["last"]["mean_average_precision"] = value
            scores["networks"][name] = tested
            scores["roles"][name] = {"role": name.replace("averaged", "average"), "title": name}

        edit(run, "scores.json", change)

    add(copy, "teacher", 0.673)
    others = []
    for name, value in (("an", 0.663), ("gt", 0.763)):
        shutil.copytree(runs[name].folder, tmp_path / name)
        others.append(Run.open(tmp_path / name))
        add(others[-1], "averaged", value)
    text = check(write_report(copy, against=others, collection=make_collection())).text
    assert (
        "Averaged networks after the last epoch: AdaGC 67.3, compared with AN 66.3, clean labels"
        " 76.3: 10 % of the gap between AN and clean labels closed." in text
    )
    assert "Trained networks after the last epoch: AdaGC " in text


def test_settings_that_differ_are_named(runs, copy, tmp_path):
    path = copy.path("config.yaml")
    path.write_text(path.read_text().replace("learning_rate: 0.0005", "learning_rate: 0.01"))
    text = check(write_report(runs["an"], against=[Run.open(copy.folder)], out=tmp_path)).text
    assert "AdaGC (run) differs in learning_rate 0.01 (here 0.0005)." in text
    assert (tmp_path / "report.html").exists()


def test_clean_labels_never_take_the_bold(runs, tmp_path):
    page = write_report(runs["an"], against=[runs["gt"]], out=tmp_path / "p.html")
    bound = re.findall(r'<tr class="[^"]*bound">.*?</tr>', page.read_text(), re.S)
    own = re.findall(r'<tr class="own[^"]*">.*?</tr>', page.read_text(), re.S)
    assert bound
    assert "<strong>" not in "".join(bound)
    assert "".join(own).count("<strong>") >= len(METRICS)


def test_gallery_shows_observed_true_and_predicted(runs, tmp_path):
    page = write_report(runs["adagc"], out=tmp_path / "p.html", collection=make_collection())
    checker = check(page)
    text = page.read_text()
    alts = [image["alt"] for image in checker.images]
    assert len(alts) == len(set(alts))
    rows = [int(re.search(r"(\d+)\.tif", alt)[1]) for alt in alts]
    assert sum(row < 40 for row in rows) == 12
    assert 12 <= sum(row >= 56 for row in rows) <= 24
    assert not any(40 <= row < 56 for row in rows)
    assert all((image["src"] or "").startswith("data:image/png") for image in checker.images)
    # 12 training images with one observed label each, and the key
    assert text.count('class="chip seen"') == 13
    assert f'alt="Image {escape(f"place/{NASTY}", quote=True)}' in text


def test_gallery_chips_agree_with_saved_predictions(runs, tmp_path):
    from adagc.report.gallery import image_f1
    from adagc.training.experiment import predictions_of

    collection = make_collection()
    page = write_report(runs["adagc"], out=tmp_path / "p.html", collection=collection).read_text()
    said = predictions_of(runs["adagc"])["network-last"] >= 0.5
    truth = collection.truth[56:80]
    f1 = image_f1(truth, said)
    for card in re.findall(r"<article.*?</article>", page, re.S):
        row = int(re.search(r'alt="[^"]*?(\d+)\.tif"', card)[1]) - 56
        if row < 0:
            continue
        counts = [len(re.findall(f'class="chip {k}"', card)) for k in ("right", "missed", "wrong")]
        mine, true = said[row], truth[row]
        assert counts == [(mine & true).sum(), (true & ~mine).sum(), (mine & ~true).sum()]
        assert f"F1 {100 * f1[row]:.0f}<" in card


def test_same_run_gives_the_same_page(runs, tmp_path):
    pages = [
        write_report(runs["adagc"], out=tmp_path / name, collection=make_collection()).read_bytes()
        for name in ("a.html", "b.html")
    ]
    assert pages[0] == pages[1]


def test_images_that_moved_are_a_note(runs, tmp_path):
    checker = check(write_report(runs["adagc"], out=tmp_path / "p.html", title=NASTY))
    assert "The pictures could not be shown" in checker.text
    assert checker.images == []
    assert NASTY in checker.text


def test_another_collection_is_a_note(runs, tmp_path):
    small = make_collection()
    pixels = small.images.gather(np.arange(80))
    other = dataclasses.replace(
        small, images=ArrayScenes(pixels, [f"elsewhere/{i}" for i in range(80)], small.images.bands)
    )
    text = check(write_report(runs["adagc"], out=tmp_path / "p.html", collection=other)).text
    assert "24 of the 24 test images of this run are missing" in text


def test_predictions_of_other_images_are_not_shown_and_the_remedy_is_named(copy, tmp_path):
    text = copy.path("split.csv").read_text()
    first, second = (
        line for line in text.splitlines(keepends=True) if "56" in line or "57" in line
    )
    copy.path("split.csv").write_text(text.replace(first + second, second + first))
    page = write_report(copy, out=tmp_path / "p.html", collection=make_collection())
    checker = check(page)
    assert "saved predictions are not of these test images: run  adagc evaluate" in checker.text
    assert checker.images == []


def test_without_truth_validation_images_and_noisy_scores_remain(copy):
    copy.path("scores.json").unlink()
    copy.path("predictions.safetensors").unlink()
    edit(copy, "labels.json", lambda labels: labels.pop("flip_rates"))
    lines = [line.to_dict() for line in copy.history]
    lines = [{k: v for k, v in line.items() if k != "oracle"} for line in lines]
    copy.path("history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    page = write_report(copy, collection=make_collection(truth=False))
    assert page == copy.path("report.html")
    checker = check(page)
    noisy = lines[-1]["noisy"]["network"]["mean_average_precision"]
    assert f"reaches {100 * noisy:.1f} mAP against the observed labels of 16 valid" in checker.text
    assert "There are no clean test labels" in checker.text
    assert "Clean validation mAP" not in checker.text
    assert "Pseudo-labels" not in checker.text
    assert "Validation images" in checker.text
    assert len(checker.images) == 16 + 12
    assert not re.search(r'class="chip (right|wrong|missed)"', page.read_text())
    for name in CLASSES:
        assert name in checker.text


@pytest.mark.parametrize("epochs", [0, 1, 3])
def test_unfinished_run_shows_curves_so_far(copy, epochs):
    for name in ("model.json", "scores.json", "predictions.safetensors"):
        copy.path(name).unlink()
    lines = copy.path("history.jsonl").read_text().splitlines()[:epochs]
    copy.path("history.jsonl").write_text("\n".join([*lines, '{"epoch": 4, "los']))
    checker = check(write_report(copy))
    assert "This run is not finished" in checker.text
    assert ("Noisy validation mAP" in checker.text) == (epochs > 0)
    assert f"at epoch {epochs} of 5" in checker.text if epochs else "first epoch" in checker.text


def test_embeddings_have_no_gallery_and_no_apology(tmp_path):
    generator = np.random.default_rng(0)
    pictures = make_collection()
    collection = Collection(
        images=ArrayScenes(generator.random((80, 6), dtype=np.float32)),
        classes=CLASSES,
        splits=pictures.splits,
        truth=pictures.truth,
    )
    config = RunConfig(data="array", scheme="clean", epochs=1)
    run = train(config, find("AN")(), tmp_path / "run", collection=collection)
    for given in (collection, None):
        checker = check(write_report(run, collection=given))
        assert "Pictures" not in checker.text
        assert "after seeing all true labels" in checker.text


def test_a_file_that_is_no_page_is_not_replaced(copy, runs, tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("image,label\na,b\n")
    with pytest.raises(UsageError, match=r"labels.csv exists and is not a report: choose another"):
        write_report(copy, out=labels)
    assert labels.read_text() == "image,label\na,b\n"
    page = write_report(copy, out=tmp_path / "page.html")
    assert write_report(copy, against=[runs["an"]], out=page) == page  # a page is


def test_not_a_run(tmp_path):
    with pytest.raises(AdagcError, match=r"no config\.yaml"):
        write_report(Run(tmp_path))
