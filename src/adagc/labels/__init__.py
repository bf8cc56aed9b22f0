"""Labels of images: reading and writing label files, simulating single labels, statistics."""

from __future__ import annotations

from adagc.labels.areas import read_areas, write_areas
from adagc.labels.files import read_labels, write_labels
from adagc.labels.map_folder import MapAreas, MapFolder, read_map_classes
from adagc.labels.maps import class_areas
from adagc.labels.matching import locate, match
from adagc.labels.simulate import areas_from_maps, simulate_dominant, simulate_random
from adagc.labels.statistics import FlipRates, cooccurrence, flip_rates
from adagc.labels.table import LabelTable

__all__ = [
    "FlipRates",
    "LabelTable",
    "MapAreas",
    "MapFolder",
    "areas_from_maps",
    "class_areas",
    "cooccurrence",
    "flip_rates",
    "locate",
    "match",
    "read_areas",
    "read_labels",
    "read_map_classes",
    "simulate_dominant",
    "simulate_random",
    "write_areas",
    "write_labels",
]
