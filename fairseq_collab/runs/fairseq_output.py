"""fairseq's commands on a run's data, and what they print, read in one place.

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
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

from omegaconf import DictConfig, OmegaConf

from collab_common.errors import UserError
from data_prep.parallel_text import lines_of
from fairseq_collab.runs.run import Run

#: In the environment of fairseq's commands: their output is UTF-8, whatever the locale.
UTF_8 = {"PYTHONIOENCODING": "utf-8"}
_CLOCK = re.compile(
    r"Translated ([\d,]+) sentences \(([\d,]+) tokens\) in .*\(([\d.]+) sentences/s, "
)
#: Of a batch, where the training does not say.
_MAX_TOKENS = 4096
_PERPLEXITY = re.compile(r"Loss \(base 2\): [\d.]+, Perplexity: ([\d.]+)")
#: No entry has braces inside: of a line in which a cut one and the next have run together, the
#: next is found.
_ENTRY = re.compile(r"\| (train|valid) \| (\{[^{}]*\})$", re.MULTILINE)


def fairseq(
    name: str, run: Run, config: DictConfig, lock: int | None, output: Path, words: list[Any]
) -> str:
    """Run one of fairseq's commands on the run's data, in a process of its own.

    If it fails, UserError has the last line that it wrote.

    Args:
        output: what it prints, kept whole or not at all; of ``fairseq-generate`` without its log.

    Returns:
        its log: where fairseq's logger writes beside a plug-in
    """
    import torch  # here: who only reads output does without

    tokens = config.dataset.max_tokens_valid or config.dataset.max_tokens
    tokens = tokens or (None if config.dataset.batch_size else _MAX_TOKENS)
    changed = OmegaConf.select(config, "common_eval.model_overrides", default="{}")  # as text
    # On a CPU fairseq-generate would do as it is told, too.
    halves = bool(config.common.fp16) and torch.cuda.is_available()
    command = [
        *(Path(sys.executable).with_name(f"fairseq-{name}"), config.task.data),
        *("--user-dir", config.common.user_dir, *words),
        *(["--max-tokens", tokens] if tokens else ["--batch-size", config.dataset.batch_size]),
        *("--num-workers", config.dataset.num_workers),
        *(["--cpu"] * bool(config.common.cpu)),
        *(["--fp16"] * halves),
        *(["--model-overrides", changed] if changed != "{}" else []),
    ]
    partial = output.with_name(f"{output.name}.part")
    partial.unlink(missing_ok=True)  # a file of its own, whoever may still write into that one
    with partial.open("w", encoding="utf-8") as file:
        ended = subprocess.run(
            list(map(str, command)),
            stdout=file,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, **UTF_8},
            pass_fds=[] if lock is None else [lock],
        )
        if name != "generate":
            file.write(ended.stderr)
    if ended.returncode:
        raise UserError(f"fairseq-{name} failed: {last_line(ended.stderr)}", where=run.folder)
    os.replace(partial, output)
    return ended.stderr


def read_hypotheses(path: Path, kind: Literal["D", "H"] = "D") -> list[str]:
    """The best hypothesis of every sentence, in the order of the corpus; UserError if some lack."""
    found = read_side(path, kind)
    if kind == "D" and not found:  # fairseq up to 0.9 prints none, and the same text there
        found = read_side(path, "H")
    if not found:
        what = f"no hypotheses (lines that start with {kind}-) in it"
        raise UserError(what, path, "give the output of fairseq-generate, run without --quiet")
    missing = set(range(max(found) + 1)) - found.keys()
    if missing:
        what = f"hypothesis {min(missing)} is missing ({len(missing)} of {max(found) + 1})"
        todo = "generate the whole set (fairseq-generate --skip-invalid-size-inputs-valid-test "
        raise UserError(what, path, f"{todo}drops sentences)")
    return list(found.values())


def read_side(path: Path, side: Literal["S", "T", "D", "H"]) -> dict[int, str]:
    """Sources, references or best hypotheses by their number, in the order of the corpus."""
    score = r"[^\t]*\t?" if side in ("D", "H") else ""
    pattern = re.compile(rf"{side}-(\d+)\t{score}(.*)")
    matches = [match for line in read_lines(path) if (match := pattern.fullmatch(line))]
    found = {int(match[1]): match[2] for match in reversed(matches)}  # the first is the best
    return dict(sorted(found.items()))


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
    """The last words of ``fairseq-generate``, in its output or its log; None without them."""
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
    """What a log tells of every epoch, or of every validation; [] where there is no log."""
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
    """The lines of a text; UserError if it is not UTF-8.

    From Windows they may have other ends, and a mark in front of the first.
    """
    lines = [line.removesuffix("\r") for line in lines_of(path)]
    return [line.removeprefix("\ufeff") for line in lines[:1]] + lines[1:]
