"""Runs the unmodified fairseq-preprocess and checks what it made."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from collab_common.errors import UserError
from data_prep.parallel_text import Languages

_MAGIC = b"MMIDIDX\x00\x00"
_LAST_LINES = 5


def binarise(
    folder: Path, splits: Sequence[str], languages: Languages, options: Sequence[str], jobs: int
) -> None:
    """Binarises the texts SPLIT.LANG of `folder` into it.

    Raises UserError with the program's last lines if it fails.
    """
    arguments = ["--source-lang", languages[0], "--target-lang", languages[1], *options]
    for option in ("train", "valid", "test"):
        if chosen := [split for split in splits if split.startswith(option)]:
            arguments += [f"--{option}pref", ",".join(chosen)]
    arguments += ["--destdir", ".", "--workers", str(jobs)]
    done = subprocess.run(
        [sys.executable, "-m", "fairseq_cli.preprocess", *arguments],
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace",
    )  # fmt: skip
    if done.returncode:
        last = " | ".join(line.strip() for line in done.stdout.splitlines()[-_LAST_LINES:])
        raise UserError(f"fairseq-preprocess failed with status {done.returncode}: {last}")
    (folder / "preprocess.log").unlink(missing_ok=True)  # it has the number of processes in it


def check_binarised(folder: Path, split: str, languages: Languages, expected: int) -> None:
    """Both sides must hold as many sentences as fairseq was given. Raises UserError."""
    for lang in languages:
        index = folder / f"{split}.{'-'.join(languages)}.{lang}.idx"
        if (count := count_sentences(index)) != expected:
            raise UserError(f"{index.name}: {count} sentences binarised of {expected} given")


def count_sentences(index: Path) -> int:
    """The number of sentences that an .idx file of fairseq's mmap format claims to hold."""
    with index.open("rb") as stream:
        header = stream.read(len(_MAGIC) + 17)
    if not header.startswith(_MAGIC) or len(header) < len(_MAGIC) + 17:
        raise UserError("not an index of fairseq's mmap format", index)
    # version (u64), type code (u8), sentences (u64)
    return int(struct.unpack_from("<QBQ", header, len(_MAGIC))[2])
