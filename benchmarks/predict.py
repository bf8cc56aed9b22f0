"""Predicting with an exported model: its speed against eager torch, and what its start costs.

    python benchmarks/predict.py [--rounds 5]

ResNet-34 on images of 120 pixels and 14 bands, as in reBEN, on two cores. Both take turns on the
same images; the ratio is that of the fastest rounds, which other processes disturb least. Goals:
onnxruntime at least 1.3 times as fast, and less than 3 s of CPU from the start of Python to the
probabilities of one image, without importing torch.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from adagc.deploy import ExportedModel, ModelFacts
from adagc.deploy.checks import onnx_difference, probe
from adagc.deploy.graph import Deployed, to_onnx, trace
from adagc.inference import probabilities
from adagc.models import Classifier, ModelSpec, build
from start_up import cpu_seconds

CORES = 2
IMAGES, BATCH = 128, 32
RATIO, START = 1.3, 3.0
FIRST = (
    "import sys, numpy as np\n"
    "from adagc.deploy import ExportedModel\n"
    "model = ExportedModel(sys.argv[1])\n"
    "model.probabilities(np.zeros((1, *model.shape), np.uint16))\n"
    "assert 'torch' not in sys.modules\n"
)


def network() -> Classifier:
    bands = tuple(f"band {i}" for i in range(14))
    classes = tuple(f"class {i}" for i in range(19))
    return build(ModelSpec("resnet34", (14, 120, 120), classes, bands), seed=0).eval()


def write(classifier: Classifier, folder: Path) -> Path:
    """The exported model; SystemExit if it computes something else."""
    spec = classifier.spec
    facts = ModelFacts(
        *(spec.classes, spec.bands, spec.shape, (0.5,) * len(spec.classes)),
        *("half", None, "none", "", "benchmark"),
    )
    example = torch.from_numpy(probe(classifier, 2, seed=0))
    content = to_onnx(trace(Deployed(classifier), example), facts.to_metadata())
    if not onnx_difference(content, classifier, "the model") <= 1e-5:
        raise SystemExit("the exported model computes something else")
    path = folder / "model.onnx"
    path.write_bytes(content)
    return path


def seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def compare(classifier: Classifier, model: ExportedModel, rounds: int) -> float:
    """How many times as fast as eager torch the exported model is."""
    images = probe(classifier, IMAGES, seed=1)

    @torch.no_grad()
    def eager() -> None:
        for part in torch.from_numpy(images).split(BATCH):
            probabilities(classifier, part)

    def exported() -> None:
        model.probabilities(images, batch_size=BATCH)

    eager(), exported()  # the first call of each sets things up
    times = [(seconds(eager), seconds(exported)) for _ in range(rounds)]
    ours, theirs = (min(column) for column in zip(*times, strict=True))
    print(f"eager torch  {IMAGES / ours:6.1f} images/s on {CORES} cores")
    print(f"onnxruntime  {IMAGES / theirs:6.1f} images/s on {CORES} cores")
    return ours / theirs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(CORES)
    classifier = network()
    with tempfile.TemporaryDirectory() as folder:
        path = write(classifier, Path(folder))
        ratio = compare(classifier, ExportedModel(path, threads=CORES), rounds)
        print(f"  onnxruntime against eager torch {ratio:.2f} (at least {RATIO})", flush=True)
        used = cpu_seconds([sys.executable, "-c", FIRST, str(path)])
        print(f"  start to the first image {used:.2f} s of CPU (at most {START:.0f})")
    return int(ratio < RATIO or used > START)


if __name__ == "__main__":
    sys.exit(main())
