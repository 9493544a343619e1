"""What no tensor shape shows of an attention, as the integers that a checkpoint keeps.

    tensor = (version, kind, field, field, ...)

A checkpoint has numbers, not names: the order of a signature's fields is part of the format.
Fields that came :func:`later` are written only where they have another value than all models had
before: earlier checkpoints keep their numbers, and are read as if they had the field.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

#: First number of every signature; raised when the meaning of a field changes.
SIGNATURE_VERSION = 1
#: What the second number is called.
KIND = "kind (1 concatenated, 2 collaborative, 3 grouped, 4 gated, 5 grouped query)"

S = TypeVar("S", bound="Signature")


def labelled(label: str) -> Any:
    """A field of a :class:`Signature` with another name in messages than in code."""
    return field(metadata={"label": label})


def chosen(label: str, choices: tuple[str, ...]) -> Any:
    """A field that is one of ``choices``, kept as its place among them."""
    numbered = ", ".join(f"{place} {choice}" for place, choice in enumerate(choices))
    return field(metadata={"label": f"{label} ({numbered})", "choices": choices})


def later(label: str, before: int) -> Any:
    """A last field that earlier checkpoints lack, because all of them had the value ``before``."""
    return field(default=before, metadata={"label": label})


@dataclass(frozen=True)
class Signature:
    """Base of all signatures: a variant adds fields, which are integers, or :func:`chosen`."""

    #: The variant's number: see :data:`KIND`.  A plug-in's own variants take one from 100 on.
    kind: ClassVar[int]

    def numbers(self) -> dict[str, int]:
        """The kind and all fields, by their names in messages."""
        return {KIND: self.kind} | {
            _label(f): _number(f, getattr(self, f.name)) for f in fields(self)
        }

    def to_tensor(self) -> Tensor:
        """``(2 + fields,)``, as a checkpoint keeps it; without last fields that are as before."""
        numbers = [*self.numbers().values()]
        for last in reversed(fields(self)):
            if last.default is MISSING or getattr(self, last.name) != last.default:
                break
            numbers.pop()
        return torch.tensor([SIGNATURE_VERSION, *numbers], dtype=torch.int64)

    @classmethod
    def from_tensor(cls: type[S], saved: Tensor) -> S:
        """The signature of this kind that a checkpoint keeps.

        Raises:
            ValueError: it is of another kind or version.
        """
        version, kind, *numbers = saved.tolist()
        numbers += cls._before(len(numbers))
        if (version, kind, len(numbers)) != (SIGNATURE_VERSION, cls.kind, len(fields(cls))):
            raise ValueError(f"{saved.tolist()} is no {cls.__name__}")
        return cls(*(_value(f, number) for f, number in zip(fields(cls), numbers, strict=True)))

    def diff(self, saved: Tensor) -> Iterator[str]:
        """Where a checkpoint's signature differs: each field, its saved and its given value."""
        version, *old = saved.tolist()
        old += self._before(len(old) - 1)
        new = self.numbers()
        if version != SIGNATURE_VERSION:
            yield f"signature version is {version} in it, {SIGNATURE_VERSION} here"
        elif old[0] != self.kind or len(old) != len(new):
            yield f"{KIND} is {old[0]} in it, {self.kind} here"
        else:
            for (label, given), number in zip(new.items(), old, strict=True):
                if number != given:
                    yield f"{label} is {number} in it, {given} here"

    @classmethod
    def _before(cls, there: int) -> list[int]:
        """What fields that came later than a checkpoint with so many had then."""
        before: list[Any] = [f.default for f in fields(cls)[there:]]
        return [] if MISSING in before else before


def _label(part: Field[Any]) -> str:
    return part.metadata.get("label", part.name)


def _number(part: Field[Any], value: Any) -> int:
    choices = part.metadata.get("choices")
    return choices.index(value) if choices else value


def _value(part: Field[Any], number: int) -> Any:
    choices = part.metadata.get("choices")
    return choices[number] if choices else number
