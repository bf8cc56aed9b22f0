"""Add the runs of packs to another pack of the same scenario.

    python experiments/merge.py NEW ... --into docs/results/data/beyond/demo-random

Runs may be made on several days or machines. A run that the pack has already (the same row and
seed) is replaced by the new one. Runs of other settings are refused.
"""

from __future__ import annotations

import argparse
import json
import zipfile
from pathlib import Path

from adagc.atomic import replacing, write_text
from adagc.bench.packs import unpack
from adagc.errors import UsageError

INDEX = "pack.json"


def merge(new: Path, into: Path) -> None:
    """Add the runs of one pack to another; a folder that does not exist yet becomes a copy."""
    unpack(new)  # it can be read
    into.mkdir(parents=True, exist_ok=True)
    added = json.loads((new / INDEX).read_text())
    index = json.loads((into / INDEX).read_text()) if (into / INDEX).exists() else {**added}
    for key in ("name", "settings"):
        if index["scenario"][key] != added["scenario"][key]:
            raise UsageError(f"{new} has another {key} than {into}: these are not the same runs")
    for label, name in added["rows"].items():
        place = index["rows"].setdefault(label, name)
        _add(new / name, into / place)
    for key in ("failed", "unsuited"):
        index[key] = {
            label: reasons
            for label, reasons in {**index[key], **added[key]}.items()
            if label not in index["rows"]
        }
    index["planned"] = []
    write_text(into / INDEX, json.dumps(index, indent=1, ensure_ascii=False) + "\n")
    unpack(into)


def _add(new: Path, into: Path) -> None:
    """Add the runs of one ZIP file to another."""
    added = _read(new)
    fresh = {name.partition("/")[0] for name in added}
    # Of a run that is replaced nothing remains, also if the new one has fewer files.
    former = _read(into) if into.exists() else {}
    kept = {name: value for name, value in former.items() if name.partition("/")[0] not in fresh}
    kept |= added
    with replacing(into) as (temporary,), zipfile.ZipFile(temporary, "w") as file:
        for name in sorted(kept, key=_seed):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_LZMA
            file.writestr(info, kept[name])


def _read(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def _seed(name: str) -> int:
    return int(name.partition("/")[0].removeprefix("seed"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("new", type=Path, nargs="+")
    parser.add_argument("--into", type=Path, required=True)
    given = parser.parse_args()
    for pack in given.new:
        merge(pack, given.into)
