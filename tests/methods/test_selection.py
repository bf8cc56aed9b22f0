"""Methods that model the annotator take measured selection rates."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from adagc import losses
from adagc.bench.jobs import make_job
from adagc.bench.scenarios import load
from adagc.errors import UsageError
from adagc.labels.selection import Selection, read_selection, write_selection
from adagc.methods import find, outlines
from adagc.methods.likelihood import Annotator
from adagc.testing.tiny import make_task


def test_presence_is_found_from_draws_by_liking_only_if_that_is_known():
    generator = np.random.default_rng(0)
    p = np.array([0.3, 0.5, 0.7, 0.4])
    w = np.array([6.0, 1.0, 0.5, 1.0])
    there = generator.random((40_000, 4)) < p
    there = there[there.any(axis=1)]
    share = np.where(there, w, 0)
    share /= share.sum(axis=1, keepdims=True)
    drawn = (generator.random(len(there))[:, None] >= share.cumsum(axis=1)[:, :-1]).sum(axis=1)
    counts = torch.tensor(np.bincount(drawn, minlength=4) / len(drawn))
    total = 1 - np.prod(1 - p)  # labels tell frequencies only up to how many classes there are

    def fit(selection):
        z = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.LBFGS([z], max_iter=200)

        def step():
            optimiser.zero_grad()
            explained = (counts * losses.random_annotator(z, selection)[0]).sum()
            nothing = (1 - torch.prod(1 - z.sigmoid()) - total) ** 2
            many = (z.sigmoid().sum() - p.sum()) ** 2
            loss = -explained + 100 * nothing + 100 * many
            loss.backward()
            return loss

        optimiser.step(step)
        return z.detach().sigmoid()[0].numpy()

    assert np.abs(fit(torch.tensor(w)) - p).max() < 0.03
    assert np.abs(fit(None) - p).max() > 0.15


def test_files_of_rates(tmp_path):
    path = tmp_path / "selection.json"
    write_selection(Selection({"water": 1.25, "trees": 0.8}, 40), path)
    found = read_selection(path)
    assert found.of(("trees", "water")) == [0.8, 1.25]
    assert found.images == 40
    with pytest.raises(UsageError, match="no rate of road"):
        found.of(("road",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no selection rates"),
        ("[]", "holds no selection rates"),
        ('{"format": 1, "selection": {"a": "x"}}', "holds no selection rates"),
        ('{"format": 1, "selection": {"a": 0, "b": 1}}', "must be above 0"),
        ('{"format": 1, "selection": {}}', "must be above 0"),
        ('{"format": 1, "selection": {"a": NaN}}', "must be above 0"),
        ('{"format": 9, "selection": {"a": 1}}', "newer version"),
        ('{"format": 1, "selection": {"a": 0.001, "b": 1}}', "factor of 100"),
    ],
)
def test_files_that_hold_no_rates_are_named(tmp_path, content, message):
    path = tmp_path / "selection.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=message) as found:
        read_selection(path)
    assert "\n" not in str(found.value)
    assert str(path) in str(found.value)
    with pytest.raises(UsageError, match="no such file"):
        read_selection(tmp_path / "none.json")


def test_which_methods_take_them():
    selective = {title for title, one in outlines().items() if one.selective}
    assert selective == {"Random label", "Random cover", "Cover label", "Completion", "Auto"}


def test_runs_without_rates_are_those_from_before(tmp_path):
    scenario = load("demo-random")
    plain = make_job(scenario, "Random label", 0, tmp_path)
    rates = tmp_path / "selection.json"
    rates.write_text(json.dumps({"format": 1, "selection": {"a": 1.0}}))
    told = make_job(scenario.with_settings(selection=str(rates)), "Random label", 0, tmp_path)
    other = make_job(scenario.with_settings(selection=str(rates)), "AN", 0, tmp_path)
    assert plain.folder != told.folder
    assert told.informed == "told"
    assert plain.informed == "none"
    assert other.informed == "none"


@pytest.mark.parametrize("name", ["Random label", "Random cover", "Cover label", "Completion"])
def test_rates_of_the_task_change_what_is_learnt(name):
    """It fails if a method forgets to take them, or to hand them on."""
    task = make_task(torch.eye(5, dtype=torch.int8).repeat(2, 1))
    outputs = torch.randn(6, len(task.classes), 3, 3, generator=torch.Generator().manual_seed(0))
    if name != "Cover label":  # the others take logits
        outputs = outputs.mean(dim=(2, 3))
    observed = torch.zeros(6, len(task.classes), dtype=torch.int8)
    observed[:, 0] = 1
    rates = torch.linspace(0.5, 2, len(task.classes))

    def explained(selection):
        method = find(name)()
        network = torch.nn.Linear(2, 2)
        method.setup(network, dataclasses.replace(task, selection=selection, positions=9))
        annotator = method if isinstance(method, Annotator) else method.explained
        return annotator.explain(outputs, observed)

    assert not torch.allclose(explained(rates), explained(None))
    assert torch.equal(explained(torch.ones_like(rates)), explained(None))
