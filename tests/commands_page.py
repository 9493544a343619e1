"""docs/commands.md, read off the parsers: ``python tests/commands_page.py`` writes it."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from command_checks import OURS, main_of
from commands import REPOSITORY

PAGE = REPOSITORY / "docs" / "commands.md"
HEADER = """\
# Commands and options

Made from the parsers by `python tests/commands_page.py` (a test compares). Every command has `--help`; what the commands are for is in [train](train.md) and [trained models](trained_models.md).

## fairseq-collab

| command, option | |
|---|---|
"""
ARCHITECTURES = """
## Options of the architectures

Of `fairseq-train`, and under Hydra (`model.key_dim`, ...). `-in-TYPE` is `-in-encoder`, `-in-decoder` and `-in-cross`: encoder self-attention, decoder self-attention, cross-attention, a number or one per layer (`8,4,2`).

| architecture or criterion, option | |
|---|---|
"""


class Found(Exception):
    """Raised with a parser in place of what a command does with its arguments."""


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of ``fairseq-collab NAME``."""

    def stop(self: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        raise Found(self)

    with pytest.MonkeyPatch.context() as patch:
        for method in ("parse_args", "parse_intermixed_args", "parse_known_args"):
            patch.setattr(argparse.ArgumentParser, method, stop)
        try:
            main_of(name)([])
        except Found as found:
            return found.args[0]
    raise AssertionError(f"{name} parses nothing")


def cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def row(*cells: str) -> str:
    return "| " + " | ".join(map(cell, cells)) + " |"


def command_rows(name: str, summary: str) -> Iterator[str]:
    parser = parser_of(name)
    formatter = parser._get_formatter()
    actions = [one for one in parser._actions if one.help != argparse.SUPPRESS]
    places = [one for one in actions if not one.option_strings]
    shown = " ".join(formatter._format_args(one, one.dest) for one in places)
    yield row(f"**`{f'fairseq-collab {name} {shown}'.strip()}`**", summary)
    for action in actions:
        if isinstance(action, argparse._HelpAction) or not action.help:
            continue
        value = formatter._format_args(action, action.dest.upper()) if action.nargs != 0 else ""
        label = f"{action.option_strings[-1]} {value}" if action.option_strings else value
        needed = " (required)" if action.option_strings and action.required else ""
        yield row(f"`{label.strip()}`", formatter._expand_help(action) + needed)


def option_rows(name: str, kinds: Iterable[type]) -> Iterator[str]:
    """The options of a dataclass; those of single attention types share a row."""
    fields = {one.name: one for kind in kinds for one in dataclasses.fields(kind)}
    yield row(f"**`{name}`**", "")
    for field in fields.values():
        base, of, _ = field.name.rpartition("_in_")
        if of and f"{base}_in_encoder" != field.name:
            continue
        option = "--" + (f"{base}_in_TYPE" if of else field.name).replace("_", "-")
        default = field.default
        said = field.metadata["help"]
        if of:
            said = re.sub(r"encoder self-attention", "the attention type", said)
        if default not in (None, dataclasses.MISSING) and "default" not in said:
            said += f" (default: {default})"
        yield row(f"`{option}`", said)


def architecture_rows() -> Iterator[str]:
    from fairseq.criterions import CRITERION_DATACLASS_REGISTRY as CRITERIONS

    from fairseq_collab.models.variants import VARIANTS

    seen: set[str] = set()
    for variant in VARIANTS:
        yield from option_rows(f"--arch transformer_{variant.name}", [variant.options])
    for name in sorted(one for one in CRITERIONS if "with_head_" in one and "adaptive" not in one):
        kind = CRITERIONS[name]
        ours = [base for base in kind.__mro__ if base.__module__.startswith("fairseq_collab")]
        assert ours and name not in seen
        yield from option_rows(f"--criterion {name}", ours[::-1])


@functools.cache
def text() -> str:
    commands = [line for name, one in OURS.items() for line in command_rows(name, one.summary)]
    body = HEADER + "\n".join(commands) + "\n" + ARCHITECTURES
    return body + "\n".join(architecture_rows()) + "\n"


if __name__ == "__main__":
    import fairseq_collab  # noqa: F401  # registers

    PAGE.write_text(text())
