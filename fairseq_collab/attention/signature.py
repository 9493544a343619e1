"""Hyper-parameters that tensor shapes do not reveal, as the integers that a checkpoint keeps.

    tensor = (version, kind, field, field, ...)

A checkpoint has numbers, not names: the order of a signature's fields is part of the format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

#: First number of every signature; raised when the meaning of a field changes.
SIGNATURE_VERSION = 1
#: Kinds of heads by the second number; a plug-in's own variants take one from 100 on.
KINDS = {
    1: "separate keys",
    2: "shared keys",
    3: "grouped heads",
    4: "gated heads",
    5: "grouped-query heads",
    6: "latent heads",
    7: "latent heads of one shared latent",
}


def labelled_field(label: str) -> Any:
    """Make a field of a :class:`Signature` whose name in messages differs from that in code."""
    return field(metadata={"label": label})


def choice_field(label: str, choices: tuple[str, ...]) -> Any:
    """Make a field that is one of ``choices``; a checkpoint stores its index."""
    return field(metadata={"label": label, "choices": choices})


@dataclass(frozen=True)
class Signature:
    """Base of all signatures: a variant adds integer fields, or a :func:`choice_field`."""

    #: The variant's number: see :data:`KINDS`.
    kind: ClassVar[int]

    @classmethod
    def of(cls, attention: Any) -> Self:
        """Return the signature of an attention, whose attributes have the names of the fields."""
        return cls(*(getattr(attention, f.name) for f in fields(cls)))

    def to_tensor(self) -> Tensor:
        """Return ``(2 + fields,)``, as a checkpoint stores it."""
        numbers = [_number(f, getattr(self, f.name)) for f in fields(self)]
        return torch.tensor([SIGNATURE_VERSION, self.kind, *numbers], dtype=torch.int64)

    def diff(self, saved: Tensor) -> Iterator[str]:
        """Name the fields that differ from a checkpoint's, with both values."""
        version, kind, *numbers = saved.tolist()
        if version != SIGNATURE_VERSION:
            yield _difference("signature version", version, SIGNATURE_VERSION)
        elif (kind, len(numbers)) != (self.kind, len(fields(self))):
            names = (KINDS.get(number, f"kind {number}") for number in (kind, self.kind))
            yield _difference("kind of heads", *names)
        else:
            for f, number in zip(fields(self), numbers, strict=True):
                value = getattr(self, f.name)
                if number != _number(f, value):
                    yield _difference(f.metadata.get("label", f.name), _value(f, number), value)


def _difference(name: str, saved: Any, expected: Any) -> str:
    return f"{name} is {saved} in the checkpoint, {expected} in the model"


def _number(field_: Field[Any], value: Any) -> int:
    choices = field_.metadata.get("choices")
    return choices.index(value) if choices else value


def _value(field_: Field[Any], number: int) -> Any:
    choices = field_.metadata.get("choices")
    return choices[number] if choices and 0 <= number < len(choices) else number
