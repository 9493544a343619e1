"""``fairseq-collab export``: a trained model for other engines, exactly or not at all.

``fairseq`` makes it a model of fairseq's own architecture, which decodes without this project.
That is exact wherever no head needs more than the d/H dimensions of an ordinary one: see
:mod:`fairseq_collab.export.attention`.  ``hf`` goes on from there.  ``ct2`` has heads
of any size, and so takes every key dimension; ``safetensors`` keeps any model as it is.
"""

from __future__ import annotations

import argparse
import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from collab_common.command import check_folder_of
from collab_common.errors import UserError
from fairseq_collab.commands import options
from fairseq_collab.export.model import load


class Format(NamedTuple):
    """How one format is written: by ``export(trained, args)`` of a module, with these packages.

    Attributes:
        options: that only such formats read.
    """

    module: str
    packages: tuple[str, ...]
    summary: str
    options: tuple[str, ...] = ()


#: Which dictionaries are the model's.
VOCABULARY = ("data", "source_lang", "target_lang")
FORMATS = {
    "fairseq": Format("model", (), "a checkpoint of fairseq's own transformer"),
    "safetensors": Format(
        "safetensors_format", ("safetensors",), "weights and description in one file"
    ),
    "ct2": Format("ctranslate2_format", ("ctranslate2",), "a folder for CTranslate2", VOCABULARY),
    "hf": Format(
        "hugging_face",
        ("transformers", "safetensors"),
        "a MarianMTModel's folder",
        (*VOCABULARY, "sentencepiece"),
    ),
}


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "export",
        "Writes a trained model for another engine. The result computes the same, or the export is "
        "refused with the reason.",
        "example: fairseq-collab export average.pt --format ct2 --out model-ct2",
    )
    options.add_checkpoint(parser, None)
    formats = "; ".join(f"{name}: {form.summary}" for name, form in FORMATS.items())
    parser.add_argument("--format", required=True, choices=FORMATS, help=formats)
    options.add_output(parser, "--out", "PATH", "what to write")
    parser.add_argument(
        "--data", type=Path, metavar="DIR",
        help="the folder with the dictionaries (default: where it was in training)",
    )  # fmt: skip
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-lang", metavar="LANG",
            help="of the dictionary dict.LANG.txt (default: as in training, or told by file names)",
        )  # fmt: skip
    parser.add_argument(
        "--sentencepiece", type=Path, metavar="FILE",
        help="with --format hf: the subword model of both languages, for the tokeniser",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="replace what is at --out")
    return parser


def check_packages(option: str, packages: tuple[str, ...]) -> None:
    """Raises UserError where an optional package that an option needs is missing."""
    for package in packages:
        if find_spec(package) is None:
            what = f"needs the package {package}, which is not installed"
            raise UserError(what, option, "pip install 'fairseq-collab[export]'")


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuse options that the format does not read, and a file that is not there."""
    for option in (*VOCABULARY, "sentencepiece"):
        readers = [name for name, form in FORMATS.items() if option in form.options]
        if args.format not in readers:
            options.refuse(parser, args, (option,), f"needs --format {' or '.join(readers)}")
    if args.sentencepiece is not None and not args.sentencepiece.is_file():
        raise UserError("there is no such file", args.sentencepiece)


def main(argv: list[str]) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    check(parser, args)
    form = FORMATS[args.format]
    check_packages(f"--format {args.format}", form.packages)
    check_folder_of(args.out, "--out")
    if args.out.exists() and not args.force:
        todo = "give another --out, or replace it with --force"
        raise UserError("exists already", args.out, todo)
    module = importlib.import_module(f"fairseq_collab.export.{form.module}")
    trained = load(args.checkpoint)
    try:
        module.export(trained, args)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"cannot be written: {reason}", args.out) from error
    print(f"{args.out}: {form.summary}, from {args.checkpoint}")
    return 0
