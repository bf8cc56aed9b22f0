from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from adagc.errors import AdagcError, DataError
from adagc.models import Classifier, ModelSpec, Normalise, build
from adagc.models.backbones import ImageBackbone
from adagc.models.heads import drop

BANDS = tuple(f"band{i}" for i in range(14))
CLASSES = ("airport", "bare soil", "water")


def spec_of(backbone: str, shape: tuple[int, ...], **options: object) -> ModelSpec:
    values = {"backbone": backbone, "shape": shape, "classes": CLASSES}
    bands = BANDS[: shape[0]] if len(shape) == 3 else ()
    return ModelSpec.from_dict({**values, "bands": bands, **options})


def inputs(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# name, image size, whether the features are pooled by nothing but their mean
FAMILIES = [
    ("resnet18", (64, 32), True),
    ("resnet10t", (64, 64), True),
    ("convnext_atto", (64, 64), False),
    ("vit_tiny_patch16_224", (64, 32), True),
    ("tf_efficientnet_lite0", (64, 64), True),
    ("linear", (4, 4), True),
    ("mlp", (4, 4), False),
]


@pytest.mark.parametrize(("name", "size", "plain"), FAMILIES)
def test_families(name: str, size: tuple[int, int], plain: bool) -> None:
    network = build(spec_of(name, (14, *size)), seed=3)
    x = inputs(2, 14, *size)
    network(x).sum().backward()
    silent = [k for k, p in network.named_parameters() if p.grad is None]
    assert not silent

    network.eval()
    with torch.no_grad():
        logits, features = network(x), network.feature_map(x)
        pooled = network.embed(x)
    assert logits.shape == (2, 3)
    assert logits.isfinite().all()
    assert pooled.shape == (2, network.width)
    assert features.ndim == 4
    assert features.shape[1] == network.backbone.map_width
    torch.testing.assert_close(network.head(network.pool(features)), logits, rtol=1e-4, atol=1e-5)

    mean = features.mean(dim=(2, 3))
    assert network.backbone.pools_by_mean is plain
    if plain:
        torch.testing.assert_close(pooled, mean, rtol=1e-4, atol=1e-5)
        # The same weights with class maps are the same network, until something is boosted.
        plain_maps, boosted = (
            build(spec_of(name, (14, *size), head={"kind": "class-map", "boost": b}), seed=3).eval()
            for b in (1.0, 5.0)
        )
        for other in (plain_maps, boosted):
            other.load_state_dict(network.state_dict())
        with torch.no_grad():
            assert plain_maps.head.maps(features).shape == (2, 3, *features.shape[2:])
            torch.testing.assert_close(plain_maps(x), logits, rtol=1e-4, atol=1e-4)
            assert (boosted(x) >= logits - 1e-4).all()


def test_vit_map_has_patches_where_they_are() -> None:
    network = build(spec_of("vit_tiny_patch16_224", (14, 64, 32)), seed=0).eval()
    net = network.backbone.net
    x = inputs(1, 14, 64, 32)
    with torch.no_grad():
        tokens, features = net.forward_features(x), network.feature_map(x)
    assert features.shape == (1, 192, 4, 2)
    # One class token first, then the patches row by row: patch (2, 1) is number 2 * 2 + 1.
    torch.testing.assert_close(features[0, :, 2, 1], tokens[0, 1 + 5], rtol=1e-4, atol=1e-5)


def test_seed_decides_and_global_randomness_is_left_alone() -> None:
    spec = spec_of("mlp", (6,))
    before = torch.get_rng_state()
    first, second, other = build(spec, seed=1), build(spec, seed=1), build(spec, seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(9)
    third = build(spec, seed=1)
    for key, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[key])
        assert torch.equal(value, third.state_dict()[key])
    assert not torch.equal(first.head.weight, other.head.weight)
    assert not torch.equal(first.backbone.layers[0].weight, other.backbone.layers[0].weight)


def test_image_networks_are_deterministic_and_channels_last() -> None:
    spec = spec_of("resnet10t", (14, 32, 32))
    a, b = build(spec, seed=1), build(spec, seed=1)
    assert all(torch.equal(v, b.state_dict()[k]) for k, v in a.state_dict().items())
    wide = [p for p in a.parameters() if p.ndim == 4 and p.shape[2] > 1]
    assert wide
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in wide)

    twin = copy.deepcopy(a).eval()
    x = inputs(2, 14, 32, 32)
    a.eval()
    assert torch.equal(twin(x), a(x))
    with torch.no_grad():
        a.head.weight += 1
    assert not torch.equal(twin.head.weight, a.head.weight)
    assert twin.backbone.net is not a.backbone.net
    copied = [p for p in twin.parameters() if p.ndim == 4 and p.shape[2] > 1]
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in copied)


def test_other_sizes_pass_where_the_backbone_allows() -> None:
    conv = build(spec_of("resnet10t", (14, 32, 32)), seed=0).eval()
    assert conv(inputs(1, 14, 64, 48)).shape == (1, 3)
    vit = build(spec_of("vit_tiny_patch16_224", (14, 32, 32)), seed=0).eval()
    with pytest.raises(DataError, match="built for 32 x 32 pixels, got 64 x 48"):
        vit(inputs(1, 14, 64, 48))


