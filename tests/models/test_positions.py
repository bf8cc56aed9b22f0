"""Heads that look at several stages of a network, position by position."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from adagc.errors import AdagcError
from adagc.models import HeadSpec, ModelSpec, build
from adagc.models.backbones import positions
from adagc.models.positions import AnyPositionHead

CLASSES = ("a", "b", "c")


def made(backbone: str, shape: tuple[int, ...], kind: str = "areas", **options):
    bands = tuple(f"b{i}" for i in range(shape[0]))
    spec = ModelSpec(backbone, shape, CLASSES, bands, head=HeadSpec(kind), **options)
    return build(spec, seed=0).eval()


def test_class_maps_are_a_linear_layer_on_all_stages_interpolated_to_the_finest():
    generator = torch.Generator().manual_seed(0)
    stages = [
        torch.randn(2, width, *size, generator=generator)
        for width, size in ((3, (8, 6)), (5, (4, 3)), (2, (2, 2)))
    ]
    head = AnyPositionHead([3, 5, 2], len(CLASSES))
    columns = torch.cat(
        [functional.interpolate(one, (8, 6), mode="bilinear") for one in stages], dim=1
    )
    wanted = functional.linear(columns.movedim(1, -1), head.layer.weight, head.layer.bias)
    torch.testing.assert_close(head.maps(stages), wanted.movedim(-1, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("backbone", "size", "sides"),
    [
        ("test_resnet", 64, (8, 4, 2)),
        ("test_convnext", 64, (8, 4, 2)),
        ("test_efficientnet", 64, (8, 4, 2)),
        ("swin_tiny_patch4_window7_224", 224, (28, 14, 7)),
        ("test_vit", 160, (10,)),  # tokens have one resolution
    ],
)
def test_stages_of_networks_for_images_reach_an_eighth_of_the_resolution(backbone, size, sides):
    network = made(backbone, (3, size, size))
    x = torch.rand(2, 3, size, size)
    with torch.no_grad():
        stages = network.stages(x)
        assert tuple(one.shape[-1] for one in stages) == sides
        assert tuple(one.shape[1] for one in stages) == network.backbone.stage_widths
        torch.testing.assert_close(stages[-1], network.feature_map(x))
        assert network.class_maps(x).shape == (2, 3, sides[0], sides[0])
    for module in network.modules():
        assert not module._forward_hooks, "the maps of every later batch would be collected too"


def test_gradients_reach_the_finest_stage_directly():
    network = made("test_resnet", (3, 32, 32)).train()
    stages = network.stages(torch.rand(2, 3, 32, 32))
    network.head(stages).sum().backward()
    count = network.backbone.stage_widths[0]
    assert network.head.layer.weight.grad[:, :count].abs().sum() > 0


def test_stored_maps_pass_through_the_hidden_layer_at_every_position():
    network = made("mlp", (6, 3, 3), hidden=5)
    x = torch.randn(2, 6, 3, 3)
    maps = network.class_maps(x)
    layers, head = network.backbone.layers, network.head.layer
    for row in range(3):
        for column in range(3):
            alone = head(layers(network.normalise(x)[:, :, row, column]))
            torch.testing.assert_close(maps[:, :, row, column], alone)


def test_stored_maps_have_no_hidden_layer_in_a_linear_network():
    network = made("linear", (6, 3, 3))
    x = torch.randn(2, 6, 3, 3)
    (stage,) = network.stages(x)
    torch.testing.assert_close(stage, network.normalise(x))


def test_the_hidden_layer_sees_every_position_of_a_stored_map_alone():
    network = made("mlp", (40, 3, 5), hidden=7)
    x = torch.randn(2, 40, 3, 5)
    (found,) = network.stages(x)
    assert found.shape == (2, 7, 3, 5)
    one_by_one = network.backbone.layers(network.normalise(x).movedim(1, -1).reshape(30, 40))
    torch.testing.assert_close(found.movedim(1, -1).reshape(30, 7), one_by_one)


def test_dropout_of_stored_maps_leaves_out_whole_channels():
    network = made("mlp", (40, 3, 3), hidden=40, dropout=0.5)
    network.train()
    with torch.no_grad():  # so that the hidden layer passes channels on one by one
        network.backbone.layers[0].weight.copy_(torch.eye(40))
        network.backbone.layers[0].bias.zero_()
    (values,) = network.stages(torch.ones(2, 40, 3, 3))
    dropped = (values == 0).flatten(2)
    assert (dropped.all(dim=2) | ~dropped.any(dim=2)).all()
    assert 10 < dropped.all(dim=2).sum() < 70


def test_a_head_without_maps_says_so():
    network = made("test_resnet", (3, 32, 32), "linear")
    with pytest.raises(AdagcError, match="linear head has no class maps"):
        network.class_maps(torch.rand(2, 3, 32, 32))


def test_the_number_of_positions_is_known_before_the_network_is_built():
    assert positions("mlp", (40,)) == 0
    assert positions("mlp", (40, 3, 5)) == 15
    for size in (32, 60, 64):
        network = made("test_resnet", (3, size, size))
        with torch.no_grad():
            fine = network.stages(torch.rand(2, 3, size, size))[0]
        assert positions("test_resnet", (3, size, size)) == fine[0, 0].numel()
