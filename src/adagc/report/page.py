"""Write the report page of a run."""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from adagc._version import __version__
from adagc.atomic import write_text
from adagc.datasets.collection import Collection
from adagc.datasets.registry import find, names
from adagc.errors import NAMED, AdagcError, UsageError, examples
from adagc.priors import Priors
from adagc.report.curves import pseudo_label_curves, training_curves
from adagc.report.gallery import gallery_section
from adagc.report.headline import comparison, data_name, headline, supervision
from adagc.report.html import duration, esc, facts, note, section
from adagc.report.origin import origin
from adagc.report.record import Record
from adagc.report.recovered import recovered_section
from adagc.report.tables import class_section, noise_section, score_section
from adagc.training.runs import Run

log = logging.getLogger(__name__)
_OTHER = "These may be other images than those of the run, with the same names (--other-data)."


def write_report(
    run: Run,
    *,
    against: Sequence[Run] = (),
    out: Path | None = None,
    collection: Collection | None = None,
    title: str | None = None,
    root: str | None = None,
    other_data: bool = False,
    thresholds: str | None = None,
) -> Path:
    """Write one HTML file that needs nothing else: no internet, no script, no other file.

    A run may be unfinished or have no clean labels or pictures; the page says so, or leaves the
    section out.

    Args:
        run: The run that the page is about.
        against: Runs to compare it with; those tested on other images are shown with a warning.
        out: File to write, or an existing folder for report.html; the run folder by default. A file
            that exists is replaced only if it is a web page.
        collection: The data set, if it is open already; otherwise it is opened for the pictures.
        title: Heading of the page; method and data set by default.
        root: Folder of the images, if they have moved since training.
        other_data: Show pictures even if the images are not those of the run; the page says so.
        thresholds: From which probability on a class counts as predicted: "half", "estimated" or a
            file, see `adagc.limits`; by default what the runs were trained with.

    Returns:
        Path of the file.
    """
    path = run.folder / "report.html" if out is None else Path(out)
    if path.is_dir():
        path = path / "report.html"
    _check_replaceable(path)
    if thresholds is not None and not run.finished:
        raise UsageError(f"{run} is not finished: leave out --thresholds")
    record = Record.of(run, thresholds)
    others = [Record.of(other, thresholds) for other in against if not _same(other, run)]
    pictures, collection = _pictures(record, collection, root, other_data=other_data)
    sections = [
        score_section(record, others),
        training_curves(record),
        pseudo_label_curves(record),
        recovered_section(record),
        class_section(record, others),
        noise_section(record),
        pictures,
        _reproduce(record),
    ]
    shown = [part for part in sections if part]
    heading = title or f"{record.method} on {data_name(record)}"
    body = "\n".join([_header(record, others, heading, collection), _contents(shown), *shown])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, _document(heading, body))
    return path


_START = "<!DOCTYPE html>"


