"""``fairseq-collab export``: a trained model for other engines, exactly or not at all.

``fairseq`` makes it a model of fairseq's own architecture, which decodes without this project.
That is exact wherever no head needs more than the d/H dimensions of an ordinary one: see
:mod:`fairseq_collab.checkpoints.export.attention`.  ``hf`` goes on from there.  ``ct2`` has heads
of any size, and so takes every key dimension; ``safetensors`` keeps any model as it is.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from omegaconf import OmegaConf

from collab_common.command import check_folder_of
from collab_common.errors import UserError
from fairseq_collab.checkpoints.export.model import Trained, load, plain
from fairseq_collab.checkpoints.opener import checkpoint_of, plain_config
from fairseq_compat import checkpoints


def to_fairseq(trained: Trained, arguments: argparse.Namespace) -> None:
    """A checkpoint of fairseq's own model: ``fairseq-generate`` reads it without ``--user-dir``."""
    exported = plain(trained)
    cfg = plain_config(trained.state["cfg"])
    options = exported.options
    cfg["model"] = OmegaConf.to_container(options) if OmegaConf.is_config(options) else options
    cfg["common"]["user_dir"] = None
    content = checkpoint_of(trained.state, cfg, exported.model)
    content["extra_state"].pop("train_iterator", None)
    checkpoints.save(content, arguments.out)


def to_safetensors(trained: Trained, arguments: argparse.Namespace) -> None:
    """Weights and description of any model, in one file."""
    from fairseq_collab.checkpoints.export import safetensors_format as export_safetensors

    export_safetensors.write(trained, arguments.out)


def to_ctranslate2(trained: Trained, arguments: argparse.Namespace) -> None:
    """A folder for ``ctranslate2.Translator``."""
    from fairseq_collab.checkpoints.export import ctranslate2_format as export_ct2
    from fairseq_collab.checkpoints.export import files as export_files
    from fairseq_collab.checkpoints.export import requirements as export_requirements

    model = trained.model
    export_requirements.check(model, trained.path, "CTranslate2", export_ct2.ACTIVATIONS)
    words = export_files.vocabulary(
        trained, arguments.data, arguments.source_lang, arguments.target_lang
    )
    export_ct2.write(model, words, arguments.out, trained.path)


def to_hugging_face(trained: Trained, arguments: argparse.Namespace) -> None:
    """A folder for ``transformers.MarianMTModel.from_pretrained``."""
    from fairseq_collab.checkpoints.export import files as export_files
    from fairseq_collab.checkpoints.export import hugging_face as export_hf
    from fairseq_collab.checkpoints.export import requirements as export_requirements

    model = plain(trained).model
    export_requirements.check(
        model, trained.path, "MarianMTModel", export_hf.ACTIVATIONS, post_norm_only=True
    )
    words = export_files.vocabulary(
        trained, arguments.data, arguments.source_lang, arguments.target_lang
    )
    export_hf.write(model, words, arguments.out, arguments.sentencepiece)


class Format(NamedTuple):
    """What writes a format, the packages that it takes, and what it makes."""

    write: Callable[[Trained, argparse.Namespace], None]
    packages: tuple[str, ...]
    summary: str


FORMATS = {
    "fairseq": Format(to_fairseq, (), "a checkpoint of fairseq's own transformer"),
    "safetensors": Format(to_safetensors, ("safetensors",), "weights and description in one file"),
    "ct2": Format(to_ctranslate2, ("ctranslate2",), "a folder for CTranslate2"),
    "hf": Format(to_hugging_face, ("transformers", "safetensors"), "a MarianMTModel's folder"),
}


def build_parser() -> argparse.ArgumentParser:
    """The options of the command."""
    formats = "; ".join(f"{name}: {form.summary}" for name, form in FORMATS.items())
    parser = argparse.ArgumentParser(
        prog="fairseq-collab export",
        description="Writes a trained model for another engine. The result computes the same, or "
        "the export is refused with the reason.",
        epilog="example: fairseq-collab export average.pt --format ct2 --out model-ct2",
    )
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--format", required=True, choices=FORMATS, help=formats)
    parser.add_argument("--out", required=True, type=Path, metavar="PATH", help="what to write")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="the folder with the dictionaries (default: where it was in training)",
    )
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-lang",
            metavar="LANG",
            help="of the dictionary dict.LANG.txt (default: as in training, or told by file names)",
        )
    parser.add_argument(
        "--sentencepiece",
        type=Path,
        metavar="FILE",
        help="with --format hf: the subword model of both languages, for the tokeniser",
    )
    parser.add_argument("--force", action="store_true", help="replace what is at --out")
    return parser


def check_out(out: Path, force: bool) -> None:
    """The result needs a folder to go to, and a name that is free.

    Raises:
        UserError: one of them is missing.
    """
    check_folder_of(out, "--out")
    if out.exists() and not force:
        raise UserError("exists already", out, "give another --out, or replace it with --force")


def check_packages(name: str, packages: tuple[str, ...]) -> None:
    """Raises UserError where an optional package of a format is missing."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise UserError(
                f"needs the package {package}, which is not installed",
                f"--format {name}",
                "pip install 'fairseq-collab[export]'",
            )


def main(argv: list[str]) -> int:
    """Run the command; its exit status.

    Raises:
        UserError: the checkpoint cannot be read or not be exported exactly, or not be written.
    """
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.sentencepiece is not None:
        if arguments.format != "hf":
            parser.error("argument --sentencepiece: goes with --format hf only")
        if not arguments.sentencepiece.is_file():
            raise UserError("there is no such file", arguments.sentencepiece)
    form = FORMATS[arguments.format]
    check_packages(arguments.format, form.packages)
    check_out(arguments.out, arguments.force)
    trained = load(arguments.checkpoint)
    try:
        form.write(trained, arguments)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"cannot be written: {reason}", arguments.out) from error
    print(f"{arguments.out}: {form.summary}, from {arguments.checkpoint}")
    return 0
