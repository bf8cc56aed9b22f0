"""The command predict: a trained model on other data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from adagc.commands.common import add_json, make_parser, print_json, quiet_start

if TYPE_CHECKING:
    from adagc.arguments import Parser
    from adagc.prediction import Mapped, Predicted


def predict(argv: list[str]) -> None:
    """Predict the classes of images, arrays or scenes of any size."""
    parser = make_parser("predict", predict, "adagc predict runs/first scene.tif --out map.tif")
    parser.positional("run", str, "Folder of a finished run, or of an exported model.")
    parser.positional(
        "input",
        str,
        "An image, a folder of images, an array (.npy), a store of decoded images, or a scene: a"
        " GeoTIFF of any size, which is cut into windows.",
    )
    _add_output(parser)
    _add_windows(parser)
    options = parser.parse(argv)
    from adagc.prediction import predict as run_prediction

    quiet_start()
    given = {name: value for name, value in vars(options).items() if name not in _APART}
    result = run_prediction(options.run, options.input, options.out, **given)
    if result is None:  # the first of several processes reports for all
        return
    if options.json:
        print_json(_told(result))
    else:
        print(_sentence(result))


_APART = ("run", "input", "out", "json")


def _add_output(parser: Parser) -> None:
    from adagc.limits import OPTION
    from adagc.options import REQUIRED

    parser.option(
        "out",
        str,
        REQUIRED,
        "File to write; what it is called decides on its format: .csv, .json and .parquet are"
        " tables; .parquet (GeoParquet), .geojson and .gpkg have the polygon of every window of a"
        " scene; .tif is a map of a scene (COG) with a band per class.",
    )
    parser.option("thresholds", str | None, None, f"{OPTION} By default what the model has.")
    parser.option(
        "bands",
        list[str] | None,
        None,
        "Names of the bands of the input, in its order, if it does not name them itself.",
    )
    parser.option(
        "nodata",
        float | None,
        None,
        "Number that stands for missing values, besides NaN and the one that a file names.",
    )
    parser.option("batch_size", int | None, None, "Images or windows that are predicted together.")
    parser.option("workers", int, 1, "Number of processes that share the work.")
    parser.flag("skip_unreadable", "Leave out image files that cannot be read.")
    add_json(parser)


def _add_windows(parser: Parser) -> None:
    group = "scenes by windows"
    parser.option(
        "windows",
        Literal["auto", "always", "never"],
        "auto",
        "Whether to cut an image into windows; auto does that with TIFF files that have coordinates"
        " and are larger than the images of training.",
        group=group,
    )
    parser.option(
        "window",
        int | None,
        None,
        "Side of a window in pixels of the scene; windows are resized to the input of the model. By"
        " default that of the images the model was trained on, where it is known, else the size of"
        " its input.",
        group=group,
    )
    parser.option(
        "overlap",
        float | None,
        None,
        "Share of a window that overlaps the next one, from 0 to below 1; 0 by default.",
        group=group,
    )
    parser.option(
        "stride",
        int | None,
        None,
        "Pixels from one window to the next, in place of --overlap.",
        group=group,
    )
    parser.option(
        "cell",
        int | None,
        None,
        "Side of a cell of a map, in pixels of the scene; by default the stride. With 1 the map has"
        " the resolution of the scene.",
        group=group,
    )
    parser.option(
        "values",
        Literal["probability", "decision"],
        "probability",
        "What a map shows: the probability of each class, or 1 where it is decided, else 0.",
        group=group,
    )


def _counts(result: Predicted | Mapped) -> tuple[str, int, int]:
    """What was predicted, how many of it, and how many had no data."""
    from adagc.prediction import Mapped

    if isinstance(result, Mapped):
        return "windows", result.windows - result.without, result.without
    unit = "images" if result.windows is None else "windows"
    return unit, len(result.names), result.without


def _told(result: Predicted | Mapped) -> dict[str, Any]:
    unit, count, without = _counts(result)
    return {
        "out": str(result.out),
        unit: count,
        "without_data": without,
        "seconds": round(result.seconds, 3),
    }


def _sentence(result: Predicted | Mapped) -> str:
    unit, count, without = _counts(result)
    said = f"{count:,} {unit if count != 1 else unit[:-1]} predicted"
    if without:
        said += f", {without:,} without data left out"
    return f"{said}: {result.out}"
