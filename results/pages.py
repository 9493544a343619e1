"""Tables and figures of the pages, from data: ``python results/pages.py [--check]``.

A page is Markdown.  What is between ``<!-- table: NAME -->`` and ``<!-- end -->`` is a table of
:mod:`.tables`; figures are those of :mod:`.figures`.  Sentences are typed; those of
:mod:`.sentences` have numbers that are compared with the data.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from collab_common.command import run
from collab_common.errors import UserError
from collab_common.files import write_atomic
from collab_lab.results.figure import saved
from results.data import ROOT
from results.figures import FIGURES
from results.sentences import wrong
from results.tables import TABLES

BLOCK = re.compile(r"<!-- table: (\w+) -->\n(?:(?!<!--).)*(<!-- end -->)?", re.S)


def updated(text: str) -> str:
    """A page with its tables as the data have them."""

    def block(match: re.Match[str]) -> str:
        name, end = match.groups()
        if name not in TABLES:
            raise UserError(f"unknown table {name!r}", todo=f"one of {', '.join(TABLES)}")
        if not end:
            raise UserError(f"no <!-- end --> after table {name!r}", todo="add it")
        return f"<!-- table: {name} -->\n\n{TABLES[name]()}\n\n<!-- end -->"

    return BLOCK.sub(block, text)


def stale(root: Path = ROOT) -> dict[Path, bytes]:
    """Pages and figures of a project that are not what the data make: their new contents."""
    results = root / "results"
    pages = [root / "README.md", *(root / "docs").glob("*.md"), *results.glob("*.md")]
    new = {page: updated(page.read_text(encoding="utf-8")).encode() for page in pages}
    new |= {results / name: saved(figure()) for name, figure in FIGURES.items()}
    return {
        path: content
        for path, content in new.items()
        if not path.exists() or path.read_bytes() != content
    }


def main(argv: list[str] | None = None) -> int:
    """Write stale tables and figures, or with ``--check`` name them, and fail if there are any.

    Fail, too, if a number in a sentence is not that of the data: a person writes sentences.
    """
    parser = argparse.ArgumentParser(prog="results/pages.py", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(argv).check
    found = stale()
    for path, content in found.items():
        print(f"{path}: not what its data make" if check else path)
        if not check:
            write_atomic(path, content)
    lacking = wrong()
    for path, text in lacking:
        print(f"{path}: lacks what its data say: {text!r}")
    return int(bool(lacking) or (check and bool(found)))


if __name__ == "__main__":
    sys.exit(run("results/pages.py", main))
