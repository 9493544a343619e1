"""Hyper-parameters that tensor shapes do not reveal, as the integers that a checkpoint keeps.

    tensor = (version, kind, field, field, ...)

A checkpoint has numbers, not names: the order of a signature's fields is part of the format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

#: First number of every signature; raised when the meaning of a field changes.
SIGNATURE_VERSION = 1
#: What the second number is called.
KIND = (
    "kind (1 concatenated, 2 collaborative, 3 grouped, 4 gated, 5 grouped query, 6 latent, 7 MFA)"
)

S = TypeVar("S", bound="Signature")


def labelled(label: str) -> Any:
    """A field of a :class:`Signature` with another name in messages than in code."""
    return field(metadata={"label": label})


def chosen(label: str, choices: tuple[str, ...]) -> Any:
    """A field that is one of ``choices``, kept as its place among them."""
    numbered = ", ".join(f"{place} {choice}" for place, choice in enumerate(choices))
    return field(metadata={"label": f"{label} ({numbered})", "choices": choices})


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
        """``(2 + fields,)``, as a checkpoint keeps it."""
        return torch.tensor([SIGNATURE_VERSION, *self.numbers().values()], dtype=torch.int64)

    @classmethod
    def from_tensor(cls: type[S], saved: Tensor) -> S:
        """The signature of this kind that a checkpoint keeps.

        Raises:
            ValueError: it is of another kind or version.
        """
        version, kind, *numbers = saved.tolist()
        if (version, kind, len(numbers)) != (SIGNATURE_VERSION, cls.kind, len(fields(cls))):
            raise ValueError(f"{saved.tolist()} is no {cls.__name__}")
        return cls(*(_value(f, number) for f, number in zip(fields(cls), numbers, strict=True)))

    def diff(self, saved: Tensor) -> Iterator[str]:
        """Where a checkpoint's signature differs: each field, its saved and its given value."""
        version, kind, *numbers = saved.tolist()
        if version != SIGNATURE_VERSION:
            yield f"signature version is {version} in it, {SIGNATURE_VERSION} here"
        elif (kind, len(numbers)) != (self.kind, len(fields(self))):
            yield f"{KIND} is {kind} in it, {self.kind} here"
        else:
            for f, number in zip(fields(self), numbers, strict=True):
                given = _number(f, getattr(self, f.name))
                if number != given:
                    yield f"{_label(f)} is {number} in it, {given} here"


def _label(part: Field[Any]) -> str:
    return part.metadata.get("label", part.name)


def _number(part: Field[Any], value: Any) -> int:
    choices = part.metadata.get("choices")
    return choices.index(value) if choices else value


def _value(part: Field[Any], number: int) -> Any:
    choices = part.metadata.get("choices")
    return choices[number] if choices else number
