"""Writes a trained network for other programs, and checks what was written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from adagc._version import __version__
from adagc.deploy import backbone, checks, deepness, folder
from adagc.deploy.card import CARD, CardInputs, title_of, write_card
from adagc.deploy.facts import HALF, METHOD, ModelFacts
from adagc.deploy.graph import Deployed, to_onnx, to_pt2, trace
from adagc.deploy.intervals import intervals
from adagc.deploy.licences import Licences, licences
from adagc.deploy.runtime import ONNX
from adagc.deploy.stac import STAC, Asset, Description, item
from adagc.errors import AdagcError, UsageError
from adagc.models import THRESHOLD, Classifier
from adagc.progress import meter
from adagc.report.record import Record
from adagc.report.remarks import remarks
from adagc.training.runs import Run

Format = Literal["onnx", "torch", "timm"]
Program = Literal["deepness"]
FORMATS: tuple[Format, ...] = get_args(Format)
PT2, TIMM = "model.pt2", "backbone.safetensors"
FILES = frozenset({ONNX, PT2, TIMM, deepness.DEEPNESS, STAC, CARD})


@dataclass(frozen=True)
class Exported:
    """What an export wrote."""

    folder: Path
    sizes: dict[str, int]  # bytes of each file, by name
    # Largest difference to our own network, by file: of a probability, or of a feature of timm's
    # network as a share of the largest one.
    differences: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """The values as a dictionary for JSON."""
        return {
            "folder": str(self.folder),
            "sizes": self.sizes,
            "differences": self.differences,
        }


def export(
    run: Run | Path | str,
    out: Path | str,
    *,
    formats: Sequence[Format] | None = None,
    program: Program | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write the deployed network of a finished run, a STAC item and a model card.

    Every file is checked against our own network before anything is written. Raises AdagcError if
    one differs by more than 1e-5, if the run is not finished, or if a library is missing.

    Example:
        >>> import numpy as np
        >>> from adagc import RunConfig, collect, export, train
        >>> rng = np.random.default_rng(0)
        >>> X, y = rng.normal(size=(40, 8)), np.eye(2)[np.arange(40) % 2]
        >>> run = train(RunConfig(epochs=1), "AN", collection=collect(X, labels=y))
        >>> done = export(run, "models/first", formats=["onnx"])
        >>> sorted(done.sizes), done.differences["model.onnx"] < 1e-5
        (['MODEL_CARD.md', 'model.onnx', 'model.stac.json'], True)

    Args:
        run: The run, or its folder.
        out: Folder to write, created if need be. An earlier export in it is replaced.
        formats: "onnx" (raw values to probabilities, for onnxruntime), "torch" (the same for
            `torch.export.load`), "timm" (the weights of the backbone under timm's names); by
            default all that the network has.
        program: Write a file for this program, too: "deepness", the plug-in of QGIS.
        overwrite: Write into a folder that holds other files, which stay.
    """
    run = Run.of(run)
    if not run.finished:
        raise AdagcError(f"{run} is not finished: adagc train --resume completes it")
    place = Path(out)
    folder.check_place(place, overwrite=overwrite, ours=FILES)
    classifier = run.model()
    wanted = _wanted(formats, classifier)
    terms = licences(run.settings.data, classifier.spec.weights)
    facts = facts_of(run, classifier, terms)
    if program == "deepness":
        deepness.check_suited(facts)
    with meter("exporting"):
        assets, differences = _models(classifier, facts, wanted, program)
    files = {asset.name: asset.content for asset in assets}
    files |= _descriptions(run, classifier, facts, terms, assets)
    folder.write(place, files, ours=FILES)
    return Exported(place, {name: len(content) for name, content in files.items()}, differences)


def facts_of(run: Run, classifier: Classifier, terms: Licences) -> ModelFacts:
    """What the exported model says about itself."""
    spec = classifier.spec
    limits = tuple(classifier.short_thresholds())
    told = str(run.settings["thresholds"] or HALF)
    return ModelFacts(
        classes=spec.classes,
        bands=spec.bands,
        shape=spec.shape,
        thresholds=limits,
        rule=HALF if set(limits) == {THRESHOLD} else METHOD if told == HALF else told,
        nodata=classifier.normalise.nodata,
        method=run.made.method,
        licence=terms.note,
        version=__version__,
        trained_on=run.made.trained_on,
    )


