"""Configuration dataclasses that Python 3.11 and later accept as field defaults."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

ROOTS = ("fairseq", "hydra")


def make_hashable() -> None:
    """Give the dataclasses of fairseq and hydra, and what derives from them, a hash.

    fairseq writes `common: CommonConfig = CommonConfig()`. From Python 3.11 on a default has
    to be hashable, as a sign that it is not mutable, and a dataclass is not. A
    `default_factory` would not do: fairseq reads `Field.default`. So the decorator restores
    the hash that every object has; equality stays as it was.
    """
    plain = dataclasses.dataclass

    @functools.wraps(plain)
    def dataclass(cls: Any = None, /, **options: Any) -> Any:
        if cls is None:
            return functools.partial(dataclass, **options)
        cls = plain(cls, **options)
        if cls.__hash__ is None and any(_is_config_class(base) for base in cls.__mro__):
            cls.__hash__ = object.__hash__
        return cls

    dataclasses.dataclass = dataclass


def _is_config_class(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in ROOTS
