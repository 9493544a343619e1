"""Helpers of the tests on corpora: tiny texts, the commands, and waiting for processes."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collab_common.folder import MANIFEST
from collab_lab.cli.main import main
from data_prep.corpus import Corpus
from data_prep.prepare import prepare

Completed = subprocess.CompletedProcess[str]
VOCAB_SIZE = 100


def run(name: str, *arguments: object) -> Completed:
    """`fairseq-collab data NAME`, in this process."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        status = main(["data", name, *map(str, arguments)])
    return Completed([], status, out.getvalue(), errors.getvalue())


def error_line(done: Completed, name: str) -> str:
    """The one line that a failed command must end with."""
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"fairseq-collab data {name}: error: ")
    assert "Traceback" not in done.stderr
    return last


def write_corpus(folder: Path, train: int = 300, seed: int = 1) -> Path:
    """A text folder in the usual naming: invented words; target = source, reversed."""
    rng = random.Random(seed)
    syllables = ["ba", "de", "ki", "lo", "mu", "ra", "se", "ti", "vo", "zu"]
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in (("train", train), ("valid", 20), ("test", 20), ("test.1", 10)):
        sentences = [
            ["".join(rng.choices(syllables, k=rng.randint(1, 3))) for _ in range(rng.randint(2, 8))]
            for _ in range(size)
        ]
        sides = {
            "en": [" ".join(words) + " ." for words in sentences],
            "de": [" ".join(reversed(words)).title() + " ." for words in sentences],
        }
        for lang, lines in sides.items():
            (folder / f"{name}.{lang}").write_text("".join(line + "\n" for line in lines))
    return folder


def replace_line(path: Path, number: int, line: bytes) -> None:
    """Line `number`, from 1, of a text becomes another."""
    lines = path.read_bytes().split(b"\n")
    lines[number - 1] = line
    path.write_bytes(b"\n".join(lines))


def prepare_text(text: Path, out: Path, **more: Any) -> Path:
    """`prepare` with the usual corpus, and fields of it and options that differ."""
    how = {name: more.pop(name) for name in ("jobs", "allowed_loss", "force") if name in more}
    usual = {"languages": ("en", "de"), "vocab_size": VOCAB_SIZE}
    return prepare(Corpus(**{**usual, **more}), text, out, **how)


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / MANIFEST).read_text())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def numbers_said(output: str, split: str, fault: str) -> list[int]:
    """The numbers of lines of a set with a fault, from the warnings that `prepare` prints."""
    warnings = re.findall(r"^warning: ([\d,]+) of [\d,]+ lines of the set (\S+) (.*)", output, re.M)
    return [
        int(number.replace(",", ""))
        for number, name, words in warnings
        if name == split and fault in words
    ]


def options(text: Path, out: Path) -> list[object]:
    langs = ["--source-lang", "en", "--target-lang", "de"]
    return ["--text", text, "--out", out, *langs, "--vocab-size", VOCAB_SIZE]


def wait_for(condition: Callable[[], object], seconds: float = 120.0) -> bool:
    """Whether the condition came true in time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())


def is_running(pid: int) -> bool:
    """Whether there is such a process, other than as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
