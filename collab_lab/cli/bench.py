"""``fairseq-collab bench``: compare the speed of this project with stock fairseq."""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from collab_common.command import amount, positive
from collab_common.errors import UserError
from collab_common.files import write_json
from collab_common.progress import say
from collab_common.provenance import cores
from collab_lab.cli import options

Record = dict[str, Any]
PRESETS = ("multi30k", "wmt_en_de", "tiny")
TASKS = ("translation", "training")


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "bench",
        "Time training and translation with random weights. Stock fairseq, this project and, on a "
        "CPU without --bf16, CTranslate2 and ONNX Runtime (if they are installed) take turns with "
        "the same model and sentences. Print each speed as a multiple of fairseq's (median, 5th "
        "and 95th percentile). Close all other programs first.",
    )
    parser.add_argument(
        "--presets", nargs="+", choices=PRESETS,
        help=f"model sizes to time (default: {' '.join(PRESETS[:2])}; --lengths: {PRESETS[1]})",
    )  # fmt: skip
    parser.add_argument(
        "--lengths", nargs="+", type=positive, metavar="N",
        help="measure instead how seconds per token and memory grow with the length of "
        "translations: 64 sentences, stock fairseq and nine kinds of heads",
    )  # fmt: skip
    parser.add_argument(
        "--beam", nargs="+", type=positive, default=[1, 5], metavar="N",
        help="with --lengths: sizes of the beam (default: 1 5)",
    )  # fmt: skip
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME",
        help="what to time: translation or training; with --lengths, kinds of heads next to stock "
        "fairseq, by their names in the table (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--arch", metavar="NAME",
        help="with --lengths: architecture to time next to stock fairseq and standard heads, for "
        "example one that --user-dir defines (default: this project's kinds)",
    )  # fmt: skip
    options.add_user_dir(parser)
    parser.add_argument(
        "--max-tokens", type=positive, metavar="N",
        help="tokens of a training batch (default: the preset's, for a CPU)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=amount, metavar="N",
        help="let the programs of a comparison take turns for so long, at least seven times "
        "(default: 8)",
    )  # fmt: skip
    numbers = parser.add_mutually_exclusive_group()
    numbers.add_argument("--fp16", action="store_true", help="time models in float16, on a GPU")
    numbers.add_argument("--bf16", action="store_true", help="time models in bfloat16")
    parser.add_argument(
        "--threads", type=positive, default=cores(), metavar="N",
        help="number of CPU threads (default: all cores)",
    )  # fmt: skip
    options.add_cpu(parser)
    parser.add_argument(
        "--out", type=Path, default=Path("bench.json"), metavar="FILE",
        help="JSON file to write, after each row (default: bench.json)",
    )  # fmt: skip
    options.add_force(parser)
    return parser


def timed(args: argparse.Namespace) -> Iterator[Record]:
    """Time each preset, architecture and task; or decoding by length."""
    import torch

    from collab_lab.clock import bench, lengths
    from fairseq_collab.decoding.fixed_steps import is_requested

    device, dtype = options.device(args), getattr(torch, numbers_of(args))
    if args.lengths:
        for preset in args.presets or PRESETS[1:2]:
            case = lengths.Case(preset, sorted(args.lengths), device, dtype, is_requested())
            some = args.beam, args.only, args.arch, args.user_dir
            for record in lengths.time_lengths(case, *some):
                yield {"preset": preset, **record}
        return
    for preset, heads in product(args.presets or PRESETS[:2], bench.ARCHITECTURES):
        say(f"{preset}, {heads}")
        how = bench.ARCHITECTURES[heads], preset, device
        records = {
            "translation": bench.time_translation(*how, args.threads, dtype, args.seconds),
            "training": bench.time_training(*how, dtype, args.max_tokens, args.seconds),
        }
        for task in args.only or TASKS:
            yield from ({"preset": preset, "heads": heads, **record} for record in records[task])


def numbers_of(args: argparse.Namespace) -> str:
    """The type of numbers that is timed."""
    return "float16" if args.fp16 else "bfloat16" if args.bf16 else "float32"


