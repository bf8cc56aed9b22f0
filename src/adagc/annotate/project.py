"""A labelling project as the command line describes it: images, rules, events and labels."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from adagc.annotate.desk import Desk, Overlap
from adagc.annotate.importing import Imported, import_labels, read_import
from adagc.annotate.label_file import LabelFile
from adagc.annotate.protocol import Rules
from adagc.annotate.store import Store
from adagc.errors import UsageError
from adagc.images.base import SceneDataset
from adagc.labels.names import class_names
from adagc.labels.table import check_names
from adagc.web.images import open_images
from adagc.web.ledger import database_of


@dataclass(frozen=True)
class Project:
    """What is served: the work, its images, and what was imported at this start."""

    desk: Desk
    images: SceneDataset
    imported: Imported | None


@contextmanager
def open_project(options: Namespace) -> Iterator[Project]:
    """Open a project, or begin one.

    Args:
        options: Those of `adagc annotate`.
    """
    images = open_images(Path(options.images), bands=options.bands, nodata=options.nodata)
    check_names(images.names, "image")
    rules = Rules(
        classes=class_names(options.classes),
        candidates=options.candidates,
        everything=options.all_classes,
        repeats=options.repeats,
        several=options.several,
        absent=options.absent,
        seed=options.seed,
    )
    out = Path(options.out)
    database, labels = database_of(out), LabelFile(out, rules)
    if out.exists() and not database.exists():
        raise UsageError(
            f"{out} exists, but not the file of events beside it ({database.name}): choose another"
            " --out, and go on from this file with --import"
        )
    labelled = getattr(options, "import")
    found = None if labelled is None else read_import(Path(labelled), images.names, rules)
    with Store(database) as store:
        _agree(store, rules, database)
        imported = None if found is None else import_labels(found, store)
        desk = Desk(
            images.names,
            rules,
            store,
            labels,
            overlap=Overlap(options.overlap, options.overlap_share),
            patience=60 * options.patience,
        )
        yield Project(desk, images, imported)


def _agree(store: Store, rules: Rules, database: Path) -> None:
    """Keep what must not change while a project lasts; UsageError if it is changed."""
    known = store.settings()
    told = {"classes": list(rules.classes), "seed": rules.seed, "simple": rules.simple}
    remedies = {
        "classes": "the labels were given with other classes: use the same --classes, or another"
        " --out that goes on from these labels with --import",
        "seed": f"images were offered with seed {known.get('seed')}: use the same --seed, or choose"
        " another --out",
        "simple": "the labels have another form: use --several and --absent as before, or choose"
        " another --out",
    }
    for name, remedy in remedies.items():
        if name in known and known[name] != told[name]:
            raise UsageError(f"{database}: {remedy}")
    if not known:
        store.settle(**told)
