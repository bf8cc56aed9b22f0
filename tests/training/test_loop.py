from __future__ import annotations

import ast
import copy
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import adagc.training
from adagc.errors import AdagcError, TrainingError
from adagc.inference import predict
from adagc.labels import simulate_random
from adagc.methods import registry
from adagc.methods.adagc import AdaGC
from adagc.methods.assume_negative import AssumeNegative
from adagc.methods.base import Method
from adagc.metrics import CRITERIA, criteria, score
from adagc.training.folders import DiskFolder
from adagc.training.loop import Settings, Trained, Validation, fit
from adagc.types import Losses, Task, Verdict
from conftest import TinyCNN, make_classifier, make_collection

SOURCES = sorted(Path(adagc.training.__path__[0]).glob("*.py"))


class Toy(Method):
    """Assumes negatives; says what the test tells it to."""

    title = "toy"
    script: str = ""  # one letter per epoch: c, k or r

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("epochs_seen", torch.zeros((), dtype=torch.int64))
        self.restored_at: list[int] = []
        self.heard: list[float] = []

    loss = AssumeNegative.loss

    def end_epoch(self, scores, progress):
        self.epochs_seen += 1
        self.heard.append(scores.mean_average_precision)
        letter = self.script[progress.epoch - 1 : progress.epoch] or "c"
        return {"c": Verdict.CONTINUE, "k": Verdict.KEEP, "r": Verdict.RESTORE}[letter]

    def restored(self, progress):
        self.restored_at.append(progress.epoch)


def run(
    folder: Path,
    method: Method,
    network: nn.Module | None = None,
    *,
    kind: str = "embeddings",
    resume: bool = False,
    **options,
) -> tuple[Trained, nn.Module, list[dict[str, Tensor]]]:
    """Fit on a tiny collection; also the network's state after every epoch."""
    collection = make_collection(kind)
    train, val = collection.splits["train"], collection.splits["val"]
    observed = torch.from_numpy(simulate_random(collection.truth, 0))
    if network is None:
        network = make_classifier() if kind == "embeddings" else TinyCNN()
    defaults = {"epochs": 3, "batch_size": 8, "learning_rate": 0.01, "accelerator": "cpu"}
    settings = Settings(**{**defaults, **options.pop("settings", {})})
    folder.mkdir(exist_ok=True)
    states: list[dict[str, Tensor]] = []
    on_epoch = options.pop("on_epoch", None)

    def after(line):
        states.append(copy.deepcopy(network.state_dict()))
        if on_epoch:
            on_epoch(line)

    task = Task(collection.classes, observed[train], settings.epochs, 3, settings.seed)
    trained = fit(
        network, method, task, collection.images, train,
        Validation(val, observed[val].numpy()), DiskFolder(folder), settings,
        resume=resume, on_epoch=after, **options,
    )  # fmt: skip
    return trained, network, states


