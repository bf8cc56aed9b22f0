"""Reported networks have a role that tables ask for, and a title that their method gives them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch import nn

from adagc.bench.results import Result, Results
from adagc.compare import tables
from adagc.console import rows_of
from adagc.errors import AdagcError
from adagc.methods.adagc import AdaGC
from adagc.methods.assume_negative import AssumeNegative
from adagc.methods.base import reported_by
from adagc.methods.rcml import RCML
from adagc.methods.state import AveragedNetwork
from adagc.training.config import RunConfig
from adagc.training.experiment import train
from adagc.training.views import View
from adagc.types import Milestone, NetworkRole, Reported, Story, in_order, with_role
from conftest import make_collection
from fake_results import from_numbers, make_job

CONFIG = RunConfig(
    scheme="random", epochs=2, batch_size=8, hidden=8, average=0.9, accelerator="cpu"
)


class Mentored(AssumeNegative):
    """A method from outside: its deployed network is not called "network"."""

    title = "Mentored"

    def setup(self, network, task):
        super().setup(network, task)
        self.mentor = AveragedNetwork(network, 0.5)

    def after_step(self, network):
        self.mentor.update(network)

    def reported(self, network):
        return {
            "pupil": Reported(network, NetworkRole.DEPLOYED),
            "slow": Reported(self.mentor.network, NetworkRole.TEACHER, "mentor"),
            "network": Reported(network, NetworkRole.OTHER, "again"),
        }


class Bare(AssumeNegative):
    def reported(self, network):
        return {"network": network, "extra": network}


def test_every_network_gets_a_role_and_a_title():
    network, other = nn.Linear(2, 2), nn.Linear(2, 2)
    assert reported_by(AssumeNegative(), network) == {
        "network": Reported(network, NetworkRole.DEPLOYED, "network")
    }
    assert reported_by(Bare(), network) == {
        "network": Reported(network, NetworkRole.DEPLOYED, "network"),
        "extra": Reported(network, NetworkRole.OTHER, "extra"),
    }
    rcml = RCML()
    rcml.peer = other
    assert reported_by(rcml, network)["peer"] == Reported(other, NetworkRole.OTHER, "peer")


def test_a_method_deploys_one_network():
    class Two(AssumeNegative):
        def reported(self, network):
            return {"network": network, "b": Reported(network, NetworkRole.DEPLOYED)}

    class Nobody(AssumeNegative):
        def reported(self, network):
            return {"b": network}

    for kind, count in ((Two, 2), (Nobody, 0)):
        with pytest.raises(AdagcError, match=f"one network that is deployed, not {count}"):
            reported_by(kind(), nn.Linear(2, 2))


def test_the_deployed_network_comes_first():
    network = nn.Linear(2, 2)
    roles = {
        "a": NetworkRole.OTHER, "b": NetworkRole.AVERAGE, "c": NetworkRole.TEACHER,
        "d": NetworkRole.DEPLOYED, "0": NetworkRole.OTHER,
    }  # fmt: skip
    reported = {name: Reported(network, role) for name, role in roles.items()}
    assert in_order(reported) == ["d", "c", "b", "0", "a"]
    assert with_role(reported, NetworkRole.OTHER) == "0"
    assert with_role({}, NetworkRole.OTHER) is None


@pytest.fixture
def run(tmp_path):
    return train(CONFIG, Mentored(), tmp_path / "run", collection=make_collection())


def test_whatever_is_deployed_is_saved_and_tested(run):
    assert set(run.scores.networks) == {"pupil", "slow", "network", "averaged"}
    tested = run.scores.networks["pupil"].epochs["last"]
    assert run.scores.final.to_dict() == tested.scores.to_dict()
    values = {name: value for name, value in run.predictions.items() if name.endswith("last")}
    assert not (values["pupil-last"] == values["slow-last"]).all()
    line = run.history[-1]
    assert line.deployed == "pupil"
    assert line.noisy_of(NetworkRole.TEACHER) == line.noisy["slow"]
    assert line.noisy_of(NetworkRole.AVERAGE) == line.noisy["averaged"]
    shown = [label for label, _ in rows_of(run.scores)]
    assert shown[0] == "pupil, last (2)"
    assert [label.partition(",")[0] for label in shown[::2]] == [
        "pupil", "mentor", "averaged", "again",
    ]  # fmt: skip


def test_tables_ask_for_a_role_and_print_the_title(run):
    def results(method: str) -> Results:
        job = make_job(method, 0)
        result = Result(method, method, 0, run, 1.0, run.scores.networks)
        return Results("tiny", (job,), (result,))

    table = tables.build(results("AN"), view=View())
    assert [row.label for row in table.rows] == ["AN", "AN (mentor)"]
    assert (
        "AN is the pupil, which is deployed; its mentor comes from the same runs" in table.notes[1]
    )
    for row, name in zip(table.rows, ("pupil", "slow"), strict=True):
        wanted = run.scores.networks[name].epochs["last"].scores.mean_f1
        assert row.cells["mean_f1"].mean == pytest.approx(100 * wanted)
    table = tables.build(results("AN"))
    assert [row.label for row in table.rows] == ["AN", "AN (mentor)"]
    assert "AN is the pupil's average; its mentor" in table.notes[1]
    table = tables.build(results("AN"), view=View(NetworkRole.TEACHER))
    assert [row.label for row in table.rows] == ["AN (mentor)"]
    assert table.network == "teacher"


def test_a_teacher_answers_for_an_average_and_for_nothing_else(run):
    whole = Result("AN", "AN", 0, run, 1.0, run.scores.networks)
    without = {name: one for name, one in whole.networks.items() if name != "averaged"}
    alone = {name: one for name, one in without.items() if name != "slow"}
    some = [replace(whole, networks=networks) for networks in (whole.networks, without, alone)]
    found = {role: [View(role).of(one.networks) for one in some] for role in NetworkRole}
    assert found == {
        NetworkRole.DEPLOYED: ["pupil"] * 3,
        NetworkRole.TEACHER: ["slow", "slow", None],
        NetworkRole.TRAINED: [None] * 3,
        NetworkRole.AVERAGE: ["averaged", "slow", None],
        NetworkRole.OTHER: ["network"] * 3,
    }


def test_failures_are_told_once():
    results = from_numbers(
        {"AdaGC": [60.0]},
        planned=2,
        networks={"AdaGC": {"teacher": [[61.0] * 7]}},
        failed={"AdaGC": ["seed 1: boom"]},
    )
    for role, label in ((NetworkRole.DEPLOYED, "AdaGC"), (NetworkRole.AVERAGE, "AdaGC (teacher)")):
        notes = tables.build(results, view=View(role)).notes
        assert [note for note in notes if "boom" in note] == [
            f"Failed runs of {label}: seed 1: boom."
        ]


# -- what a method's status means ------------------------------------------------------------


def test_a_method_tells_its_own_story():
    assert AssumeNegative.story({"stage": "any"}, went_back=True) == Story()
    status = {"stage": "warm-up", "best_epoch": 3, "triggered_after": None}
    waiting = AdaGC.story(status, went_back=False)
    assert waiting.milestones == (Milestone(3, "best: 3"),)
    assert (waiting.second_stage_after, waiting.back) == (None, None)
    assert waiting.sentence == "Still in warm-up, not triggered yet"
    begun = {"stage": "calibration", "best_epoch": 3, "triggered_after": 5}
    story = AdaGC.story(begun, went_back=True)
    assert story.milestones == (Milestone(3, "best: 3"), Milestone(5, "triggered after 5", True))
    assert (story.second_stage_after, story.back) == (5, (5, 3))
    assert story.sentence.startswith(
        "Warm-up ended after epoch 5, and calibration began. The noisy"
    )
    forced = AdaGC.story({**begun, "forced": True}, went_back=True).sentence
    assert forced.startswith("Warm-up was ended by force (force_trigger) after epoch 5, and cali")
    straight = AdaGC.story(begun, went_back=False)
    assert straight.back is None
    assert "went back" not in straight.sentence
    assert AdaGC.story({}, went_back=False) == Story()


def test_the_story_is_of_the_status_that_the_method_writes():
    method = AdaGC(trigger_epoch=2)
    assert AdaGC.story(method.status(), went_back=False).sentence.startswith("Still in warm-up")
    method.triggered_after = 2
    assert AdaGC.story(method.status(), went_back=False).second_stage_after == 2
