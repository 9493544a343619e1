"""What a run's files say, typed: ``score.json``, ``started.json`` and ``failed.json``.

A record is flat JSON with the names of its fields.  A file is checked when it is read: what is
missing or of another type is named.
"""

from __future__ import annotations

import dataclasses
import reprlib
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from collab_common import files
from collab_common.errors import UserError

SCORE_VERSION = 2
AGAIN = "score the run again"

Task = Literal["translation", "language_modeling"]
Verdict = Literal["failed", "diverged"]
T = TypeVar("T")

#: Of a cached number: ``metrics.cost.BYTES_PER_FLOAT``, whose module imports torch; tables do not.
BYTES = 4
#: Parts of options that make values or keys of another width than d and K say.
OTHER_WIDTHS = ("head_size", "heads_in_")

#: Beside the fields that every record must have, by task.
_OF_TRANSLATIONS = (
    "sentences", "bleu", "bleu_signature", "chrf", "chrf_signature", "compound_split_bleu",
    "compound_split_signature", "beam", "lenpen",
)  # fmt: skip
NEEDED: Mapping[Task, tuple[str, ...]] = {
    "translation": _OF_TRANSLATIONS,
    "language_modeling": ("perplexity",),
}


@dataclass(frozen=True, kw_only=True)
class Record:
    """All that is known of a finished run: what it is, its scores, its costs, where it was made.

    Attributes:
        method: what the run's row in a table is called.
        overrides: what its sweep varied, or was said of it when it was made.
        data_sha256: of the data folder's manifest; None without one.
        subset: the test set.
        reference: the untouched text, relative to the data folder or the run's own.
        hypotheses: the translations, in the run's folder.
        tokenised_bleu: on the tokens of fairseq's own reference, as ``fairseq-generate`` counts;
            only of data in Moses tokens.
        corpus, variant, languages, note: what the data folder's recipe says of it.
        lowercased: whether the data folder's text is.
        linear_maps: ``int8`` where large ones were rounded to 8 bits (``FAIRSEQ_COLLAB_MATMUL``);
            else None.
        perplexity: a token of the data (a word or a subword), ends of lines counted; by subset.
        key_dim: size of queries and keys, all heads together; None where attentions differ.
        model_dim: d; None in records of before it was kept, and where attentions differ.
        heads: of each attention; None where attentions differ.
        heads_by_site: heads of each layer, by attention site.
        multiply_adds: of one sentence (pair) of ``multiply_adds_length`` tokens (on each side).
        train_tokens_per_second: None of a model that was not trained in this run.
        valid_loss: as fairseq logs it, in bits; label smoothing and penalties included.
        valid_nats: negative log-likelihood of a token of the validation set, in nats.
        averaged: the checkpoints that the model is the mean of.
    """

    version: int = SCORE_VERSION
    task: Task
    run: str
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
    corpus: str | None = None
    variant: str | None = None
    languages: list[str] | None = None
    lowercased: bool | None = None
    note: str | None = None

    sentences: int | None = None
    bleu: float | None = None
    bleu_signature: str | None = None
    chrf: float | None = None
    chrf_signature: str | None = None
    length_ratio: float | None = None
    compound_split_bleu: float | None = None
    compound_split_signature: str | None = None
    tokenised_bleu: float | None = None
    tokenised_signature: str | None = None
    perplexity: dict[str, float] | None = None
    sentences_per_second: float | None = None
    beam: int | None = None
    lenpen: float | None = None
    linear_maps: str | None = None

    key_dim: int | None
    model_dim: int | None = None
    heads: int | None
    heads_by_site: dict[str, list[int]] | None = None
    parameters: int
    attention_parameters: int
    key_bytes_per_target_token: int
    value_bytes_per_target_token: int
    key_bytes_per_source_token: int | None = None
    value_bytes_per_source_token: int | None = None
    multiply_adds: int | None
    multiply_adds_length: int

    train_tokens_per_second: int | None
    train_updates: int
    epochs: int
    valid_loss: float
    valid_nats: float | None = None
    averaged: list[str]

    commit: str | None
    versions: dict[str, str]
    hardware: str
    date: str

    def __post_init__(self) -> None:
        missing = [name for name in NEEDED[self.task] if getattr(self, name) is None]
        if missing:
            raise UserError(f"lacks {', '.join(missing)}", todo=AGAIN)

    @property
    def reduction(self) -> float | None:
        """d/K of a decoder whose values are d wide; None of another, and where K differs."""
        keys, values = self.key_bytes_per_target_token, self.value_bytes_per_target_token
        if self.model_dim is None:  # values may be assumed d wide, and the ratio of caches d/K
            narrow = any(part in name for name in self.overrides for part in OTHER_WIDTHS)
            narrow |= "content" in self.overrides.values()
            return None if narrow or not keys else values / keys
        layers = len((self.heads_by_site or {}).get("decoder", ()))
        if not self.key_dim or values != BYTES * self.model_dim * layers:
            return None
        return self.model_dim / self.key_dim

    @classmethod
    def read(cls, path: Path) -> Record:
        """The record in a file."""
        try:
            content = files.read_json(path)
        except OSError as error:
            raise UserError(f"cannot be read: {error.strerror}", where=path) from error
        return cls.of(content, path)

    @classmethod
    def of(cls, content: Any, where: Path) -> Record:
        """The record that JSON in the file ``where`` describes."""
        version = content.get("version") if isinstance(content, dict) else None
        if version != SCORE_VERSION:
            raise UserError(f"version {version}, not {SCORE_VERSION}", where, AGAIN)
        return parse(cls, content, where, AGAIN)

    def write(self, path: Path) -> None:
        """Write the record, whole or not at all."""
        files.write_json(path, dataclasses.asdict(self))


