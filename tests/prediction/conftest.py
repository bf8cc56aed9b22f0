from __future__ import annotations

from pathlib import Path

import pytest

from planted import write_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An exported model whose probabilities are the means of its three bands over 8 x 8 pixels."""
    return write_model(tmp_path / "model")