def _check_replaceable(path: Path) -> None:
    """Raise UsageError if a file that is no web page would be lost, such as a file of labels."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        start = file.read(len(_START))
    if start and start.lower() != _START.lower().encode():
        raise UsageError(f"{path} exists and is not a report: choose another --out")


def _document(title: str, body: str) -> str:
    style = resources.files("adagc.report").joinpath("style.css").read_text(encoding="utf-8")
    # The policy forbids the browser to load anything else, as `write_report` promises; the empty
    # icon keeps it from asking a server for one.
    return (
        f'{_START}\n<html lang="en"><head><meta charset="utf-8">'
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
    """Links to the sections of the page."""
    headings = [re.match(r'<section id="([^"]+)"><h2>(.*?)</h2>', part) for part in sections]
    links = "".join(f'<a href="#{hit[1]}">{hit[2]}</a>' for hit in headings if hit)
    return f'<nav aria-label="Sections">{links}</nav>'


def _header(
    record: Record, others: Sequence[Record], heading: str, collection: Collection | None
) -> str:
    """The top of the page: result, comparison, facts and options."""
    beside = comparison(record, others)
    lines = f'<p class="headline">{esc(headline(record))}</p>'
    if beside:
        lines += f'<p class="beside">{esc(beside)}</p>'
    if not record.run.finished:
        lines += note("This run is not finished: adagc train --resume continues it.")
    pairs = _facts(record, collection)
    came_about = origin([record, *others])
    if came_about:
        pairs.append(("How labels were chosen", esc(came_about)))
    notes = collection.notes if collection else ()
    remarks = "".join(f'<p class="small">{esc(text)}</p>' for text in notes)
    return (
        f"<header><h1>{esc(heading)}</h1>{lines}{facts(pairs)}{remarks}{_options(record)}</header>"
    )


def _facts(record: Record, collection: Collection | None) -> list[tuple[str, str]]:
    """Method, data, labels, network and time as pairs of a term and its value."""
    settings, labels = record.settings, record.labels
    telling = ", ".join(f"{_word(k)} {_value(v)}" for k, v in record.telling_options.items())
    pairs = [("Method", _pair(record.method, telling))]
    about = collection.description if collection and collection.description else settings.data
    pairs.append(("Data", _pair(data_name(record), about)))
    source, details = settings["scheme"], []
    if labels is not None:
        images = labels.images
        counts = f"{images.train:,} / {images.val:,} / {images.test:,}"
        left = f"{images.left_out:,} images without a label are left out" if images.left_out else ""
        kinds = "; ".join(part for part in (images.kinds, left) if part)
        pairs.append(("Images, train / val / test", _pair(counts, kinds)))
        source = labels.source or source
        details = [f"seed {labels.seed}"] if labels.seed is not None else []
        details.append(f"hash {labels.hash[:12]}")
    pairs += _input(record, collection)
    observed = supervision(record) + (f", {source}" if source else "")
    pairs.append(("Labels", _pair(observed, ", ".join(details))))
    if record.frequencies is not None:
        pairs.append(("Labels per image, estimated", _labels_per_image(record.frequencies.priors)))
    steps = f"batch {settings['batch_size']}, learning rate {settings['learning_rate']}"
    length = (
        f"{len(record.history)} of {record.epochs}" if not record.run.finished else record.epochs
    )
    pairs.append(("Epochs", _pair(length, f"{steps}, seed {settings['seed']}")))
    device = record.environment.get("cuda") or record.environment.get("processor", "")
    pairs.append(("Time", _pair(duration(record.seconds), device)))
    return pairs


def _labels_per_image(priors: Priors) -> str:
    """The estimate with its interval, or why there is none."""
    if not priors.trusted:
        return _pair("not known", priors.reason)
    low, high = priors.interval
    return _pair(
        f"about {priors.cardinality:.1f}",
        f"95 % interval {low:.1f} to {high:.1f}, if labels were drawn at random from the classes"
        " that are present; adagc priors shows every class",
    )


def _input(record: Record, collection: Collection | None) -> list[tuple[str, str]]:
    """Bands and network, from the saved model or, if there is none yet, from the open data."""
    spec, settings = record.spec, record.settings
    given = spec or (collection.images if collection else None)
    shape, bands = ((), ()) if given is None else (given.shape, given.bands)
    pairs = []
    if len(shape) == 3:
        named = examples(bands, NAMED)
        size = f"{shape[2]} × {shape[1]} pixels"
        pairs.append(("Bands", _pair(f"{len(bands):,}, {size}", named)))
    elif shape:
        pairs.append(("Features", _pair(shape[0], "")))
    weights = settings["weights"] if spec is None else spec.weights
    backbone = settings["backbone"] if spec is None else spec.backbone
    initial = "from random weights" if weights == "none" else f"weights: {_bare(weights)}"
    pairs.append(("Network", _pair(backbone, initial)))
    return pairs


def _options(record: Record) -> str:
    """All options of the method, hidden until the reader unfolds them."""
    if not record.options:
        return ""
    pairs = [(_word(name), esc(_value(value))) for name, value in record.options.items()]
    return (
        f"<details><summary>All options of {esc(record.method)}</summary>{facts(pairs)}</details>"
    )


def _pictures(
    record: Record, collection: Collection | None, root: str | None, *, other_data: bool
) -> tuple[str, Collection | None]:
    """The gallery, or one line that says why there is none; and the collection if it is open."""
    if collection is None and not record.run.finished:
        return "", None  # there is nothing to show yet, so the data need not be opened
    from adagc.training.inputs import check_same_data, config_of, open_configured

    try:
        if collection is None:
            config = config_of(record.run)
            collection = open_configured(replace(config, root=root or config.root))
            if not other_data:
                check_same_data(record.run, collection)
        return gallery_section(record, collection, remark=_OTHER if other_data else ""), collection
    except (AdagcError, OSError) as error:
        kind = record.settings.data
        resizes = kind not in names() or "size" in find(kind).options
        if not resizes and record.spec is not None and not record.spec.is_image:
            return "", collection  # embeddings have no pictures, so the error does not matter
        text = f"The pictures could not be shown: {str(error).rstrip('.')}."
        log.warning(text)
        return section("pictures", "Pictures", note(text)), collection


def _reproduce(record: Record) -> str:
    """The section with the command that repeats the run, and the versions that were used."""
    folder = record.run.folder
    again = folder.with_name(f"{folder.name}-again")
    config = shlex.quote((folder / "config.yaml").as_posix())
    command = f"adagc train --config {config} --out {shlex.quote(again.as_posix())}"
    versions: dict[str, Any] = {**record.environment, **record.environment.get("packages", {})}
    names = [name for name, value in versions.items() if value and not isinstance(value, dict)]
    pairs = [(name, esc(versions[name])) for name in names]
    if record.labels is not None:
        pairs.append(("observed labels, SHA-256", f"<code>{esc(record.labels.hash)}</code>"))
    return section(
        "reproduce",
        "Reproduce this run",
        f"<pre><code>{esc(command)}</code></pre>",
        facts(pairs),
        lead="This command trains again with the same settings and seeds. With the same versions"
        " and hardware it gives the same numbers.",
    )


def _pair(main: object, detail: object) -> str:
    """A value with a detail in small letters, as HTML."""
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
    """The last part of a path; a name stays as it is."""
    return Path(str(weights)).name
