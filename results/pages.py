"""Tables and figures of the pages, from data: ``python results/pages.py [--check]``.

A page is Markdown that a person writes.  This program fills in what comes from data: a table of
:mod:`.tables` between ``<!-- table: NAME -->`` and ``<!-- end -->``, and a number of
:mod:`.values` between ``<!--=GROUP.NAME-->`` and ``<!--/-->``.  Figures are those of
:mod:`.figures`.
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
from results.tables import TABLES
from results.values import VALUES

NUMBER = re.compile(r"<!--=(\w+)\.(\w+)-->[^<]*(<!--/-->)?")
BLOCK = re.compile(r"<!-- table: (\w+) -->\n(?:(?!<!--).)*(<!-- end -->)?", re.S)


def updated(text: str) -> str:
    """A page with its tables and numbers as the data have them."""

    def block(match: re.Match[str]) -> str:
        name, end = match.groups()
        if name not in TABLES:
            raise UserError(f"unknown table {name!r}", todo=f"one of {', '.join(TABLES)}")
        if not end:
            raise UserError(f"no <!-- end --> after table {name!r}", todo="add it")
        return f"<!-- table: {name} -->\n\n{TABLES[name]()}\n\n<!-- end -->"

    def number(match: re.Match[str]) -> str:
        group, name, end = match.groups()
        names = VALUES[group]() if group in VALUES else {}
        if name not in names:
            raise UserError(f"unknown number {group}.{name!r}", todo="add it to results/values.py")
        if not end:
            raise UserError(f"no <!--/--> after the number {group}.{name}", todo="add it")
        return f"<!--={group}.{name}-->{names[name]}<!--/-->"

    return NUMBER.sub(number, BLOCK.sub(block, text))


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
    """Write stale tables, numbers and figures, or with ``--check`` name them and fail.

    Read a sentence again when its number has changed.
    """
    parser = argparse.ArgumentParser(prog="results/pages.py", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(argv).check
    found = stale()
    for path, content in found.items():
        print(f"{path}: not what its data make" if check else path)
        if not check:
            write_atomic(path, content)
    return int(check and bool(found))


if __name__ == "__main__":
    sys.exit(run("results/pages.py", main))
