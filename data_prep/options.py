"""Command-line options and checks that several corpora share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from collab_common.command import positive
from collab_common.errors import UserError
from collab_common.files import count_lines, sha256_of_text


def add_from(parser: argparse._ActionsContainer, about: str) -> None:
    """--from, of every command that reads a folder of the user's."""
    parser.add_argument("--from", dest="from_folder", type=Path, metavar="DIR", help=about)


def add_source(
    parser: argparse.ArgumentParser, folder: str, files: str, mirror: str, what: str
) -> None:
    """--from DIR with `files`, or --mirror URL, which has `what`, to fill `folder`."""
    where = parser.add_mutually_exclusive_group()
    add_from(where, f"has {files}; default: download them to a folder {folder} beside --out")
    where.add_argument(
        "--mirror", default=mirror, metavar="URL", help=f"where {what} is (default: {mirror})"
    )


def source_folder(
    args: argparse.Namespace, folder: str, fetch: Callable[[Path, str], object]
) -> Path:
    """The folder that `add_source` asks for, filled by `fetch(folder, mirror)` unless given."""
    if args.from_folder is not None:
        return Path(args.from_folder)
    found: Path = args.out.resolve().parent / folder
    fetch(found, args.mirror)
    return found


def add_languages(parser: argparse.ArgumentParser, choices: Sequence[str]) -> None:
    """--source-lang and --target-lang, from English to German by default."""
    parser.add_argument("--source-lang", choices=choices, default="en")
    parser.add_argument("--target-lang", choices=choices, default="de")


def check_languages(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Bad usage unless the two differ."""
    if args.source_lang == args.target_lang:
        parser.error(f"--source-lang and --target-lang are both {args.source_lang}")


def add_output(parser: argparse.ArgumentParser) -> None:
    """--out and --force, of every command that makes a folder."""
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.add_argument(
        "--force", action="store_true", help="make it again, whatever it was made from"
    )


def add_bpe_options(parser: argparse.ArgumentParser) -> None:
    """--vocabulary-threshold and --glossaries, of commands that apply subword-nmt's codes."""
    parser.add_argument(
        "--vocabulary-threshold",
        type=positive,
        metavar="N",
        help="of text: take apart again, by undoing merges, a unit that the training text of its "
        "language has less than N times (subword-nmt's; default: none)",
    )
    parser.add_argument(
        "--glossaries",
        nargs="+",
        action="extend",
        default=[],
        metavar="REGEX",
        help="of text: what matches stays whole, and apart from the rest of its word "
        "(subword-nmt's)",
    )


def check_known_text(path: Path, lines: int, sha256: str | None, name: str, todo: str) -> None:
    """Raises UserError unless a file has so many lines and, where known, this text's SHA-256."""
    if (found := count_lines(path)) != lines:
        raise UserError(f"{found:,} lines instead of {lines:,}", path, todo)
    if sha256 is not None and sha256_of_text(path) != sha256:
        raise UserError(f"not {name} (other SHA-256)", path, todo)