def history(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


# -- what it leaves behind -------------------------------------------------------------------


def test_history_has_one_line_per_epoch(tmp_path):
    lines = []
    run(tmp_path, AssumeNegative(), on_epoch=lambda line: lines.append(line.to_dict()))
    assert history(tmp_path) == json.loads(json.dumps(lines))
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert {"total", "assume_negative"} == set(line["losses"])
        assert 0 <= line["noisy"]["network"]["mean_average_precision"] <= 1
        assert "oracle" not in line
        assert line["verdict"] == "continue"
        assert line["seconds"] >= line["train_seconds"] >= 0
    assert lines[-1]["losses"]["total"] < lines[0]["losses"]["total"]


def test_reported_losses_are_the_means_over_the_steps(tmp_path):
    seen: list[float] = []
    run(tmp_path, AssumeNegative(), on_step=lambda _, losses: seen.append(losses.total.item()))
    for i, line in enumerate(history(tmp_path)):
        assert line["losses"]["total"] == pytest.approx(np.mean(seen[3 * i : 3 * i + 3]))


def test_progress_counts_epochs_and_steps(tmp_path):
    seen = []
    run(tmp_path, AssumeNegative(), on_step=lambda progress, _: seen.append(progress))
    assert [(p.epoch, p.step) for p in seen] == [
        (e, (e - 1) * 3 + s) for e in (1, 2, 3) for s in range(3)
    ]
    assert {(p.epochs, p.steps_per_epoch) for p in seen} == {(3, 3)}


def test_one_step_is_a_step_of_adam_on_the_mean_loss(tmp_path):
    network = make_classifier()
    twin = copy.deepcopy(network)
    settings = {"epochs": 1, "batch_size": 24, "weight_decay": 0.1}
    run(tmp_path, AssumeNegative(), network, settings=settings)
    collection = make_collection()
    rows = collection.splits["train"]
    observed = torch.from_numpy(simulate_random(collection.truth, 0))[rows].float()
    z = twin(torch.from_numpy(collection.images.gather(rows)))
    optimiser = torch.optim.Adam(twin.parameters(), lr=0.01, weight_decay=0.1)
    nn.functional.binary_cross_entropy_with_logits(z, observed).backward()
    optimiser.step()
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(network.state_dict()[name], value, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("select", [*CRITERIA])
def test_best_weights_are_those_of_the_epoch_that_the_criterion_chooses(tmp_path, select):
    # A large learning rate makes epochs go up and down.
    settings = {"epochs": 8, "learning_rate": 0.3, "select": select}
    trained, network, states = run(tmp_path, AssumeNegative(), settings=settings)
    values = [line["criteria"]["network"][select] for line in history(tmp_path)]
    best = int(np.argmax(values))
    assert best < 7, "the test needs a run that gets worse at the end"
    assert trained.best_epoch == {"network": best + 1}
    assert same(load_file(tmp_path / "weights" / "network-best.safetensors"), states[best])
    assert same(load_file(tmp_path / "weights" / "network-last.safetensors"), states[-1])
    assert same(trained.networks["network"].state_dict(), network.state_dict())


def test_noisy_scores_are_of_the_observed_validation_labels(tmp_path):
    method = Toy()
    trained, network, _ = run(tmp_path, method)
    collection = make_collection()
    rows = collection.splits["val"]
    values = predict(network, collection.images, rows)
    noisy = simulate_random(collection.truth, 0)[rows] > 0
    wanted = score(noisy, values, absent="skip").mean_average_precision
    line = history(tmp_path)[-1]
    assert line["noisy"]["network"]["mean_average_precision"] == pytest.approx(wanted)
    observed = simulate_random(collection.truth, 0)[rows]
    assert line["criteria"] == {"network": pytest.approx(criteria(observed, values))}
    assert line["criteria"]["network"]["noisy-map"] == pytest.approx(wanted)
    assert method.heard[-1] == pytest.approx(wanted)
    clean = score(collection.truth[rows], values).mean_average_precision
    assert wanted != pytest.approx(clean)
    assert trained.seconds > 0


def test_a_method_hears_the_scores_of_the_network_it_watches(tmp_path):
    class Watching(Toy):
        def setup(self, network, task):
            self.first = copy.deepcopy(network)  # never trained

        def watched(self, network):
            return self.first

    method = Watching()
    run(tmp_path, method)
    assert len(set(method.heard)) == 1
    told = [line["noisy"]["network"]["mean_average_precision"] for line in history(tmp_path)]
    assert told[-1] != method.heard[-1]


def test_the_averaged_copy_is_scored_and_saved(tmp_path):
    states: list[dict[str, Tensor]] = []
    network = make_classifier()
    settings = {"average": 0.999, "epochs": 2}
    trained, _, _ = run(
        tmp_path, AssumeNegative(), network, settings=settings,
        on_step=lambda *_: states.append(copy.deepcopy(network.state_dict())),
    )  # fmt: skip
    saved = load_file(tmp_path / "weights" / "averaged-last.safetensors")
    for name, value in saved.items():
        mean = torch.stack([state[name].double() for state in states]).mean(0)
        torch.testing.assert_close(value.double(), mean, atol=1e-5, rtol=1e-5)
    assert set(trained.best_epoch) == {"network", "averaged"}
    assert "averaged" in history(tmp_path)[-1]["noisy"]
    plain, _, _ = run(tmp_path / "plain", AssumeNegative(), settings={"epochs": 2})
    assert same(plain.networks["network"].state_dict(), network.state_dict())


# -- settings --------------------------------------------------------------------------------


def test_cosine_falls_from_the_full_rate_towards_zero(tmp_path):
    run(tmp_path, AssumeNegative(), settings={"schedule": "cosine", "epochs": 4})
    last_steps = [2, 5, 8, 11]
    wanted = [0.005 * (1 + math.cos(math.pi * step / 12)) for step in last_steps]
    assert [line["learning_rate"] for line in history(tmp_path)] == pytest.approx(wanted)
    run(tmp_path / "constant", AssumeNegative())
    assert {line["learning_rate"] for line in history(tmp_path / "constant")} == {0.01}


def test_the_line_of_a_return_says_the_rate_that_its_steps_had(tmp_path):
    """Not the one that the snapshot brings back."""
    cosine = {"epochs": 4, "schedule": "cosine"}
    told = {}
    for script in ("cccc", "ckcr"):
        method = Toy()
        method.script = script
        run(tmp_path / script, method, settings=cosine)
        told[script] = [line["learning_rate"] for line in history(tmp_path / script)]
    assert told["ckcr"] == told["cccc"]


def test_groups_keep_their_own_rates_under_a_schedule(tmp_path):
    class Frozen(AssumeNegative):
        def parameter_groups(self, network, lr):
            head = list(network.head.parameters())
            return [
                {"params": list(network.backbone.parameters()), "lr": 0.0},
                {"params": head, "lr": lr},
            ]

    network = make_classifier()
    before = copy.deepcopy(network.state_dict())
    run(tmp_path, Frozen(), network, settings={"schedule": "cosine"})
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]) != name.startswith("head."), name


