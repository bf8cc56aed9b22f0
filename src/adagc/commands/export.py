"""The command export: a model for other programs."""

from __future__ import annotations

from typing import Literal

from adagc.commands.common import add_json, check_folder, make_parser, print_json, quiet_start
from adagc.options import REQUIRED


def export(argv: list[str]) -> None:
    """Write the model of a run for other programs: ONNX, torch, timm."""
    parser = make_parser("export", export, "adagc export runs/first --out models/first")
    parser.positional("run", str, "Folder of the run.")
    parser.option(
        "out",
        str,
        REQUIRED,
        "Folder to write, with a STAC item and a model card. An earlier export in it is replaced.",
    )
    parser.option(
        "formats",
        list[Literal["onnx", "torch", "timm"]] | None,
        None,
        "Which files to write: onnx (raw values to probabilities, for onnxruntime), torch (the same"
        " for torch.export.load), timm (weights of the backbone under timm's names); by default all"
        " that the network has.",
    )
    parser.option(
        "for",
        Literal["deepness"] | None,
        None,
        "Write a model for this program, too: deepness, the plug-in of QGIS.",
    )
    parser.flag("overwrite", "Write into a folder that holds other files, which stay.")
    add_json(parser)
    options = parser.parse(argv)
    check_folder("out", options.out)
    quiet_start()
    from adagc.deploy.exporting import export as run_export

    done = run_export(
        options.run,
        options.out,
        formats=options.formats,
        program=getattr(options, "for"),
        overwrite=options.overwrite,
    )
    if options.json:
        print_json(done.to_dict())
        return
    width = max(map(len, done.sizes))
    for name, size in done.sizes.items():
        found = done.differences.get(name)
        checked = "" if found is None else f"  largest difference to our network {found:.1e}"
        print(f"{name:<{width}} {size / 1e3:>10,.0f} kB{checked}")
    print(f"Folder: {done.folder}")
