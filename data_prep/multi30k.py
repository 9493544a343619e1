"""Multi30k, task 1 (image captions), ready for fairseq: `fairseq-collab data multi30k`.

The text is downloaded from its public repository, or read from a folder that already holds it. It
is not part of this project, because its licence, the Flickr30k terms, allows only non-commercial
research and education.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from collab_common.command import Parser, run
from collab_common.errors import UserError
from collab_common.files import sha256_of_text
from data_prep.archives import fetch
from data_prep.parallel_text import sibling, text_file
from data_prep.prepare import add_prepare_options, prepare_as_asked

PROG = "fairseq-collab data multi30k"
COMMIT = "a3d2e0d26b56f3846f66a952536ffed4e401d05a"
URL = f"https://raw.githubusercontent.com/multi30k/dataset/{COMMIT}/data/task1/raw"
LANGUAGES = ("en", "de")

SPLITS = {"train": "train", "valid": "val", "test": "test_2016_flickr", "test1": "test_2017_flickr"}

# hashes of the decompressed text
SHA256 = {
    "train.en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "train.de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "val.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "val.de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "test_2016_flickr.en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "test_2016_flickr.de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    "test_2017_flickr.en": "ce1450ddc5ab0834502579d77a170849952e15a2938b34cc503bdc25ebb4fb98",
    "test_2017_flickr.de": "c3078bc3b36808bf9d20eb2347ed6137016179ef59ec0d2b9b8ecc3fb2880081",
}


def fetch_text(folder: Path) -> None:
    """Download the files that the folder does not have yet."""
    for stem in SPLITS.values():
        for lang in LANGUAGES:
            name = f"{stem}.{lang}.gz"
            fetch(f"{URL}/{name}", folder / name)


def check_text(folder: Path) -> None:
    """Raise UserError unless the folder holds the text of Multi30k, plain or gzipped."""
    todo = "fetch it again; for text of your own, use fairseq-collab data prepare"
    for stem in SPLITS.values():
        for lang in LANGUAGES:
            path, name = text_file(folder, stem, lang), f"{stem}.{lang}"
            if sha256_of_text(path) != SHA256[name]:
                raise UserError(f"not the text of Multi30k's {name} (other SHA-256)", path, todo)


def _make(args: argparse.Namespace) -> None:
    folder = args.from_folder or sibling(args.out, "text")
    if args.from_folder is None:
        fetch_text(folder)
    check_text(folder)
    prepare_as_asked(args, folder, splits=SPLITS, origin={"corpus": "multi30k task 1"})


def main(argv: list[str] | None = None) -> int:
    """Run ``fairseq-collab data multi30k``."""
    parser = Parser(
        prog=PROG, description="Make a data folder from the image captions of Multi30k."
    )
    parser.add_argument(
        "--from", dest="from_folder", type=Path, metavar="DIR",
        help="folder with train.en.gz, val.en.gz, ..., gzipped or not (default: download them)",
    )  # fmt: skip
    parser.add_argument(
        "--source-lang", choices=LANGUAGES, default="en", help="source language (default: en)"
    )
    parser.add_argument(
        "--target-lang", choices=LANGUAGES, default="de", help="target language (default: de)"
    )
    add_prepare_options(parser, vocab_size=6000)
    args = parser.parse_args(argv)
    return run(PROG, lambda: _make(args))
