"""The command demo: the whole path, on made-up scenes or on a made-up copy of BigEarthNet."""

from __future__ import annotations

import logging
from pathlib import Path

from adagc.commands.common import add_json, check_folder, make_parser, print_json, quiet_start


def demo(argv: list[str]) -> None:
    """Compare Auto and AdaGC with two other trainings on synthetic scenes."""
    parser = make_parser("demo", demo, "adagc demo --out runs/demo")
    parser.option("out", str, "runs/demo", "Folder of runs to write, with a report.")
    parser.option("seed", int, 0, "Seed of the scenes, their labels and the initial weights.")
    parser.flag(
        "reben",
        "Instead, show the path of a BigEarthNet user on a small made-up copy: prepare it, make"
        " dominant labels from its maps, train AN and the default method, report.",
    )
    add_json(parser)
    options = parser.parse(argv)
    check_folder("out", options.out)
    if options.reben:
        from adagc.demo_reben import run_demo

        # That made-up patches are not the whole reBEN is no news here.
        told = logging.ERROR
    else:
        from adagc.demo import run_demo

        # Every run on the same scenes would print the same messages.
        told = logging.WARNING
    quiet_start()
    chatty = logging.getLogger("adagc.training")
    before = chatty.level
    chatty.setLevel(told)
    try:
        result = run_demo(Path(options.out), seed=options.seed)
    finally:
        chatty.setLevel(before)
    if options.json:
        print_json(result)
        return
    from adagc import console
    from adagc.training.views import DEFAULT

    if options.reben:
        rows = [(f"{title} (dominant label)", own) for title, own in result["scores"].items()]
    else:
        rows = list(result["scores"][DEFAULT.name].items())
    title = f"Test scores, clean labels, {DEFAULT.networks}"
    console.stdout.print(console.score_table(rows, title))
    console.stdout.print(result["sentence"])
    console.stdout.print(f"{result['story']}.")
    console.stdout.print(f"Report: {result['report']}  ({result['seconds']:.0f} s in all)")
