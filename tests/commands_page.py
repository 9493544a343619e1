"""The rows of docs/commands.md, read off the parsers: ``python tests/commands_page.py``."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Iterator

from commands import REPOSITORY
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY as CRITERIONS
from parsers import OURS, parser_of

from collab_common import ATTENTION_TYPES
from fairseq_collab.models.options import CacheOptions, FeedForwardOptions
from fairseq_collab.models.separate_heads import HeadSizeOptions, SeparateOptions
from fairseq_collab.models.variants import VARIANTS

PAGE = REPOSITORY / "docs" / "commands.md"
#: Options that each attention type has are listed once, as ``-in-TYPE``.
OF_TYPES = re.compile("[-_]in[-_](encoder|decoder|cross)$")


def command_rows() -> Iterator[tuple[str, ...]]:
    """Commands, their arguments and the names of their options; brackets: may be absent."""
    for name, about in OURS.items():
        parser, _ = parser_of(name)
        places, words = [], []
        for action in parser._actions:
            option = OF_TYPES.sub("-in-TYPE", "".join(action.option_strings[-1:]))
            if not option:
                places.append(parser._get_formatter()._format_args(action, action.dest.upper()))
            elif action.help != argparse.SUPPRESS and option not in ("--help", "--force"):
                words.append(option if action.required else f"[{option}]")
        yield f"**{name}**", f"`{' '.join(dict.fromkeys([*places, *words]))}`", about


def option_rows() -> Iterator[tuple[str, ...]]:
    """Architectures and criteria with the options that others do not have."""
    yield "**every `--arch` of this project**", ""
    yield from rows_of(CacheOptions, FeedForwardOptions)
    stock = CRITERIONS["label_smoothed_cross_entropy"]
    names = [f"label_smoothed_cross_entropy_with_head_{part}" for part in ("groups", "gates")]
    kinds = [(f"--arch transformer_{one.name}", one.options, SeparateOptions) for one in VARIANTS]
    for name, kind, usual in [*kinds, *((f"--criterion {n}", CRITERIONS[n], stock) for n in names)]:
        is_sized = issubclass(kind, HeadSizeOptions) and kind != usual
        yield f"**`{name}`**", "and the options of `transformer_headsize_n`" * is_sized
        known = {one.name for one in dataclasses.fields(usual) if is_sized or usual is stock}
        yield from rows_of(kind, known=known)


def rows_of(*kinds: type, known: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """The options of some classes; one that each attention type has is one row."""
    every = [one for kind in kinds for one in dataclasses.fields(kind) if "help" in one.metadata]
    number = Counter(OF_TYPES.sub("-in-TYPE", one.name) for one in every)
    rows = {}
    for one in every:
        name, said = one.name, one.metadata["help"]
        if number[OF_TYPES.sub("-in-TYPE", name)] == len(ATTENTION_TYPES):
            name = OF_TYPES.sub("-in-TYPE", name)
            said = said.replace("encoder self-attention", "the attention type")
        if one.default not in (None, dataclasses.MISSING) and "default" not in said:
            said += f" (default: {one.default})"
        if one.name not in known:
            rows.setdefault(f"`--{name.replace('_', '-')}`", said)
    yield from rows.items()


def table(rows: Iterator[tuple[str, ...]]) -> str:
    cells = ([" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows)
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def text() -> str:
    """The page with other rows; what is around the tables was typed."""
    first, second, rest = re.split(r"(?<=---\|\n)(?:\|.*\n)*", PAGE.read_text())
    return first + table(command_rows()) + second + table(option_rows()) + rest


if __name__ == "__main__":
    PAGE.write_text(text())
