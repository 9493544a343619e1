"""The table of the runs of ``recipes/reparametrize.sh`` of earlier versions.

Now ``fairseq-collab table OUT/runs OUT/tuned --columns bleu,chrf,valid_nats,relative_error``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from collab_common.command import run
from collab_common.files import make_folder, write_atomic, write_json
from fairseq_collab.results.tables import grid
from fairseq_collab.runs.former import Facts, reparametrized

#: Fields of ``table.json``, and what they are called in a record.
FIELDS = {
    "method": "method", "key_dim": "key_dim", "bleu": "bleu", "chrf": "chrf", "loss": "valid_nats",
    "error": "relative_error", "seconds": "seconds", "signature": "bleu_signature",
}  # fmt: skip


def write(folder: Path, out: Path) -> None:
    """Write ``table.json`` and ``table.md``; models that nothing was converted in come first."""
    found = reparametrized(folder)
    found.sort(key=lambda one: (one["key_dim"] is not None, one["method"], -(one["key_dim"] or 0)))
    rows = [{name: one[field] for name, field in FIELDS.items()} for one in found]
    make_folder(out)
    write_json(out / "table.json", rows)
    write_atomic(out / "table.md", markdown(rows))
    print(markdown(rows), end="")


def markdown(rows: list[Facts]) -> str:
    """One line a model."""
    names = [*FIELDS][:6]
    cells = [[_text(row[name]) for name in names] for row in rows]
    return grid(names, cells, left=(0, 1), padded=False) + "\n"


def _text(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str("-" if value is None else value)


def main() -> int:
    """Run the command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m fairseq_collab.reparametrize.results")
    parser.add_argument("runs", type=Path, metavar="RUNS", help="OUT of the recipe")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    args = parser.parse_args()
    return run(parser.prog, lambda: write(args.runs, args.out))


if __name__ == "__main__":
    sys.exit(main())
