"""docs/commands.md, read off the parsers: ``python tests/commands_page.py`` writes it."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from command_checks import OURS, parser_of
from commands import REPOSITORY

from collab_lab.cli.main import COMMANDS

PAGE = REPOSITORY / "docs" / "commands.md"
HEADER = """\
# Commands and options

`python tests/commands_page.py` writes this page from the parsers. Every command has `--help`, and
overwrites a result only with `--force`. [Train](train.md) and [trained models](trained_models.md)
show how the commands go together. Options that several commands have close the first table.

## fairseq-collab

| command, option | |
|---|---|
"""
ARCHITECTURES = """
## Options of the architectures

`fairseq-train` has these options, and Hydra has them under `model.` (`model.key_dim`). `-in-TYPE`
stands for `-in-encoder` and `-in-decoder` (self-attention) and `-in-cross` (cross-attention).

| architecture or criterion, option | |
|---|---|
"""


def cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def row(*cells: str) -> str:
    return "| " + " | ".join(map(cell, cells)) + " |"


def command_rows(name: str, summary: str) -> Iterator[str]:
    """A command, its arguments, and its options."""
    parser, _ = parser_of(name)
    formatter = parser._get_formatter()
    actions = [one for one in parser._actions if one.help != argparse.SUPPRESS]
    places = [one for one in actions if not one.option_strings]
    shown = " ".join(formatter._format_args(one, one.dest.upper()) for one in places)
    yield row(f"**`{f'fairseq-collab {name} {shown}'.strip()}`**", summary)
    for action in actions:
        option = of_types(action.option_strings[-1] if action.option_strings else "")
        if option not in ("", "--force", "--help"):
            value = formatter._format_args(action, action.dest.upper()) if action.nargs != 0 else ""
            said = formatter._expand_help(action) if action.help else ""
            needed = " (required)" if action.required else ""
            yield row(f"`{f'{option} {value}'.strip()}`", said + needed)
        elif not action.option_strings and action.help:
            yield row(f"`{formatter._format_args(action, action.dest.upper())}`", action.help)


def of_types(option: str) -> str:
    """An option that each attention type has, once; of the others nothing."""
    if re.search("[-_]in[-_](decoder|cross)$", option):
        return ""
    return re.sub("[-_]in[-_]encoder$", "-in-TYPE", option)


def option_rows(
    name: str, fields: Iterable[dataclasses.Field[Any]], more: str = ""
) -> Iterator[str]:
    """Options of fairseq-train: the fields of a dataclass."""
    yield row(f"**`{name}`**", more)
    for field in fields:
        option, default = of_types(field.name), field.default
        said = field.metadata["help"]
        if option != field.name:
            said = said.replace("encoder self-attention", "the attention type")
        if default not in (None, dataclasses.MISSING) and "default" not in said:
            said += f" (default: {default})"
        if option:
            yield row(f"`--{option.replace('_', '-')}`", said)


def new_fields(kind: Any, *others: Any) -> list[dataclasses.Field[Any]]:
    """The options of a dataclass that others do not have."""
    known = {field.name for other in others for field in dataclasses.fields(other)}
    fields = dataclasses.fields(kind)
    return [one for one in fields if one.name not in known and "help" in one.metadata]


def architecture_rows() -> Iterator[str]:
    from fairseq.criterions import CRITERION_DATACLASS_REGISTRY as CRITERIONS

    from fairseq_collab.models.separate_heads import HeadSizeOptions as Sizes
    from fairseq_collab.models.separate_heads import SeparateOptions as Separate
    from fairseq_collab.models.variants import VARIANTS

    for variant in VARIANTS:
        name, more = f"--arch transformer_{variant.name}", ""
        known = [Separate] * (issubclass(variant.options, Sizes) and variant.options != Separate)
        if known:
            initial = "" if issubclass(variant.options, Separate) else " but for initial values"
            more = f"and the options of `transformer_headsize_n`{initial}"
        yield from option_rows(name, new_fields(variant.options, *known), more)
    usual = CRITERIONS["label_smoothed_cross_entropy"]
    for part in ("groups", "gates"):
        name = f"label_smoothed_cross_entropy_with_head_{part}"
        yield from option_rows(f"--criterion {name}", new_fields(CRITERIONS[name], usual))


@functools.cache
def text() -> str:
    """The whole page."""
    rows = {name: [*command_rows(name, about)] for name, about in OURS.items()}
    rows["configs"] = [row("**`fairseq-collab configs`**", COMMANDS["configs"])]
    uses: dict[str, list[str]] = {}
    for name, lines in rows.items():
        for line in lines:
            uses.setdefault(line, []).append(name)
    shared = {line: names for line, names in uses.items() if len(names) > 2}
    commands = [line for lines in rows.values() for line in lines if line not in shared]
    commands.append(row("**several commands**", ""))
    commands += [f"{line[:-2]} ({', '.join(names)}) |" for line, names in shared.items()]
    body = HEADER + "\n".join(commands) + "\n" + ARCHITECTURES
    return body + "\n".join(architecture_rows()) + "\n"


if __name__ == "__main__":
    import fairseq_collab  # noqa: F401  # registers

    PAGE.write_text(text())
