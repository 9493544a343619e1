"""``fairseq-collab pages``: the pages of a project from their templates and data."""

from __future__ import annotations

import argparse
from pathlib import Path

from fairseq_collab.results import pages


def main(argv: list[str]) -> int:
    """Run the command; its exit status: with --check 1 if a page would change."""
    parser = argparse.ArgumentParser(
        prog="fairseq-collab pages",
        description="Renders every results/NAME.md.j2 of a folder to results/NAME.md.",
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path(), help="default: this one")
    parser.add_argument("--check", action="store_true", help="write nothing: name what is stale")
    args = parser.parse_args(argv)
    if args.check:
        stale = [page for page, _ in pages.stale(args.folder)]
        for page in stale:
            print(f"{page}: not what its template and data make")
        return int(bool(stale))
    for page in pages.write(args.folder):
        print(page)
    return 0
