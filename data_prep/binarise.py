"""Runs the unmodified fairseq-preprocess and checks what it made."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from collab_common.errors import UserError
from data_prep.child import run_module

_MAGIC = b"MMIDIDX\x00\x00"


def preprocess_arguments(
    prefixes: Mapping[str, str], languages: tuple[str, str], options: Sequence[str], workers: int
) -> list[str]:
    """What fairseq-preprocess is given, in the folder that it is to fill.

    `prefixes` maps fairseq's names (train, valid, test, test1, ...) to those of the texts. They
    are relative, so what fairseq writes does not depend on where the folder is.
    """
    arguments = ["--source-lang", languages[0], "--target-lang", languages[1]]
    for option in ("train", "valid", "test"):
        chosen = [prefix for name, prefix in prefixes.items() if name.startswith(option)]
        if chosen:
            arguments += [f"--{option}pref", ",".join(chosen)]
    return [*arguments, *options, "--destdir", ".", "--workers", str(workers)]


def binarise(
    folder: Path, prefixes: Mapping[str, str], languages: tuple[str, str], workers: int
) -> None:
    """Binarises the texts PREFIX.LANG below `folder` into `folder`, with a joined dictionary."""
    arguments = preprocess_arguments(prefixes, languages, ["--joined-dictionary"], workers)
    run_module("fairseq_cli.preprocess", arguments, folder)


def check_binarised(folder: Path, split: str, languages: tuple[str, str], expected: int) -> int:
    """Both sides must hold as many sentences as fairseq was given: the last line of defence.

    Returns `expected`. Raises UserError.
    """
    for lang in languages:
        index = folder / f"{split}.{'-'.join(languages)}.{lang}.idx"
        if (count := count_sentences(index)) != expected:
            raise UserError(f"{index.name}: {count} sentences binarised of {expected} given")
    return expected


def count_sentences(index: Path) -> int:
    """The number of sentences that an .idx file of fairseq's mmap format claims to hold."""
    with index.open("rb") as stream:
        header = stream.read(len(_MAGIC) + 17)
    if not header.startswith(_MAGIC) or len(header) < len(_MAGIC) + 17:
        raise UserError("not an index of fairseq's mmap format", index)
    # version (u64), type code (u8), sentences (u64)
    return int(struct.unpack_from("<QBQ", header, len(_MAGIC))[2])
