"""Weights as reBEN and torchgeo publish them: their keys, and bands matched by name."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from adagc.errors import AdagcError, UsageError
from adagc.images.array import ArrayScenes
from adagc.images.spectral import canonical_band
from adagc.models import HeadSpec, ModelSpec, build, load_weights
from adagc.models.backbones import create_network
from adagc.models.vision import import_timm
from adagc.training.config import RunConfig
from adagc.training.network import network_maker

NAME = "resnet18"
REBEN = ("B02", "B03", "B04", "B08", "B05", "B06", "B07", "B11", "B12", "B8A", "VH", "VV")
PAPER = (
    *("VV", "VH", "B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09"),
    *("B11", "B12"),
)
TORCHGEO = (*(f"B{i}" for i in range(1, 9)), "B8a", *(f"B{i}" for i in range(9, 13)))


def published(planes, classes=19):
    """A network as those programs make it, with random weights and statistics."""
    torch.manual_seed(planes)
    net = import_timm().create_model(NAME, in_chans=planes, num_classes=classes)
    return {
        key: value + 0.1 * torch.rand_like(value) if value.is_floating_point() else value
        for key, value in net.state_dict().items()
    }


def reben_file(path, planes=12, classes=19):
    state = published(planes, classes)
    save_file({f"model.vision_encoder.{key}": value for key, value in state.items()}, path)
    return state


def images_net(bands):
    return create_network(NAME, channels=len(bands), size=(64, 64))


def load(path, bands, **options):
    net = images_net(bands)
    report = load_weights(net, NAME, str(path), bands=bands, size=(64, 64), **options)
    return net, report


def test_reben_in_another_order_of_bands_gives_the_same_features(tmp_path):
    state = reben_file(tmp_path / "model.safetensors")
    order = ("VV", "VH", *sorted(REBEN[:10]))
    net, report = load(tmp_path, order)  # the folder that was downloaded
    ours = net.state_dict()
    for i, band in enumerate(order):
        theirs = state["conv1.weight"][:, REBEN.index(band)]
        torch.testing.assert_close(ours["conv1.weight"][:, i], theirs)
    for key, value in state.items():
        if key not in ("conv1.weight", "fc.weight", "fc.bias"):
            assert torch.equal(ours[key], value), key
    assert not report.missing
    assert set(report.unexpected) == {"fc.weight", "fc.bias"}
    original = import_timm().create_model(NAME, in_chans=12, num_classes=19)
    original.load_state_dict(state)
    pixels = torch.randn(2, 12, 64, 64)
    places = [REBEN.index(band) for band in order]
    with torch.no_grad():
        expected = original.eval().forward_features(pixels)
        assert expected.isfinite().all()
        assert expected.std() > 0
        torch.testing.assert_close(net.eval().forward_features(pixels[:, places]), expected)


@pytest.mark.parametrize(
    ("planes", "bands"),
    [(2, REBEN[10:]), (10, REBEN[:10]), (3, ("B04", "B03", "B02"))],
)
def test_reben_of_one_sensor(tmp_path, planes, bands):
    state = reben_file(tmp_path / "model.safetensors", planes)
    net, _ = load(tmp_path / "model.safetensors", bands[::-1])
    torch.testing.assert_close(net.state_dict()["conv1.weight"], state["conv1.weight"].flip(1))


def test_bands_that_the_weights_do_not_know_are_named(tmp_path, caplog):
    state = reben_file(tmp_path / "model.safetensors")
    with caplog.at_level(logging.INFO):
        net, _ = load(tmp_path / "model.safetensors", PAPER)
    filters = net.state_dict()["conv1.weight"]
    mean = state["conv1.weight"].mean(dim=1)
    for i, band in enumerate(PAPER):
        plane = state["conv1.weight"][:, REBEN.index(band)] if band in REBEN else mean
        torch.testing.assert_close(filters[:, i], plane * 12 / 14)
    assert "model.safetensors was not trained on B01, B09" in caplog.text
    assert "as known of reBEN, 12 bands" in caplog.text
    assert "its last layer (fc, 19 classes) is left out" in caplog.text


@pytest.mark.parametrize(
    ("name", "bands"),
    [
        ("resnet18_sentinel2_all_moco-59bfdff9.pth", TORCHGEO),
        ("resnet18_sentinel1_all_moco.pth", ("VV", "VH")),
        ("resnet18_sentinel2_rgb_moco-e3a335e3.pth", ("B4", "B3", "B2")),
    ],
)
def test_torchgeo_by_the_name_of_the_file(tmp_path, name, bands, caplog):
    state = {k: v for k, v in published(len(bands)).items() if not k.startswith("fc.")}
    torch.save(state, tmp_path / name)
    order = tuple(sorted(bands, key=lambda band: band[::-1]))
    with caplog.at_level(logging.INFO):
        net, report = load(tmp_path / name, order)
    for i, band in enumerate(order):
        torch.testing.assert_close(
            net.state_dict()["conv1.weight"][:, i], state["conv1.weight"][:, bands.index(band)]
        )
    assert not report.missing
    assert "as known of torchgeo" in caplog.text
    assert "left out" not in caplog.text


def test_sentinel_1_is_not_taken_for_the_other_way_round(tmp_path):
    """reBEN has VH first, torchgeo VV: the same images must get different planes."""
    state = published(2)
    save_file(
        {f"model.vision_encoder.{key}": value for key, value in state.items()},
        tmp_path / "model.safetensors",
    )
    torch.save(state, tmp_path / "resnet18_sentinel1_all_moco.pth")
    one, _ = load(tmp_path / "model.safetensors", ("VV", "VH"))
    other, _ = load(tmp_path / "resnet18_sentinel1_all_moco.pth", ("VV", "VH"))
    filters = state["conv1.weight"]
    assert torch.equal(one.state_dict()["conv1.weight"], filters.flip(1))
    assert torch.equal(other.state_dict()["conv1.weight"], filters)


def test_a_user_may_name_the_bands_of_a_file(tmp_path, caplog):
    state = published(4)
    torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}}, tmp_path / "own.pth")
    told = ("nir", "red", "green", "blue")
    net, _ = load(tmp_path / "own.pth", ("B02", "B03", "B04", "NIR"), weight_bands=told)
    torch.testing.assert_close(net.state_dict()["conv1.weight"], state["conv1.weight"].flip(1))
    with caplog.at_level(logging.WARNING):
        net, _ = load(tmp_path / "own.pth", ("a", "b", "c", "d"))
    assert "does not say which bands it was trained on" in caplog.text
    assert torch.equal(net.state_dict()["conv1.weight"], state["conv1.weight"])
    with pytest.raises(UsageError, match="trained on 4 bands, not on 2"):
        load(tmp_path / "own.pth", ("B02", "B03", "B04", "NIR"), weight_bands=("a", "b"))
    with pytest.raises(UsageError, match="the images have none of these bands"):
        load(tmp_path / "own.pth", ("VV", "VH"), weight_bands=told)
    with pytest.raises(UsageError, match="--weight-bands needs --weights FILE"):
        load("none", ("VV", "VH"), weight_bands=told)


def test_images_without_names_of_bands_are_refused(tmp_path):
    reben_file(tmp_path / "model.safetensors", 10)
    with pytest.raises(UsageError, match="name the bands of the images with --bands"):
        load(tmp_path / "model.safetensors", tuple(f"band_{i}" for i in range(1, 11)))


def test_weights_of_another_network_are_refused(tmp_path):
    reben_file(tmp_path / "model.safetensors")
    net = create_network("mobilenetv3_small_050", channels=12, size=(32, 32))
    with pytest.raises(AdagcError, match="does not fit the backbone"):
        load_weights(net, "mobilenetv3_small_050", str(tmp_path / "model.safetensors"), bands=REBEN)


def test_a_whole_network_is_built_with_fewer_classes(tmp_path):
    state = reben_file(tmp_path / "model.safetensors", 2)
    spec = ModelSpec(NAME, (2, 64, 64), ("a", "b"), ("VV", "VH"))
    network = build(spec, seed=0, weights=str(tmp_path / "model.safetensors"))
    assert network.head.weight.shape[0] == 2
    assert torch.equal(network.state_dict()["backbone.net.layer1.0.conv1.weight"],
                       state["layer1.0.conv1.weight"])  # fmt: skip
    told = build(
        spec, seed=0, weights=str(tmp_path / "model.safetensors"), weight_bands=("VV", "VH")
    )
    filters = [one.state_dict()["backbone.net.conv1.weight"] for one in (network, told)]
    assert torch.equal(filters[0], filters[1].flip(1))


def test_a_run_hands_on_the_bands_of_its_settings(tmp_path):
    state = published(2)
    torch.save(state, tmp_path / "own.pth")
    images = ArrayScenes(np.random.default_rng(0).random((4, 2, 32, 32)), bands=("VV", "VH"))
    config = RunConfig(
        backbone=NAME, weights=str(tmp_path / "own.pth"), weight_bands=("VH", "VV")
    )  # fmt: skip
    fresh = network_maker(config, images, ("a", "b"), np.arange(4), HeadSpec())
    filters = fresh(0).state_dict()["backbone.net.conv1.weight"]
    assert torch.equal(filters, state["conv1.weight"].flip(1))
    with pytest.raises(UsageError, match="--weight-bands needs --weights FILE"):
        RunConfig(weight_bands=("VH", "VV"))


def test_code_in_a_file_is_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (exec, ("raise SystemExit('ran')",))

    torch.save({"conv1.weight": Trap()}, tmp_path / "resnet18_sentinel2_all_moco.pth")
    with pytest.raises(AdagcError, match="holds more than tensors"):
        load(tmp_path / "resnet18_sentinel2_all_moco.pth", TORCHGEO)


def test_spellings_of_bands():
    assert len({canonical_band(band) for band in TORCHGEO}) == 13
    for short, long in (("B1", "B01"), ("b8", "B08"), ("B8a", "B8A"), ("B9", "b09"), ("B4", "red")):
        assert canonical_band(short) == canonical_band(long)
