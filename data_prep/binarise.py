"""Runs the unmodified fairseq-preprocess and checks what it made."""

from __future__ import annotations

import ctypes
import signal
import struct
import subprocess
import sys
from collections import deque
from pathlib import Path

from fairseq_compat.errors import UserError

_MAGIC = b"MMIDIDX\x00\x00"
_PR_SET_PDEATHSIG = 1


def binarise(
    folder: Path, prefixes: dict[str, str], source_lang: str, target_lang: str, workers: int
) -> None:
    """Binarises the texts PREFIX.LANG below `folder` into `folder`, with a joined dictionary.

    `prefixes` maps fairseq's names (train, valid, test, test1, ...) to prefixes. The paths given
    to fairseq are relative, so its log does not depend on where the folder is.
    """
    command = [sys.executable, "-m", "fairseq_cli.preprocess"]
    command += ["--source-lang", source_lang, "--target-lang", target_lang]
    for option in ("train", "valid", "test"):
        chosen = [prefix for name, prefix in prefixes.items() if name.startswith(option)]
        if chosen:
            command += [f"--{option}pref", ",".join(chosen)]
    command += ["--joined-dictionary", "--destdir", ".", "--workers", str(workers)]
    _run(command, folder)


def _run(command: list[str], folder: Path) -> None:
    log = folder / "output.tmp"
    with log.open("wb") as output:
        status = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            check=False,
        ).returncode
    if status != 0:
        with log.open(encoding="utf-8", errors="replace") as output_text:
            last = " | ".join(line.strip() for line in deque(output_text, maxlen=5))
        raise UserError(f"fairseq-preprocess failed with status {status}: {last}")
    log.unlink()


def _die_with_parent() -> None:
    """In the child: be killed when the parent dies, lest we write into a folder given up."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def count_sentences(index: Path) -> int:
    """The number of sentences that an .idx file of fairseq's mmap format claims to hold."""
    header = index.read_bytes()[: len(_MAGIC) + 17]
    if not header.startswith(_MAGIC) or len(header) < len(_MAGIC) + 17:
        raise UserError("not an index of fairseq's mmap format", index)
    # version (u64), type code (u8), sentences (u64)
    return int(struct.unpack_from("<QBQ", header, len(_MAGIC))[2])
