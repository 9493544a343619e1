"""``fairseq-collab pages``: pages of results from their templates and data."""

from __future__ import annotations

import argparse
from pathlib import Path

from collab_lab.cli import options


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "pages",
        "Render the pages and figures of a project from results/templates and results/contents.py.",
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path(), help="project (default: this folder)"
    )
    parser.add_argument("--check", action="store_true", help="write nothing, fail on stale pages")
    return parser


def main(argv: list[str]) -> int:
    """Run the command; its exit status: with --check 1 if a page would change."""
    args = build_parser().parse_args(argv)
    from collab_lab.results.pages import pages

    found = pages(args.folder)
    stale = [page for page in found if page.stale]
    for page in stale:
        print(f"{page.path}: not what its template and data make" if args.check else page.path)
    for page in [] if args.check else found:  # figures may have changed where the text has not
        page.write()
    return int(args.check and bool(stale))