@dataclass(frozen=True)
class Started:
    """How a run was started.

    Attributes:
        overrides: what the sweep varied, or was said of an existing checkpoint.
        checkpoint: the existing checkpoint that the run is of; None where it is trained here.
    """

    overrides: dict[str, str]
    command: list[str] | None = None
    commit: str | None = None
    date: str | None = None
    checkpoint: str | None = None


@dataclass(frozen=True)
class Failure:
    """Why the last attempt at a run has failed."""

    verdict: Verdict
    reason: str


def read(cls: type[T], path: Path, todo: str | None = None) -> T | None:
    """A dataclass from a JSON file, None without one; ``todo`` is the advice on a damaged file."""
    try:
        return parse(cls, files.read_json(path), path, todo)
    except FileNotFoundError:
        return None


def parse(cls: type[T], content: Any, where: Path, todo: str | None = None) -> T:
    """A dataclass from JSON; what is no field of it is left out.

    Raises UserError if a field is missing or of another type.
    """
    if not isinstance(content, dict):
        raise UserError("is not a JSON object", where, todo)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    required = [field.name for field in fields if field.default is dataclasses.MISSING]
    if missing := [name for name in required if name not in content]:
        raise UserError(f"lacks {', '.join(missing)}", where, todo)
    types_of = get_type_hints(cls)
    found = {}
    for name, kind in ((field.name, field.type) for field in fields if field.name in content):
        try:
            found[name] = _typed(content[name], types_of[name])
        except TypeError:
            what = f"{name} is {reprlib.repr(content[name])}, not {kind}"
            raise UserError(what, where, todo) from None
    try:
        return cls(**found)
    except UserError as error:
        error.where, error.todo = error.where or where, error.todo or todo
        raise


def _typed(value: Any, kind: Any) -> Any:
    """``value``, dataclasses inside made such; TypeError if it is not of this type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):  # X | None
        return None if value is None else _typed(value, inner[0])
    if origin is list and isinstance(value, list):
        return [_typed(one, inner[0]) for one in value]
    if origin is dict and isinstance(value, dict):
        return {name: _typed(one, inner[1]) for name, one in value.items()}
    if origin is Literal and value in inner:
        return value
    if dataclasses.is_dataclass(kind):
        try:
            return parse(kind, value, Path())  # type: ignore[arg-type]
        except UserError as error:  # the field that holds it is named
            raise TypeError from error
    numbers = (int, float) if kind is float else kind
    if origin is None and isinstance(value, numbers) and (kind is bool or type(value) is not bool):
        return float(value) if kind is float else value
    raise TypeError
