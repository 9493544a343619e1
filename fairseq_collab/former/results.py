"""The table of the runs of ``recipes/reparametrize.sh`` of earlier versions, which were no runs.

    OUT/METHOD-K/score.json, valid.log, fit.json       trained without K

Now ``fairseq-collab table OUT/runs OUT/tuned --columns bleu,chrf,valid_nats,relative_error``.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from collab_common.command import run
from collab_common.errors import UserError
from collab_common.files import make_folder, write_atomic, write_json
from fairseq_collab.results.tables import grid
from fairseq_collab.runs.fairseq_output import entries

Facts = dict[str, Any]

LOG_2 = 0.693147180559945  # to as many digits as the recipe wrote it
_FOLDER = re.compile(r"(?P<method>[a-z-]+?)(-(?P<key_dim>\d+))?")
#: What of ``table.json`` is in ``table.md``.
COLUMNS = ("method", "key_dim", "bleu", "chrf", "loss", "error")


def reparametrized(folder: Path) -> list[Facts]:
    """The models that the recipe measured, sorted by their folders; UserError if there are none."""
    found = []
    for path in sorted(folder.glob("*/score.json")):
        named = _FOLDER.fullmatch(path.parent.name)
        losses = entries(path.parent / "valid.log", "valid")
        if not named:
            continue
        if not losses:
            todo = "run the recipe again"
            raise UserError("no validation loss in it", path.parent / "valid.log", todo)
        score, fit = json.loads(path.read_bytes()), path.parent / "fit.json"
        fits = json.loads(fit.read_bytes())["attentions"] if fit.exists() else []
        found.append(
            {
                "method": named["method"],
                "key_dim": named["key_dim"] and int(named["key_dim"]),
                "bleu": score["bleu"],
                "chrf": score["chrf"],
                "loss": float(losses[-1]["valid_nll_loss"]) * LOG_2,
                "error": statistics.fmean(x["error"] for x in fits) if fits else None,
                "seconds": sum(x["seconds"] for x in fits) if fits else None,
                "signature": score["bleu_signature"],
            }
        )
    if not found:
        raise UserError("no result in it", folder, "give the OUT of recipes/reparametrize.sh")
    return found


def write(folder: Path, out: Path) -> None:
    """Write ``table.json`` and ``table.md``; models that nothing was converted in come first."""
    rows = reparametrized(folder)
    rows.sort(key=lambda one: (one["key_dim"] is not None, one["method"], -(one["key_dim"] or 0)))
    cells = [[_text(row[name]) for name in COLUMNS] for row in rows]
    table = grid(COLUMNS, cells, left=(0, 1), padded=False) + "\n"
    make_folder(out)
    write_json(out / "table.json", rows)
    write_atomic(out / "table.md", table)
    print(table, end="")


def _text(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str("-" if value is None else value)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fairseq_collab.reparametrize.results")
    parser.add_argument("runs", type=Path, metavar="RUNS", help="OUT of the recipe")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    args = parser.parse_args()
    return run(parser.prog, lambda: write(args.runs, args.out))


if __name__ == "__main__":
    sys.exit(main())
