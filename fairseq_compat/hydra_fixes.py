"""hydra and the configurations: on Python 3.10 and later, and what it warns of from 1.1 on."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import pkgutil
import sys
import traceback
import types
import typing
import warnings
from collections.abc import Iterator
from typing import Any

from .one_line import program
from .patching import Proxy

#: Whose dataclasses are configurations.
ROOTS = ("fairseq", "hydra")
# The beginnings of the warnings: fairseq names no hydra version whose behaviour it expects, and
# stores its options under the name of the user's configuration.
OURS_TO_IGNORE = (
    r"\s*The version_base parameter is not specified",
    r"\s*'.*' is validated against ConfigStore schema with the same name",
)


def make_hashable() -> None:
    """Python 3.11 refuses defaults such as `common: CommonConfig = CommonConfig()`.

    It wants them hashable, as a sign that they are not mutable, and a dataclass is not. A
    `default_factory` would not do: fairseq reads `Field.default`. So dataclasses of fairseq and
    hydra, and what derives from them, get back the hash that every object has; equality stays.
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
    """fairseq-hydra-train starts with eight lines about how fairseq calls hydra 1.1 and later."""
    if program() == "fairseq-hydra-train":
        for message in OURS_TO_IGNORE:
            warnings.filterwarnings("ignore", message=message, category=UserWarning)


class Later:
    """Options that become a configuration of omegaconf's once a copy of it is asked for."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.made: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if self.made is None:
            from omegaconf import OmegaConf

            self.made = OmegaConf.structured(self.options)
        return copy.deepcopy(self.made, memo)


def convert_when_asked() -> None:
    """Each command of fairseq starts with converting the options of all models, tasks and so on.

    Hydra's store does so as they are registered, and a command uses some. What is loaded is a copy:
    only then they are converted here. From 1.1 on hydra copies the store, too, with every
    configuration that it composes.
    """
    from hydra.core import config_store

    # That module's own name for omegaconf, of which it calls nothing else.
    vars(config_store)["OmegaConf"] = types.SimpleNamespace(structured=Later)
    # By setattr, as mypy refuses to assign a class a method that it does not declare.
    setattr(config_store.ConfigStore, "__deepcopy__", lambda self, memo: self)  # noqa: B010


# ---- hydra 1.0, the version that fairseq pins ----------------------------------------------------


def restore_typing_io() -> None:
    """hydra 1.0 and its antlr4 import typing.io, which Python 3.13 has dropped."""
    sys.modules.setdefault("typing.io", typing)


def report_errors() -> None:
    """hydra 1.0 fails while it prints an error (print_exception(etype=...)) and hides it."""
    from hydra._internal import utils

    def print_exception(etype: Any, value: BaseException, tb: Any) -> None:
        traceback.print_exception(type(value), value, tb)

    utils.print_exception = print_exception  # type: ignore[attr-defined]


def import_plugins() -> None:
    """hydra 1.0 calls FileFinder.find_module, which Python 3.12 has dropped."""
    from hydra.core import plugins

    importer = types.SimpleNamespace(
        find_module=lambda _: types.SimpleNamespace(load_module=importlib.import_module)
    )

    def walk_packages(*args: Any, **kwargs: Any) -> Iterator[tuple[Any, str, bool]]:
        for _, name, is_package in pkgutil.walk_packages(*args, **kwargs):
            yield importer, name, is_package

    plugins.pkgutil = Proxy(pkgutil, walk_packages=walk_packages)
