"""The result of `adagc inspect`: the data of the report, its warnings and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from adagc.datasets.inspect.areas import Areas
from adagc.datasets.inspect.edges import Suspect
from adagc.datasets.inspect.labels import Labels
from adagc.datasets.inspect.origin import Origin
from adagc.errors import examples
from adagc.images.moments import LARGEST, BandStatistics

if TYPE_CHECKING:
    from rich.console import RenderableType

TINY = 32  # pixels: smaller images leave most backbones an empty map after their last stage
_BANDS = 16  # bands of which the statistics are printed; embeddings have hundreds
SHOWN = 12  # rows printed of a table that may have very many


@dataclass(frozen=True)
class Images:
    """Summary of the image files, or of the rows of an array."""

    names: tuple[str, ...]  # names of the readable images
    shapes: dict[tuple[int, ...], int]  # shape of one image -> number of images with it
    dtypes: dict[str, int]  # dtype -> number of images with it
    bands: tuple[str, ...]
    statistics: BandStatistics | None  # of the images with the most common number of bands
    unreadable: dict[str, str]  # file -> reason
    missing: tuple[str, ...]  # images with missing values
    infinite: tuple[str, ...]  # images with infinite values
    suspects: tuple[Suspect, ...]  # numbers that probably stand for missing values
    duplicates: tuple[tuple[str, ...], ...]  # groups of identical files
    notes: tuple[str, ...] = ()  # how files were read, and names of bands that do not fit


@dataclass(frozen=True)
class Inspection:
    """Everything that `adagc inspect` reports."""

    root: str
    kind: str  # name of the data set that the path was recognised as
    images: Images
    labels: Labels | None
    truth: Labels | None
    warnings: tuple[str, ...]
    origin: Origin | None = None  # how observed labels came about, if truth tells
    # Of a data set that was opened as for training:
    splits: dict[str, int] = field(default_factory=dict)  # split -> number of images
    areas: Areas | None = None
    notes: tuple[str, ...] = ()  # what the data set says about itself

    def to_dict(self) -> dict[str, Any]:
        """The report as values that `json` can write."""
        images = self.images
        return {
            "root": self.root,
            "kind": self.kind,
            "images": len(images.names),
            "shapes": {" x ".join(map(str, shape)): n for shape, n in images.shapes.items()},
            "dtypes": images.dtypes,
            "bands": list(images.bands),
            "statistics": None if images.statistics is None else images.statistics.to_dict(),
            "unreadable": images.unreadable,
            "missing": list(images.missing),
            "infinite": list(images.infinite),
            "suspects": [asdict(suspect) for suspect in images.suspects],
            "duplicates": [list(group) for group in images.duplicates],
            "labels": None if self.labels is None else self.labels.to_dict(),
            "truth": None if self.truth is None else self.truth.to_dict(),
            "warnings": list(self.warnings),
            "origin": None if self.origin is None else self.origin.to_dict(),
            "splits": self.splits,
            "areas": None if self.areas is None else asdict(self.areas),
            "notes": list(self.notes),
        }


def image_warnings(images: Images, size: int | None) -> list[str]:
    """One line for each problem of the images; `size` is what they will be resized to, if known."""
    warnings = list(images.notes)
    if images.unreadable:
        files = examples(images.unreadable)
        warnings.append(f"{len(images.unreadable)} files cannot be read: {files}")
    if len({shape[0] for shape in images.shapes}) > 1:
        warnings.append("images have different numbers of bands; keep one kind per folder")
    depths = {"float" if name.startswith("float") else name for name in images.dtypes}
    if len(depths) > 1:
        warnings.append(f"images have different depths ({', '.join(sorted(depths))}); convert them")
    pictures = {shape: n for shape, n in images.shapes.items() if len(shape) == 3}
    tiny = sum(n for shape, n in pictures.items() if min(shape[1:]) < TINY)
    if tiny:
        warnings.append(f"{tiny} images are smaller than {TINY} pixels")
    small = sum(n for shape, n in pictures.items() if size and max(shape[1:]) < size)
    if small:
        warnings.append(f"{small} images are enlarged to {size} pixels, which adds no detail")
    return warnings + _value_warnings(images) + _duplicate_warnings(images)


def _value_warnings(images: Images) -> list[str]:
    measured = images.statistics
    if measured is None:
        return ["no image could be read"]
    warnings = list(measured.notes)
    if images.infinite:
        n, names = len(images.infinite), examples(images.infinite)
        warnings.append(
            f"{n} images have infinite values, or values beyond {LARGEST:.2g}, with which training"
            f" stops: {names}"
        )
    if images.missing:
        band = int(measured.missing.argmax())
        warnings.append(
            f"{len(images.missing)} images have missing values (band {images.bands[band]}:"
            f" {_percent(measured.missing[band])}), for which training uses the mean of the band:"
            f" {examples(images.missing)}"
        )
    warnings += [
        f"band {examples(suspect.bands)}: the value {suspect.value:.9g} ({_percent(suspect.share)}"
        " of the values) is far from all others; if it stands for missing values, add --nodata"
        f" {suspect.value:.9g}"
        for suspect in images.suspects
    ]
    for band_name, full in zip(images.bands, measured.saturated, strict=True):
        if full > 0.25:
            warnings.append(
                f"band {band_name}: {full:.0%} of the values are at the top of their range"
            )
    return warnings


def _percent(share: float) -> str:
    return f"{share:.2%}" if share >= 1e-4 else "less than 0.01%"


def _duplicate_warnings(images: Images) -> list[str]:
    copies = sum(len(group) - 1 for group in images.duplicates)
    if not copies:
        return []
    share = copies / (len(images.names) + len(images.unreadable))
    kind = "most images are" if share > 0.5 else f"{copies} images are"
    warnings = [f"{kind} copies of another one: {examples(images.duplicates[0])}"]
    across = sum(len({_top(file) for file in group}) > 1 for group in images.duplicates)
    if across:
        warnings.append(f"{across} groups of copies lie across top folders: a split may leak")
    return warnings


def _top(file: str) -> str:
    """The first folder of a relative path, "" if it has none."""
    first, slash, _ = file.partition("/")
    return first if slash else ""


def render(inspection: Inspection) -> RenderableType:
    """The report as tables for a terminal."""
    from rich.console import Group
    from rich.text import Text

    images = inspection.images
    parts: list[RenderableType] = [
        Text(f"{inspection.root}: {inspection.kind}, {len(images.names)} images", style="bold"),
        *(Text(note) for note in inspection.notes if note not in inspection.warnings),
        _table(
            "Shapes",
            ("shape", "images"),
            [(" x ".join(map(str, shape)), n) for shape, n in images.shapes.items()],
        ),
        _table("Values", ("dtype", "images"), list(images.dtypes.items())),
    ]
    if images.statistics is not None:
        s = images.statistics
        columns = zip(images.bands, s.mean, s.std, s.minimum, s.maximum, s.missing, strict=True)
        rows = [
            (band, *(f"{value:.4g}" for value in values), f"{lost:.2%}")
            for band, *values, lost in columns
        ]
        header = ("band", "mean", "std", "min", "max", "missing")
        parts.append(_table("Bands", header, rows, shown=_BANDS))
    if images.unreadable:
        unreadable = list(images.unreadable.items())
        parts.append(_table("Unreadable", ("file", "reason"), unreadable))
    for title, labels in (("Labels", inspection.labels), ("Truth", inspection.truth)):
        if labels is not None:
            counts = sorted(labels.counts.items(), key=lambda item: -item[1])
            parts.append(_table(title, ("class", "images"), counts, shown=len(counts)))
            cardinality = list(labels.cardinality.items())
            per_image = f"{title} per image (mean {labels.mean_cardinality:.2f})"
            parts.append(_table(per_image, ("labels", "images"), cardinality))
    if inspection.splits:
        parts.append(_table("Splits", ("split", "images"), list(inspection.splits.items())))
    if inspection.areas is not None:
        parts += _areas(inspection.areas)
    if inspection.origin is not None:
        parts += [Text(sentence) for sentence in inspection.origin.sentences]
    parts += [Text(f"warning: {warning}", style="yellow") for warning in inspection.warnings]
    if not inspection.warnings:
        parts.append(Text("nothing to worry about", style="green"))
    return Group(*parts)


def _areas(areas: Areas) -> list[RenderableType]:
    from rich.text import Text

    rows = [
        (name, "" if mean is None else f"{mean:.1%}", areas.largest[name])
        for name, mean in areas.mean.items()
    ]
    rows.sort(key=lambda row: -row[2])
    return [
        _table("Areas", ("class", "mean where labelled", "largest in"), rows, shown=len(rows)),
        Text(
            f"the largest class covers {areas.dominant:.1%} of an image on average;"
            f" {areas.hidden:.1%} of the images show a class that is too small to be a label"
        ),
    ]


def _table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], *, shown: int = SHOWN
) -> RenderableType:
    from rich.table import Table
    from rich.text import Text  # prints a "[" in a name instead of reading it as markup

    table = Table(title=title, title_justify="left")
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i == 0 else "right")
    for row in rows[:shown]:
        table.add_row(*(Text(str(cell)) for cell in row))
    if len(rows) > shown:
        table.add_row(f"and {len(rows) - shown} more", *("" for _ in header[1:]))
    return table
