"""What the number of patches costs: starting and training on an index of 549,488, preparing.

The index is that of a finished store without its pixels; training reads small images in place of
them, everything else is what a run on reBEN does. `benchmarks/reben.py` prints what comes out.

    python benchmarks/reben_volume.py --child start-up STORE
    python benchmarks/reben_volume.py --child epochs STORE [EPOCHS]
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

FULL = 549_488
EPOCHS, BATCH, SIDE = 5, 512, 4
CLASSES = 19
# Of every patch, for `preparing`: starting two workers takes half a second, which is not to count.
COPIES, IN_TURN = 64, 2


def large_index(folder: Path, patches: int = FULL) -> Path:
    """The files of a finished store of so many patches, without their pixels."""
    from adagc.atomic import write_json
    from adagc.datasets.bigearthnet.layout import PLAN, STORE
    from adagc.datasets.bigearthnet.patches import Patches, write_arrays
    from adagc.datasets.bigearthnet.store import INDEX, MOMENTS, Plan
    from adagc.images.bigearthnet.measured import RECORD

    rng = np.random.default_rng(0)
    tile = "S2A_MSIL2A_20170613T101031_N9999_R022_T33UUP"
    names = tuple(f"{tile}_{i // 1000:03d}_{i % 1000:03d}" for i in range(patches))
    radar = tuple(f"S1B_IW_GRDH_1SDV_20170612T165809_33UUP_{i}" for i in range(patches))
    sizes = (patches // 2, patches // 4, patches - patches // 2 - patches // 4)
    split = np.repeat(np.arange(3, dtype=np.int8), sizes)
    labels = rng.random((patches, CLASSES)) < 0.15
    labels[~labels.any(axis=1), 2] = True
    flags = np.zeros(patches, np.uint8)
    folder.mkdir()
    plan = Plan("memmap", "nearest", 2, patches, "", True, True, False)
    write_json(folder / PLAN, plan.to_dict())
    rows = np.arange(patches, dtype=np.uint32)
    write_arrays(
        folder / INDEX, Patches(names, radar, split, labels, flags),
        rows=rows, checksums=np.zeros((patches, 2), np.uint32),
    )  # fmt: skip
    np.lib.format.open_memmap(folder / MOMENTS, mode="w+", dtype=RECORD, shape=(patches,))
    write_json(folder / STORE, plan.to_dict())
    return folder


def memory(field: str) -> float:
    """Memory of this process in MB: "VmRSS" for now, "VmHWM" for the most there was.

    Not ru_maxrss, which knows the process that started this one too.
    """
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) / 1000 for line in status if line.startswith(field))


def start_up(store: Path) -> dict[str, float]:
    """Seconds of CPU and memory until training on this store can begin."""
    cpu = time.process_time()
    from adagc.datasets.registry import open_collection
    from adagc.training.observe import observe

    data = open_collection("bigearthnet", store)
    opened = time.process_time() - cpu
    observe(data, labels=None, scheme="random", label_seed=0)
    spent = time.process_time() - cpu
    import torch  # noqa: F401 - as training needs it

    return {
        "patches": len(data.images), "opened": opened, "seconds": spent, "peak": memory("VmHWM"),
    }  # fmt: skip


def epochs(store: Path, number: int = EPOCHS) -> dict[str, Any]:
    """Memory after each epoch of AdaGC on this store, and what it keeps per training image."""
    import torch

    from adagc.datasets.registry import open_collection
    from adagc.methods.adagc import AdaGC
    from adagc.training.config import RunConfig
    from adagc.training.experiment import train

    torch.set_num_threads(1)
    data = open_collection("bigearthnet", store)
    data = replace(data, images=_small(data.images))
    config = RunConfig(
        data="bigearthnet", root=str(store), scheme="random", epochs=number, batch_size=BATCH,
        backbone="test_resnet", weights="none", learning_rate=1e-3,
    )  # fmt: skip
    method = AdaGC(force_trigger=1 / number)  # calibration from the second epoch on
    resident: list[float] = []

    def note(record: object) -> None:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what is free is not in use
        resident.append(memory("VmRSS"))

    with tempfile.TemporaryDirectory() as temporary:
        train(config, method, Path(temporary) / "run", collection=data, on_epoch=note)
        files = sum(path.stat().st_size for path in Path(temporary).rglob("*.ckpt")) / 1e6
    count = len(data.splits["train"])
    kept = sum(
        value.numel() * value.element_size()
        for value in method.state_dict().values()
        if isinstance(value, torch.Tensor) and value.dim() and len(value) == count
    )
    return {
        "patches": len(data.images), "training": count, "resident": resident,
        "bytes_per_image": kept / count, "peak": memory("VmHWM"), "checkpoints": files,
    }  # fmt: skip


def _small(images: Any) -> Any:
    """The same patches with images of a few pixels, which are made up instead of read."""
    from adagc.images.bigearthnet.scenes import PatchScenes
    from adagc.images.bigearthnet.sources import Source

    class MadeUp(Source):
        form = "made up"

        def fill(self, rows: Any, bands: Any, resample: Any, out: Any) -> None:
            values = np.asarray(rows, np.float32) % 251 - 125
            ramp = np.arange(out[0].size, dtype=np.float32).reshape(out.shape[1:])
            np.multiply(values[:, None, None, None], ramp, out=out)

        def chosen(self, rows: Any) -> Source:
            return self

    small = PatchScenes(MadeUp(), images.names, images.bands, resample="nearest")
    small.shape = (len(images.bands), SIDE, SIDE)
    return small


def in_child(what: str, store: Path, *more: object) -> Any:
    """The result of `start_up` or `epochs` in a process of its own, whose memory is measured."""
    command = [sys.executable, __file__, "--child", what, str(store), *map(str, more)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def multiplied(root: Path, folder: Path, times: int = COPIES) -> Path:
    """A copy with every patch of another several times, under other names; files are linked."""
    import pyarrow
    import pyarrow.parquet

    def renamed(name: str, number: int) -> str:
        head, row, column = name.rsplit("_", 2)
        return f"{head}_{int(row) + 20 * number:02d}_{column}"

    table = pyarrow.parquet.read_table(root / "metadata.parquet").to_pydict()
    columns: dict[str, list[Any]] = {name: [] for name in table}
    for number in range(times):
        for half in ("BigEarthNet-S2", "BigEarthNet-S1"):
            for path in (root / half).glob("*/*/*.tif"):
                old, new = path.parent.name, renamed(path.parent.name, number)
                target = folder / half / path.parent.parent.name / new
                target.mkdir(parents=True, exist_ok=True)
                os.link(path, target / path.name.replace(old, new))
        for name, values in table.items():
            own = name in ("patch_id", "s1_name")
            columns[name] += [renamed(value, number) for value in values] if own else values
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "metadata.parquet")
    return folder


def preparing(root: Path, folder: Path, form: str) -> dict[str, float]:
    """What one and two workers of `adagc prepare` take on this copy.

    Returns:
        The seconds by the clock and of CPU of the better of two turns each, and the share of the
        CPU time that is the parent's, which cannot be divided.
    """
    from adagc.datasets.bigearthnet.prepare import prepare

    found: dict[str, float] = {}
    for _ in range(IN_TURN):
        for workers in (1, 2):
            out = folder / "prepared"
            before, own = _cpu(), time.process_time()
            began = time.perf_counter()
            done = prepare(root, out, form=form, workers=workers)  # type: ignore[arg-type]
            seconds = time.perf_counter() - began
            shutil.rmtree(out)
            if seconds < found.get(f"seconds_{workers}", np.inf):
                found[f"seconds_{workers}"] = seconds
                found[f"cpu_{workers}"] = _cpu() - before
                found[f"parent_{workers}"] = time.process_time() - own
    return {"patches": done.patches, **found}


def _cpu() -> float:
    """Seconds of CPU of this process and of those it has waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


CHILDREN: dict[str, Callable[..., Any]] = {"start-up": start_up, "epochs": epochs}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", choices=CHILDREN, required=True)
    parser.add_argument("store", type=Path)
    parser.add_argument("more", type=int, nargs="*")
    options = parser.parse_args()
    print(json.dumps(CHILDREN[options.child](options.store, *options.more)))
