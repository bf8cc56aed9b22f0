from __future__ import annotations

from typing import get_args

import fake_results
from adagc.training.records import NamedRole
from adagc.training.views import DEFAULT, VIEWS, View, ViewName, chosen
from adagc.types import NetworkRole
from fake_results import scored


def test_there_are_four_views_and_the_command_line_knows_them():
    assert tuple(VIEWS) == get_args(ViewName)
    assert {(view.role, view.choice) for view in VIEWS.values()} == {
        (role, choice)
        for role in (NetworkRole.DEPLOYED, NetworkRole.AVERAGE)
        for choice in ("last", "best")
    }
    assert DEFAULT is VIEWS["averaged-last"]


def test_a_view_says_what_it_shows():
    assert VIEWS["averaged-last"].title == "averaged network, last epoch"
    assert VIEWS["network-best"].title == "trained network, best epoch by noisy validation"
    assert VIEWS["averaged-last"].networks == "averaged networks after the last epoch"
    assert View(NetworkRole.TEACHER).name == "teacher-last"
    assert len({view.networks for view in VIEWS.values()}) == 4


def test_scores_are_those_of_the_network_and_the_epoch():
    run = fake_results.tested(
        {
            "network": {"last": scored(10.0), "best": scored(20.0)},
            "averaged": {"last": scored(30.0), "best": scored(40.0)},
        }
    )
    found = {name: view.scores(run).mean_average_precision for name, view in VIEWS.items()}
    assert found == {
        "network-last": 0.1, "network-best": 0.2, "averaged-last": 0.3, "averaged-best": 0.4,
    }  # fmt: skip
    only = fake_results.tested({"network": {"last": scored(10.0)}})
    assert VIEWS["averaged-last"].scores(only) is None
    assert VIEWS["network-best"].scores(only) is None
    assert VIEWS["network-last"].scores({}) is None


def test_the_default_is_one_view_for_all_methods():
    assert chosen(None, averages=True) is DEFAULT
    assert chosen(None, averages=False) is VIEWS["network-last"]
    for name, view in VIEWS.items():
        assert chosen(name, averages=False) is view


def test_a_method_that_deploys_an_average_stands_beside_averages():
    """Its trained network stands beside trained networks, so that like is compared with like."""
    roles = {
        "network": NamedRole(NetworkRole.DEPLOYED, "average"),
        "student": NamedRole(NetworkRole.TRAINED, "student"),
    }
    assert VIEWS["network-last"].of(roles) == "student"
    assert VIEWS["averaged-last"].of(roles) == "network"
    # An average that the loop makes for all methods is preferred, since it is the same for all.
    roles["averaged"] = NamedRole(NetworkRole.AVERAGE, "averaged")
    assert VIEWS["averaged-last"].of(roles) == "averaged"
    plain = {"network": NamedRole(NetworkRole.DEPLOYED, "network")}
    assert VIEWS["network-last"].of(plain) == "network"
    assert VIEWS["averaged-last"].of(plain) is None
