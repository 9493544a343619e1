"""``fairseq-collab bench``: speed, memory and counters of our models beside fairseq's, in turn.

Each part runs in processes of its own (``worker.py``), the timed ones twice: with the matrix
library that our linear maps choose on this processor, and with torch's own, which fairseq's model
uses (``FAIRSEQ_COLLAB_MATMUL``, see :mod:`fairseq_collab.kernels.onednn`).
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from collab_common import atomic
from collab_common.errors import UserError
from collab_common.files import write_atomic, write_json
from fairseq_collab.bench import memory, report
from fairseq_collab.bench.figure import draw
from fairseq_collab.bench.settings import (
    DEVICES,
    DTYPES,
    PARTS,
    PRESETS,
    USUAL,
    Settings,
)
from fairseq_collab.checkpoints.opener import check_data
from fairseq_collab.kernels.onednn import LIBRARIES, VARIABLE
from fairseq_collab.metrics.provenance import circumstances

#: Parts that are timed with each matrix library.  Head groups are measured mainly against our own
#: models, which multiply with the same one.
TIMED = ("generate", "train", "core")
DEFAULT, SAME = "default", "same"
_ALLOCATOR = "MALLOC_"  # environment variables of glibc's allocator begin so


def orders(settings: Settings, parts: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What workers are to do: the column of their results, and the order."""
    given = asdict(settings)
    for part in parts:
        if part == "memory":
            for preset in settings.presets:
                for name in memory.models(preset):
                    which = {"preset": preset, "model": name}
                    yield DEFAULT, {"part": part, "settings": given, **which}
            continue
        yield DEFAULT, {"part": part, "settings": given}
        if part in TIMED and settings.device == "cpu":
            yield SAME, {"part": part, "settings": {**given, "main_only": True}}
        if part == "generate" and settings.natural:
            yield DEFAULT, {"part": "commands", "settings": given}


def run(settings: Settings, parts: Sequence[str], command: str) -> dict[str, Any]:
    """Run all parts; the content of the JSON file.

    Raises:
        UserError: a worker failed; says which, and its last line.
    """
    start = time.time()
    load = os.getloadavg()
    records: list[dict[str, Any]] = []
    libraries: dict[str, str] = {}
    for column, order in tqdm(list(orders(settings, parts)), unit="process", disable=None):
        if column == SAME and libraries.get(DEFAULT) == LIBRARIES[0]:
            continue  # the default is torch's own library
        found = start_worker(order, settings, column)
        libraries[column] = found["library"]
        records += [{**record, "column": column} for record in found["records"]]
    torch.set_num_threads(settings.threads)  # for the line on the hardware
    return {
        "version": report.VERSION,
        "command": command,
        **circumstances(cpu=settings.device == "cpu"),
        "started": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(start)),
        "seconds": round(time.time() - start, 1),
        "load_before": load[0],
        "allocator": {k: v for k, v in os.environ.items() if k.startswith(_ALLOCATOR)},
        "libraries": libraries,
        "settings": asdict(settings),
        "records": records,
    }


