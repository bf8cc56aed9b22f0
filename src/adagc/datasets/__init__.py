"""Data sets by kind: images, splits and, where they exist, clean labels."""

from adagc.datasets.collection import Collection
from adagc.datasets.registry import KINDS, open_collection
from adagc.images.base import SceneDataset

__all__ = ["KINDS", "Collection", "SceneDataset", "open_collection"]
