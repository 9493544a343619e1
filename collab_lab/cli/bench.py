"""``fairseq-collab bench``: compare the speed of this project with stock fairseq."""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from collab_common.command import positive
from collab_common.files import write_json
from collab_common.progress import say
from collab_common.provenance import cores
from collab_lab.cli import options

PRESETS = ("multi30k", "wmt_en_de", "tiny")


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "bench",
        "Time training and translation with random weights. Stock fairseq, this project and, if "
        "installed, CTranslate2 and ONNX Runtime (on a CPU) take turns with the same model and "
        "sentences. Print each speed as a multiple of fairseq's (median, 5th and 95th percentile). "
        "Close all other programs first.",
    )
    parser.add_argument(
        "--presets", nargs="+", choices=PRESETS, default=PRESETS[:2],
        help=f"model sizes to time (default: {' '.join(PRESETS[:2])})",
    )  # fmt: skip
    parser.add_argument(
        "--lengths", nargs="+", type=positive, metavar="N",
        help="measure instead how seconds per token and memory grow with the length of "
        "translations: 64 sentences, beam 1 and 5, d = 512, stock fairseq and nine kinds of heads",
    )  # fmt: skip
    parser.add_argument(
        "--arch", metavar="NAME",
        help="with --lengths: architecture to time next to stock fairseq and standard heads, for "
        "example one that --user-dir defines (default: this project's kinds)",
    )  # fmt: skip
    options.add_user_dir(parser)
    parser.add_argument(
        "--threads", type=positive, default=cores(), metavar="N",
        help="number of CPU threads (default: all cores)",
    )  # fmt: skip
    options.add_cpu(parser)
    parser.add_argument(
        "--out", type=Path, default=Path("bench.json"), metavar="FILE",
        help="JSON file to write (default: bench.json)",
    )  # fmt: skip
    options.add_force(parser)
    return parser


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Time each preset, architecture and task, and return the content of the JSON file."""
    import torch

    from collab_lab.clock import bench
    from fairseq_collab.cpu_kernels.onednn import matrix_library

    start, device = time.time(), options.device(args)
    torch.set_num_threads(args.threads)
    records: list[dict[str, Any]] = []
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if args.lengths:
            own = args.arch, args.user_dir
            records += bench.time_lengths("wmt_en_de", args.lengths, device, *own)
        for preset, heads in product(() if args.lengths else args.presets, bench.ARCHITECTURES):
            say(f"{preset}, {heads}")
            how = bench.ARCHITECTURES[heads], preset, device
            timed = [*bench.time_translation(*how, args.threads), *bench.time_training(*how)]
            records += [{"preset": preset, "heads": heads, **record} for record in timed]
    return {
        "seconds": round(time.time() - start, 1),
        "matrix_library": matrix_library(),
        "ctranslate2": version("ctranslate2") if find_spec("ctranslate2") else None,
        "records": records,
    }


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
    beams.  A step reads half of the final cache on average; ``GB/s`` divides that by the whole
    time.
    """
    from collab_lab.results.render import grid

    stock = {
        (r["beam"], r["length"]): r["seconds"] for r in records if r["kind"] == records[0]["kind"]
    }
    rows = [
        [
            r["beam"], r["kind"], r["length"], f"{r['seconds']:.5f}",
            f"{stock[r['beam'], r['length']] / r['seconds']:.2f}",
            f"{r['memory']:.0f}", f"{r['cache']:.0f}", f"{r['all_slots']:.0f}",
            f"{r['cache'] / 2 * 2**20 / 1e9 / r['seconds']:.2f}",
        ]
        for r in records
    ]  # fmt: skip
    titles = ["beam", "heads", "tokens", "seconds per token", "times as fast", "peak MiB", "cache"]
    titles += ["all slots", "GB/s"]
    return grid(titles, rows, left=[1])


def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.lengths:
        options.reject(parser, args, ("presets",), "has no effect with --lengths")
    else:  # where nothing is timed before an equal model of stock fairseq has translated
        reason = "goes with --lengths: stock fairseq has no model that is equal to its heads"
        options.reject(parser, args, ("arch", "user_dir"), reason)
    if args.user_dir and not args.arch:
        parser.error("--user-dir goes with --arch: the architecture that it registers")
    options.check_out(args)
    options.import_models(args)
    content = measure(args)
    write_json(args.out, {**options.provenance("bench", argv, args.cpu), **content})
    records = content["records"]
    print(length_table(records) if args.lengths else table(records))
    return 0
