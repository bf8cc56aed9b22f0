"""The command `review`: a second look at what a trained model found, in the browser."""

from __future__ import annotations

import threading
import time
from argparse import Namespace
from pathlib import Path
from typing import Literal

from adagc.commands.annotate import announce
from adagc.commands.common import make_parser, print_json, quiet_start
from adagc.errors import MissingExtraError, UsageError, check_range

_TOLD = 1.5  # seconds that a page has to learn that loading has failed


def review(argv: list[str]) -> None:
    """Say yes or no to what a model found and nobody has marked."""
    from adagc.review.order import LEAST, MOST

    parser = make_parser("review", review, "adagc review runs/aid --out reviewed.csv --count 200")
    parser.positional("run", str | None, "Folder of the run.", None)
    parser.positional(
        "images",
        str | None,
        "Folder or file of other images, which is opened as the data of the run was; by default the"
        " run's own.",
        None,
    )
    parser.option(
        "out",
        str | None,
        None,
        "Label file to write: the labels of the run and the answers, valid after every answer."
        " Every question and answer is in the .sqlite file beside it; the same command continues.",
    )
    asked = "what is asked"
    parser.option(
        "count",
        int,
        200,
        "How many images to review; a larger number later goes on after those.",
        group=asked,
    )
    parser.option(
        "order",
        Literal["informative", "likely", "uncertain", "random"],
        "informative",
        "Which images come first: those whose answers tell most, most of all about rare classes;"
        " those with the most expected labels; the most uncertain ones; or in random order.",
        group=asked,
    )
    parser.option(
        "least", float, LEAST, "How probable a class must be to be asked about.", group=asked
    )
    parser.option("most", int, MOST, "How many classes of an image are asked about.", group=asked)
    parser.option(
        "blind",
        float,
        0.0,
        "Blind mode: replace this share of the questions by random classes and hide probabilities,"
        " so that the report can say how precise suggestions are.",
        group=asked,
    )
    parser.option(
        "part",
        Literal["train", "val", "test", "all"] | None,
        None,
        "Images of the run to review; by default those for training and validation.",
        group=asked,
    )
    parser.option(
        "folds",
        int | None,
        None,
        "Ask about training images what networks believe that were not trained on them, as many as"
        " this; as adagc complete --folds, which leaves them in the folder of the run.",
        group=asked,
    )
    parser.option("seed", int, 0, "Seed of what is random.", group=asked)
    page = "the page"
    parser.option(
        "threshold",
        float,
        0.9,
        "Probability from which on the key A says yes to all; the page can change it.",
        group=page,
    )
    parser.option(
        "patience",
        float,
        15.0,
        "Minutes after which an image that somebody left goes to others.",
        group=page,
    )
    parser.option("port", int, 0, "Port to listen on; 0 takes any that is free.", group=page)
    parser.option(
        "host",
        str | None,
        None,
        "Address to listen on, for others than this machine; the printed address then holds a token"
        " that everybody needs. 0.0.0.0 means all addresses of this machine.",
        group=page,
    )
    parser.flag("no_browser", "Do not open the page in the browser.", group=page)
    parser.option(
        "root", str | None, None, "Folder of the data, if it has moved since the run was trained."
    )
    measuring = "measuring the answers, instead of reviewing"
    parser.option(
        "report",
        str | None,
        None,
        "Label file of a review: how precise suggestions were, answers per class and per hour, and"
        " which contradict another.",
        group=measuring,
    )
    parser.flag("json", "With --report: print the result as one JSON object.", group=measuring)
    options = parser.parse(argv)
    if options.report is not None:
        _report(options)
        return
    _check(options)
    _serve(options)


def _report(options: Namespace) -> None:
    from adagc import console
    from adagc.review.measures import measure
    from adagc.review.record import read_record
    from adagc.review.report import report

    if options.run is not None or options.out is not None:
        raise UsageError("--report takes no run and no --out: give it the label file alone")
    measured = measure(read_record(Path(options.report)), Path(options.report))
    if options.json:
        print_json(measured.to_dict())
    else:
        console.stdout.print(report(measured), markup=False, soft_wrap=True)


def _check(options: Namespace) -> None:
    from adagc.suggest import require_path

    if options.run is None:
        raise UsageError("RUN is missing (see adagc review --help)")
    if options.json:
        raise UsageError("--json goes with --report: leave it out, or add that")
    require_path("RUN", options.run)
    require_path("IMAGES", options.images)
    require_path("root", options.root)
    if options.out is None:
        raise UsageError("--out is missing (see adagc review --help)")
    if options.images is not None and (options.part is not None or options.folds is not None):
        raise UsageError("IMAGES are not those of the run: leave out --part and --folds")
    if options.folds is not None:
        check_range("folds", options.folds, 2)
    check_range("count", options.count, 1)
    check_range("least", options.least, 0, 1)
    check_range("most", options.most, 1, 1000)
    check_range("blind", options.blind, 0, 1, below=True)
    check_range("threshold", options.threshold, 0.01, 1)
    check_range("patience", options.patience, 0.01)
    check_range("port", options.port, 0, 65_535)
    check_range("seed", options.seed, 0)
    options.threshold = round(100 * options.threshold)
    out = Path(options.out)
    if out.is_dir():
        raise UsageError(f"{out} is a folder: give the name of a file in it")
    if not out.parent.is_dir():
        raise UsageError(f"there is no folder {out.parent} for {out.name}: make it first")
    if out.suffix.lower() == ".sqlite":
        raise UsageError(f"{out} would be the file of events: let --out end with .csv")


def _serve(options: Namespace) -> None:
    from adagc import console

    quiet_start()
    try:
        from adagc.review.server import make_app
        from adagc.web.serve import Server
    except ModuleNotFoundError as error:
        raise MissingExtraError("the web server of adagc review", "web") from error
    from adagc.review.project import open_project

    with Server(host=options.host, port=options.port) as server, open_project(options) as project:

        def load() -> None:
            project.load()
            if project.failure is not None:
                time.sleep(_TOLD)  # the page asks what is going on, and says that it is over
                server.stop()

        def begin() -> None:
            announce(
                server.address,
                "Review in the browser; Ctrl-C here ends it. Every answer is kept at once.",
                browser=not options.no_browser,
            )
            threading.Thread(target=load, daemon=True).start()

        try:
            server.run(make_app(project), begin)
        except KeyboardInterrupt:
            print()  # after the ^C of the terminal
        finally:
            if project.desk is not None:
                finished, total = project.desk.progress
                console.stdout.print(
                    f"{finished:,} of {total:,} images are reviewed: {options.out}. The same"
                    " command continues.",
                    soft_wrap=True,
                )
        if project.failure is not None:
            raise project.failure
