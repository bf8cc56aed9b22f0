"""Data sets by name: their images, their splits and, where they exist, their clean labels."""

from adagc.datasets.assemble import collect
from adagc.datasets.collection import Collection
from adagc.datasets.registry import DataSet, Recognised, find, open_collection, register
from adagc.images.base import SceneDataset

__all__ = [
    "Collection",
    "DataSet",
    "Recognised",
    "SceneDataset",
    "collect",
    "find",
    "open_collection",
    "register",
]
