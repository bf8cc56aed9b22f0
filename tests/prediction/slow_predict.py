"""`adagc` with small blocks and a pause after each, so that a test can end it in the middle."""

from __future__ import annotations

import sys
import time

from adagc.cli import main
from adagc.prediction import inputs, work
from adagc.windows.grid import share

PAUSE = float(sys.argv[1])
inputs.share = lambda *a, **k: share(*a, **{**k, "across": False, "most": 3 * 16 * 16})
quick = work.compute_block


def slow(*words):
    result = quick(*words)
    time.sleep(PAUSE)
    return result


work.compute_block = slow

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[2:]))
