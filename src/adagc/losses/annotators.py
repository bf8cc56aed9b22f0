"""How probable the observed labels are, given what a network believes is in an image.

One observed label is one draw by an annotator. If it is written down how the annotator draws, the
likelihood of what was observed can be maximised, and no class has to be assumed absent.

The random annotator draws one of the classes that are present, all with equal probability. Classes
are present independently of each other, with p_c = sigmoid(z_c):

    P(s = c) = p_c ∫₀¹ ∏_{j ≠ c} (1 - p_j + p_j u) du

because ∫ u^n du = 1 / (n + 1) is the probability of one of n + 1 classes. The integrand is a
polynomial of degree C - 1 in u, so Gauss-Legendre quadrature with ⌈C / 2⌉ nodes is exact.

An annotator who likes some classes more than others draws c with probability w_c / Σ w_j of the
classes that are present. With 1 / W = ∫ u^(W - 1) du, for W the sum of the weights of all present,

    P(s = c) = p_c w_c ∫₀¹ u^(w_c - 1) ∏_{j ≠ c} (1 - p_j + p_j u^w_j) du

Only the ratios of weights count (put u = v^q), so that the smallest one is made 3. The integrand is
then a polynomial of degree Σ w_j - 1 if weights are whole numbers, integrated exactly by half as
many nodes; with other weights it has two derivatives at u = 0 and all elsewhere, so that some more
nodes suffice for the precision of float32. Equal weights are the annotator above, by the very same
steps.

The area annotator names what a randomly chosen position of the image shows. Classes compete at
every position v with a_c(v) = softmax_c s(v):

    P(s = c) = A_c = mean_v a_c(v)

and are taken to be present with p_c = 1 - exp(-n_c), n_c = -m mean_v log(1 - a_c(v)), as if m
positions were looked at independently of each other.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from adagc.losses.entries import precise

# From this difference of logits on a float32 sigmoid is 1, whatever the difference is.
_CERTAIN = 200.0
_TINY = 1e-4  # below it the first two terms of a series are exact in float32


def random_annotator(logits: Tensor, selection: Tensor | None = None) -> Tensor:
    """(B, C) log P(s = c | x) of every class c: the random annotator draws it.

    The exponentials of a row sum to the probability that anything is present at all.

    >>> random_annotator(torch.tensor([[60.0, 60.0, -60.0]])).exp().round(decimals=3)
    tensor([[0.5000, 0.5000, 0.0000]])
    >>> likes = torch.tensor([3.0, 1.0, 1.0])
    >>> random_annotator(torch.tensor([[60.0, 60.0, -60.0]]), likes).exp().round(decimals=3)
    tensor([[0.7500, 0.2500, 0.0000]])

    Args:
        logits: (B, C) z.
        selection: (C,) weights w; all equal by default.
    """
    z = precise(logits)
    w = _relative(selection, z)
    factors, log_weights, log_nodes = _factors(z, w)
    others = factors.sum(dim=2, keepdim=True) - factors  # (B, nodes, C): all classes but c
    drawn = log_weights[:, None] + others
    if w is not None:
        drawn = drawn + (w - 1) * log_nodes[:, None] + w.log()
    return logsigmoid(z) + torch.logsumexp(drawn, dim=1)


def random_likelihood(logits: Tensor, observed: Tensor, selection: Tensor | None = None) -> Tensor:
    """(B,) log-likelihood of all that is known of each image, under the random annotator.

    With one observed label and nothing else it is log P(s = c | x). A class that was seen to be
    absent is absent (1 - p_j) and could not be drawn. If several labels were observed, all are
    present, and one of them was drawn; nothing tells which. Without an observed label nobody has
    drawn one, and only absences count.

    Args:
        logits: (B, C) z.
        observed: (B, C) +1 seen to be present, 0 not known, -1 seen to be absent.
        selection: (C,) weights w of the classes; all equal by default.
    """
    z = precise(logits)
    w = _relative(selection, z)
    present, absent = observed > 0, observed < 0
    factors, log_weights, log_nodes = _factors(z, w)
    unknown = ~(present | absent)
    others = torch.where(unknown[:, None, :], factors, torch.zeros_like(factors)).sum(dim=2)
    count = _total(present, w, z)
    # E[count / (count + others)] = ∫ count u^(count - 1) ∏ (1 - p_j + p_j u) du, and the same with
    # weights, if count is the weight of what was observed, others of what else is present
    draw = log_weights + others + (count - 1).clamp(min=0) * log_nodes
    drawn = torch.logsumexp(draw, dim=1) + count.clamp(min=1).log().squeeze(1)
    nothing = torch.zeros_like(z)
    known = torch.where(present, logsigmoid(z), nothing) + torch.where(
        absent, logsigmoid(-z), nothing
    )
    return known.sum(dim=1) + torch.where(present.any(dim=1), drawn, torch.zeros_like(drawn))


def anything_present(logits: Tensor) -> Tensor:
    """(B,) log probability that at least one class is present, log(1 - ∏ (1 - p_j)).

    An image that has a label shows something. The likelihood of its label given that it does is
    `random_likelihood` minus this.

    >>> anything_present(torch.zeros(1, 2)).exp()
    tensor([0.7500])
    """
    nothing = logsigmoid(-precise(logits)).sum(dim=1)
    # Where all probabilities round to 0 the logarithm stays finite.
    return torch.log(-torch.expm1(nothing.clamp(max=-torch.finfo(nothing.dtype).tiny)))


def random_posterior(logits: Tensor, observed: Tensor, selection: Tensor | None = None) -> Tensor:
    """(B, C) logits of presence once it is known what the random annotator has drawn.

    A class that was not drawn is a little less probable than before: the more classes are present,
    the less probable it was to draw what was drawn. With A for what all others multiply to, and n
    observed labels,

        P(c | s) = p_c I₁ / (p_c I₁ + (1 - p_c) I₀),   I_k = ∫₀¹ u^(n - 1 + k) A(u) du

    (with weights: n their sum over the observed labels, and k w_c in place of k.)

    Observed classes are certain, and images without an observed label stay as they were.

    >>> even = torch.zeros(1, 2)
    >>> random_posterior(even, torch.tensor([[1, 0]])).sigmoid()[0, 1].round(decimals=3)
    tensor(0.3330)

    Args:
        logits: (B, C) z.
        observed: (B, C) +1 seen to be present, 0 not known, -1 seen to be absent.
        selection: (C,) weights w of the classes; all equal by default.
    """
    z = precise(logits)
    w = _relative(selection, z)
    present, unknown = observed > 0, observed == 0
    # Classes of which something is known have a factor of 1, as if they were certain to be absent.
    factors, log_weights, log_nodes = _factors(
        torch.where(unknown, z, torch.full_like(z, -torch.inf)), w
    )
    count = _total(present, w, z)
    draw = log_weights + (count - 1).clamp(min=0) * log_nodes + factors.sum(dim=2)
    # Divided by the factor of a class, the product of all becomes that of the others.
    if w is None:
        # The largest node has a weight of 1, so no sum over nodes can vanish, and no factor is
        # smaller than a node.
        weights = (draw - draw.amax(dim=1, keepdim=True)).exp()
        others = torch.stack([weights, weights * log_nodes.exp()], dim=1) @ (-factors).exp()
        without, along = others.log().unbind(dim=1)
    else:
        left = draw[:, :, None] - factors
        without = torch.logsumexp(left, dim=1)
        along = torch.logsumexp(left + w * log_nodes[:, None], dim=1)
    shifted = torch.where(count > 0, z + along - without, z)
    known = torch.where(present, torch.full_like(z, _CERTAIN), torch.full_like(z, -_CERTAIN))
    return torch.where(unknown, shifted, known)


def area_annotator(maps: Tensor) -> Tensor:
    """(B, C) log A_c of class maps (B, C, ...): the area annotator draws c.

    >>> area_annotator(torch.tensor([[[60.0, 60.0, 60.0, 0.0], [0.0, 0.0, 0.0, 60.0]]])).exp()
    tensor([[0.7500, 0.2500]])
    """
    shares = precise(maps).flatten(2).log_softmax(dim=1)
    return torch.logsumexp(shares, dim=2) - float(np.log(shares.shape[2]))


def area_likelihood(maps: Tensor, observed: Tensor, looks: float) -> Tensor:
    """(B,) log-likelihood of all that is known of each image, under the area annotator.

    With one observed label it is log A_s. Seen absences add log(1 - p_j). If several labels were
    observed, one of them was drawn, with probability Σ A_c, and all are present, Σ log p_c. Without
    an observed label only absences count.

    Args:
        maps: (B, C, ...) values of each class at every position.
        observed: (B, C) +1 seen to be present, 0 not known, -1 seen to be absent.
        looks: The number m of positions that presence is decided by.
    """
    present, absent = observed > 0, observed < 0
    areas = area_annotator(maps)
    count = present.sum(dim=1, keepdim=True)
    hidden = torch.full_like(areas, -_CERTAIN)
    drawn = torch.logsumexp(torch.where(present, areas, hidden), dim=1)
    total = torch.where(count.squeeze(1) > 0, drawn, torch.zeros_like(drawn))
    z = presence_logits(maps, looks)
    nothing = torch.zeros_like(z)
    known = torch.where(present & (count > 1), logsigmoid(z), nothing) + torch.where(
        absent, logsigmoid(-z), nothing
    )
    return total + known.sum(dim=1)


def presence_logits(maps: Tensor, looks: float) -> Tensor:
    """(B, C) logits z of presence on class maps: sigmoid(z_c) = 1 - exp(-n_c).

    They are finite for any finite maps.

    Args:
        maps: (B, C, ...) values of each class at every position.
        looks: The number m of positions that are looked at; the order of images and classes hardly
            depends on it, but the number of predicted classes does.
    """
    values = precise(maps).flatten(2)
    shares = values.log_softmax(dim=1)
    # log(-log(1 - a)), in two ways. The leading class of a position may have an a that rounds to 1,
    # so its 1 - a is taken from what the other classes have; all others have an a below 1/2.
    a = shares.exp()
    small = a < _TINY
    safe = torch.where(small, torch.full_like(a, 0.5), a).clamp(max=0.75)
    ratio = torch.where(small, 1 + a / 2, -torch.log1p(-safe) / safe)
    top, leader = values.max(dim=1, keepdim=True)
    leads = torch.zeros_like(a, dtype=torch.bool).scatter(1, leader, True)
    rest = torch.where(leads, top.detach() - _CERTAIN, values).logsumexp(dim=1, keepdim=True)
    led = softplus(top - rest).log()
    logs = torch.where(leads, led, shares + ratio.log())
    log_n = torch.logsumexp(logs, dim=2) + float(np.log(looks / logs.shape[2]))
    # z = log(exp(n) - 1), which is log n + n / 2 for a small n and n for a large one.
    few = log_n < float(np.log(_TINY))
    n = torch.where(few, torch.ones_like(log_n), log_n.exp())
    return torch.where(few, log_n + log_n.exp() / 2, n + torch.log(-torch.expm1(-n)))


def _relative(selection: Tensor | None, z: Tensor) -> Tensor | None:
    """(C,) weights of which the smallest is 3; None if all are equal."""
    if selection is None or bool((selection == selection[0]).all()):
        return None
    w = selection.to(z)
    return 3 * w / w.min()


def _total(present: Tensor, w: Tensor | None, z: Tensor) -> Tensor:
    """(B, 1) weight of all classes that were observed: their number if all weigh the same."""
    if w is None:
        return present.sum(dim=1, keepdim=True).to(z.dtype)
    return torch.where(present, w, torch.zeros_like(w)).sum(dim=1, keepdim=True)


def _factors(z: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """(B, nodes, C) log(1 - p_j + p_j u^w_j), and (nodes,) logarithms of weights and nodes."""
    count = -(-z.shape[1] // 2) if w is None else _enough(float(w.sum()))
    nodes, weights = (
        torch.as_tensor(values, dtype=z.dtype, device=z.device) for values in _nodes(count)
    )
    # 1 - p is a sigmoid of its own, so that no digits are lost where p is close to 1.
    present, absent = z.sigmoid()[:, None, :], (-z).sigmoid()[:, None, :]
    powers = nodes[:, None] if w is None else nodes[:, None] ** w
    return torch.log(absent + present * powers), weights.log(), nodes.log()


def _enough(degree: float) -> int:
    """Nodes for weights with this sum: what whole numbers need, and more for powers at u = 0."""
    return int(np.ceil(degree / 2)) + 16


def rule(classes: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...]:
    """Nodes and weights on [0, 1] that integrate polynomials of degree C - 1 exactly."""
    return _nodes(-(-classes // 2))


@cache
def _nodes(count: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...]:
    """So many nodes on [0, 1], and their weights: polynomials of degree 2 count - 1 are exact."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2
