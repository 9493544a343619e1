"""What fairseq's commands print, read in one place.

``fairseq-generate``, of each sentence (``--remove-bpe`` has joined subwords):

    S-17<tab>source          T-17<tab>reference, in fairseq's tokens
    H-17<tab>-0.31<tab>hypothesis, in fairseq's tokens; the first of a sentence is the best
    D-17<tab>-0.31<tab>the same without what --tokenizer and --bpe can undo

and its own clock at the end, which leaves out how long it takes to start and to load the model.
``fairseq-train`` and ``fairseq-validate`` with ``--log-format json``: ``... | train | {...}``.
``fairseq-eval-lm``: ``Loss (base 2): 6.53, Perplexity: 92.35``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

from collab_common.errors import UserError

_CLOCK = re.compile(
    r"Translated ([\d,]+) sentences \(([\d,]+) tokens\) in .*\(([\d.]+) sentences/s, "
)
_PERPLEXITY = re.compile(r"Loss \(base 2\): [\d.]+, Perplexity: ([\d.]+)")
#: No entry has braces inside: of a line in which a cut one and the next have run together, the
#: next is found.
_ENTRY = re.compile(r"\| (train|valid) \| (\{[^{}]*\})$", re.MULTILINE)


def read_hypotheses(path: Path, kind: Literal["D", "H"] = "D") -> list[str]:
    """The best hypothesis of every sentence, in the order of the corpus.

    Raises:
        UserError: the file has no hypotheses, or lacks some.
    """
    found: dict[int, str] = {}
    pattern = re.compile(rf"{kind}-(\d+)\t[^\t]*\t?(.*)")
    for line in read_lines(path):
        match = pattern.fullmatch(line)
        if match:
            found.setdefault(int(match[1]), match[2])
    if not found:
        what = f"no hypotheses (lines that start with {kind}-) in it"
        raise UserError(what, path, "give the output of fairseq-generate, run without --quiet")
    missing = set(range(max(found) + 1)) - found.keys()
    if missing:
        what = f"hypothesis {min(missing)} is missing ({len(missing)} of {max(found) + 1})"
        todo = "generate the whole set (fairseq-generate --skip-invalid-size-inputs-valid-test "
        raise UserError(what, path, f"{todo}drops sentences)")
    return [found[i] for i in range(len(found))]


def read_side(path: Path, side: Literal["S", "T"]) -> dict[int, str]:
    """Sources or references, by the sentence's number in the corpus."""
    pattern = re.compile(rf"{side}-(\d+)\t(.*)")
    matches = (pattern.fullmatch(line) for line in read_lines(path))
    return {int(match[1]): match[2] for match in matches if match}


class Translated(NamedTuple):
    """What ``fairseq-generate`` says at its end, by its own clock.

    Attributes:
        tokens: of the best translations, ends of sentences included.
        speed: sentences a second.
    """

    sentences: int
    tokens: int
    speed: float


def translated(printed: str) -> Translated | None:
    """The last words of ``fairseq-generate``; None where it has not come so far.

    Args:
        printed: its output or its log, wherever fairseq's logger has written.
    """
    found = _CLOCK.findall(printed)
    if not found:
        return None
    sentences, tokens, speed = (text.replace(",", "") for text in found[-1])
    return Translated(int(sentences), int(tokens), float(speed))


def decoding_speed(printed: str) -> float | None:
    """Sentences a second, of :func:`translated`."""
    found = translated(printed)
    return found and found.speed


def perplexity(printed: str) -> float | None:
    """What ``fairseq-eval-lm`` has measured; None where it has not come so far."""
    found = _PERPLEXITY.findall(printed)
    return float(found[-1]) if found else None


def entries(log: Path, kind: Literal["train", "valid"]) -> list[dict[str, Any]]:
    """What a log tells of every epoch, or of every validation; [] where there is no log.

    Raises:
        UserError: the log cannot be read.
    """
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=log) from error
    return entries_in(text, kind)


def entries_in(text: str, kind: Literal["train", "valid"]) -> list[dict[str, Any]]:
    """The entries in a part of a log; those that a kill has cut are left out."""
    found = []
    for name, entry in _ENTRY.findall(text):
        if name == kind:
            try:
                found.append(json.loads(entry))
            except ValueError:  # cut, with a brace behind it
                continue
    return found


def last_line(text: str) -> str:
    """The last line that is not empty: where a command says why it failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def read_lines(path: Path) -> list[str]:
    """The lines of a text.

    Raises:
        UserError: it cannot be read, or is not UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=path) from error
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8 at byte {error.start}", where=path) from error
    # Not splitlines(), which also splits at U+2028 and the like.
    return text.removesuffix("\n").split("\n")