def test_clipping_bounds_the_gradient(tmp_path):
    norms: list[float] = []

    class Loud(AssumeNegative):
        def loss(self, network, batch, progress):
            losses = super().loss(network, batch, progress)
            return Losses(losses.total * 1000)

    class Watch(torch.optim.Adam):
        def step(self, *args, **kwargs):
            grads = [p.grad for group in self.param_groups for p in group["params"]]
            norms.append(torch.cat([g.flatten() for g in grads]).norm().item())
            return super().step(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim, "Adam", Watch)
        run(tmp_path / "free", Loud())
        assert min(norms) > 1
        norms.clear()
        run(tmp_path / "clipped", Loud(), settings={"clip": 0.5})
        assert norms == pytest.approx([0.5] * 9, rel=1e-3)


def test_a_group_that_is_not_to_be_clipped_is_left_alone_and_not_counted(tmp_path):
    seen: list[tuple[float, float]] = []

    class Loud(AssumeNegative):
        def setup(self, network, task):
            super().setup(network, task)
            self.own = nn.Parameter(torch.ones(5))

        def parameter_groups(self, network, lr):
            own = {"params": [self.own], "lr": lr, "clip": False}
            return [*super().parameter_groups(network, lr), own]

        def loss(self, network, batch, progress):
            losses = super().loss(network, batch, progress)
            return Losses(1000 * losses.total + 100 * self.own.sum())

    class Watch(torch.optim.Adam):
        def step(self, *args, **kwargs):
            network, own = (
                torch.cat([p.grad.flatten() for p in group["params"]]).norm().item()
                for group in self.param_groups
            )
            seen.append((network, own))
            return super().step(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim, "Adam", Watch)
        run(tmp_path, Loud(), settings={"clip": 0.5})
    assert [network for network, _ in seen] == pytest.approx([0.5] * 9, rel=1e-3)
    assert [own for _, own in seen] == pytest.approx([100 * math.sqrt(5)] * 9)


def test_equal_scores_leave_the_best_epoch_where_it_was(tmp_path):
    class Still(AssumeNegative):
        """Learns nothing, so that all epochs are equally good."""

        def parameter_groups(self, network, lr):
            return super().parameter_groups(network, 0.0)

    trained, _, _ = run(tmp_path, Still())
    values = {line["noisy"]["network"]["mean_average_precision"] for line in history(tmp_path)}
    assert len(values) == 1
    assert trained.best_epoch == {"network": 1}


def test_batch_normalisation_trains_in_batches_and_is_judged_by_its_statistics(tmp_path):
    _, network, _ = run(tmp_path, AssumeNegative(), kind="images")
    assert network[1].num_batches_tracked == 9  # validation added none
    collection = make_collection("images")
    values = predict(network, collection.images, collection.splits["val"][:3])
    whole = predict(network, collection.images, collection.splits["val"])
    np.testing.assert_allclose(values, whole[:3], rtol=1e-5)


# -- KEEP and RESTORE ------------------------------------------------------------------------


