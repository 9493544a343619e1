"""Recipes whose commands only say what they were asked for: which runs, from which checkpoints."""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from commands import BIN, REPOSITORY, warm
from omegaconf import DictConfig

from collab_lab.runs import sweep

#: Takes the place of the commands of a recipe: keeps its name and arguments, one a line, fails
#: where it is told to; of `prune` and `vote` the output is a copy of MADE, and of MADE.yaml.
RECORDER = """\
#!/usr/bin/env bash
name=${0##*/}
case "$name $*" in
    "python -c import sys, torch"*) exit 1 ;;   # no GPU
    python*) exec {python} "$@" ;;
esac
printf '%s\\n' "$name" "$@" END >> "$RECORD"
[ "$1" != "$FAILS" ] || exit "$STATUS"
case $1 in prune | vote) ;; *) exit 0 ;; esac
while [ $# -gt 1 ]; do
    case $1 in
        --out)
            cp "$MADE" "$2"
            [ ! -e "$MADE.yaml" ] || cp "$MADE.yaml" "${2%.pt}.yaml" ;;
    esac
    shift
done
"""
NAMES = ("fairseq-collab", "python")
#: A command with its arguments, `fairseq-collab` itself left out.
Command = list[str]


class Recorded:
    """What a recipe has asked for, and how it has ended; ``folder`` is told as ``told_as``."""

    def __init__(
        self, folder: Path, recipe: str, *arguments: str, told_as: str = "", **settings: str
    ):
        for name in NAMES:
            (folder / name).write_text(RECORDER.replace("{python}", str(warm() / "python")))
            (folder / name).chmod(0o755)
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / "manifest.json").write_text('{"origin": "none"}')
        record = folder / "record"
        record.write_text("")
        environment = {
            "PATH": f"{folder}:{BIN}:{os.environ['PATH']}",
            "RECORD": str(record),
            "MADE": os.devnull,
            "FAILS": "",
            "DATA": str(folder / "data"),
            "OUT": str(folder / "out"),
            "SEEDS": "7",
            "SWEEP": "",
            **settings,
        }
        done = subprocess.run(
            ["bash", REPOSITORY / "recipes" / recipe, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
        )
        self.status = done.returncode
        self.errors = done.stderr
        lines = record.read_text().replace(str(folder), told_as).replace("fairseq-collab\n", "")
        self.commands: list[Command] = [lines.splitlines() for lines in lines.split("END\n")[:-1]]


def record(folder: Path, recipe: str, *arguments: str, **settings: str) -> list[Command]:
    """Everything that a recipe asks for, for one seed, into ``/out``."""
    recorded = Recorded(folder, recipe, *arguments, **settings)
    assert recorded.status == 0, recorded.errors
    return recorded.commands


def options(command: Command) -> dict[str, str]:
    """``--name value`` of a command."""
    return {name: value for name, value in pairwise(command) if name.startswith("--")}


def jobs(
    commands: list[Command], folder: str, out: Path = Path("/out")
) -> Iterator[tuple[str, DictConfig]]:
    """Name and configuration of every run that goes to OUT/FOLDER, as the sweeps compose them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("overrides", nargs="*")
    for option in ("--out", "--jobs"):
        parser.add_argument(option)
    for name, *rest in commands:
        if name == "sweep" and options(rest)["--out"] == f"{out}/{folder}":
            args = parser.parse_intermixed_args(rest)
            config = REPOSITORY / args.config
            for job in sweep.plan(config, args.overrides):
                yield job.name, job.config
