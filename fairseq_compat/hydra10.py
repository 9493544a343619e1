"""hydra-core 1.0, the version that fairseq pins, on Python 3.10 and later."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
import types
import typing
from collections.abc import Iterator
from typing import Any

from .proxy import Proxy


def restore_typing_io() -> None:
    """Let `from typing.io import TextIO` work: Python 3.13 has the names in typing only."""
    sys.modules.setdefault("typing.io", typing)


def report_errors() -> None:
    """Print an error as hydra means to, without the keyword that Python 3.10 has dropped."""
    from hydra._internal import utils

    def print_exception(etype: Any, value: BaseException, tb: Any) -> None:
        traceback.print_exception(type(value), value, tb)

    utils.print_exception = print_exception  # type: ignore[attr-defined]


def import_plugins() -> None:
    """Let hydra load a plug-in with `importer.find_module(name).load_module(name)`."""
    from hydra.core import plugins

    plugins.pkgutil = Proxy(pkgutil, walk_packages=_walk_packages)


def _walk_packages(*args: Any, **kwargs: Any) -> Iterator[tuple[type, str, bool]]:
    for _, name, is_package in pkgutil.walk_packages(*args, **kwargs):
        yield _Importer, name, is_package


class _Importer:
    """What hydra expects of the importers that pkgutil.walk_packages yields."""

    @staticmethod
    def find_module(name: str) -> types.SimpleNamespace:
        return types.SimpleNamespace(load_module=importlib.import_module)
