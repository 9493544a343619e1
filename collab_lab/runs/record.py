"""The files of a run, typed: ``score.json``, ``started.json``, ``trained``, ``failed.json``.

All are JSON with the names of the fields below.  Modules that read results import only this
module and :mod:`collab_lab.runs.run` from this package.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from collab_common import files
from collab_common.encodings import are_tokens
from collab_common.errors import UserError

AGAIN = "remove the file and score the run again (fairseq-collab score)"

#: Environment variable in which a sweep says how many runs it does at a time.
JOBS = "FAIRSEQ_COLLAB_JOBS"

Task = Literal["translation", "language_modeling"]
#: Which checkpoints a run's model is made of: the mean of the last ``keep_last_epochs`` epochs;
#: ``checkpoint_last.pt``, where no epochs are kept; or the checkpoint that ``score --run`` got.
CheckpointRule = Literal["mean of last epochs", "last", "given"]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Record:
    """A finished run: identity, scores, costs and provenance.

    Attributes:
        method: name of the run's row in a table.
        overrides: options that the sweep varied, or that ``score --set`` set.
        command, trained_at_commit: command and commit of the sweep that started the run; the commit
            is marked if files differed from it (see :func:`~collab_common.provenance.commit`), and
            followed by those of later resumes, and None for a checkpoint that was given.
        commit, versions, date: commit, versions and date of the scoring.
        data_sha256: hash of the data folder's manifest; None without one.
        reference: the untouched text, relative to the data folder.
        hypotheses: the translations, one line per sentence, in the run's folder.
        tokenised_bleu: BLEU on Moses tokens against the data's own target side, as fairseq-generate
            counts; ``compound_split_bleu``: the BLEU of these tokens with hyphenated compounds
            split.  Both exist only if the data folder's text is in Moses tokens.
        perplexity: perplexity per token of the data (word or subword) by subset, including ends of
            lines; ``blocks``: options of the task that cut the text and so limit a word's context.
        beam, lenpen: options of the search; ``generation``: all options of fairseq's section of
            this name that differ from their defaults, and the limit of a translation's length,
            ``max_len_a`` and ``max_len_b`` (see :mod:`collab_lab.runs.length_limit`).
        breaks_wanted, breaks_missing, breaks_extra: for documents: number of breaks between
            sentences in the references, and of breaks that translations lack or have too many;
            scores do not count them as words.
        at_length_limit: number of translations that end at this limit and may be cut off.
        translate_seconds: wall-clock time of the search, including data loading, with
            ``translate_threads`` on ``translate_hardware``, while the sweep did ``translate_jobs``
            runs at a time (1: no other run).
        key_dim: width of the keys in the cache, of all heads together; None if attentions differ,
            and for latents, which are not keys.
        model_dim, heads: size and number of heads of each attention; None if attentions differ.
        unlearnt: number of first tokens of each target that the training left out of its loss
            (``ignore_prefix_size``) and that the scores count, because the search makes them up, or
            because a perplexity is of all tokens; None without any.
        marks_apart: lines of the reference with punctuation apart from its word, as in tokens.
        key_bytes_per_target_token, ...: bytes of the KV cache per token, over all decoder layers,
            for 16-bit numbers or for rounded numbers with their scales and offsets.
        cache_share: these bytes for one source and one target token, as a share of those of a model
            with standard heads and 16-bit numbers.
        shrunk: shares that ``fairseq-collab shrink`` left of the original model, as text.
        multiply_adds: multiply-adds for one sentence (pair) of ``multiply_adds_length`` tokens (on
            each side).
        train_seconds: wall-clock time of all attempts at the training up to its last checkpoint,
            without work that was lost when attempts were killed; with ``train_threads``, while the
            sweep did ``train_jobs`` runs at a time, on ``hardware``.
        averaged: checkpoints that were averaged; ``checkpoint_rule`` chose them.
        train_updates, epochs: length of the training; None for a checkpoint that was given.
        valid_loss: loss of the scored model (the average) on the validation set, in bits per
            token, with label smoothing, of the targets that the criterion does not leave out
            (``ignore_prefix_size``).
        valid_nats: negative log-likelihood per token, in nats, of the same targets.
    """

    task: Task = "translation"
    run: str = ""
    method: str
    arch: str
    seed: int
    overrides: dict[str, str]
    command: list[str] | None = None
    trained_at_commit: str | None = None

    data: str
    data_sha256: str | None
    subset: str
    reference: str | None = None
    hypotheses: str | None = None

    sentences: int | None = None
    bleu: float | None = None
    bleu_signature: str | None = None
    chrf: float | None = None
    chrf_signature: str | None = None
    length_ratio: float | None = None
    tokenised_bleu: float | None = None
    tokenised_signature: str | None = None
    compound_split_bleu: float | None = None
    compound_split_signature: str | None = None
    perplexity: dict[str, float] | None = None
    blocks: dict[str, Any] | None = None
    beam: int | None = None
    lenpen: float | None = None
    generation: dict[str, Any] | None = None
    at_length_limit: int | None = None
    unlearnt: int | None = None
    marks_apart: int | None = None
    breaks_wanted: int | None = None
    breaks_missing: int | None = None
    breaks_extra: int | None = None
    translate_seconds: float | None = None
    translate_threads: int | None = None
    translate_jobs: int | None = None
    translate_hardware: str | None = None

    key_dim: int | None
    model_dim: int | None = None
    heads: int | None
    heads_by_type: dict[str, list[int]] | None = None
    parameters: int
    attention_parameters: int
    key_bytes_per_target_token: int
    value_bytes_per_target_token: int
    key_bytes_per_source_token: int | None = None
    value_bytes_per_source_token: int | None = None
    cache_share: float | None = None
    shrunk: str | None = None
    multiply_adds: int | None
    multiply_adds_length: int

    train_updates: int | None = None
    epochs: int | None = None
    valid_loss: float
    valid_nats: float | None = None
    averaged: list[str]
    checkpoint_rule: CheckpointRule | None = None
    train_seconds: float | None = None
    train_threads: int | None = None
    train_jobs: int | None = None

    commit: str
    versions: dict[str, str]
    hardware: str
    date: str


def doubts(record: Mapping[str, Any]) -> list[str]:
    """Reasons to doubt the scores of a record, given its fields."""
    number = record.get("sentences") or 0
    cut, apart = (record.get(name) or 0 for name in ("at_length_limit", "marks_apart"))
    result = []
    if (unlearnt := record.get("unlearnt") or 0) > 0:  # in a table it may be NaN
        result.append(
            f"the first {unlearnt:.0f} tokens of each target, which scores count, were not learnt "
            "(ignore_prefix_size)"
        )
    if cut > number // 100:
        result.append(f"{cut:.0f} of {number:.0f} translations end at the limit of their length")
    if are_tokens(apart, number):
        lines = f"{apart:.0f} of {number:.0f} lines of the reference"
        result.append(f"{lines} have punctuation apart from its word, as tokens do")
    return result


@dataclass(frozen=True)
class Started:
    """How a run was started.

    Attributes:
        overrides: options that the sweep varied, or that ``score --set`` set.
        checkpoint: the existing checkpoint of the run; None if the run trains its own.
        inputs: hashes of everything that the run reads, by option: see
            :mod:`collab_lab.runs.inputs`.
    """

    overrides: dict[str, str]
    command: list[str] | None = None
    commit: str = "unknown"
    checkpoint: str | None = None
    inputs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Training:
    """How a run was trained: hardware, threads, and how many runs the sweep did at a time.

    Numbers are None if they changed between attempts at the training.
    """

    hardware: str
    threads: int | None
    jobs: int | None


@dataclass(frozen=True)
class Failure:
    """Why the last attempt at a run failed."""

    verdict: Literal["failed", "diverged"]
    reason: str


def jobs_at_a_time() -> int:
    """How many runs the sweep of this process does at a time; 1 outside a sweep."""
    return int(os.environ.get(JOBS, 1))


def read(cls: type[T], path: Path, todo: str = "remove it and start again") -> T | None:
    """Read a dataclass from a JSON file; None if there is no file; unknown keys are ignored."""
    try:
        content = files.read_json(path, todo)
    except FileNotFoundError:
        return None
    if not isinstance(content, dict):
        raise UserError("is not a JSON object", path, todo)
    try:
        return cls(**{name: content[name] for name in cls.__annotations__ if name in content})
    except TypeError as error:  # names the missing fields
        raise UserError(str(error).partition(" ")[2], path, todo) from error
