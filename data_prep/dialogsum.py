"""DialogSum, dialogues and their summaries, ready for fairseq: `python -m data_prep.dialogsum`.

The corpus (Chen et al. 2021, Findings of ACL) is in the repository cylnlp/dialogsum; licence CC
BY-NC-SA 4.0, so it is neither shipped nor fetched unasked: `--from` names a folder that holds

    dialogsum.train.jsonl, dialogsum.dev.jsonl      as in that repository, or
    train.dialogue, train.summary, dev.dialogue, dev.summary    a line each, plain or gzipped

One line is one dialogue; its turns follow each other, each begun by its speaker's mark
(#Person1#:, #Person2#:, ...). Line breaks inside a dialogue become blanks.

The public test set has three references a dialogue and is not used: the development set is halved
instead, its odd lines (the first, the third, ...) become `valid`, its even ones `test`.

Dialogues are cut after a number of words here, and not by fairseq's --truncate-source, since
fairseq-generate would need that option, too: what stands in the folder is what every command
sees. The text is cut, so raw/ holds the dialogues as models see them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from collab_common.command import check_folder, positive, run
from collab_common.errors import UserError
from data_prep.options import add_from
from data_prep.parallel_text import lines_of, write_lines
from data_prep.prepare import add_prepare_options, config_from, prepare
from data_prep.splits import text_file

PROG = "data_prep.dialogsum"
HOME = "https://github.com/cylnlp/dialogsum"
SIDES = ("dialogue", "summary")
LINES = {"train": 12_460, "dev": 500}
# of the text, a line each, before dialogues are cut
SHA256 = {
    "train.dialogue": "a096a2ecb42020b42141972e101ed5b080b9121a87224b32c39459a6727da7a7",
    "train.summary": "b5a5633388ba9f6e734ca31b517a481dd04c1280e6edbecf27b421796e5974c1",
    "dev.dialogue": "7cfec6b4f7befb488d2028ac8f0376340ed57cc342b95c25cd36a3e35104cce7",
    "dev.summary": "3f63385935862f2a69f952d82d52d686526cf4b8cb057e3b112f9491609589d5",
}
_REMEDY = f"fetch it again from {HOME}; for a text of your own, use data_prep.prepare"


class Part(NamedTuple):
    """Dialogues and their summaries, line by line."""

    dialogues: list[str]
    summaries: list[str]


def read(folder: Path) -> dict[str, Part]:
    """The parts `train` and `dev`; UserError unless the folder holds the text of DialogSum."""
    check_folder(folder, f"take the text from {HOME}")
    return {name: _read_part(folder, name) for name in LINES}


def _read_part(folder: Path, name: str) -> Part:
    files = [folder / f"dialogsum.{name}.jsonl"] * 2
    if files[0].exists():
        part = _from_records(files[0])
    else:
        files = [text_file(folder, name, side) for side in SIDES]
        part = Part(*(list(lines_of(path)) for path in files))
    for side, lines, path in zip(SIDES, part, files, strict=True):
        if len(lines) != LINES[name]:
            raise UserError(f"{len(lines):,} lines instead of {LINES[name]:,}", path, _REMEDY)
        text = "".join(f"{line}\n" for line in lines)
        if hashlib.sha256(text.encode()).hexdigest() != SHA256[f"{name}.{side}"]:
            raise UserError(f"not the {name}.{side} of DialogSum (other SHA-256)", path, _REMEDY)
    return part


def _from_records(path: Path) -> Part:
    """One JSON object a line, with the keys `dialogue` and `summary`."""
    part = Part([], [])
    for number, line in enumerate(lines_of(path), 1):
        try:
            record = json.loads(line)
            for side, lines in zip(SIDES, part, strict=True):
                lines.append(" ".join(record[side].split()))
        except (ValueError, KeyError, TypeError, AttributeError):
            what = f"not a JSON object with the texts {SIDES[0]!r} and {SIDES[1]!r}"
            raise UserError(what, f"{path}:{number}", _REMEDY) from None
    return part


def splits(parts: dict[str, Part], words: int) -> dict[str, Part]:
    """`train`, `valid` (the odd lines of `dev`) and `test` (the even ones), dialogues cut."""
    dev = parts["dev"]
    chosen = {
        "train": parts["train"],
        "valid": Part(dev.dialogues[0::2], dev.summaries[0::2]),
        "test": Part(dev.dialogues[1::2], dev.summaries[1::2]),
    }
    return {
        name: Part([cut(dialogue, words) for dialogue in part.dialogues], part.summaries)
        for name, part in chosen.items()
    }


def cut(dialogue: str, words: int) -> str:
    """The first so many words (speakers' marks are words, too); a shorter dialogue as it is."""
    found = dialogue.split(maxsplit=words)
    return " ".join(found[:words]) if len(found) > words else dialogue


def _make(args: argparse.Namespace) -> None:
    if args.from_folder is None:
        raise UserError(
            "where is the text of DialogSum?",
            todo=f"give --from DIR with dialogsum.train.jsonl and dialogsum.dev.jsonl of {HOME}",
        )
    parts = read(args.from_folder)
    shortened = sum(len(text.split()) > args.dialogue_words for text in parts["train"].dialogues)
    origin = {
        "corpus": "dialogsum",
        "text_sha256": SHA256,
        "dialogue_words": args.dialogue_words,
        "cut_in_train": shortened,
        "valid": "odd lines of dev",
        "test": "even lines of dev",
    }
    print(f"dialogues cut after {args.dialogue_words} words: {shortened:,} of {LINES['train']:,}")
    with tempfile.TemporaryDirectory(prefix="dialogsum-") as name:
        for split, part in splits(parts, args.dialogue_words).items():
            for side, lines in zip(SIDES, part, strict=True):
                write_lines(Path(name, f"{split}.{side}"), lines)
        prepare(config_from(args, text=Path(name), origin=origin))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=PROG, description="Makes a folder for fairseq-train from DialogSum's summaries."
    )
    add_from(parser, f"text, taken from {HOME}")
    parser.add_argument(
        "--dialogue-words",
        type=positive,
        default=160,
        metavar="N",
        help="dialogues are cut after so many words (default: 160, about 235 subwords)",
    )
    parser.set_defaults(source_lang=SIDES[0], target_lang=SIDES[1])
    add_prepare_options(parser, vocab_size=6000)
    args = parser.parse_args(argv)
    return run(PROG, lambda: _make(args))


if __name__ == "__main__":
    sys.exit(main())
