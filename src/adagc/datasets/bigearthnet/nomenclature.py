"""Land cover in BigEarthNet: codes of CORINE, the 43 classes of version 1, the 19 of version 2.

Sumbul et al., "BigEarthNet-MM", IEEE GRSM 2021, and Clasen et al., "reBEN", IGARSS 2025. Classes of
the 43 without a counterpart among the 19 are dropped, as the originals do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adagc.errors import DataError
from adagc.suggest import hint

_LAND_AND_NATURE = (
    "Land principally occupied by agriculture, with significant areas of natural vegetation"
)
_GRASSLAND = "Natural grassland and sparsely vegetated areas"
_MOORS = "Moors, heathland and sclerophyllous vegetation"

CLASSES: Final = (
    "Urban fabric",
    "Industrial or commercial units",
    "Arable land",
    "Permanent crops",
    "Pastures",
    "Complex cultivation patterns",
    _LAND_AND_NATURE,
    "Agro-forestry areas",
    "Broad-leaved forest",
    "Coniferous forest",
    "Mixed forest",
    _GRASSLAND,
    _MOORS,
    "Transitional woodland, shrub",
    "Beaches, dunes, sands",
    "Inland wetlands",
    "Coastal wetlands",
    "Inland waters",
    "Marine waters",
)
# Code of CORINE, level 3: (name among the 43 classes, name among the 19 or None).
CORINE: Final[dict[int, tuple[str, str | None]]] = {
    111: ("Continuous urban fabric", "Urban fabric"),
    112: ("Discontinuous urban fabric", "Urban fabric"),
    121: ("Industrial or commercial units", "Industrial or commercial units"),
    122: ("Road and rail networks and associated land", None),
    123: ("Port areas", None),
    124: ("Airports", None),
    131: ("Mineral extraction sites", None),
    132: ("Dump sites", None),
    133: ("Construction sites", None),
    141: ("Green urban areas", None),
    142: ("Sport and leisure facilities", None),
    211: ("Non-irrigated arable land", "Arable land"),
    212: ("Permanently irrigated land", "Arable land"),
    213: ("Rice fields", "Arable land"),
    221: ("Vineyards", "Permanent crops"),
    222: ("Fruit trees and berry plantations", "Permanent crops"),
    223: ("Olive groves", "Permanent crops"),
    231: ("Pastures", "Pastures"),
    241: ("Annual crops associated with permanent crops", "Permanent crops"),
    242: ("Complex cultivation patterns", "Complex cultivation patterns"),
    243: (_LAND_AND_NATURE, _LAND_AND_NATURE),
    244: ("Agro-forestry areas", "Agro-forestry areas"),
    311: ("Broad-leaved forest", "Broad-leaved forest"),
    312: ("Coniferous forest", "Coniferous forest"),
    313: ("Mixed forest", "Mixed forest"),
    321: ("Natural grassland", _GRASSLAND),
    322: ("Moors and heathland", _MOORS),
    323: ("Sclerophyllous vegetation", _MOORS),
    324: ("Transitional woodland/shrub", "Transitional woodland, shrub"),
    331: ("Beaches, dunes, sands", "Beaches, dunes, sands"),
    332: ("Bare rock", None),
    333: ("Sparsely vegetated areas", _GRASSLAND),
    334: ("Burnt areas", None),
    411: ("Inland marshes", "Inland wetlands"),
    412: ("Peatbogs", "Inland wetlands"),
    421: ("Salt marshes", "Coastal wetlands"),
    422: ("Salines", "Coastal wetlands"),
    423: ("Intertidal flats", None),
    511: ("Water courses", "Inland waters"),
    512: ("Water bodies", "Inland waters"),
    521: ("Coastal lagoons", "Marine waters"),
    522: ("Estuaries", "Marine waters"),
    523: ("Sea and ocean", "Marine waters"),
}
UNLABELLED: Final = 999  # of a pixel of a reference map; 335, glaciers, is in no class either
CLASS_OF_CODE: Final = {
    code: CLASSES.index(name) for code, (_, name) in CORINE.items() if name is not None
}
_CLASS_OF_NAME: Final[dict[str, int | None]] = {
    **{old: None if new is None else CLASSES.index(new) for old, new in CORINE.values()},
    **{name: number for number, name in enumerate(CLASSES)},
}


def class_of(name: str, place: str) -> int | None:
    """The number of the class among the 19 for a name of either nomenclature; None if dropped.

    Args:
        name: A name of the 43 or the 19 classes.
        place: Where it was read, for the DataError if there is no such class.
    """
    if name not in _CLASS_OF_NAME:
        near = hint(name, _CLASS_OF_NAME) or "; it is in neither nomenclature of BigEarthNet"
        raise DataError(f"{place}: unknown class {name!r}{near}")
    return _CLASS_OF_NAME[name]


def multi_hot(names: Iterable[str], place: str) -> NDArray[np.bool_]:
    """Which of the 19 classes are among these names, (19,); arguments as for `class_of`."""
    row = np.zeros(len(CLASSES), dtype=np.bool_)
    for name in names:
        number = class_of(name, place)
        if number is not None:
            row[number] = True
    return row
