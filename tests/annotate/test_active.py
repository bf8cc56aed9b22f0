"""Active choice: images of which a model expects most come first, and everybody is told so."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from PIL import Image

from adagc import RunConfig, complete, train
from adagc.annotate.active import CHOSEN, SEEDED, Chooser, Model, choosing, ranking, rankings
from adagc.annotate.measures import measure
from adagc.annotate.report import report
from adagc.cli import main
from adagc.errors import DataError
from adagc.labels import LabelTable, write_labels
from adagc.web.images import open_images
from annotate.projects import CLASSES, Project, answers_of, check_events
from annotate.served import Client

COUNT = 400  # images of the run; enough for labels of validation images to calibrate by
RUN_CLASSES = ("forest", "water", "town", "field")


# -- the order -------------------------------------------------------------------------------------


def test_what_the_model_is_unsure_of_comes_first():
    presence = np.array([[0.99, 0.01], [0.5, 0.5], [0.9, 0.2], [0.0, 1.0]])
    found = ranking(np.array([7, 3, 9, 4]), presence, np.zeros(2, np.int64))
    assert found.rows.tolist() == [3, 9, 7, 4]
    assert found.gains[0] == pytest.approx(2.0), "two bits: both classes may be there or not"
    assert found.gains[-1] == 0
    assert (np.diff(found.gains) <= 0).all()


def test_a_class_that_was_labelled_often_counts_less():
    presence = np.array([[0.5, 0.02], [0.02, 0.4]])
    rows = np.arange(2)
    assert ranking(rows, presence, np.array([0, 0])).rows.tolist() == [0, 1]
    assert ranking(rows, presence, np.array([50, 0])).rows.tolist() == [1, 0]


def test_images_before_one_in_the_order_count_too():
    """Three images that ask about one class are worth less than one that asks about another."""
    presence = np.array([[0.5, 0.0]] * 3 + [[0.0, 0.45]])
    assert ranking(np.arange(4), presence, np.zeros(2, np.int64)).rows.tolist().index(3) == 1


def test_orders_come_while_images_are_read():
    asked = []

    def predict(rows):
        asked.append(len(rows))
        return rows, np.full((len(rows), 2), 0.5)

    sizes, read = [], []
    for found in rankings(predict, np.arange(1000), np.zeros(2, np.int64)):
        sizes.append(len(found.rows))
        read.append(sum(asked))
    assert sizes[0] <= 64, "the first images are chosen soon"
    assert sizes == sorted(sizes)
    assert sizes[-1] == 1000
    assert len(sizes) <= 6, "each is of twice as many"
    assert read == sizes, "nothing is read before the order of what was read is out"


def test_images_that_cannot_be_read_are_left_for_the_end():
    def predict(rows):
        good = rows[rows % 2 == 0]
        return good, np.full((len(good), 2), 0.5)

    *_, last = rankings(predict, np.arange(200), np.zeros(2, np.int64))
    assert sorted(last.rows.tolist()) == list(range(0, 200, 2))
    with pytest.raises(DataError, match="none of the images"):
        list(
            rankings(lambda rows: (rows[:0], np.zeros((0, 2))), np.arange(9), np.zeros(2, np.int64))
        )


# -- what people get -------------------------------------------------------------------------------


def test_preferred_images_come_first_and_the_record_says_so(tmp_path):
    project = Project(tmp_path, 30)
    before = project.desk.look("ann")
    free = [name for name in project.names if name not in (before.image, before.upcoming)]
    wanted = {free[9]: 3.0, free[2]: 2.0, free[5]: 1.0}
    assert before.bias == ""
    project.desk.prefer(wanted, CHOSEN)
    assert project.desk.look("ann").image == before.image, "nothing changes under somebody's hands"
    assert project.desk.look("ann").bias == CHOSEN
    shown = []
    while (view := project.desk.look("ann")).image is not None:
        shown.append(view.image)
        project.choose("ann")
    assert shown[:5] == [before.image, before.upcoming, *wanted]
    assert sorted(shown) == sorted(project.names)
    gains = {e.image: e.gain for e in project.events if e.kind == "shown" and e.gain is not None}
    assert gains == wanted
    found = measure(project.events, CLASSES)
    assert found.active == 3
    assert found.to_dict()["active"] == 3
    assert "A model chose 3 of the images" in report(project.events, CLASSES)
    project.restart()
    assert measure(project.events, CLASSES).active == 3
    project.close()


def test_the_rest_keeps_its_seeded_order(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    plain, active = Project(tmp_path / "a", 20), Project(tmp_path / "b", 20)
    active.desk.prefer({"i3": 1.0, "i7": 0.5}, CHOSEN)

    def shown(project):
        found = []
        while (view := project.desk.look("ann")).image is not None:
            found.append(view.image)
            project.choose("ann")
        return found

    seeded = [name for name in shown(plain) if name not in ("i3", "i7")]
    assert shown(active) == ["i3", "i7", *seeded]
    plain.close()
    active.close()


def test_nobody_gets_an_image_twice_while_orders_change(tmp_path):
    project = Project(tmp_path, 120, patience=1e9)
    luck = np.random.default_rng(3)
    problems = []

    def work(who: str) -> None:
        try:
            while (view := project.desk.look(who)).image is not None:
                match luck.integers(8):
                    case 0:
                        project.desk.undo(who)
                    case 1:
                        project.desk.answer(who, view.image, "skip")
                    case _:
                        project.choose(who)
                if not luck.integers(12):
                    project.desk.reopen(who)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(f"p{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        names = luck.permutation(project.names)[:50].tolist()
        project.desk.prefer(dict.fromkeys(names, 1.0), CHOSEN)
        time.sleep(0.005)
    assert problems == []
    check_events(project.events)
    project.close()


def test_what_is_finished_is_not_predicted(tmp_path):
    project = Project(tmp_path, 6)
    done = {project.desk.look("ann").image}
    project.choose("ann")
    assert set(project.desk.unfinished) == set(project.names) - done
    assert sum(project.desk.counts) == 1
    project.close()


# -- with a run ------------------------------------------------------------------------------------


def photos(folder, count: int, seed: int = 0, bands: int = 3) -> np.ndarray:
    """Small pictures in which each class is a bright corner, and (N, 4) which are there."""
    folder.mkdir()
    luck = np.random.default_rng(seed)
    truth = luck.random((count, 4)) < 0.4
    truth[np.arange(count), luck.integers(0, 4, count)] = True
    for n in range(count):
        pixels = luck.integers(0, 60, (16, 16, bands), dtype=np.uint8)
        for c in np.flatnonzero(truth[n]):
            pixels[8 * (c // 2) :, 8 * (c % 2) :][:8, :8] += 150
        Image.fromarray(pixels if bands == 3 else pixels[:, :, 0]).save(folder / f"i{n:03}.png")
    return truth


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run on pictures, and its folder."""
    place = tmp_path_factory.mktemp("active")
    truth = photos(place / "photos", COUNT)
    luck = np.random.default_rng(1)
    values = np.zeros(truth.shape, np.int8)
    for row in range(len(truth)):
        values[row, luck.choice(np.flatnonzero(truth[row]))] = 1
    names = tuple(f"i{n:03}" for n in range(COUNT))
    write_labels(LabelTable(names, RUN_CLASSES, values, kind="single"), place / "labels.csv")
    config = RunConfig(
        data="folder", root=str(place / "photos"), labels=str(place / "labels.csv"), size=16,
        epochs=1, backbone="test_resnet", weights="none", batch_size=32,
    )  # fmt: skip
    train(config, "AN", str(place / "run"))
    return place / "run"


