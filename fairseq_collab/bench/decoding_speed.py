"""How fast trained models translate, in turn, by ``fairseq-generate``'s own clock.

    python -m fairseq_collab.bench.decoding_speed DATA --models FILE [FILE ...] \\
        --names NAME [NAME ...] --rounds 5 --out FILE.json

Every round translates DATA's test set once with each model, by the real command (beam 5, batches
of 64 sentences); every other round goes through the models backwards.  The clock is the one of its
last line, ``Translated N sentences (T tokens) in ... (S sentences/s, ...)``, which runs while it
searches: no loading, no detokenising.

A ratio is the sentences/s of a model to those of the first model in the same round, so that what
slows the machine for longer than a round slows both.  Reported are medians over the rounds, with
the least and the most.  The numbers go to ``--out``, a table of them to the screen.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from collab_common.command import positive, run
from collab_common.errors import UserError
from collab_common.files import as_json, make_folder, write_content
from fairseq_collab.bench.checkpoints import (
    COMMAND_BATCH,
    SUBSET,
    Finished,
    fairseq_generate,
)
from fairseq_collab.bench.settings import BEAM, Settings
from fairseq_collab.checkpoints.opener import GIVE_DATA, check_data
from fairseq_collab.metrics.provenance import circumstances

PROG = "python -m fairseq_collab.bench.decoding_speed"
VERSION = 1


def check(data: Path, models: Sequence[Path], names: Sequence[str]) -> None:
    """Everything that can be known to be wrong before anything is timed.

    Raises:
        UserError: the data folder or a model is not there, or there are not as many names as
            models.
    """
    if len(names) != len(models):
        what = f"{len(names)} for {len(models)} models"
        raise UserError(what, "--names", "give one for each of --models, in their order")
    check_data(data)
    if not any(data.glob(f"{SUBSET}.*.idx")):
        raise UserError(f"no binarised {SUBSET} set in it", data, GIVE_DATA)
    for model in models:
        if not model.is_file():
            raise UserError("no such file", model, "give checkpoints with --models")


def time_in_turn(
    models: Sequence[Path], names: Sequence[str], rounds: int, settings: Settings
) -> list[list[Finished]]:
    """Translate with all models, so many rounds, every other one backwards.

    Returns:
        For each model, what every round found.

    Raises:
        UserError: ``fairseq-generate`` failed.
    """
    found: list[list[Finished]] = [[] for _ in models]
    for number in range(rounds):
        order = list(range(len(models)))
        if number % 2:
            order.reverse()
        for i in order:
            print(f"round {number + 1} of {rounds}: {names[i]}", file=sys.stderr, flush=True)
            found[i].append(fairseq_generate(models[i], settings))
    return found


def summarise(
    models: Sequence[Path], names: Sequence[str], found: Sequence[Sequence[Finished]]
) -> list[dict[str, Any]]:
    """One record a model: what every round found, and its spreads, also of its ratios to the first.

    Args:
        found: for each model, what every round found.
    """
    speeds = [[one.sentences / one.translating for one in rounds] for rounds in found]
    records = []
    for model, name, rounds, speed in zip(models, names, found, speeds, strict=True):
        ratios = [ours / first for ours, first in zip(speed, speeds[0], strict=True)]
        records.append(
            {
                "name": name,
                "file": str(model),
                "rounds": [
                    {
                        "sentences": one.sentences,
                        "sentences_per_second": round(rate, 2),  # as it was printed
                        "target_tokens": one.tokens,
                        "wall_seconds": round(one.wall, 2),
                    }
                    for one, rate in zip(rounds, speed, strict=True)
                ],
                "sentences_per_second": spread(speed),
                "ratio": spread(ratios),
            }
        )
    return records


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    found = {"median": statistics.median(values), "least": min(values), "most": max(values)}
    return {name: round(value, 4) for name, value in found.items()}


def markdown(content: Mapping[str, Any]) -> str:
    """The table: one line a model.

    Args:
        content: of the JSON file.
    """
    lines = [
        "| model | sentences/s, median (least to most) | ratio, median (least to most) "
        "| target tokens |",
        "| --- | ---: | ---: | ---: |",
    ]
    for model in content["models"]:
        speed, ratio = model["sentences_per_second"], model["ratio"]
        tokens = sorted({one["target_tokens"] for one in model["rounds"]})
        ends = tokens[:1] + tokens[1:][-1:]  # rounds translate alike, so that it is one number
        lines.append(
            f"| {model['name']} "
            f"| {speed['median']:,.0f} ({speed['least']:,.0f} to {speed['most']:,.0f}) "
            f"| {ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f}) "
            f"| {' to '.join(f'{end:,}' for end in ends)} |"
        )
    return "\n".join(lines) + "\n"


def make(args: argparse.Namespace, command: str) -> None:
    """Time the models, write the file, print the table.

    Raises:
        UserError: see :func:`check` and :func:`time_in_turn`; or the file cannot be written.
    """
    check(args.data, args.models, args.names)
    make_folder(args.out.parent)
    settings = Settings(
        data=str(args.data), threads=args.threads, device="cpu" if args.cpu else "cuda"
    )
    load = os.getloadavg()
    found = time_in_turn(args.models, args.names, args.rounds, settings)
    torch.set_num_threads(args.threads)  # for the line on the hardware
    content = {
        "version": VERSION,
        "command": command,
        **circumstances(args.cpu),
        "load_average_before": load,
        "threads": args.threads,
        "data": str(args.data),
        "subset": SUBSET,
        "beam": BEAM,
        "batch": COMMAND_BATCH,
        "models": summarise(args.models, args.names, found),
    }
    write_content(args.out, as_json(content).encode())
    print(markdown(content), end="")


def main(argv: Sequence[str]) -> int:
    """Run the command; its exit status."""
    parser = argparse.ArgumentParser(
        prog=PROG, description="Decoding speed of trained models, in turn. Close all else first."
    )
    parser.add_argument("data", type=Path, metavar="DATA", help="a folder for fairseq")
    parser.add_argument(
        "--models", type=Path, nargs="+", required=True, metavar="FILE",
        help="checkpoints; the first is what the others are compared with",
    )  # fmt: skip
    parser.add_argument(
        "--names", nargs="+", required=True, metavar="NAME", help="of the models, for the table"
    )
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="default: 5")
    parser.add_argument(
        "--threads", type=positive, default=os.cpu_count(), help="default: all cores"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON to write")
    parser.add_argument("--cpu", action="store_true", help="use no GPU, even if there is one")
    args = parser.parse_args(argv)
    command = shlex.join([*shlex.split(PROG), *argv])
    return run(PROG, lambda: make(args, command))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
