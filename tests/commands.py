"""The real commands, run in processes of their own on one thread of the CPU."""

from __future__ import annotations

import atexit
import functools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
USER_DIR = ("--user-dir", REPOSITORY / "fairseq_collab")


SETTINGS = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
#: Names the folder of a server that runs already: workers of one run of the tests share it.
WARM = "TESTS_WARM_FOLDER"
#: What takes seconds to start in a new interpreter, nearly all for importing torch and fairseq.
SLOW_TO_START = {path.name for path in BIN.glob("fairseq-*")} | {"python", "torchrun"}
CLIENT = Path(__file__).with_name("warm") / "client.py"
#: Read when an interpreter starts or torch is imported: what has others starts on its own.
AT_START = ("FAIRSEQ_COMPAT_", "OMP_", "PYTHONHASHSEED", "PYTHONPATH", "TORCH_FORCE")


@functools.cache
def warm(python: Path | str = sys.executable) -> Path:
    """Folder of commands that start at once, see ``warm/server.py``; so do their children.

    Args:
        python: the interpreter that runs them, next to whose the commands are installed.
    """
    is_shared = WARM in os.environ and python == sys.executable
    folder = Path(os.environ[WARM]) if is_shared else start_server(python)
    end = time.monotonic() + 600
    while not (folder / "socket").exists():  # it imports only then
        assert folder.exists(), "the server has ended"
        assert time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.01)
    return folder


def start_server(python: Path | str = sys.executable) -> Path:
    """Start the server of :func:`warm`; it ends, and its folder with it, when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    environment = {**os.environ, **SETTINGS}
    start = {name: environment[name] for name in environment if name.startswith(AT_START)}
    settings = {"bin": str(Path(python).parent), "variables": AT_START, "at_start": start}
    (folder / "settings.json").write_text(json.dumps(settings))
    for name in SLOW_TO_START:
        (folder / name).write_text(f"#!{sys.executable} -IS\n{CLIENT.read_text()}")
        (folder / name).chmod(0o755)
    with (folder / "log").open("w") as output:
        server = subprocess.Popen(
            [python, CLIENT.with_name("server.py"), folder],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )

    def stop() -> None:
        server.communicate()
        shutil.rmtree(folder)

    atexit.register(stop)
    return folder


def run_command(
    *command: object,
    timeout: float = 600,
    cwd: Path | None = None,
    stdin: str = "",
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run an installed command by name, or ``python`` for this interpreter."""
    name, *rest = map(str, command)
    place = warm() if name in SLOW_TO_START else BIN
    return subprocess.run(
        [place / name, *rest],
        capture_output=True,
        text=True,
        input=stdin,
        timeout=timeout,
        cwd=cwd,
        env={**os.environ, **SETTINGS, **environment},
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


def sizes(dim: int, units: int, heads: int = 4) -> list[str]:
    """Options of a model with one layer on each side."""
    found = {"layers": 1, "embed-dim": dim, "ffn-embed-dim": units, "attention-heads": heads}
    sides = ("encoder", "decoder")
    return [f"--{side}-{name}={size}" for side in sides for name, size in found.items()]


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


def preprocess_english(text: Path, out: Path) -> Path:
    """One side of a text, for language models."""
    splits = [f"--{split}pref={text / split}.en" for split in ("train", "valid", "test")]
    succeed("fairseq-preprocess", "--only-source", *splits, "--destdir", out)
    return out


def train_log(output: str, kind: str = "train_inner") -> list[dict[str, Any]]:
    """The entries of ``--log-format json`` whose logger is ``kind``."""
    marker = f"| {kind} | "
    lines = (line.partition(marker)[2] for line in output.splitlines() if marker in line)
    return [json.loads(line) for line in lines]
