from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adagc.bench.jobs import make_job, plan, slug
from adagc.errors import UsageError
from adagc.methods import registry
from tiny import write_scenario


def folders(scenario, out, **changes):
    return make_job(scenario.with_settings(**changes), "AN", 0, out).folder


def test_every_setting_that_shapes_a_run_is_in_its_folder_name(tiny, tmp_path):
    before = folders(tiny, tmp_path)
    for key, value in (("epochs", 3), ("learning_rate", 0.1), ("share", 0.5), ("hidden", 7)):
        assert folders(tiny, tmp_path, **{key: value}) != before, key
    for key, value in (("cache", "elsewhere"), ("accelerator", "cpu"), ("root", "moved")):
        assert folders(tiny, tmp_path, **{key: value}) == before, key


def test_options_count_whether_given_or_default(tiny, tmp_path):
    plain = make_job(tiny, "AN-LS", 0, tmp_path)
    same = make_job(tiny, "AN-LS", 0, tmp_path, options={"smoothing": 0.1})
    other = make_job(tiny, "AN-LS", 0, tmp_path, options={"smoothing": 0.2})
    assert plain.folder == same.folder != other.folder
    assert plain.options == {"smoothing": 0.1}


def test_two_names_of_one_thing_are_one_run(tiny, tmp_path):
    one = make_job(tiny, "AdaGC", 0, tmp_path, options={"mixup": 1.0}, label="with Mixup")
    two = make_job(tiny, "AdaGC", 0, tmp_path, options={"pseudo_labels": "dual"}, label="T + S")
    assert one.folder == two.folder
    assert (one.label, two.label) == ("with Mixup", "T + S")


def test_a_label_file_counts_by_its_content(tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("image,label\na,b\n")
    scenario = write_scenario(tmp_path / "a", scheme=None, labels=str(labels))
    before = folders(scenario, tmp_path)
    (tmp_path / "copy.csv").write_bytes(labels.read_bytes())
    assert folders(scenario, tmp_path, labels=str(tmp_path / "copy.csv")) == before
    labels.write_text("image,label\na,c\n")
    assert folders(scenario, tmp_path) != before
    labels.unlink()
    with pytest.raises(UsageError, match=r"labels\.csv"):
        folders(scenario, tmp_path)


def arrays(folder: Path, value: float) -> Path:
    folder.mkdir()
    np.save(folder / "embeddings.npy", np.full((6, 3), value, np.float32))
    (folder / "names.txt").write_text("\n".join("abcdef"))
    (folder / "truth.csv").write_text("image,label\n" + "".join(f"{n},x\n" for n in "abcdef"))
    return folder


def test_arrays_and_weights_count_by_their_content(tmp_path):
    values = {"one": 1, "same": 1, "other": 2}
    one, same, other = (arrays(tmp_path / name, value) for name, value in values.items())
    scenario = write_scenario(
        tmp_path / "s", data="array", root=str(one), truth=str(one / "truth.csv"), size=None
    )
    before = folders(scenario, tmp_path)
    assert folders(scenario, tmp_path, root=str(same), truth=str(same / "truth.csv")) == before
    assert folders(scenario, tmp_path, truth="truth.csv") == before  # found beside the array
    assert folders(scenario, tmp_path, root=str(other)) != before
    (one / "names.txt").write_text("\n".join("abcdeg"))
    assert folders(scenario, tmp_path) != before
    weights = tmp_path / "net.safetensors"
    seen = set()
    for content in (b"1", b"2"):
        weights.write_bytes(content)
        seen.add(folders(scenario, tmp_path, weights=str(weights)))
    assert len(seen) == 2
    with pytest.raises(UsageError, match="no array"):
        folders(scenario, tmp_path, root=str(tmp_path))


def test_whole_numbers_and_fractions_of_one_value_are_one_run(tiny, tmp_path):
    three = {make_job(tiny, "AdaGC", 0, tmp_path, options={"weight": w}).folder for w in (3, 3.0)}
    assert len(three) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mixup_mask": "strictt"}, "mixup_mask must be strict, soft or partners, not 'strictt'"),
        ({"weight": "much"}, "weight must be a number, not 'much'"),
        ({"patience": None}, "patience is empty"),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused(tiny, tmp_path, options, words):
    with pytest.raises(UsageError, match=words):
        make_job(tiny, "AdaGC", 0, tmp_path, options=options)


def test_what_is_asked_for_twice_is_done_and_counted_once(tiny, tmp_path):
    assert len(plan(tiny, ["AN", "AN"], tmp_path, [0, 0])) == 1


def test_a_plan_has_every_method_and_seed_once_and_the_first_seed_first(tiny, tmp_path):
    jobs = plan(tiny, ["AN", "WAN"], tmp_path)
    assert [(job.method, job.seed) for job in jobs] == [
        ("AN", 0), ("WAN", 0), ("AN", 1), ("WAN", 1),
    ]  # fmt: skip
    assert len({job.folder for job in jobs}) == 4
    assert [job.seed for job in plan(tiny, ["AN"], tmp_path, [4])] == [4]


def test_a_job_carries_all_it_needs(tiny, tmp_path):
    job = make_job(tiny, "WAN", 1, tmp_path)
    assert asdict(job.config()) == asdict(tiny.config(1))
    assert job.build().title == "WAN"
    assert (job.status, job.epochs_done) == ("missing", 0)


def test_a_misspelt_option_is_refused(tiny, tmp_path):
    with pytest.raises(UsageError, match="smothing"):
        make_job(tiny, "AN-LS", 0, tmp_path, options={"smothing": 0.2})


@given(st.sampled_from(list(registry())))
def test_folder_names_are_plain_and_differ(title):
    assert slug(title) == Path(slug(title)).name
    assert sum(slug(other) == slug(title) for other in registry()) == 1
