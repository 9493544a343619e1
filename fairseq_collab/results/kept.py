"""Heads kept against BLEU, by attention site: the results of ``recipes/head_pruning.sh``.

``python -m fairseq_collab.results.kept OUT --baseline BASELINE`` reads the recipe's runs,
finished or not, and writes ``heads_kept.md``, ``heads_kept.json`` and ``heads_kept.png`` into OUT.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from collab_common.command import run
from collab_common.files import as_json, write_content, write_file
from fairseq_collab.metrics.provenance import circumstances
from fairseq_collab.results import kept_report
from fairseq_collab.results.kept_runs import Found, read

NAME = "heads_kept"


def main(argv: Sequence[str]) -> int:
    """Run the command; its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_collab.results.kept",
        description="Table and figure of recipes/head_pruning.sh: heads kept against BLEU.",
    )
    parser.add_argument("out", type=Path, help="the recipe's OUT")
    parser.add_argument(
        "--baseline", type=Path, required=True, metavar="DIR", help="runs that it has started from"
    )
    args = parser.parse_args(argv)
    command = shlex.join(["python", "-m", "fairseq_collab.results.kept", *argv])

    def action() -> None:
        found = read(args.out, args.baseline)
        write(found, args.out, {"command": command, **circumstances(cpu=True)})

    return run(parser.prog, action)


def write(found: Found, out: Path, made: Mapping[str, Any]) -> None:
    """Write table, figure and numbers, each file whole or not at all; print the table.

    Args:
        made: command, commit, versions and date.

    Raises:
        UserError: a file cannot be written.
    """
    text = kept_report.markdown(found, made)
    content = {"version": 1, **asdict(found), "made": dict(made)}
    save = partial(
        kept_report.draw(found).savefig, format="png", dpi=150, metadata={"Software": None}
    )
    write_content(out / f"{NAME}.json", as_json(content).encode())
    write_content(out / f"{NAME}.md", text.encode())
    write_file(out / f"{NAME}.png", save)
    print(text, end="")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
