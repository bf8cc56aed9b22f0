"""The examples run as they are, in the folder of the project."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_training_in_sixty_lines():
    """It learns: a network that has learnt nothing has an mAP of about 18 here."""
    script = EXAMPLES / "train_in_60_lines.py"
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    done = subprocess.run(
        [sys.executable, "-c", text.replace("EPOCHS, BATCH = 15", "EPOCHS, BATCH = 5")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"mAP (\d+\.\d)", done.stdout)
    assert found
    assert float(found[1]) > 35
    assert done.stdout.count("epoch") == 5
