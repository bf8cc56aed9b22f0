"""How long it takes to make the picture that an annotator sees, in CPU time.

python benchmarks/pictures.py
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from adagc.images.array import ArrayScenes
from adagc.web.pictures import composites, picture

S2 = ("B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B11", "B12")


def smooth(shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Made-up scenes with some detail: noise on a coarse pattern."""
    count, bands, height, width = shape
    coarse = generator.uniform(0, 1, (count, bands, -(-height // 16), -(-width // 16)))
    fine = coarse.repeat(16, axis=2).repeat(16, axis=3)[:, :, :height, :width]
    return fine + generator.normal(0, 0.05, shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=100)
    repeat = parser.parse_args().repeat
    generator = np.random.default_rng(0)
    large = np.clip(smooth((8, 3, 512, 512), generator) * 255, 0, 255)
    small = np.clip(smooth((8, 14, 120, 120), generator) * 4000, 0, 10_000)
    holes = large.astype(np.float32)
    holes[:, :, :40] = np.nan
    cases = {
        "512 x 512, 3 bands of 8 bits": (ArrayScenes(large.astype(np.uint8)), 0),
        "512 x 512, 3 bands of 16 bits": (ArrayScenes((large * 30).astype(np.uint16)), 0),
        "512 x 512, 3 bands, some missing": (ArrayScenes(holes), 0),
        "120 x 120, 14 bands, true colour": (
            ArrayScenes(small.astype(np.float32), bands=(*S2, "VV", "VH")),
            0,
        ),
        "120 x 120, 14 bands, radar": (
            ArrayScenes(small.astype(np.float32), bands=(*S2, "VV", "VH")),
            3,
        ),
    }
    print(f"{'':36}{'data set':>10}{'image':>10}   bytes")
    for name, (images, number) in cases.items():
        one = composites(images)[number]
        line = f"{name:36}"
        for how in ("data set", "image"):
            size = len(picture(images, 0, one, stretch=how).data)  # measures the data set
            start = time.process_time()
            for turn in range(repeat):
                picture(images, turn % 8, one, stretch=how)
            line += f"{(time.process_time() - start) / repeat * 1000:7.1f} ms"
        print(f"{line}   {size:,}")


if __name__ == "__main__":
    main()
