"""`adagc text`: from class names to a file of their embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adagc.errors import UsageError
from adagc.labels.names import class_names
from adagc.text.encoders import MINILM, embed
from adagc.text.files import write_text
from adagc.text.names import TEMPLATE
from adagc.text.similarity import correlation, cosines

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Which classes are related, judged by the embeddings of their names."""

    classes: tuple[str, ...]
    cosine: NDArray[np.float64]  # (C, C) cosine similarity after centring, see `cosines`
    share: NDArray[np.float64]  # (C, C) the matrix S of the method LCR, see `correlation`

    def of(self, row: int, count: int = 3) -> list[tuple[str, float, float]]:
        """The `count` classes most related to class number `row`, the closest first.

        Returns:
            For each its name, cosine similarity and share in S; unrelated classes are left out.
        """
        order = np.argsort(-self.share[row], kind="stable")[:count]
        return [
            (self.classes[i], float(self.cosine[row, i]), float(self.share[row, i]))
            for i in order
            if self.share[row, i] > 0
        ]

    def to_dict(self) -> dict[str, list[dict[str, Any]]]:
        """The related classes of each class, as values that `json` can write."""
        return {
            name: [
                {"class": related, "cosine": round(cosine, 4), "share": round(share, 4)}
                for related, cosine, share in self.of(row)
            ]
            for row, name in enumerate(self.classes)
        }

    def table(self) -> Table:
        """The related classes of each class, as a table for the terminal."""
        from rich.table import Table
        from rich.text import Text  # prints a "[" in a name instead of reading it as markup

        table = Table(header_style="bold")
        table.add_column("class")
        table.add_column("nearest classes (cosine after centring)")
        for row, name in enumerate(self.classes):
            near = "; ".join(f"{related} {cosine:.2f}" for related, cosine, _ in self.of(row))
            table.add_row(Text(name), Text(near or "none"))
        return table


def embed_file(
    classes: str, out: Path, *, encoder: str = MINILM, template: str = TEMPLATE
) -> Neighbours:
    """Write the embeddings of class names, and return which classes they show to be related.

    Args:
        classes: Names with commas between them (put a name that contains a comma in quotation
            marks), or the path of a file with one name per line or of a label file.
        out: The file to write, .csv or .safetensors.
        encoder: See `adagc.text.embed`.
        template: Sentence that is embedded in place of a name; it contains {name}.
    """
    if out.suffix.lower() not in (".csv", ".safetensors"):
        raise UsageError(f"{out} must end with .csv or .safetensors: rename it")
    if not out.parent.is_dir():
        raise UsageError(f"there is no folder {out.parent} for {out.name}: make it first")
    names = class_names(classes)
    if Path(classes).is_file() and out.exists() and out.samefile(classes):
        raise UsageError(f"{out} is the file of class names itself: choose another --out")
    values = embed(names, encoder, template=template)
    meta = {"encoder": _called(encoder), "template": template}
    write_text(out, names, values, meta)
    return Neighbours(names, cosines(values), correlation(values))


def _called(encoder: str) -> str:
    """The name of the encoder for the file: of a checkpoint the file name without its folders."""
    return "all-MiniLM-L6-v2" if encoder.lower() == MINILM else Path(encoder).name


__all__ = ["Neighbours", "class_names", "embed_file"]
