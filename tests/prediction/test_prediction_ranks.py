"""Two processes of torchrun predict and embed together, with the result of one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from adagc import RunConfig, embed, predict, train
from adagc.testing.processes import in_ranks

SCENES = RunConfig(
    data="synthetic", scenes=24, size=16, scheme="random", epochs=1, backbone="test_resnet",
    weights="none", batch_size=2, accelerator="cpu",
)  # fmt: skip


def work(run: str, values: str, folder: str) -> None:
    """What every rank does; only the first one gets results and writes."""
    from adagc import ranks

    vectors = embed(SCENES, Path(folder) / "vectors.npy")
    assert ranks.world() == 2  # they know each other by gloo
    found = predict(run, values, Path(folder) / "rows.csv", batch_size=2)
    first = ranks.rank() == 0
    assert (found is not None, vectors is not None) == (first, first)


def test_two_ranks_do_what_one_does(tmp_path):
    run = train(SCENES, "AN", tmp_path / "run")
    values = np.random.default_rng(0).integers(0, 3000, (40, 14, 16, 16), dtype=np.uint16)
    np.save(tmp_path / "values.npy", values)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    predict(run, tmp_path / "values.npy", tmp_path / "one" / "rows.csv", batch_size=2)
    embed(SCENES, tmp_path / "one" / "vectors.npy")
    in_ranks(work, str(run), str(tmp_path / "values.npy"), str(tmp_path / "two"))
    files = ["rows.csv", "vectors.names.txt", "vectors.npy"]
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == files
    for name in files:
        same = (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
        assert same, name
