"""WikiText-2, ready for fairseq's language models: `python -m data_prep.wikitext2`.

The text (Merity et al. 2016, arXiv 1609.07843) is Wikipedia's, CC BY-SA: words are told apart by
blanks, rare ones are <unk> already, and no subwords are made. Its first address is gone; its author
serves the archive at another. Or a folder holds train.txt and valid.txt, plain or gzipped.

The archive has a test set, test.txt, and so may the folder have. Where there is none, valid.txt is
halved between two of its 60 articles: the first half becomes `valid`, the second `test`. What is
measured on halves compares with other halves only; the manifest says what the splits are.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from collab_common.command import check_folder, run
from collab_common.errors import UserError
from collab_common.files import locked, open_bytes, sha256_of_text
from collab_common.folder import Json, build_folder
from collab_common.provenance import versions
from data_prep.archives import Member, extract
from data_prep.binarise import count_sentences
from data_prep.child import run_module
from data_prep.fetch import Published, fetch
from data_prep.options import add_output, add_source, check_known_text, source_folder
from data_prep.splits import text_file

PROG = "data_prep.wikitext2"
ARCHIVE = "wikitext-2-v1.zip"
TEXT = "wikitext2-text"  # where it is downloaded to, beside --out
MIRROR = "https://wikitext.smerity.com"
# torchtext's of the archive
PUBLISHED = Published(md5="542ccefacc6c27f945fb54453812b3cd")
LINES = {"train": 36_718, "valid": 3_760, "test": 4_358}
# of the text, the same bytes as those whose SHA-1 GluonNLP publishes; none is known of the test set
SHA256 = {
    "train": "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
    "valid": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
}
_REMEDY = "fetch it again; a text of your own needs no more than fairseq-preprocess --only-source"
# ' = Title = ' opens an article, ' = = Heading = = ' a section
_TITLE = re.compile(rb" = [^=].* = \n")


def fetch_text(folder: Path, mirror: str = MIRROR) -> None:
    """Downloads the archive, unless it is there, and takes its three texts out of it."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        archive = folder / ARCHIVE
        fetch(f"{mirror.rstrip('/')}/{ARCHIVE}", archive, check=PUBLISHED.check)
        extract(archive, [Member(f"{one}.txt", (f"wiki.{one}.tokens",)) for one in LINES], folder)


def find_texts(folder: Path) -> dict[str, Path]:
    """The files of train, valid and, if it is there, test. Raises UserError unless they fit."""
    check_folder(folder, "give one with train.txt and valid.txt")
    has_test = any((folder / name).is_file() for name in ("test.txt", "test.txt.gz"))
    files = {stem: text_file(folder, stem, "txt") for stem in (LINES if has_test else SHA256)}
    for stem, path in files.items():
        name = f"the {stem} text of WikiText-2"
        check_known_text(path, LINES[stem], SHA256.get(stem), name, _REMEDY)
    return files


def halves(lines: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Cuts before the article whose start is nearest to the middle, in words.

    Each half starts as the whole does, with the empty line before a title.
    """
    words = [0]
    for line in lines:
        words.append(words[-1] + len(line.split()))
    starts = [n - 1 for n, line in enumerate(lines) if _TITLE.fullmatch(line) and n > 1]
    cut = min(starts, key=lambda n: abs(2 * words[n] - words[-1]))
    return lines[:cut], lines[cut:]


def make(texts: Mapping[str, Path], out: Path, *, force: bool = False) -> bool:
    """Makes the folder `out` for fairseq's task language_modeling; False if it was there already.

    Raises UserError, like `collab_common.folder.build_folder`.
    """
    halved = "test" not in texts
    origin = {
        "corpus": "WikiText-2",
        "train": "train.txt",
        "valid": "valid.txt, first half" if halved else "valid.txt",
        "test": "valid.txt, second half" if halved else "test.txt",
    }
    inputs = {f"{stem}.txt": {"sha256": sha256_of_text(path)} for stem, path in texts.items()}
    identity = {"origin": origin, "inputs": inputs}
    made = build_folder(out, identity, lambda folder: _build(texts, folder), force=force)
    print(f"{out}: {'ready' if made else 'is up to date, nothing to do'}", flush=True)
    return made


def _build(texts: Mapping[str, Path], folder: Path) -> Json:
    splits = {}
    for stem, path in texts.items():
        with open_bytes(path) as stream:
            splits[stem] = stream.readlines()
    if "test" not in splits:
        splits["valid"], splits["test"] = halves(splits["valid"])
    stages: Json = {}
    arguments = ["--only-source", "--destdir", "."]
    for split, lines in splits.items():
        (folder / f"{split}.txt").write_bytes(b"".join(lines))
        arguments += [f"--{split}pref", f"{split}.txt"]
        words = sum(len(line.split()) for line in lines)
        stages[split] = {"lines": len(lines), "words": words}
    print("binarising ...", flush=True)
    run_module("fairseq_cli.preprocess", arguments, folder)
    for split, lines in splits.items():
        if (count := count_sentences(folder / f"{split}.idx")) != len(lines):
            raise UserError(f"{split}: {count} lines binarised of {len(lines)} given")
        (folder / f"{split}.txt").unlink()  # made again from the inputs at any time
    return {"versions": versions("fairseq", "fairseq-collab"), "stages": stages}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=PROG, description="Makes a folder for fairseq's language models from WikiText-2."
    )
    files = "train.txt, valid.txt and, perhaps, test.txt (or with .gz)"
    add_source(parser, TEXT, files, MIRROR, ARCHIVE)
    add_output(parser)
    args = parser.parse_args(argv)

    def action() -> None:
        make(find_texts(source_folder(args, TEXT, fetch_text)), args.out, force=args.force)

    return run(PROG, action)


if __name__ == "__main__":
    sys.exit(main())
