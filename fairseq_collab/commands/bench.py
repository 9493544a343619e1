"""``fairseq-collab bench``: speed, memory and counters of our models beside fairseq's, in turn."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from collab_common import processor
from collab_common.command import positive
from collab_common.errors import UserError
from collab_common.files import write_atomic, write_content, write_json
from fairseq_collab.bench import fairseq_generate, report
from fairseq_collab.bench.run import run
from fairseq_collab.bench.settings import PARTS, PRESETS, USUAL, USUAL_PARTS, Settings
from fairseq_collab.commands import options
from fairseq_collab.commands.export import check_packages
from fairseq_collab.results.figure_style import saved
from fairseq_collab.trained.opener import check_data

#: What is done alone, by its option, and which others it reads or :func:`settings_of` refuses.
ALONE = {
    "report": {"out"},
    "decoding": {"names", "rounds", "length", "data", "threads", "device", "dtype", "out"},
    "engines": {"presets", "quick", "threads", "seed", "data", "device", "dtype", "out"},
}
_TRAINED = {"checkpoint", "collab_checkpoint"}
#: Which options a part does not read; of others, none.
UNREAD = {
    "train": _TRAINED,
    "grouped": _TRAINED,
    "core": {"presets", "data", *_TRAINED},
    "memory": {"data", *_TRAINED},
    "counters": {"quick", "device", "dtype", "data", *_TRAINED},
    "paper3": {"data", *_TRAINED},
}


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "bench",
        "Time fairseq's transformer and ours in turn, on the same work, after checking "
        "that they compute the same: translation, training, heads in groups, attention alone; "
        "count memory, cache bytes, multiply-adds and copies. Close everything else first.",
    )
    add, names = parser.add_argument, ",".join
    add("--presets", type=partial(options.some_of, [*PRESETS]), default=USUAL, metavar="LIST",
        help=f"sizes of models (default: {names(USUAL)})")  # fmt: skip
    add("--only", type=partial(options.some_of, PARTS), default=USUAL_PARTS, metavar="LIST",
        help=f"parts to run (default: {names(USUAL_PARTS)}); or paper3, translation with a quarter "
        "of the heads as arXiv 2305.14380 times it: beam 5, batch 256, length 10")  # fmt: skip
    add("--quick", action="store_true", help="some minutes; says little")
    add("--threads", type=positive, default=processor.cores(), help="default: all cores")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", choices=("float32", "bfloat16"), default="float32",
        help="of weights and activations")  # fmt: skip
    add("--seed", type=int, default=1, help="of weights and sentences")
    add("--data", metavar="DIR", help="real sentences: a folder for fairseq")
    add("--checkpoint", metavar="FILE",
        help="a trained transformer of fairseq's, for translations of natural length")  # fmt: skip
    add("--collab-checkpoint", metavar="FILE",
        help="a trained transformer_collab (K at most d/H), likewise")  # fmt: skip
    add("--decoding", type=Path, nargs="+", metavar="FILE",
        help="only this: how fast trained models of any kind translate the test set of --data, in "
        "turn, by fairseq-generate's own clock; ratios are to the first")  # fmt: skip
    add("--engines", nargs="*", metavar="FILE",
        help="only this: fairseq's model, ours and CTranslate2, float32 and int8, in turn, with "
        "random models of --presets, and with these trained ones on --data")  # fmt: skip
    add("--names", nargs="+", metavar="NAME", help="of the models of --decoding, for the table")
    add("--rounds", type=positive, metavar="N", help="of --decoding (default: 5)")
    add("--length", type=positive, metavar="N",
        help="of --decoding: tokens of every translation (default: as each ends)")  # fmt: skip
    add("--report", type=Path, nargs="+", metavar="JSON",
        help="run nothing: write these runs, side by side, as Markdown and a figure")  # fmt: skip
    add("--out", type=Path, metavar="FILE",
        help="the JSON file (default: bench.json), or with --report the Markdown page (default: "
        "speed.md); the figure lies beside it")  # fmt: skip
    return parser


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End with status 2 where an option would have no effect."""
    for alone, read in ALONE.items():
        if getattr(args, alone) is not None:
            unread = [name for name in vars(args) if name not in {alone, *read}]
            options.refuse(parser, args, unread, f"has no effect with --{alone}: leave one out")
    if args.engines == []:
        options.refuse(parser, args, ("data",), "needs checkpoints after --engines")
    unread = sorted(set.intersection(*(UNREAD.get(part, set()) for part in args.only)))
    reason = f"has no effect with --only {','.join(args.only)}: leave one out"
    options.refuse(parser, args, unread, reason)


