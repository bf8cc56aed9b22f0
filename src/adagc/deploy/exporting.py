"""Writes a trained network for other programs, and checks what was written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from adagc._version import __version__
from adagc.atomic import replacing
from adagc.deploy.facts import ModelFacts
from adagc.deploy.graph import TOLERANCE, Deployed, difference, probe, to_onnx
from adagc.deploy.runtime import ONNX
from adagc.errors import AdagcError
from adagc.training.runs import Run


@dataclass(frozen=True)
class Exported:
    """What an export wrote."""

    folder: Path
    files: tuple[str, ...]  # names of the files in it
    difference: float  # largest difference of a probability to our own network


def export(run: Run | Path | str, out: Path | str) -> Exported:
    """Write the deployed network of a finished run.

    Args:
        run: The run, or its folder.
        out: Folder to write, created if need be.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    classifier = run.model()
    made, spec = run.made, classifier.spec
    facts = ModelFacts(
        classes=spec.classes,
        bands=spec.bands,
        shape=spec.shape,
        thresholds=tuple(classifier.short_thresholds()),
        rule=str(run.settings["thresholds"] or "half"),
        nodata=classifier.normalise.nodata,
        method=made.method,
        licence="",
        version=__version__,
    )
    example = torch.from_numpy(probe(classifier, 2, seed=0))
    content = to_onnx(Deployed(classifier).eval(), example, facts.to_metadata())
    worst = difference(content, classifier)
    if not worst <= TOLERANCE:
        raise AdagcError(
            f"the exported model differs from ours by {worst:.2g}, more than {TOLERANCE:g}:"
            " nothing was written"
        )
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / ONNX) as (file,):
        file.write(content)
    return Exported(folder, (ONNX,), worst)
