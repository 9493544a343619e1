"""Stages of a recipe: each a folder that is finished and described, or not there.

A stage reads the folders of earlier ones and makes OUT/NAME, which appears when it is complete,
with a manifest.json: options, hashes of all that it read and wrote, counts. After a kill, only the
stage that was under way starts over. Other programs are stages through a command:

    python -m data_prep.stages --out OUT --name average --after train -- \\
        fairseq-collab average OUT/train --last 5 --out {}/average.pt

where {} is the folder being made.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from collab_common.command import run
from collab_common.errors import UserError
from collab_common.files import locked, read_json, write_json
from collab_common.folder import Json, build_folder, differences, read_finished
from data_prep.child import call

PROG = "data_prep.stages"
#: Beside what a resumable stage has made so far: what it was started with.
STARTED = "started.json"


def build_stage(
    out: Path,
    name: str,
    *,
    inputs: Json,
    options: Json,
    build: Callable[[Path], Json],
    unfinished: Path | None = None,
    force: bool = False,
) -> Path:
    """Makes OUT/NAME with `build(temporary_folder)`, unless it is there; returns it.

    Args:
        inputs: name of each file read, and its hash; see `inputs_from`
        options: all else that the result depends on (not the number of processes)
        build: fills the folder; returns counts and whatever else belongs in the manifest
        unfinished: see `build_folder`
    """
    out.mkdir(parents=True, exist_ok=True)
    identity = {"stage": name, "options": options, "inputs": inputs}
    with locked(out / ".lock"):
        made = build_folder(out / name, identity, build, force=force, unfinished=unfinished)
    print(f"{name}: {'ready' if made else 'is up to date, nothing to do'}", flush=True)
    return out / name


def inputs_from(out: Path, names: Sequence[str]) -> Json:
    """Hashes of all files of the finished stages `names`. Raises UserError if one is not there."""
    return {
        f"{name}/{file}": {"sha256": fingerprint["sha256"]}
        for name in names
        for file, fingerprint in read_finished(out / name)["outputs"].items()
    }


def run_command(
    out: Path,
    name: str,
    command: Sequence[str],
    *,
    after: Sequence[str],
    stdout: str | None = None,
    resume: bool = False,
    force: bool = False,
) -> Path:
    """Makes OUT/NAME with a command, in which {} stands for the folder being made.

    Args:
        stdout: file in the folder that takes the command's output
        resume: what the command has made when it is killed stays, in OUT/.NAME.unfinished,
            and the next call gives it the same folder again
    """
    # neither where OUT is nor how it was written matters
    named = [part.replace(str(out), "OUT") for part in command]
    options = {"command": named, **({} if stdout is None else {"stdout": stdout})}
    inputs = inputs_from(out, after)

    place = (out / name).resolve()  # a link leads to where it is made
    unfinished = place.with_name(f".{place.name}.unfinished") if resume else None

    def build(folder: Path) -> Json:
        if unfinished:
            _prepare_unfinished(folder, {"options": options, "inputs": inputs}, force=force)
        _call(command, folder, stdout)
        return {}

    made: Json = {"inputs": inputs, "options": options, "unfinished": unfinished}
    return build_stage(out, name, build=build, **made, force=force)


def _prepare_unfinished(folder: Path, identity: Json, *, force: bool) -> None:
    """An empty folder, or that of an earlier call with the same options and inputs."""
    started = folder / STARTED
    if started.exists():
        if not (what := differences(read_json(started), identity)):
            print(f"{folder}: goes on", flush=True)
            return
        if not force:
            raise UserError(
                f"was started with something else ({', '.join(what[:3])})",
                folder,
                "give --force to start over, or choose another --out",
            )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write_json(started, identity)


def _call(command: Sequence[str], folder: Path, stdout: str | None) -> None:
    filled = [part.replace("{}", str(folder)) for part in command]
    print(f"$ {shlex.join(command)}", flush=True)
    with (folder / stdout).open("wb") if stdout else contextlib.nullcontext() as output:
        try:
            status = call(filled, stdout=output)
        except FileNotFoundError:
            raise UserError("no such command", command[0], "run bash recipes/setup.sh") from None
        if output:
            os.fsync(output.fileno())  # a full disk is found here at the latest
    if status:
        ended = f"was killed by signal {-status}" if status < 0 else f"failed with status {status}"
        raise UserError(f"{command[0]} {ended}", todo="what it said is above")


def main(argv: list[str] | None = None) -> int:
    given = sys.argv[1:] if argv is None else argv
    end = given.index("--") if "--" in given else len(given)
    options, command = given[:end], given[end + 1 :]
    parser = argparse.ArgumentParser(
        prog=PROG, description="Makes one stage of a recipe with a command, given after --."
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="of the recipe")
    parser.add_argument("--name", required=True, help="the stage: makes DIR/NAME")
    parser.add_argument(
        "--after", action="append", default=[], metavar="NAME", help="a stage that this one reads"
    )
    parser.add_argument("--stdout", metavar="FILE", help="the command's output goes to this file")
    parser.add_argument("--resume", action="store_true", help="go on with what a killed call made")
    parser.add_argument("--force", action="store_true", help="do it again, whatever is there")
    args = parser.parse_args(options)
    if not command:
        parser.error("no command after --")
    return run(PROG, lambda: run_command(command=command, **vars(args)))


if __name__ == "__main__":
    sys.exit(main())
