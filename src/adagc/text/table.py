"""The embeddings that come with adagc."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from adagc.text.files import Embeddings, read_embeddings

_FILE = "class_names.safetensors"


@cache
def shipped_table() -> Embeddings:
    """All of them, with their encoder and template."""
    with resources.as_file(resources.files("adagc.text").joinpath(_FILE)) as path:
        return read_embeddings(path)


def shipped(classes: Sequence[str]) -> NDArray[np.float32] | None:
    """(C, D) embeddings of these class names, or None if one of them is not among the shipped.

    There are the 19 classes of refined BigEarthNet, which the synthetic scenes have too, and the
    17 of AID-multilabel and UC Merced. Spelling matters as little as in `read_text`.
    """
    return shipped_table().rows(classes)
