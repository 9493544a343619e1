"""``fairseq-collab export``: export a trained model exactly to another engine.

The format ``fairseq`` is a model of fairseq's own architecture, which needs no plug-in.  It is
exact if no head needs more than the d/H dimensions of a standard head: see
:mod:`collab_lab.export.standard_weights`.  ``hf`` converts the result of ``fairseq``.  ``ct2``
supports heads of any size.  ``onnx`` supports every model including its KV cache, and its folder
translates without torch and fairseq.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from collab_common.command import positive
from collab_common.errors import UserError
from collab_common.folder import whole_folder
from collab_lab.cli import options
from collab_lab.shrinking.engine import ENGINES

if TYPE_CHECKING:
    from collab_lab.trained.checkpoint import Trained

#: The formats and the packages that they need.
PACKAGES_OF_FORMAT = {name: engine.packages for name, engine in ENGINES.items()}
PACKAGES_OF_FORMAT["hf"] = ("transformers", "safetensors")


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "export",
        "Write a trained model for another engine, as a folder. The result computes the same "
        "function; export fails with a reason where that is impossible.",
        "example: fairseq-collab export average.pt data/multi30k --format ct2 --out model-ct2",
    )
    about = "trained transformer (a language model with --format fairseq or onnx only)"
    parser.add_argument("checkpoint", type=Path, help=about)
    parser.add_argument(
        "data", type=Path, nargs="?", help="data folder with the dictionaries, and "
        "with spm.model for the tokeniser of hf (default: the folder of the training)",
    )  # fmt: skip
    parser.add_argument(
        "--format", required=True, choices=PACKAGES_OF_FORMAT,
        help="checkpoint model.pt for stock fairseq (fairseq), folder for ctranslate2.Translator "
        "(ct2), MarianMTModel for Hugging Face (hf), or graphs for ONNX Runtime and a program that "
        "translates with them (onnx)",
    )  # fmt: skip
    parser.add_argument(
        "--int8", action="store_true", help="with --format onnx: store weights in 8 bits; the "
        "model is smaller, and some translations differ",
    )  # fmt: skip
    parser.add_argument(
        "--check", nargs="?", type=positive, const=200, metavar="N",
        help="translate N sentences of the validation set (default: 200) with the checkpoint and "
        "with the result, or with a language model continue them (onnx only); exit with status 1 "
        "where translations or attention weights differ "
        "(with --int8: print how many differ, BLEU and bits)",
    )  # fmt: skip
    parser.add_argument(
        "--no-cache-bits", action="store_true",
        help="export a model without the rounding of its KV cache (--cache-bits), which only "
        "--format onnx supports",
    )  # fmt: skip
    options.add_out(parser, "DIR", "folder to write", force=False)
    options.add_user_dir(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_intermixed_args(argv)
    if args.int8 and args.format != "onnx":
        parser.error("--int8 goes with --format onnx; other engines quantise when they load")
    for package in PACKAGES_OF_FORMAT[args.format]:
        if find_spec(package) is None:
            problem = f"needs the package {package}, which is not installed"
            raise UserError(problem, f"--format {args.format}", f"pip install {package}")
    options.check_out(args)
    options.import_models(args)
    from collab_lab.export import check
    from collab_lab.export.engine_support import FILLED, most_source_tokens, other_attention
    from collab_lab.export.plain import (
        check_source,
        filled_blocks,
        is_rounded,
        own_task,
        without_rounding,
        write_plain,
    )
    from collab_lab.export.vocabulary import cut_tags, directions
    from collab_lab.metrics.loss import say_if_guessing_valid
    from collab_lab.trained.checkpoint import open_model, say_if_unlearnt
    from collab_lab.trained.precision import HALF
    from fairseq_compat.checkpoints import naming

    trained = open_model(args.checkpoint, args.data)
    if args.no_cache_bits:
        if not is_rounded(trained):
            problem = "has no effect: the model does not round its KV cache"
            raise UserError(problem, "--no-cache-bits", "leave it out")
        trained = without_rounding(trained)
    is_onnx = args.format == "onnx"
    # Before its validation set is: what is wrong with the model says more.
    check_kind = import_module("collab_lab.export.onnx").check if is_onnx else check_source
    check_kind(trained)
    sources = []
    if args.check:
        if trained.is_language_model and args.format != "onnx":
            problem = f"--check of {args.format} needs a translation model"
            raise UserError(problem, trained.path, "leave it out")
        checked = directions(trained)
        number = -(-args.check // len(checked))
        # A missing set fails at once.
        sources = [(one, check.sources_to_check(one, number)) for one in checked]
    tags = cut_tags(trained, reads_codes=is_onnx) if args.format != "fairseq" else None
    with naming(args.checkpoint), whole_folder(args.out) as folder:
        if args.format == "fairseq":
            write_plain(trained, folder)
        elif is_onnx:
            import_module("collab_lab.export.onnx").export(trained, folder, args.int8)
        else:  # with packages that may be missing
            import_module(f"collab_lab.export.{args.format}").export(trained, folder)
    print(f"{args.out}: {args.checkpoint} for {args.format}")
    if not HALF.isdisjoint(trained.precisions.values()):
        print("the checkpoint's weights of half precision are written in single precision")
    say_if_unlearnt(
        trained,
        "an engine makes up the beginning, unless that is given (CTranslate2: target_prefix)",
    )
    if args.format != "fairseq" and (most := most_source_tokens(trained)):
        how = {"ct2": "the call above does, too", "onnx": "translate.py leaves such lines out"}
        print(
            f"trained with --truncate-source, which cuts sources to {most} subwords with </s>: "
            + how.get(args.format, f"cut them (tokeniser: truncation=True, max_length={most})")
        )
    if args.format == "fairseq" and (task := own_task(trained)):
        print(f"its task is a plug-in's: give fairseq-generate --user-dir and --task {task}")
    if tags:
        print(f"warning: {tags}")
    if is_onnx:
        return check_onnx(trained, args)
    if args.format in FILLED and (line := filled_blocks(trained)):
        print(line)
    if not trained.is_language_model and (reason := other_attention(trained, args.format)):
        print(reason)
    if args.format != "fairseq":
        say_if_guessing_valid(trained)
    all_equal = True
    for one, of_one in sources:
        if len(sources) > 1:
            print(f"from {one.cfg.task.source_lang} to {one.cfg.task.target_lang}:")
        lines, are_equal = check.compare(one, args.out, args.format, of_one)
        print(*lines, sep="\n")
        all_equal = all_equal and are_equal
    return 0 if all_equal else 1


def check_onnx(trained: Trained, args: argparse.Namespace) -> int:
    """Compare translations if ``--check`` is given, and return the exit status."""
    if not args.check:
        return 0
    from collab_lab.export import onnx_check

    lines, passes = onnx_check.compare(trained, args.out, args.check)
    print(*lines, sep="\n")
    return 0 if passes else 1
