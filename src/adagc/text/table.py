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
    """All embeddings that come with adagc; their encoder and template are in `meta`."""
    with resources.as_file(resources.files("adagc.text").joinpath(_FILE)) as path:
        return read_embeddings(path)


def shipped(classes: Sequence[str]) -> NDArray[np.float32] | None:
    """The shipped embeddings of these class names, (C, D); None if one of them is missing.

    The table has the 19 classes of refined BigEarthNet, which are also those of the synthetic
    scenes, the 17 classes of AID-multilabel and UC Merced, and the 30 kinds of scenes of AID, which
    are those of mosaics. Different spellings are accepted as in `read_text`.
    """
    return shipped_table().rows(classes)