def test_wrong_bands_are_refused_by_name() -> None:
    network = build(spec_of("linear", (14, 4, 4)), seed=0)
    with pytest.raises(DataError, match=r"14 bands \(band0, band1, .* got 3x4x4"):
        network(inputs(1, 3, 4, 4))
    with pytest.raises(DataError, match="got 14"):
        network(inputs(1, 14))
    with pytest.raises(DataError, match="embeddings of length 5, got 4"):
        build(spec_of("mlp", (5,)), seed=0)(inputs(2, 4))


def test_embeddings_have_no_feature_map() -> None:
    network = build(spec_of("linear", (5,)), seed=0)
    with pytest.raises(AdagcError, match="feature maps"):
        network.feature_map(inputs(2, 5))
    x = inputs(2, 5)
    assert torch.equal(network.embed(x), x)
    torch.testing.assert_close(network(x), x @ network.head.weight.T + network.head.bias)


@pytest.mark.parametrize("backbone", ["linear", "mlp"])
def test_feature_maps_are_averaged_first(backbone: str) -> None:
    maps = build(spec_of(backbone, (14, 3, 3)), seed=5, mean=range(14), std=[2.0] * 14)
    vectors = build(spec_of(backbone, (14,)), seed=5, mean=range(14), std=[2.0] * 14)
    x = inputs(4, 14, 3, 3)
    torch.testing.assert_close(maps(x), vectors(x.mean(dim=(2, 3))), rtol=1e-5, atol=1e-5)


def test_normalise_twin() -> None:
    mean, std = np.array([1.0, -2, 30]), np.array([0.5, 4, 10])
    layer = Normalise(mean.tolist(), std.tolist())
    x = inputs(2, 3, 4, 5) * 100
    slow = np.stack([(x[:, i].numpy() - mean[i]) / std[i] for i in range(3)], axis=1)
    np.testing.assert_allclose(layer(x).numpy(), slow, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(layer(x[..., 0, 0]).numpy(), slow[..., 0, 0], rtol=1e-5, atol=1e-4)
    assert Normalise([1.0], [2.0])(inputs(2, 7)).shape == (2, 7)
    assert layer.mean.dtype == torch.float32
    assert not list(layer.parameters())


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ([0.0, 0], [1.0], "one length"),
        ([0.0, 0], [1.0, 0], "std above 0"),
        ([0.0, float("nan")], [1.0, 1], "finite"),
    ],
)
def test_normalise_refuses(mean: list[float], std: list[float], message: str) -> None:
    with pytest.raises(AdagcError, match=message):
        Normalise(mean, std)


def test_normalisation_of_another_length_is_refused() -> None:
    with pytest.raises(AdagcError, match="normalisation for 3 bands, the model has 14"):
        build(spec_of("linear", (14, 4, 4)), seed=0, mean=[0.0] * 3, std=[1.0] * 3)


def test_dropout_only_while_training() -> None:
    network = build(spec_of("linear", (50,), dropout=0.5), seed=0)
    x = inputs(2, 50)
    assert not torch.equal(network(x), network(x))
    network.eval()
    assert torch.equal(network(x), network(x))


@pytest.mark.parametrize("share", [0.03, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(401, 997), (401, 997, 2, 2)])
def test_dropout_leaves_out_its_share_and_keeps_the_mean(
    share: float, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    kept = drop(torch.ones(shape), share, training=True)
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / (1 - share)])
    channels = kept.flatten(2)[..., 0] if kept.ndim == 4 else kept
    gone = (channels == 0).double()
    count = gone.numel()
    deviation = (share * (1 - share) / count) ** 0.5
    assert abs(gone.mean().item() - share) < 5 * deviation
    # Four decisions come from one draw: each is as likely as the others, and none knows the next.
    parts = gone.flatten()[: count // 4 * 4].view(-1, 4)
    assert (parts.mean(dim=0) - share).abs().max() < 5 * 2 * deviation
    assert (torch.corrcoef(parts.T) - torch.eye(4)).abs().max() < 5 * (4 / count) ** 0.5
    if kept.ndim == 4:
        assert torch.equal(kept, kept[..., :1, :1].expand_as(kept))  # whole channels


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnt18", "there is no backbone 'resnt18'; did you mean .*'resnet18'"),
        ("resnet18.nonsense", "no weights 'nonsense': use one of .*a1_in1k"),
        ("hf-hub:somebody/something", "there is no backbone"),
    ],
)
def test_unknown_backbones(name: str, message: str) -> None:
    with pytest.raises(AdagcError, match=message):
        build(spec_of(name, (14, 32, 32)), seed=0)


def test_impossible_size_is_refused_while_building() -> None:
    with pytest.raises(AdagcError, match="vit_tiny_patch16_224 cannot") as caught:
        build(spec_of("vit_tiny_patch16_224", (14, 8, 8)), seed=0)
    assert "\n" not in str(caught.value)


def test_spec_remains_what_was_asked_for() -> None:
    spec = spec_of("resnet10t", (14, 32, 32), weights="hub:elsewhere")
    network = build(spec, seed=0)
    assert isinstance(network, Classifier)
    assert isinstance(network.backbone, ImageBackbone)
    assert network.spec == dataclasses.replace(spec)