def measure(args: argparse.Namespace, argv: Sequence[str]) -> list[Record]:
    """Write the file after each record: what a program that is stopped has measured stays."""
    import torch

    from fairseq_collab.cpu_kernels.onednn import matrix_library
    from fairseq_collab.decoding.fixed_steps import is_requested

    start = time.time()
    torch.set_num_threads(args.threads)
    records: list[Record] = []
    content = {
        **options.provenance("bench", argv, args.cpu),
        "matrix_library": matrix_library(),
        "ctranslate2": version("ctranslate2") if find_spec("ctranslate2") else None,
        "numbers": numbers_of(args),
        "fixed_steps": is_requested(),
        "records": records,
    }
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for record in timed(args):
            records.append(record)
            write_json(args.out, {**content, "seconds": round(time.time() - start, 1)})
    return records


def table(records: Sequence[dict[str, Any]]) -> str:
    """One row per preset, architecture and task; one column per engine."""
    from collab_lab.results.render import grid

    cases: dict[tuple[str, ...], dict[str, str]] = {}
    for record in records:
        case = tuple(record[name] for name in ("preset", "heads", "task", "case"))
        spread = f"{record['ratio']:.2f} ({record['low']:.2f} to {record['high']:.2f})"
        cases.setdefault(case, {})[record["engine"]] = spread
    engines = list(dict.fromkeys(record["engine"] for record in records))[1:]
    rows = [[*case, *(cells.get(name, "-") for name in engines)] for case, cells in cases.items()]
    return grid(["preset", "heads", "task", "case", *engines], rows, left=range(4))


def length_table(records: Sequence[dict[str, Any]]) -> str:
    """One row per beam, kind and length, with stock fairseq's seconds divided by the kind's.

    ``cache`` counts the slots that some beam needs (and few others), ``all slots`` those of all
    beams; of steps of fixed shapes, ``cache`` has all buffers.  An ordinary step reads half of the
    final cache on average; ``GB/s`` divides that by the whole time.
    """
    from collab_lab.results.render import grid

    def case(record: Record) -> tuple[Any, ...]:
        return record["preset"], record["beam"], record["length"]

    stock = {case(r): r["seconds"] for r in records if r["kind"] == records[0]["kind"]}
    rows = [
        [
            r["preset"], r["beam"], r["kind"], r["length"], f"{r['seconds']:.5f}",
            f"{stock[case(r)] / r['seconds']:.2f}",
            f"{r['memory']:.0f}", f"{r['cache']:.0f}",
            f"{r['all_slots']:.0f}" if "all_slots" in r else "-",
            f"{r['cache'] / 2 * 2**20 / 1e9 / r['seconds']:.2f}" if "all_slots" in r else "-",
        ]
        for r in records
    ]  # fmt: skip
    titles = ["preset", "beam", "heads", "tokens", "seconds per token", "times as fast"]
    titles += ["peak MiB", "cache", "all slots", "GB/s"]
    return grid(titles, rows, left=[0, 2])


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.lengths:
        options.reject(parser, args, ("max_tokens", "seconds"), "has no effect with --lengths")
    else:  # where nothing is timed before an equal model of stock fairseq has translated
        reason = "goes with --lengths: stock fairseq has no model that is equal to its heads"
        options.reject(parser, args, ("arch", "user_dir"), reason)
        options.reject(parser, args, ("beam",), "goes with --lengths")
        if not {*args.only} <= {*TASKS}:
            parser.error(f"--only takes {' or '.join(TASKS)} without --lengths")
        if args.only == ["translation"]:
            options.reject(parser, args, ("max_tokens",), "is of training")
    if args.user_dir and not args.arch:
        parser.error("--user-dir goes with --arch: the architecture that it registers")
    options.check_out(args)
    options.import_models(args)
    if args.fp16 and options.device(args).type == "cpu":
        raise UserError("needs a GPU", "--fp16", "leave it out, or give --bf16")
    records = measure(args, argv)
    print(length_table(records) if args.lengths else table(records))
    return 0
