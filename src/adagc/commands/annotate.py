"""The command `annotate`: labels by one key per image, in the browser."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from adagc.commands.common import make_parser, print_json, quiet_start
from adagc.errors import DataError, MissingExtraError, UsageError, check_range, flag
from adagc.options import read

_HOW = "Label in the browser; Ctrl-C here ends it. Every label is kept at once."


def annotate(argv: list[str]) -> None:
    """Label images in the browser, with one key per image."""
    from adagc.training.settings import DataSettings

    known = read(DataSettings)
    parser = make_parser(
        "annotate", annotate, "adagc annotate photos/ --classes classes.txt --out labels.csv"
    )
    parser.positional("images", str | None, "Folder of the images, or an array file.", None)
    parser.option(
        "classes", str | None, None, "File with one class per line, or the names with commas."
    )
    parser.option(
        "out",
        str | None,
        None,
        "Label file to write, valid after every label. Everything that was offered and chosen is"
        " in the .sqlite file beside it; the same command continues.",
    )
    parser.option(
        "import",
        str | None,
        None,
        "Go on from the labels in this file, a label file or a JSON export of Label Studio: images"
        " that have one are not offered.",
    )
    offers = "what is offered"
    parser.option("candidates", int, 4, "How many classes are offered at a time.", group=offers)
    parser.flag("all_classes", "Offer all classes, with a field to search them.", group=offers)
    parser.flag("several", "Let an answer name several classes.", group=offers)
    parser.flag("absent", "Let an answer name classes that are not there (-1).", group=offers)
    parser.flag("repeats", "Offer the class just given for the next image too.", group=offers)
    parser.option(
        "active",
        str | None,
        None,
        "Folder of a finished run that chooses the next image: one of which it expects to learn"
        " much. Labels are then biased, and the page, the record and --report say so.",
        group=offers,
    )
    parser.option("seed", int, 0, "Seed of the order of images and of all offers.", group=offers)
    people = "several people"
    parser.option("overlap", int, 1, "How many people answer the same image.", group=people)
    parser.option(
        "overlap_share", float, 0.1, "Share of the images for which --overlap counts.", group=people
    )
    parser.option(
        "patience",
        float,
        15.0,
        "Minutes after which an image that somebody left without an answer goes to others.",
        group=people,
    )
    page = "the page"
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
    reading = "how images are read"
    for name in ("bands", "nodata"):
        parser.add(known[name], group=reading)
    record = "the record of labels, instead of labelling"
    parser.option(
        "report",
        str | None,
        None,
        "Label file whose labels are measured: how often each class was taken when it was offered,"
        " bias of the keys, speed, agreement.",
        group=record,
    )
    parser.option(
        "truth",
        str | None,
        None,
        "With --report: label file with all classes of some images, to compare with.",
        group=record,
    )
    parser.flag("json", "With --report: print the result as one JSON object.", group=record)
    parser.option(
        "events",
        str | None,
        None,
        "Parquet file to write everything to that was offered and chosen for --out.",
        group=record,
    )
    parser.option(
        "label_studio",
        str | None,
        None,
        "JSON file to write the labels of --out to, for Label Studio; give IMAGES too, so that it"
        " names the files.",
        group=record,
    )
    options = parser.parse(argv)
    if options.report is not None:
        _report(options)
    elif options.events is not None or options.label_studio is not None:
        _hand_on(options)
    else:
        _check(options)
        _serve(options)


def _report(options: Namespace) -> None:
    from adagc import console
    from adagc.annotate.measures import measure
    from adagc.annotate.report import report
    from adagc.annotate.store import events_of
    from adagc.labels import read_labels
    from adagc.suggest import require_path

    if options.images is not None or options.out is not None:
        raise UsageError("--report takes no images and no --out: give it the label file alone")
    if options.events is not None or options.label_studio is not None:
        raise UsageError("--report only measures: name the label file with --out to write files")
    require_path("truth", options.truth)
    events, classes = events_of(Path(options.report))
    if not any(event.kind == "choose" for event in events):
        raise DataError(f"{options.report}: nobody has given a label yet; label some images first")
    truth = None if options.truth is None else read_labels(options.truth)
    if options.json:
        print_json(measure(events, classes, truth).to_dict())
    else:
        console.stdout.print(report(events, classes, truth), markup=False, soft_wrap=True)


def _hand_on(options: Namespace) -> None:
    """Write the record of a project for other programs, also while somebody works on it."""
    from adagc.annotate.exchange import write_events, write_label_studio
    from adagc.annotate.store import events_of
    from adagc.images.scan import find_images, image_names
    from adagc.suggest import require_path

    if options.out is None:
        raise UsageError("--out is missing: the label file of the project that is written")
    written = {"events": ".parquet", "label_studio": ".json"}
    for name, suffix in written.items():
        path = getattr(options, name)
        if path is not None and Path(path).suffix.lower() != suffix:
            raise UsageError(f"{flag(name)} {path}: let it end with {suffix}")
    require_path("IMAGES", options.images)
    events, _ = events_of(Path(options.out))
    if options.events is not None:
        write_events(events, Path(options.events))
        print(f"{len(events):,} events: {options.events}")
    if options.label_studio is not None:
        files = None
        if options.images is not None and Path(options.images).is_dir():
            found = find_images(Path(options.images))
            files = dict(zip(image_names(found), found, strict=True))
        count = write_label_studio(events, Path(options.label_studio), files=files)
        print(f"{count:,} tasks: {options.label_studio}")


def _check(options: Namespace) -> None:
    from adagc.suggest import require_path

    if options.images is None:
        raise UsageError("IMAGES is missing (see adagc annotate --help)")
    if options.truth is not None or options.json:
        raise UsageError("--truth and --json go with --report: leave them out, or add it")
    require_path("IMAGES", options.images)
    require_path("import", getattr(options, "import"))
    require_path("active", options.active)
    if options.active is not None and not (Path(options.active) / "model.json").is_file():
        raise UsageError(f"--active {options.active} is no finished run: give the folder of one")
    for name in ("classes", "out"):
        if getattr(options, name) is None:
            raise UsageError(f"--{name} is missing (see adagc annotate --help)")
    check_range("overlap", options.overlap, 1, 100)
    check_range("overlap_share", options.overlap_share, 0, 1)
    check_range("patience", options.patience, 0.01)
    check_range("port", options.port, 0, 65_535)
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
        from adagc.annotate.server import make_app
        from adagc.web.serve import Server
    except ModuleNotFoundError as error:
        raise MissingExtraError("the web server of adagc annotate", "web") from error
    from adagc.annotate.active import Chooser, choosing
    from adagc.annotate.project import open_project
    from adagc.web.context import Neighbours

    with Server(host=options.host, port=options.port) as server, open_project(options) as project:
        desk = project.desk
        neighbours = Neighbours(project.images)
        app = make_app(desk, project.images, neighbours)
        beside: list[Neighbours | Chooser] = [neighbours]  # what works beside the server
        if options.active is not None:
            beside.append(choosing(Path(options.active), desk, project.images))

        def ready() -> None:
            how = _HOW if project.imported is None else f"{project.imported}\n{_HOW}"
            announce(server.address, how, browser=not options.no_browser)
            for each in beside:
                each.start()

        try:
            server.run(app, ready)
        except KeyboardInterrupt:
            print()  # after the ^C of the terminal
        finally:
            finished, total = desk.progress
            console.stdout.print(
                f"{finished:,} of {total:,} images are labelled: {options.out}. The same command"
                " continues.",
                soft_wrap=True,
            )


def announce(address: str, *said: object, browser: bool) -> None:
    """Print the address of a page and what else there is to say; open the page if wanted."""
    for line in (address, *said):
        print(line, flush=True)
    if browser:
        import threading
        import webbrowser

        # In a thread: some browsers return only when they are closed.
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
