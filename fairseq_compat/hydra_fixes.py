"""Hydra and the configuration classes on today's Python, and warnings that no user can act on."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import Any

from .one_line import program

#: Whose dataclasses are configurations.
ROOTS = ("fairseq", "hydra")
# The beginnings of the warnings: fairseq names no hydra version whose behaviour it expects, and
# stores its options under the name of the user's configuration.
IGNORED = (
    r"\s*The version_base parameter is not specified",
    r"\s*'.*' is validated against ConfigStore schema with the same name",
)


def make_hashable() -> None:
    """Python 3.11 rejects defaults such as `common: CommonConfig = CommonConfig()`.

    It wants them hashable, as a sign that they are not mutable, and a dataclass is not. A
    `default_factory` would not do: fairseq reads `Field.default`. So dataclasses of fairseq and
    hydra, and classes derived from them, get back the hash of `object`; equality stays.
    """
    plain = dataclasses.dataclass

    @functools.wraps(plain)
    def dataclass(cls: Any = None, /, **options: Any) -> Any:
        if cls is None:
            return functools.partial(dataclass, **options)
        cls = plain(cls, **options)
        roots = {base.__module__.partition(".")[0] for base in cls.__mro__}
        if cls.__hash__ is None and not roots.isdisjoint(ROOTS):
            cls.__hash__ = object.__hash__
        return cls

    # torch 2.6 looks up in these what can be given.
    dataclass.__kwdefaults__ = plain.__kwdefaults__  # type: ignore[attr-defined]
    dataclasses.dataclass = dataclass


def ignore_warnings() -> None:
    """fairseq-hydra-train starts with eight lines about how fairseq calls hydra."""
    if program() == "fairseq-hydra-train":
        for message in IGNORED:
            warnings.filterwarnings("ignore", message=message, category=UserWarning)
