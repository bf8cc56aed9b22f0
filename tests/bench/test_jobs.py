from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

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
