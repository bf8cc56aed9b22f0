"""The page as a whole."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from adagc._version import __version__
from adagc.atomic import write_text
from adagc.datasets.collection import Collection
from adagc.datasets.registry import find, names
from adagc.errors import AdagcError
from adagc.report.curves import pseudo_label_curves, training_curves
from adagc.report.gallery import gallery_section
from adagc.report.headline import comparison, data_name, headline, supervision
from adagc.report.html import duration, esc, facts, note, section
from adagc.report.record import Record
from adagc.report.tables import class_section, noise_section, score_section
from adagc.training.runs import Run


def write_report(
    run: Run,
    *,
    against: Sequence[Run] = (),
    out: Path | None = None,
    collection: Collection | None = None,
    title: str | None = None,
) -> Path:
    """Write one HTML file that needs nothing else: no network, no script, no other file.

    Whatever a run lacks (an end, clean labels, pictures) is left out of the page or said on it.

    Args:
        run: The run to tell of.
        against: Runs to compare it with; those tested on other images are shown with a warning.
        out: The file, or a folder for report.html; the run folder by default.
        collection: The data set, if it is open already; else it is opened for the pictures.
        title: Heading of the page.

    Returns:
        The file written.
    """
    record = Record.of(run)
    others = [Record.of(other) for other in against if not _same(other, run)]
    pictures, collection = _pictures(record, collection)
    sections = [
        score_section(record, others),
        training_curves(record),
        pseudo_label_curves(record),
        class_section(record, others),
        noise_section(record),
        pictures,
        _reproduce(record),
    ]
    shown = [part for part in sections if part]
    heading = title or f"{record.method} on {data_name(record)}"
    body = "\n".join([_header(record, others, heading, collection), _contents(shown), *shown])
    path = run.path("report.html") if out is None else Path(out)
    if path.is_dir():
        path = path / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, _document(heading, body))
    return path


def _document(title: str, body: str) -> str:
    style = resources.files("adagc.report").joinpath("style.css").read_text(encoding="utf-8")
    # The policy makes the browser keep the promise of the docstring; the empty icon saves it from
    # asking a server for one.
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "img-src data:; style-src 'unsafe-inline'\">"
        f'<link rel="icon" href="data:,"><title>{esc(title)}</title>\n<style>{style}</style>'
        f"</head>\n<body><main>\n{body}\n</main>\n"
        f"<footer>Written by adagc {esc(__version__)}.</footer></body></html>\n"
    )


def _same(one: Run, other: Run) -> bool:
    return one.folder.resolve() == other.folder.resolve()


def _contents(sections: Sequence[str]) -> str:
    """Links to the sections that are there."""
    found = [re.match(r'<section id="([^"]+)"><h2>(.*?)</h2>', part) for part in sections]
    links = "".join(f'<a href="#{hit[1]}">{hit[2]}</a>' for hit in found if hit)
    return f'<nav aria-label="Sections">{links}</nav>'


def _header(
    record: Record, others: Sequence[Record], heading: str, collection: Collection | None
) -> str:
    beside = comparison(record, others)
    lines = f'<p class="headline">{esc(headline(record))}</p>'
    if beside:
        lines += f'<p class="beside">{esc(beside)}</p>'
    if not record.run.finished:
        lines += note("This run is not finished: adagc train --resume continues it.")
    said = collection.notes if collection else ()
    remarks = "".join(f'<p class="small">{esc(text)}</p>' for text in said)
    return (
        f"<header><h1>{esc(heading)}</h1>{lines}{facts(_facts(record, collection))}{remarks}"
        f"{_options(record)}</header>"
    )


def _facts(record: Record, collection: Collection | None) -> list[tuple[str, str]]:
    settings, labels = record.settings, record.labels
    telling = ", ".join(f"{_word(k)} {_value(v)}" for k, v in record.telling_options.items())
    found = [("Method", _pair(record.method, telling))]
    about = collection.description if collection and collection.description else settings.data
    found.append(("Data", _pair(data_name(record), about)))
    source, details = settings["scheme"], []
    if labels is not None:
        images = labels.images
        left = f"{images.left_out:,} without a label left out" if images.left_out else ""
        counts = f"{images.train:,} / {images.val:,} / {images.test:,}"
        found.append(("Images, train / val / test", _pair(counts, left)))
        source = labels.source or source
        details = [f"seed {labels.seed}"] if labels.seed is not None else []
        details.append(f"hash {labels.hash[:12]}")
    found += _input(record, collection)
    said = supervision(record) + (f", {source}" if source else "")
    found.append(("Labels", _pair(said, ", ".join(details))))
    steps = f"batch {settings['batch_size']}, learning rate {settings['learning_rate']}"
    length = (
        f"{len(record.history)} of {record.epochs}" if not record.run.finished else record.epochs
    )
    found.append(("Epochs", _pair(length, f"{steps}, seed {settings['seed']}")))
    device = record.environment.get("cuda") or record.environment.get("processor", "")
    found.append(("Time", _pair(duration(record.seconds), device)))
    return found


def _input(record: Record, collection: Collection | None) -> list[tuple[str, str]]:
    """Bands and network, from the saved model or else from the open data."""
    spec, settings = record.spec, record.settings
    given = spec or (collection.images if collection else None)
    shape, bands = ((), ()) if given is None else (given.shape, given.bands)
    found = []
    if len(shape) == 3:
        named = ", ".join(bands)
        size = f"{shape[2]} × {shape[1]} pixels"
        found.append(("Bands", _pair(f"{len(bands)}, {size}", named)))
    elif shape:
        found.append(("Features", _pair(shape[0], "")))
    weights = settings["weights"] if spec is None else spec.weights
    backbone = settings["backbone"] if spec is None else spec.backbone
    begun = "from random weights" if weights == "none" else f"weights: {_bare(weights)}"
    found.append(("Network", _pair(backbone, begun)))
    return found


def _options(record: Record) -> str:
    """Every option of the method, folded away."""
    if not record.options:
        return ""
    pairs = [(_word(name), esc(_value(value))) for name, value in record.options.items()]
    return (
        f"<details><summary>All options of {esc(record.method)}</summary>{facts(pairs)}</details>"
    )


def _pictures(record: Record, collection: Collection | None) -> tuple[str, Collection | None]:
    """The gallery, or one line on why there is none; and the collection if it could be opened."""
    if collection is None and not record.run.finished:
        return "", None  # nothing to show yet, so opening may wait
    from adagc.training.experiment import config_of, open_configured

    try:
        collection = collection or open_configured(config_of(record.run))
        return gallery_section(record, collection), collection
    except (AdagcError, OSError) as error:
        kind = record.settings.data
        resizes = kind not in names() or "size" in find(kind).options
        if not resizes and record.spec is not None and not record.spec.is_image:
            return "", collection  # embeddings have no pictures, wherever they are
        text = f"The pictures could not be shown: {str(error).rstrip('.')}."
        return section("pictures", "Pictures", note(text)), collection


def _reproduce(record: Record) -> str:
    folder = record.run.folder
    again = folder.with_name(f"{folder.name}-again")
    config = shlex.quote((folder / "config.yaml").as_posix())
    command = f"adagc train --config {config} --out {shlex.quote(again.as_posix())}"
    seen: dict[str, Any] = {**record.environment, **record.environment.get("packages", {})}
    names = [name for name, value in seen.items() if value and not isinstance(value, dict)]
    pairs = [(name, esc(seen[name])) for name in names]
    if record.labels is not None:
        pairs.append(("observed labels, SHA-256", f"<code>{esc(record.labels.hash)}</code>"))
    return section(
        "reproduce",
        "Do it again",
        f"<pre><code>{esc(command)}</code></pre>",
        facts(pairs),
        lead="Same settings, same seeds; on the same versions and hardware, the same numbers.",
    )


def _pair(main: object, detail: object) -> str:
    small = f" <small>{esc(detail)}</small>" if detail else ""
    return f"<span>{esc(main)}</span>{small}"


def _word(name: str) -> str:
    return name.replace("_", " ")


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _bare(weights: object) -> str:
    return Path(str(weights)).name