def _wanted(formats: Sequence[Format] | None, classifier: Classifier) -> list[Format]:
    """The formats to write, each once; UsageError for one that the network cannot have."""
    ours = backbone.timm_backbone(classifier) is None
    if formats is None:
        return [one for one in FORMATS if not (ours and one == "timm")]
    unknown = [one for one in formats if one not in FORMATS]
    if unknown or not formats:
        named = repr(unknown[0]) if unknown else "none"
        raise UsageError(f"there is no format {named}: choose from {', '.join(FORMATS)}")
    if ours and "timm" in formats:
        raise UsageError(
            f"backbone {classifier.spec.backbone} is not a network of timm: leave timm out of"
            " --formats"
        )
    return list(dict.fromkeys(formats))


def _models(
    classifier: Classifier, facts: ModelFacts, wanted: Sequence[Format], program: Program | None
) -> tuple[list[Asset], dict[str, float]]:
    """The files of the model, each checked, and how far each differs from our network."""
    assets: list[Asset] = []
    differences: dict[str, float] = {}
    torch_version = ("PyTorch", torch.__version__)

    def add(asset: Asset, found: float) -> None:
        differences[asset.name] = checks.check(asset.name, found)
        assets.append(asset)

    example = torch.from_numpy(checks.probe(classifier, 2, seed=0))
    if "onnx" in wanted or "torch" in wanted:
        traced = trace(Deployed(classifier), example)
    if "onnx" in wanted:
        content = to_onnx(traced, facts.to_metadata())
        title = "ONNX: raw values to probabilities; classes and thresholds in its metadata"
        found = checks.onnx_difference(content, classifier, ONNX)
        add(Asset(ONNX, title, content, artifact="onnx", framework=_onnx_version()), found)
    if "torch" in wanted:
        content = to_pt2(traced)
        title = "torch.export: raw values to probabilities"
        found = checks.pt2_difference(content, classifier)
        add(
            Asset(PT2, title, content, artifact="torch.export.save", framework=torch_version), found
        )
    if "timm" in wanted:
        content = backbone.to_safetensors(classifier)
        title = "weights of the backbone under timm's names, without head; values to be normalised"
        kind = "safetensors.torch.save_file"
        found = backbone.timm_difference(content, classifier)
        add(Asset(TIMM, title, content, artifact=kind, framework=torch_version), found)
    if program == "deepness":
        content = deepness.to_deepness(classifier, facts, example)
        title = "ONNX for Deepness, the plug-in of QGIS: a map of probabilities for every class"
        found = deepness.deepness_difference(content, classifier)
        named = deepness.DEEPNESS
        add(Asset(named, title, content, artifact="onnx", framework=_onnx_version()), found)
    return assets, differences


def _onnx_version() -> tuple[str, str]:
    import onnx

    return "ONNX", onnx.__version__


def _descriptions(
    run: Run,
    classifier: Classifier,
    facts: ModelFacts,
    terms: Licences,
    assets: Sequence[Asset],
) -> dict[str, bytes]:
    """The model card, and the STAC item with the checksums of all other files."""
    spec, settings = classifier.spec, run.settings
    record = Record(run, settings, tuple(run.history), run.labels, run.scores, {}, spec)
    title = title_of(record)
    architecture = f"{spec.backbone}, head {spec.head.kind}"
    card = write_card(
        CardInputs(
            record=record,
            facts=facts,
            architecture=architecture,
            licences=terms,
            intervals=intervals(run),
            remarks=remarks(run),
            files={asset.name: asset.title for asset in assets},
        )
    ).encode()
    told = ("epochs", "batch_size", "optimiser", "learning_rate", "weight_decay", "seed")
    about = Description(
        name=title,
        about=f"A multi-label classifier of {len(facts.classes)} classes, trained with"
        f" {facts.method} by adagc {__version__}.",
        architecture=architecture,
        pretrained=None if spec.weights == "none" else spec.weights,
        parameters=sum(one.numel() for one in classifier.parameters()),
        mean=classifier.normalise.mean.tolist(),
        std=classifier.normalise.std.tolist(),
        hyperparameters={
            **{name: settings[name] for name in told},
            **{f"method.{name}": value for name, value in settings.options.items()},
        },
        framework=assets[0].framework,
    )
    every = [*assets, Asset(CARD, "model card", card, media="text/markdown")]
    text = json.dumps(item(facts, about, every), indent=1, ensure_ascii=False) + "\n"
    return {CARD: card, STAC: text.encode()}
