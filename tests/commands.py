"""The real commands, run in processes of their own on one thread of the CPU."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
USER_DIR = ("--user-dir", REPOSITORY / "fairseq_collab")


def run_command(
    *command: object,
    timeout: float = 240,
    cwd: Path | None = None,
    stdin: str = "",
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run an installed command by name, or ``python`` for this interpreter."""
    name, *rest = map(str, command)
    program = sys.executable if name == "python" else str(BIN / name)
    settings = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environment}
    return subprocess.run(
        [program, *rest],
        capture_output=True,
        text=True,
        input=stdin,
        timeout=timeout,
        cwd=cwd,
        env={**os.environ, **settings},
    )


def succeed(*command: object, **options: Any) -> str:
    """Run a command that must succeed; its standard output and error."""
    done = run_command(*command, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def refuse(*command: object, **options: Any) -> str:
    """Run a command that must refuse: non-zero, no traceback; its last line."""
    done = run_command(*command, **options)
    assert done.returncode != 0, done.stdout[-2000:]
    assert "Traceback" not in done.stderr, done.stderr[-4000:]
    return done.stderr.strip().splitlines()[-1]


def write_copy_task(folder: Path, words: int = 12, train: int = 2000) -> None:
    """The target is the source: what any sequence model must learn to do."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(1)
    vocabulary = [f"w{i}" for i in range(words)]
    for split, size in (("train", train), ("valid", 50), ("test", 50)):
        lines = [" ".join(chance.choices(vocabulary, k=chance.randint(3, 8))) for _ in range(size)]
        for language in ("en", "de"):
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines))


def preprocess(text: Path, out: Path) -> Path:
    """``fairseq-preprocess`` with a joined dictionary."""
    splits = [f"--{split}pref={text / split}" for split in ("train", "valid", "test")]
    languages = ("--source-lang", "en", "--target-lang", "de", "--joined-dictionary")
    succeed("fairseq-preprocess", *languages, *splits, "--destdir", out)
    return out


def train_log(output: str, kind: str = "train_inner") -> list[dict[str, Any]]:
    """The entries of ``--log-format json`` whose logger is ``kind``."""
    marker = f"| {kind} | "
    lines = (line.partition(marker)[2] for line in output.splitlines() if marker in line)
    return [json.loads(line) for line in lines]
