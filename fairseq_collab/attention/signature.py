"""What no tensor shape shows of an attention, as the integers that a checkpoint keeps.

    tensor = (version, kind, field, field, ...)

A checkpoint has numbers, not names: the order of a signature's fields is part of the format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

#: First number of every signature; raised when the meaning of a field changes.
SIGNATURE_VERSION = 1
#: What the second number is called.
KIND = "kind (1 concatenated, 2 collaborative, 3 grouped, 4 gated, 5 grouped query, 6 latent)"

S = TypeVar("S", bound="Signature")


def labelled(label: str) -> Any:
    """A field of a :class:`Signature` with another name in messages than in code."""
    return field(metadata={"label": label})


def chosen(label: str, choices: tuple[str, ...]) -> Any:
    """A field that is one of ``choices``, kept as its place among them."""
    numbered = ", ".join(f"{place} {choice}" for place, choice in enumerate(choices))
    return field(metadata={"label": f"{label} ({numbered})", "choices": choices})


def later(label: str, before: int | str) -> Any:
    """A last field that older checkpoints lack, because all of them had the value ``before``.

    Args:
        before: the number, or the name of an earlier field that has it.
    """
    return field(metadata={"label": label, "before": before})


@dataclass(frozen=True)
class Signature:
    """Base of all signatures: a variant adds fields, which are integers, or :func:`chosen`."""

    #: The variant's number: see :data:`KIND`.  A plug-in's own variants take one from 100 on.
    kind: ClassVar[int]

    def numbers(self) -> dict[str, int]:
        """The kind and all fields that are kept, by their names in messages.

        Last fields that are as before are not.
        """
        kept, before = [*fields(self)], vars(self)
        while kept and getattr(self, kept[-1].name) == _before(kept[-1], before):
            kept.pop()
        return {KIND: self.kind} | {_label(f): _number(f, getattr(self, f.name)) for f in kept}

    def to_tensor(self) -> Tensor:
        """``(2 + fields,)``, as a checkpoint keeps it."""
        return torch.tensor([SIGNATURE_VERSION, *self.numbers().values()], dtype=torch.int64)

    @classmethod
    def from_tensor(cls: type[S], saved: Tensor) -> S:
        """The signature of this kind that a checkpoint keeps.

        Raises:
            ValueError: it is of another kind or version.
        """
        version, kind, *numbers = saved.tolist()
        own = cls._completed(numbers)
        if (version, kind) != (SIGNATURE_VERSION, cls.kind) or own is None:
            raise ValueError(f"{saved.tolist()} is no {cls.__name__}")
        return cls(*(_value(f, number) for f, number in zip(fields(cls), own, strict=True)))

    @classmethod
    def _completed(cls, numbers: list[int]) -> list[int] | None:
        """A number for each field, from those that a checkpoint keeps; None if these do not fit."""
        own = fields(cls)
        known: dict[str, Any] = {f.name: number for f, number in zip(own, numbers, strict=False)}
        for f in own[len(numbers) :]:
            known[f.name] = _before(f, known)
        complete = [*known.values()]
        return None if len(numbers) > len(own) or None in complete else complete

    def diff(self, saved: Tensor) -> Iterator[str]:
        """Where a checkpoint's signature differs: each field, its saved and its given value."""
        version, kind, *numbers = saved.tolist()
        old = self._completed(numbers)
        if version != SIGNATURE_VERSION:
            yield f"signature version is {version} in it, {SIGNATURE_VERSION} here"
        elif kind != self.kind or old is None:
            yield f"{KIND} is {kind} in it, {self.kind} here"
        else:
            # A field that neither keeps follows another, which speaks for both.
            kept = max(len(numbers), len(self.numbers()) - 1)
            for f, number in [*zip(fields(self), old, strict=True)][:kept]:
                given = _number(f, getattr(self, f.name))
                if number != given:
                    yield f"{_label(f)} is {number} in it, {given} here"


def _before(part: Field[Any], known: Mapping[str, Any]) -> int | None:
    """What a field is if a checkpoint does not say so; None where it must."""
    before = part.metadata.get("before")
    return known.get(before) if isinstance(before, str) else before


def _label(part: Field[Any]) -> str:
    return part.metadata.get("label", part.name)


def _number(part: Field[Any], value: Any) -> int:
    choices = part.metadata.get("choices")
    return choices.index(value) if choices else value


def _value(part: Field[Any], number: int) -> Any:
    choices = part.metadata.get("choices")
    return choices[number] if choices else number
