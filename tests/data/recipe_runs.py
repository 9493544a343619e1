"""Runs the corpus recipes as a user does, with a tiny model, and kills them where a test says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from commands import BIN, REPOSITORY, SETTINGS, warm

from fairseq_collab.models.layers import EncoderLayer
from fairseq_collab.runs.record import Record
from fairseq_collab.runs.run import Run, runs_under
from fairseq_compat import checkpoints

Completed = subprocess.CompletedProcess[str]
#: Of the run: small, quick, and long enough for two checkpoints to average.
TINY = [
    *(f"model.encoder_{name}={size}" for name, size in (
        ("layers", 1), ("embed_dim", 32), ("ffn_embed_dim", 32), ("attention_heads", 4),
    )),
    *("optimization.max_epoch=3", "optimization.max_update=0", "optimization.lr=[0.005]"),
    *("dataset.max_tokens=1500", "lr_scheduler.warmup_updates=20"),
]  # fmt: skip
CHEAP = ["--gpus", "0", "--jobs", "1", "--average", "2", "--own-archives"]

# Stands in for `python -m MODULE ...`: the process gets SIGKILL when it calls KILL_AT.
_KILLER = """
import importlib, os, runpy, signal, sys
module, _, path = os.environ["KILL_AT"].partition(":")
*inner, name = path.split(".")
place = importlib.import_module(module)
for part in inner:
    place = getattr(place, part)
setattr(place, name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def environment(**more: str) -> dict[str, str]:
    """As in an activated environment, whose commands are warm, on one thread, without a GPU."""
    places = [str(warm()), str(BIN), os.environ["PATH"]]
    path = {"PATH": os.pathsep.join(places), "VIRTUAL_ENV": sys.prefix}
    return {**os.environ, **SETTINGS, **path, **more}


def arguments(name: str, out: Path, *options: object, overrides: Sequence[str] = ()) -> list[str]:
    recipe = ["bash", REPOSITORY / "recipes" / f"{name}.sh", "--out", out]
    return [str(part) for part in (*recipe, *CHEAP, *options, "--", *TINY, *overrides)]


def recipe(
    name: str, out: Path, *options: object, overrides: Sequence[str] = (), **more: str
) -> Completed:
    """Runs recipes/NAME.sh to its end, whatever that is."""
    return subprocess.run(
        arguments(name, out, *options, overrides=overrides),
        capture_output=True,
        text=True,
        timeout=900,
        env=environment(**more),
    )


def succeed(name: str, out: Path, *options: object, overrides: Sequence[str] = ()) -> str:
    """Runs a recipe that must succeed; what it printed."""
    done = recipe(name, out, *options, overrides=overrides)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def killed(folder: Path, name: str, out: Path, *options: object, at: str) -> None:
    """Runs a recipe whose Python process is killed when it calls `at` (MODULE:FUNCTION)."""
    stand_in = folder / "killing" / "python"
    stand_in.parent.mkdir(exist_ok=True)
    (folder / "killing" / "killer.py").write_text(_KILLER)
    stand_in.write_text(f'#!/bin/sh\nexec {warm()}/python {stand_in.parent}/killer.py "$@"\n')
    stand_in.chmod(0o755)
    settings = environment(KILL_AT=at)
    settings["PATH"] = f"{stand_in.parent}{os.pathsep}{settings['PATH']}"
    done = subprocess.run(
        arguments(name, out, *options), capture_output=True, text=True, timeout=900, env=settings
    )
    assert done.returncode == 128 + 9, done.stdout[-2000:] + done.stderr[-2000:]


def outputs(out: Path, folder: str) -> dict[str, Any]:
    """The hashes of a folder's files, as its manifest has them."""
    return json.loads((out / folder / "manifest.json").read_text())["outputs"]


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Without the unused copies in fairseq's own encoder layers, which nobody initialises."""
    found = checkpoints.read(checkpoint)["model"]
    unused = re.compile(rf"encoder\.layers\.\d+\.({'|'.join(EncoderLayer.COPIES)})")
    return {name: weight for name, weight in found.items() if not unused.fullmatch(name)}


def trained(out: Path) -> Run:
    """The only run of a recipe."""
    (run,) = runs_under(out / "runs")
    return run


def scores(out: Path) -> Record:
    """Of that run."""
    found = trained(out).score()
    assert found is not None
    return found


def assert_same_results(out: Path, other: Path) -> None:
    """The same text, binarised data, weights, translations and scores."""
    for folder in ("data-text", "data"):
        assert outputs(out, folder) == outputs(other, folder), folder
    ours, theirs = weights(trained(out).average), weights(trained(other).average)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    hypotheses = [trained(one).translations.read_text() for one in (out, other)]
    assert hypotheses[0] == hypotheses[1]
    assert scores(out).bleu == scores(other).bleu
