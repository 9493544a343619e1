"""Runs the corpus recipes as a user does, with a tiny model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from commands import BIN, REPOSITORY, SETTINGS, warm

from collab_lab.runs.run import Run, runs_under

#: Of the run: small, quick, and long enough for two checkpoints to average.
TINY = [
    *(f"model.encoder_{name}={size}" for name, size in (
        ("layers", 1), ("embed_dim", 32), ("ffn_embed_dim", 32), ("attention_heads", 4),
    )),
    *("optimization.max_epoch=3", "optimization.max_update=0", "optimization.lr=[0.005]"),
    *("dataset.max_tokens=1500", "lr_scheduler.warmup_updates=20", "checkpoint.keep_last_epochs=2"),
]  # fmt: skip
CHEAP = ["--gpus", "0", "--jobs", "1", "--own-archives"]


def environment(**more: str) -> dict[str, str]:
    """As in an activated environment, whose commands are warm, on one thread, without a GPU."""
    places = [str(warm()), str(BIN), os.environ["PATH"]]
    path = {"PATH": os.pathsep.join(places), "VIRTUAL_ENV": sys.prefix}
    return {**os.environ, **SETTINGS, **path, **more}


def succeed(name: str, out: Path, *options: object) -> str:
    """Runs recipes/NAME.sh, which must succeed; what it printed."""
    recipe = ["bash", REPOSITORY / "recipes" / f"{name}.sh", "--out", out]
    command = [str(part) for part in (*recipe, *CHEAP, *options, "--", *TINY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment())
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def trained(out: Path) -> Run:
    """The only run of a recipe."""
    (run,) = runs_under(out / "runs")
    return run
