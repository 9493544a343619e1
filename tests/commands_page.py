"""docs/commands.md, read off the parsers: ``python tests/commands_page.py`` writes it."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from commands import REPOSITORY
from parsers import OURS, parser_of

PAGE = REPOSITORY / "docs" / "commands.md"
HEADER = """\
# Commands and options

`python tests/commands_page.py` writes this page from the parsers. What an option does:
`fairseq-collab COMMAND --help`. A command overwrites a result only with `--force`. `-in-TYPE` is
`-in-encoder` or `-in-decoder` (self-attention) or `-in-cross` (cross-attention).

| `fairseq-collab` | arguments and options | |
|---|---|---|
"""
ARCHITECTURES = """
## Options of the architectures

`fairseq-train` has these options, and Hydra has them under `model.` (`model.key_dim`).

| architecture or criterion, option | |
|---|---|
"""


def row(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |\n"


def of_types(option: str) -> str:
    """An option that each attention type has, once; of the others nothing."""
    if re.search("[-_]in[-_](decoder|cross)$", option):
        return ""
    return re.sub("[-_]in[-_]encoder$", "-in-TYPE", option)


def command_row(name: str, about: str) -> str:
    """A command, its arguments and the names of its options; brackets: may be absent."""
    parser, _ = parser_of(name)
    places, words = [], []
    for action in parser._actions:
        option = of_types(action.option_strings[-1]) if action.option_strings else ""
        if action.help == argparse.SUPPRESS or option in ("--help", "--force"):
            continue
        if not action.option_strings:
            places.append(parser._get_formatter()._format_args(action, action.dest.upper()))
        elif option:
            words.append(option if action.required else f"[{option}]")
    return row(f"**{name}**", f"`{' '.join([*places, *words])}`", about)


def option_rows(kind: Any, *others: Any) -> Iterator[str]:
    """Options of a dataclass that others do not have, as rows."""
    known = {field.name for other in others for field in dataclasses.fields(other)}
    for field in dataclasses.fields(kind):
        option = of_types(field.name)
        if option and field.name not in known and "help" in field.metadata:
            said = field.metadata["help"].replace("encoder self-attention", "the attention type")
            if field.default not in (None, dataclasses.MISSING) and "default" not in said:
                said += f" (default: {field.default})"
            yield row(f"`--{option.replace('_', '-')}`", said)


def text() -> str:
    """The whole page."""
    from fairseq.criterions import CRITERION_DATACLASS_REGISTRY as CRITERIONS

    from fairseq_collab.models.separate_heads import HeadSizeOptions, SeparateOptions
    from fairseq_collab.models.variants import VARIANTS

    page = HEADER + "".join(command_row(*one) for one in OURS.items()) + ARCHITECTURES
    for variant in VARIANTS:
        name, kind = f"--arch transformer_{variant.name}", variant.options
        known = [SeparateOptions] * (issubclass(kind, HeadSizeOptions) and kind != SeparateOptions)
        more = "and the options of `transformer_headsize_n`" * bool(known)
        page += row(f"**`{name}`**", more) + "".join(option_rows(kind, *known))
    for part in ("groups", "gates"):
        name = f"label_smoothed_cross_entropy_with_head_{part}"
        usual = CRITERIONS["label_smoothed_cross_entropy"]
        page += row(f"**`--criterion {name}`**", "") + "".join(option_rows(CRITERIONS[name], usual))
    return page


if __name__ == "__main__":
    import fairseq_collab  # noqa: F401  # registers

    PAGE.write_text(text())
