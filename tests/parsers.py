"""The parsers of the commands, by the names that are typed."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any

import pytest

from collab_common.command import Parser
from collab_lab.cli.main import COMMANDS, DATA, module_of

#: What each command with a parser does.
OURS = {
    **{name: about for name, about in COMMANDS.items() if name not in ("data", "configs")},
    **{f"data {name}": about for name, about in DATA.items()},
}


class Found(Exception):
    """Raised with a parser, and its way to parse, in place of what a command does."""


def parser_of(name: str) -> tuple[argparse.ArgumentParser, Callable[[list[str]], Any]]:
    """The parser of ``fairseq-collab NAME``, and the method that it parses with."""
    main = importlib.import_module(module_of(name.rpartition(" ")[2])).main
    with pytest.MonkeyPatch.context() as patch:
        for method in ("parse_args", "parse_intermixed_args"):
            parse = getattr(Parser, method)

            def stop(self: Any, *_: Any, parse: Any = parse) -> None:
                raise Found(self, parse.__get__(self))

            patch.setattr(Parser, method, stop)
        with pytest.raises(Found) as found:
            main([])
    return found.value.args  # type: ignore[return-value]
