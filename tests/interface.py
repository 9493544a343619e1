"""What users can write: commands, tools, their options, architectures, criterions, configurations.

``stored/interface.json`` is what :func:`interface` gave at an earlier version. All is reached
as a user reaches it (``fairseq-collab NAME --help``, ``python -m NAME --help``, fairseq's
registries), so no module's name inside matters.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import enum
import io
import re
import runpy
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

REPOSITORY = Path(__file__).parent.parent
Content = dict[str, Any]
#: The names of the attention variants' architectures and criterions.
_OURS = re.compile(r".*(_collab|_headsize_n|_grouped_heads|_gated_heads|_head_groups|_head_gates)")
_PRESET = re.compile(rf"({_OURS.pattern})(_\w+)")


def interface(tools: list[str]) -> Content:
    """All of it.

    Args:
        tools: modules for ``python -m``.
    """
    return {
        "commands": {name: command_options(name) for name in commands()},
        "tools": {name: tool_options(name) for name in tools},
        "models": models(),
        "criterions": criterions(),
        "configs": sorted(
            str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "configs").rglob("*.yaml")
        ),
    }


def commands() -> list[str]:
    """The commands that ``fairseq-collab --help`` lists."""
    from collab_common import main as fairseq_collab_main

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        fairseq_collab_main.main(["--help"])
    found = re.findall(r"^  ([\w-]+) ", printed.getvalue(), re.MULTILINE)
    return [name for name in found if name != "data"]  # a group: its members are tools, too


def command_options(name: str) -> Content:
    """The options of ``fairseq-collab NAME``, where NAME may be ``data NAME``."""
    from collab_common import main as fairseq_collab_main

    return helped(lambda: fairseq_collab_main.main([*name.split(), "--help"]), name)


def tool_options(name: str) -> Content:
    """The options of ``python -m NAME``."""

    def start() -> None:
        with mock.patch.object(sys, "argv", [name, "--help"]), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # it may be imported already
            runpy.run_module(name, run_name="__main__", alter_sys=True)

    return helped(start, name)


def helped(start: Callable[[], object], name: str) -> Content:
    """The options of the parser that answers ``--help``."""
    parsers: list[argparse.ArgumentParser] = []

    def keep(self: argparse.ArgumentParser, _file: Any = None) -> None:
        self.format_help()  # it must be printable
        parsers.append(self)

    with (
        mock.patch.object(argparse.ArgumentParser, "print_help", keep),
        contextlib.suppress(SystemExit),
    ):
        start()
    if len(parsers) != 1:
        raise LookupError(f"{name} --help: {len(parsers)} parsers answer")
    return dict(actions(parsers[0]))


def actions(parser: argparse.ArgumentParser) -> Iterator[tuple[str, Content]]:
    """Each option by all its spellings, each argument by its name."""
    for action in parser._actions:
        found: Content = {"default": simple(action.default)}
        if action.choices:
            found["choices"] = [*map(str, action.choices)]
        yield ", ".join(action.option_strings) or action.dest, found


def simple(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, (bool, int, float, type(None))):
        return value
    if isinstance(value, enum.Enum):
        return simple(value.value)
    if isinstance(value, (list, tuple)):
        return [simple(one) for one in value]
    return str(value)


def models() -> Content:
    """Options of each architecture; of a preset, what differs from the plain one."""
    from fairseq.models import MODEL_DATACLASS_REGISTRY

    import fairseq_collab  # noqa: F401  (registers them)

    found = {
        name: options(kind) for name, kind in MODEL_DATACLASS_REGISTRY.items() if _OURS.match(name)
    }
    for name in sorted(found, reverse=True):
        if preset := _PRESET.fullmatch(name):
            plain = found[preset[1]]
            found[name] = {k: v for k, v in found[name].items() if plain.get(k, "") != v}
    return found


def criterions() -> Content:
    """Options of each criterion."""
    from fairseq.criterions import CRITERION_DATACLASS_REGISTRY

    import fairseq_collab  # noqa: F401  (registers them)

    known = CRITERION_DATACLASS_REGISTRY.items()
    return {name: options(kind) for name, kind in known if _OURS.match(name)}


def options(kind: Any) -> Content:
    """The fields of a configuration with their defaults."""
    content = kind()
    return {field.name: simple(getattr(content, field.name)) for field in dataclasses.fields(kind)}


def removals(before: Any, now: Any, where: str = "") -> Iterator[str]:
    """What is no longer as it was, a line each; what was added does not matter."""
    if isinstance(before, dict):
        for name, content in before.items():
            path = f"{where} {name}".strip()
            if name in now:
                yield from removals(content, now[name], path)
            else:
                yield f"{path}: is gone"
    elif isinstance(before, list) and where.endswith(("choices", "configs")):
        yield from (f"{where} {one}: is gone" for one in before if one not in now)
    elif before != now:
        yield f"{where}: was {before!r}, is {now!r}"
