"""The backbone of a network as a plain state dict of timm, in a file without pickle."""

from __future__ import annotations

import json

import torch

from adagc.deploy.checks import probe
from adagc.errors import AdagcError
from adagc.models import Classifier
from adagc.models.backbones import ImageBackbone, create_network


def timm_backbone(classifier: Classifier) -> ImageBackbone | None:
    """The backbone if it is a network of timm; None if it is one of ours."""
    backbone = classifier.backbone
    return backbone if isinstance(backbone, ImageBackbone) else None


def to_safetensors(classifier: Classifier) -> bytes:
    """The content of a file with the weights of the backbone under timm's names.

    They are for `timm.create_model(architecture, num_classes=0, in_chans=bands)`. Values have to be
    normalised before; how is in the metadata of the file.
    """
    from safetensors.torch import save

    backbone = timm_backbone(classifier)
    assert backbone is not None
    spec, normalise = classifier.spec, classifier.normalise
    state = backbone.net.state_dict()
    metadata = {
        "architecture": spec.backbone,
        "bands": "\n".join(spec.bands),  # as in our own files, for --weights
        "mean": json.dumps(normalise.mean.tolist()),
        "std": json.dumps(normalise.std.tolist()),
        "size": json.dumps(spec.shape[1:]),
    }
    plain = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    return save(plain, metadata=metadata)


@torch.no_grad()
def timm_difference(content: bytes, classifier: Classifier) -> float:
    """The largest difference between features of timm's network with these weights and of ours.

    It is relative to the largest feature.
    """
    from safetensors.torch import load

    spec = classifier.spec
    backbone = timm_backbone(classifier)
    assert backbone is not None
    net = create_network(spec.backbone, channels=spec.shape[0], size=spec.shape[1:]).eval()
    fitted = net.load_state_dict(load(content), strict=False)
    # Pooling by attention is replaced by the mean when a network is built here.
    missing = [name for name in fitted.missing_keys if not name.startswith("attn_pool.")]
    if missing or fitted.unexpected_keys:
        name = [*missing, *fitted.unexpected_keys][0]
        raise AdagcError(
            f"timm's {spec.backbone} has other weights than ours ({name}): leave timm out of"
            " --formats"
        )
    x = classifier.normalise(torch.from_numpy(probe(classifier, 2, seed=0)))
    ours, theirs = backbone.net.forward_features(x), net.forward_features(x)  # type: ignore[operator]
    scale = max(float(ours.abs().max()), 1.0)
    return float((ours - theirs).abs().max()) / scale