def test_restore_goes_back_to_what_was_kept_and_goes_on(tmp_path):
    method = Toy()
    method.script = "ckccrc"
    settings = {"epochs": 6, "average": 0.9}
    optimisers: list[dict] = []

    def remember(_line):
        optimisers.append(torch.load(tmp_path / "last.ckpt", weights_only=True))

    _, _, states = run(tmp_path, method, settings=settings, on_epoch=remember)
    assert same(states[4], states[1])
    assert not same(states[3], states[1])
    assert not same(states[5], states[1])
    kept, back = optimisers[1], optimisers[4]
    assert kept["optimiser"]["state"][0]["step"] == back["optimiser"]["state"][0]["step"]
    assert torch.equal(
        kept["optimiser"]["state"][0]["exp_avg"], back["optimiser"]["state"][0]["exp_avg"]
    )
    assert same(kept["averaged"], back["averaged"])
    assert method.restored_at == [5]
    assert int(method.epochs_seen) == 3  # the method's own state went back as well: 2, then epoch 6
    assert [line["verdict"] for line in history(tmp_path)] == [
        "continue",
        "keep",
        "continue",
        "continue",
        "restore",
        "continue",
    ]
    assert back["epoch"] == 5


def test_a_later_keep_replaces_an_earlier_one(tmp_path):
    method = Toy()
    method.script = "kkcr"
    _, _, states = run(tmp_path, method, settings={"epochs": 4})
    assert same(states[3], states[1])


# -- RESTART, and the validation predictions that a method may ask for --------------------------


class Restarting(Toy):
    """Keeps a copy of the network it was given, and later goes on from that."""

    def setup(self, network, task):
        super().setup(network, task)
        self.first = copy.deepcopy(network).requires_grad_(False)
        self.told: list[tuple[int, bool]] = []

    def end_epoch(self, scores, progress):
        super().end_epoch(scores, progress)
        return Verdict.RESTART if progress.epoch == 2 else Verdict.CONTINUE

    def chosen(self, network):
        return self.first

    def restarted(self, network, progress):
        self.told.append((progress.epoch, same(network.state_dict(), self.first.state_dict())))


def test_restart_goes_on_from_the_chosen_network_with_an_optimiser_that_has_no_past(tmp_path):
    method, network = Restarting(), make_classifier()
    before = copy.deepcopy(network.state_dict())
    # One batch holds all images: an epoch is one step, whatever the order.
    settings = {"epochs": 3, "batch_size": 24, "average": 0.9}
    trained, _, states = run(tmp_path, method, network, settings=settings)
    assert method.told == [(2, True)]
    assert same(states[1], before)
    assert not same(states[0], before)
    for name, value in states[2].items():  # the first step once more, which moments would change
        torch.testing.assert_close(value, states[0][name], rtol=1e-4, atol=1e-6)
    assert same(trained.networks["averaged"].state_dict(), states[2])  # its history began there too
    assert int(method.epochs_seen) == 3  # unlike a RESTORE, the method itself goes on
    assert [line["verdict"] for line in history(tmp_path)] == ["continue", "restart", "continue"]


def test_by_default_a_method_restarts_from_the_network_it_watches(tmp_path):
    class Watching(Restarting):
        chosen = Method.chosen

        def watched(self, network):
            return self.first

    _, _, states = run(tmp_path, method := Watching(), settings={"epochs": 2})
    assert method.told == [(2, True)]
    assert same(states[1], method.first.state_dict())


def test_a_run_interrupted_around_a_restart_ends_bit_for_bit_like_a_whole_one(tmp_path):
    settings = {"epochs": 4, "average": 0.9}
    whole, _, _ = run(tmp_path / "whole", Restarting(), settings=settings)

    class EnoughError(Exception):
        pass

    def stop(line):
        if line.epoch == 2:
            raise EnoughError

    with pytest.raises(EnoughError):
        run(tmp_path / "parts", Restarting(), settings=settings, on_epoch=stop)
    parts, _, _ = run(tmp_path / "parts", Restarting(), settings=settings, resume=True)
    for name in ("network", "averaged"):
        one, other = (found.networks[name].state_dict() for found in (whole, parts))
        assert same(one, other), name


