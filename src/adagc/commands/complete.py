"""The command complete: labels of all classes for images with one label each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from adagc.commands.common import add_json, make_parser, print_json, quiet_start
from adagc.errors import AdagcError, UsageError, check_range

if TYPE_CHECKING:
    from adagc.completion import Completed
    from adagc.completion.quality import Quality
    from adagc.training.runs import Run


def complete(argv: list[str]) -> None:
    """Recover missing labels of images, and say how sure they are."""
    parser = make_parser("complete", complete, "adagc complete runs/aid --out completed.csv")
    parser.positional("run", str, "Folder of the run.")
    parser.option(
        "out",
        str,
        "completed.csv",
        "File to write: .csv, .parquet, .json (the form of COCO), or .geojson and .gpkg if images"
        " have a place on earth.",
    )
    parser.flag(
        "wide",
        "A row per image and a column per class with 1 (present), -1 (absent) and 0 (unsure), as"
        " label files have it; by default a row per image and class with all that is known.",
    )
    parser.option(
        "part",
        Literal["train", "val", "test", "all"] | None,
        None,
        "Images of the run to complete; by default those for training and validation.",
    )
    parser.option(
        "images",
        str | None,
        None,
        "Folder or file of other images to complete, which is opened as the data of the run was.",
    )
    parser.option(
        "folds",
        int | None,
        None,
        "Train this many networks again, each without its share of the training images, which it"
        " then predicts: honest probabilities, for the price of as many trainings. What is done is"
        " kept in the folder of the run, and the same command continues after an interruption.",
    )
    parser.option(
        "precision",
        float | None,
        None,
        "How large the share of recovered labels that are right must be, as estimated from observed"
        " labels; 0.8 by default. What cannot be decided so surely is unsure.",
    )
    parser.option(
        "absence",
        float | None,
        None,
        "How large the share of labels called absent must be that are; 0.95 by default.",
    )
    from adagc.limits import OPTION

    parser.option(
        "thresholds",
        str | None,
        None,
        f"{OPTION} Decides instead of --precision, and nothing is unsure.",
    )
    parser.option(
        "figure",
        str | None,
        None,
        "Draw precision and recall against confidence to this file, as .pdf and .png; needs clean"
        " labels.",
    )
    parser.option(
        "root", str | None, None, "Folder of the data, if it has moved since the run was trained."
    )
    parser.option("truth", str | None, None, "Label file with clean labels to judge the result by.")
    parser.flag("other_data", "Do not insist on the images that the run was trained with.")
    add_json(parser)
    options = parser.parse(argv)
    for name, value in (("precision", options.precision), ("absence", options.absence)):
        check_range(name, value, 0, 1, below=True)
        if value is not None and options.thresholds is not None:
            raise UsageError(f"--thresholds decides without --{name}: leave one of them out")
    if options.folds is not None:
        check_range("folds", options.folds, 2)
    from adagc.tables import check_format

    check_format(options.out)
    from adagc.completion import complete as run_completion
    from adagc.completion.work import SUMMARY
    from adagc.priors.recovery import ABSENCE, PRECISION
    from adagc.training.runs import Run

    quiet_start()
    run = Run.open(options.run)
    made = run_completion(
        run,
        part=options.part,
        images=options.images,
        folds=options.folds,
        precision=PRECISION if options.precision is None else options.precision,
        absence=ABSENCE if options.absence is None else options.absence,
        thresholds=options.thresholds,
        root=options.root,
        truth=options.truth,
        other_data=options.other_data,
    )
    if options.figure is not None and made.quality is None:
        raise AdagcError("there are no clean labels to draw a figure from: leave out --figure")
    made.write(options.out, wide=options.wide)
    if options.images is None:
        _keep(run, made, SUMMARY)
    drawn: tuple[Path, ...] = ()
    if options.figure is not None and made.quality is not None:
        from adagc.paper.recovered import draw

        drawn = draw(made.quality, Path(options.figure))
    if options.json:
        print_json({"out": options.out, "figures": list(map(str, drawn)), **made.to_dict()})
        return
    from adagc import console

    for line in in_words(made):
        console.stdout.print(line)
    for path in (options.out, *drawn):
        console.stdout.print(f"Written: {path}", soft_wrap=True)


def _keep(run: Run, made: Completed, name: str) -> None:
    """Keep the summary for the report, unless the folder of the run may not be written."""
    import logging

    try:
        with run.files.claimed():
            run.write_json(name, made.to_dict())
    except PermissionError as error:
        text = "%s was not written, so the report will not show it: %s"
        logging.getLogger(__name__).warning(text, error.filename or name, error.strerror)


def in_words(made: Completed) -> list[str]:
    """What was completed and how good it is, in a few lines."""
    counts = made.counts
    listed = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    lines = [
        f"{len(made.images):,} images ({made.samples_in_words}), {len(made.classes)} classes:"
        f" {listed}.",
        f"Decided by: {made.rule}.",
    ]
    if made.quality is not None:
        lines += _judged(made.quality)
    return lines


def _judged(quality: Quality) -> list[str]:
    """How recovered labels compare with clean ones, and how that depends on confidence."""
    lines = [
        f"Against the clean labels of {quality.images:,} images, right are"
        f" {_per_cent(quality.precision)} of the {quality.recovered:,} recovered labels and"
        f" {_per_cent(quality.absent_right)} of those called absent; of the {quality.missing:,}"
        f" missing labels {_per_cent(quality.recall)} were recovered.",
        f"Taken in the order of confidence, half of the missing labels come with a precision of"
        f" {_per_cent(quality.precision_at_recall)}; a precision of 80 % is kept up to a recall of"
        f" {_per_cent(quality.recall_at_precision)}.",
        "confidence   precision   recall",
    ]
    rows = zip(quality.confidence, quality.precisions, quality.recalls, strict=True)
    lines += [
        f"{f'>= {at} %':>10}{_per_cent(precision):>12}{_per_cent(recall):>9}"
        for at, precision, recall in rows
        if at in (30, 50, 70, 80, 90, 95)
    ]
    return lines


def _per_cent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