def start_worker(order: dict[str, Any], settings: Settings, column: str) -> dict[str, Any]:
    """Let a process do an order; what it prints.

    Raises:
        UserError: it failed.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": str(settings.threads)}
    environment.pop(VARIABLE, None)
    if column == SAME:
        environment[VARIABLE] = LIBRARIES[0]
    done = subprocess.run(
        [sys.executable, "-m", "fairseq_collab.bench.worker", json.dumps(order)],
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise UserError(last, f"benchmark of {order['part']}")
    return json.loads(done.stdout.splitlines()[-1])


def build_parser() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        prog="fairseq-collab bench",
        description="Time fairseq's transformer and ours in turn, on the same work, after checking "
        "that they compute the same: translation, training, heads in groups, attention alone; "
        "count memory, cache bytes, multiply-adds and copies. Close everything else first.",
    )
    names = ",".join
    parser.add_argument(
        "--presets", type=partial(chosen, PRESETS), default=USUAL, metavar="LIST",
        help=f"sizes of models (default: {names(USUAL)})",
    )  # fmt: skip
    parser.add_argument(
        "--only", type=partial(chosen, PARTS), default=PARTS, metavar="LIST",
        help=f"parts to run (default: {names(PARTS)})",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="some minutes; says little")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: all cores")
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="bfloat16: on a GPU")
    parser.add_argument("--seed", type=int, default=1, help="of weights and sentences")
    parser.add_argument("--data", metavar="DIR", help="real sentences: a folder for fairseq")
    parser.add_argument(
        "--checkpoint", metavar="FILE",
        help="a trained transformer of fairseq's, for translations of natural length",
    )  # fmt: skip
    parser.add_argument(
        "--collab-checkpoint", metavar="FILE",
        help="a trained transformer_collab (K at most d/H), likewise",
    )  # fmt: skip
    parser.add_argument(
        "--report", type=Path, nargs="+", metavar="JSON",
        help="run nothing: write these runs, side by side, as Markdown and a figure",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="FILE",
        help="the JSON file (default: bench.json), or with --report the Markdown page (default: "
        "speed.md); the figure lies beside it",
    )  # fmt: skip
    return parser


def chosen(known: Collection[str], text: str) -> tuple[str, ...]:
    """Names joined by commas."""
    found = tuple(text.split(","))
    for name in found:
        if name not in known:
            raise argparse.ArgumentTypeError(f"no {name!r}; choose from {', '.join(known)}")
    return found


def settings_of(args: argparse.Namespace) -> Settings:
    """The options, checked before anything runs.

    Raises:
        UserError: they do not go together, or ask for what is not there.
    """
    if args.threads < 1:
        raise UserError(f"is {args.threads}", "--threads", "give a number above 0")
    if args.device == "cuda" and not torch.cuda.is_available():
        todo = "leave it out, or install a torch with CUDA on a machine with a GPU"
        raise UserError("torch finds no CUDA device", "--device cuda", todo)
    if args.dtype != "float32" and args.device == "cpu":
        raise UserError(
            "fairseq trains in float32 on a CPU", f"--dtype {args.dtype}", "leave it out"
        )
    for option in ("checkpoint", "collab_checkpoint"):
        name, path = f"--{option.replace('_', '-')}", getattr(args, option)
        if path and not args.data:
            raise UserError("needs the --data that it is to translate", name, "give both")
        if path and not Path(path).is_file():
            raise UserError("there is no such checkpoint", path, f"give {name} another one")
    if args.data:
        check_data(args.data)
    given = {name: value for name, value in vars(args).items() if name in _FIELDS}
    return Settings(**given)


_FIELDS = Settings.__dataclass_fields__


def main(argv: Sequence[str]) -> int:
    """Run the command; its exit status.

    Raises:
        UserError: see :func:`settings_of`, :func:`run`, :func:`report.read`.
    """
    args = build_parser().parse_args(argv)
    command = shlex.join(["fairseq-collab", "bench", *argv])
    if args.report:
        out = args.out or Path("speed.md")
        runs = [report.read(path) for path in args.report]
        figure = out.with_suffix(".png")
        writable(out)
        write_atomic(out, report.markdown(runs, command, figure.name))
    else:
        out = args.out or Path("bench.json")
        settings = settings_of(args)
        writable(out)
        runs = [run(settings, args.only, command)]
        figure = out.with_suffix(".png")
        write_json(out, runs[0])
        print(report.terminal(runs[0]))
    drawn = draw(runs)
    if drawn is not None:
        atomic.write(figure, partial(drawn.savefig, format="png", dpi=150))
    print(f"{out}{f', {figure}' if drawn is not None else ''}")
    return 0


def writable(path: Path) -> None:
    """Find out now, not after minutes of timing, whether results can be written.

    Raises:
        UserError: they cannot.
    """
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UserError("cannot be written", path, "give another file with --out")