def test_a_method_sees_the_validation_predictions_of_what_it_watches_if_it_wants(tmp_path):
    class Curious(Toy):
        def setup(self, network, task):
            super().setup(network, task)
            self.first = copy.deepcopy(network)
            self.seen: list[tuple[int, Tensor, Tensor, int]] = []

        def watched(self, network):
            return self.first  # never trained

        def wants_validation(self, progress):
            return progress.epoch != 2

        def see_validation(self, probabilities, observed, progress):
            self.seen.append((progress.epoch, probabilities, observed, len(self.heard)))

    method = Curious()
    run(tmp_path, method)
    assert [epoch for epoch, *_ in method.seen] == [1, 3]
    assert [before for *_, before in method.seen] == [0, 2]  # end_epoch came after
    collection = make_collection()
    rows = collection.splits["val"]
    for _, probabilities, observed, _ in method.seen:
        wanted = predict(method.first, collection.images, rows)
        assert np.array_equal(probabilities.numpy(), wanted)
        assert observed.dtype == torch.int8
        assert np.array_equal(observed.numpy(), simulate_random(collection.truth, 0)[rows])
        heard = score(observed.numpy() > 0, wanted, absent="skip").mean_average_precision
        assert method.heard[0] == heard


class Scripted(AdaGC):
    """AdaGC whose teacher scores are given."""

    values = (0.1, 0.2, 0.5, 0.4, 0.3, 0.2, 0.1)

    def end_epoch(self, scores, progress):
        given = copy.copy(scores)
        object.__setattr__(given, "mean_average_precision", self.values[progress.epoch - 1])
        return super().end_epoch(given, progress)


@pytest.mark.parametrize("kind", ["embeddings", "images"])
def test_calibration_starts_from_the_best_epoch(tmp_path, kind):
    method = Scripted(patience=2, force_trigger=None)
    memories, teachers = [], []

    def remember(_line):
        memories.append(method.memory.values.clone())
        teachers.append(copy.deepcopy(method.teacher.state_dict()))

    _, _, states = run(tmp_path, method, kind=kind, settings={"epochs": 7}, on_epoch=remember)
    assert same(states[4], states[2])
    assert same(teachers[4], teachers[2])
    assert torch.equal(memories[4], memories[2])
    assert not same(states[5], states[4])
    stages = [line["status"]["stage"] for line in history(tmp_path)]
    assert stages == ["warm-up"] * 4 + ["calibration"] * 3
    assert method.triggered_after == 5
    assert ["calibration" in line["losses"] for line in history(tmp_path)] == [False] * 5 + [
        True
    ] * 2


@pytest.mark.parametrize("kind", ["embeddings", "images"])
def test_without_weight_and_mixup_calibration_is_assuming_negatives(tmp_path, kind):
    """Bit for bit, batch normalisation and dropout included."""
    networks = []
    for method in (AssumeNegative(), AdaGC(weight=0.0, mixup=0.0, restore=False, trigger_epoch=1)):
        network = make_classifier(dropout=0.3) if kind == "embeddings" else TinyCNN()
        run(tmp_path / method.title, method, network, kind=kind, settings={"epochs": 4})
        networks.append(network.state_dict())
    assert method.calibrating
    assert "calibration" in history(tmp_path / "AdaGC")[-1]["losses"]
    assert same(*networks)
    other = make_classifier(dropout=0.3) if kind == "embeddings" else TinyCNN()
    run(
        tmp_path / "other",
        AdaGC(weight=3.0, mixup=0.0, trigger_epoch=1),
        other,
        kind=kind,
        settings={"epochs": 4},
    )
    assert not same(networks[0], other.state_dict())


# -- when it goes wrong ----------------------------------------------------------------------


class Breaking(AssumeNegative):
    broken = float("nan")

    def loss(self, network, batch, progress):
        losses = super().loss(network, batch, progress)
        if progress.step == 4 and self.broken != 0:
            self.rows = batch.index.tolist()
            return Losses(losses.total * self.broken)
        return losses


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_broken_loss_stops_with_advice_and_keeps_the_last_epoch(tmp_path, value):
    method = Breaking()
    method.broken = value
    network = make_classifier()
    with pytest.raises(TrainingError) as caught:
        run(tmp_path, method, network)
    message = str(caught.value)
    assert "\n" not in message
    assert "epoch 2, step 2" in message
    assert f"the first image is {method.rows[0]:05d}" in message
    assert len(message) < 250
    assert "--clip" in message
    assert "--resume" in message
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert state["epoch"] == 1
    assert all(value.isfinite().all() for value in state["network"].values())
    assert all(value.isfinite().all() for value in network.state_dict().values())
    assert [line["epoch"] for line in history(tmp_path)] == [1]

    method = Breaking()
    method.broken = 0
    mended = make_classifier(seed=3)
    run(tmp_path, method, mended, resume=True)
    whole = make_classifier()
    run(tmp_path / "whole", AssumeNegative(), whole)
    assert same(mended.state_dict(), whole.state_dict())
    assert [line["epoch"] for line in history(tmp_path)] == [1, 2, 3]