def settings_of(args: argparse.Namespace) -> Settings:
    """The options, checked before anything runs."""
    if args.device == "cuda" and not torch.cuda.is_available():
        todo = "leave it out, or install a torch with CUDA on a machine with a GPU"
        raise UserError("torch finds no CUDA device", "--device cuda", todo)
    if args.engines is not None:
        if (args.device, args.dtype) != ("cpu", "float32"):
            what = "compares engines on a CPU, in float32 and int8"
            raise UserError(what, "--engines", "leave --device and --dtype out")
        check_packages("--engines", ("ctranslate2",))
    for option in ("checkpoint", "collab_checkpoint", "decoding", "engines"):
        name, given = f"--{option.replace('_', '-')}", getattr(args, option) or []
        if given and not args.data:
            raise UserError("needs the --data that it is to translate", name, "give both")
        for path in given if isinstance(given, list) else [given]:
            if not Path(path).is_file():
                raise UserError("there is no such checkpoint", path, f"give {name} another one")
    if args.decoding and args.dtype != "float32":
        what = "fairseq-generate translates in float32, with --bf16, too"
        raise UserError(what, "--decoding", "leave --dtype out")
    for option in ("names", "rounds", "length"):
        if getattr(args, option) and not args.decoding:
            raise UserError("is an option of --decoding", f"--{option}", "give both, or neither")
    if args.data:
        check_data(args.data)
    in_parts = args.engines is None and args.decoding is None
    if in_parts and "memory" in args.only and sys.platform != "linux":
        others = ",".join(part for part in args.only if part != "memory")
        raise UserError("only Linux tells it", "--only memory", f"give --only {others or 'others'}")
    fields = Settings.__dataclass_fields__
    return Settings(**{name: value for name, value in vars(args).items() if name in fields})


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    check(parser, args)
    command = shlex.join(["fairseq-collab", "bench", *argv])
    out = args.out or Path("speed.md" if args.report else "bench.json")
    if args.report:
        runs = [report.read(path) for path in args.report]
        writable(out)
    else:
        settings = settings_of(args)
        writable(out)
        if args.decoding:
            names = args.names or [path.stem for path in args.decoding]
            content = fairseq_generate.decoding(
                args.decoding, names, args.rounds or 5, args.length, settings, command
            )
            write_json(out, content)
            print(report.markdown("decoding.md.j2", content=content), end="")
            return 0
        parts = args.only if args.engines is None else ("engines",)
        runs = [run(settings, parts, command)]
        write_json(out, runs[0])
    drawn, figure = report.draw(runs), out.with_suffix(".png")
    if drawn is not None:
        write_content(figure, saved(drawn, "png", 150))
    if args.report:
        values = {"runs": runs, "command": command, "figure": drawn and figure.name}
        write_atomic(out, report.markdown("bench.md.j2", **values))
    else:
        print(report.markdown("bench.md.j2", runs=runs, folded=False))
    print(f"{out}{f', {figure}' if drawn is not None else ''}")
    return 0


def writable(path: Path) -> None:
    """Raises UserError now, not after minutes of timing, if results cannot be written."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UserError("cannot be written", path, "give another file with --out")