def test_a_model_predicts_images_of_any_size_with_its_bands(run, tmp_path):
    photos(tmp_path / "photos", 6, seed=5)
    Image.new("RGB", (50, 40), (90, 10, 10)).save(tmp_path / "photos" / "other.png")
    (tmp_path / "photos" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    images = open_images(tmp_path / "photos")
    model = Model(run, images, ("town", "beach", "forest"))
    assert model.columns == [0, 2], "of the classes that both know"
    rows, presence = model.of(np.arange(len(images)))
    assert [images.names[row] for row in rows] == [f"i{n:03}" for n in range(6)] + ["other"]
    assert presence.shape == (7, 2)
    assert ((presence >= 0) & (presence <= 1)).all()


def test_probabilities_are_calibrated_as_in_completion(run, tmp_path):
    photos(tmp_path / "photos", 20, seed=9)
    images = open_images(tmp_path / "photos")
    _, presence = Model(run, images, RUN_CLASSES).of(np.arange(len(images)))
    done = complete(run, images=tmp_path / "photos")
    assert done.presence is not None
    order = [done.classes.index(name) for name in RUN_CLASSES]
    rows = [done.images.index(name) for name in images.names]
    np.testing.assert_allclose(presence, done.presence[rows][:, order], atol=1e-5)
    assert np.abs(presence - done.probability[rows][:, order]).max() > 0.01


def wait_for(condition, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it has not happened"
        time.sleep(0.05)


def test_a_run_chooses_in_the_background(run, tmp_path):
    photos(tmp_path / "photos", 80, seed=6)
    images = open_images(tmp_path / "photos")
    project = Project(tmp_path, images.names)
    chooser = choosing(run, project.desk, images)
    assert project.desk.look("ann").bias == ""
    chooser.start()
    project.choose("ann")  # nobody waits
    wait_for(lambda: project.desk.look("ann").bias == CHOSEN)
    for _ in range(12):
        project.choose("ann")
    gains = [e.gain for e in project.events if e.kind == "shown" and e.gain is not None]
    assert len(gains) >= 10
    assert min(gains) >= 0
    assert measure(project.events, CLASSES).active >= 9
    project.close()


@pytest.mark.parametrize(
    ("bands", "classes", "says"),
    [(1, RUN_CLASSES, "takes the bands red"), (3, ("x", "y"), "knows none of the classes")],
)
def test_a_model_that_cannot_choose_is_told_and_the_work_goes_on(
    run, tmp_path, caplog, bands, classes, says
):
    photos(tmp_path / "photos", 8, seed=7, bands=bands)
    images = open_images(tmp_path / "photos")
    project = Project(tmp_path, images.names)
    heard = []
    chooser = Chooser(
        run, images, range(8), classes, [0] * len(classes), seed=0,
        choose=heard.append, fail=lambda reason: (heard.append(reason), project.desk.tell(SEEDED)),
    )  # fmt: skip
    chooser.start()
    wait_for(lambda: heard)
    assert says in heard[0]
    assert project.desk.look("ann").bias == SEEDED
    project.choose("ann")
    assert all(event.gain is None for event in project.events)
    project.close()


def test_the_command_shows_what_the_model_chooses(run, tmp_path):
    from annotate.test_importing import session

    photos(tmp_path / "photos", 70, seed=8)
    out = tmp_path / "labels.csv"

    def label(client: Client) -> dict:
        wait_for(lambda: client.post("look", name="ann")["bias"] == CHOSEN)
        for n in range(8):
            view = client.post("look", name="ann")
            client.post(
                "answer", name="ann", image=view["image"], kind="choose", key=0,
                present=view["candidates"][:1], request=f"request-{n}",
            )  # fmt: skip
        return view

    words = [str(tmp_path / "photos"), "--classes", ", ".join(RUN_CLASSES), "--out", str(out)]
    session(*words, "--active", str(run), work=label)
    from adagc.annotate.store import read_events

    events, _ = read_events(out.with_suffix(".sqlite"))
    assert sum(event.gain is not None for event in events) >= 6
    assert len(answers_of(events)) == 8


@pytest.mark.parametrize(("place", "says"), [("nowhere", "--active"), ("", "is no finished run")])
def test_a_run_that_is_none_is_a_mistake(tmp_path, capsys, place, says):
    photos(tmp_path / "photos", 2)
    words = [str(tmp_path / "photos"), "--classes", "a, b", "--out", f"{tmp_path}/l.csv"]
    assert main(["annotate", *words, "--active", f"{tmp_path}/{place}"]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "l.sqlite").exists()