def test_weights_that_break_in_the_last_step_never_reach_a_checkpoint(tmp_path):
    class Poisoned(AssumeNegative):
        steps = 0

        def after_step(self, network):
            self.steps += 1
            if self.steps == 6:
                network.head.weight.data[0, 0] = math.nan

    with pytest.raises(AdagcError) as caught:
        run(tmp_path, Poisoned())
    assert "\n" not in str(caught.value)
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert state["epoch"] == 1
    assert all(value.isfinite().all() for value in state["network"].values())
    best = load_file(tmp_path / "weights" / "network-best.safetensors")
    assert all(value.isfinite().all() for value in best.values())


def test_a_negative_loss_is_no_reason_to_stop(tmp_path):
    class Below(AssumeNegative):
        def loss(self, network, batch, progress):
            return Losses(super().loss(network, batch, progress).total - 20)

    run(tmp_path, Below())
    assert history(tmp_path)[-1]["losses"]["total"] < -15


# -- what is chosen while training -----------------------------------------------------------


class Chooser(Toy):
    """Deploys the weights of an epoch that it chooses by validation predictions, and no others."""

    def setup(self, network, task):
        super().setup(network, task)
        self.kept = copy.deepcopy(network)  # as it began
        self.reviewed_with: list[Tensor] = []

    def wants_validation(self, progress):
        return True

    def see_validation(self, probabilities, observed, progress):
        if progress.epoch == 2:
            self.kept.load_state_dict(self.current.state_dict())

    def watched(self, network):
        self.current = network
        return network

    def deployed(self, network):
        return self.kept

    def reviews(self, progress):
        return progress.epoch == 1

    def reviewed(self, network):
        return network

    def review(self, probabilities, progress):
        self.reviewed_with.append(probabilities)


def test_what_a_method_chooses_in_an_epoch_is_judged_in_that_epoch(tmp_path):
    method = Chooser()
    run(tmp_path, method, settings={"learning_rate": 0.1})
    begun, chosen, after = (line["criteria"]["network"]["likelihood"] for line in history(tmp_path))
    assert begun != chosen  # not those of the weights before the choice
    assert chosen == after


def test_labels_are_reviewed_with_the_network_that_the_method_names(tmp_path):
    method = Chooser()
    _, _, states = run(tmp_path, method, settings={"learning_rate": 0.1})
    collection = make_collection("embeddings")
    network = make_classifier()
    network.load_state_dict(states[0])
    rows = collection.splits["train"]
    wanted = predict(network, collection.images, rows)
    np.testing.assert_allclose(method.reviewed_with[0].numpy(), wanted, rtol=1e-5)
    begun = predict(make_classifier(), collection.images, rows)
    assert np.abs(wanted - begun).max() > 0.01  # which the deployed one would give


# -- the loop never names a method -----------------------------------------------------------


def test_training_knows_the_interface_of_methods_and_no_method():
    allowed = {"adagc.methods.base", "adagc.methods.state", "adagc.methods.told"}
    titles = set(registry()) | {cls.__name__ for cls in registry().values()}
    assert len(SOURCES) > 8
    for path in SOURCES:
        if path.name == "command.py":  # the command line of train: it turns a name into a method
            continue
        tree = ast.parse(path.read_text())
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if id(node) in prose:  # a docstring may give a reason
                continue
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("adagc.methods"):
                # YAML files and callers name methods: names are looked up, and none is known.
                # A pilot is a method of its own, which only its training knows.
                pilots = ("pilot.py", "short.py", "shortlist.py")
                known = {
                    **{name: {"adagc.methods"} for name in ("files.py", "experiment.py")},
                    **{name: {"adagc.methods.pilot"} for name in pilots},
                }.get(path.name, set())
                assert node.module in allowed | known, f"{path.name} imports {node.module}"
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith("adagc.methods") for alias in node.names)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = titles & set(node.value.replace(",", " ").split())
                assert not named, f"{path.name} names {named}"
            elif isinstance(node, ast.Name):
                assert node.id not in titles
