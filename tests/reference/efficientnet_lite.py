"""EfficientNet-Lite0 features, spelled out layer by layer on the weights package's own names."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

# Stride of every block; kernel sizes and widths are read from the weights.
STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)


def _same(x: Tensor, weight: Tensor, stride: int, groups: int = 1) -> Tensor:
    """Convolution whose output has ceil(size / stride) rows, extra padding at the far side."""
    pads: list[int] = []
    for size, kernel in zip(reversed(x.shape[2:]), reversed(weight.shape[2:]), strict=True):
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        pads += [total // 2, total - total // 2]
    return functional.conv2d(functional.pad(x, pads), weight, stride=stride, groups=groups)


def features(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """(B, 3, H, W) normalised -> (B, 1280) pooled."""

    def norm(name: str, y: Tensor) -> Tensor:
        mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
        return functional.batch_norm(y, mean, var, weight, bias, eps=1e-3)

    y = functional.relu6(norm("_bn0", _same(x, state["_conv_stem.weight"], 2)))
    for i, stride in enumerate(STRIDES):
        block, z = f"_blocks.{i}", y
        if f"{block}._expand_conv.weight" in state:
            z = _same(z, state[f"{block}._expand_conv.weight"], 1)
            z = functional.relu6(norm(f"{block}._bn0", z))
        z = _same(z, state[f"{block}._depthwise_conv.weight"], stride, groups=z.shape[1])
        z = functional.relu6(norm(f"{block}._bn1", z))
        z = norm(f"{block}._bn2", _same(z, state[f"{block}._project_conv.weight"], 1))
        y = y + z if z.shape == y.shape else z
    y = functional.relu6(norm("_bn1", _same(y, state["_conv_head.weight"], 1)))
    return y.mean(dim=(2, 3))
