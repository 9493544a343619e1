"""Who may import whom: dependencies point one way, read off the sources.

    cli -> evaluation -> pruning -> analysis -> models -> attention -> torch
    cli -> reparametrize -> models;  adapters -> reparametrize

What several of them need stands beside them, in modules of ``fairseq_collab`` itself.
``fairseq_compat`` knows nothing of the rest, ``data_prep`` nothing of ``fairseq_collab``.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("fairseq_collab", "fairseq_compat", "data_prep")
#: Commands on trained models and runs.
TOOLS = {"analysis", "pruning", "reparametrize", "evaluation", "adapters"}


def imports(source: str, module: str, is_package: bool = False) -> Iterator[str]:
    """Full names of all modules that a module imports, in functions, too, and of what they hold.

    ``from a import b`` gives ``a`` and ``a.b``: whether ``b`` is a module does not show.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = node.module or ""
            if node.level:
                parts = module.split(".")
                above = parts[: len(parts) - node.level + is_package]
                home = ".".join([*above, *([home] if home else [])])
            yield home
            yield from (f"{home}.{name.name}" for name in node.names)


@pytest.fixture(scope="module")
def imported() -> dict[str, set[str]]:
    """What each module of the three packages imports."""
    found = {}
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            parts = path.relative_to(REPOSITORY).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            module = ".".join(parts[:-1] if is_package else parts)
            found[module] = set(imports(path.read_text(), module, is_package))
    return found


def within(names: Iterable[str], package: str) -> set[str]:
    return {name for name in names if name == package or name.startswith(f"{package}.")}


def layer(name: str) -> str | None:
    """The part of ``fairseq_collab`` that a name is in: ``attention``, ``options``, ..."""
    parts = name.split(".")
    return parts[1] if parts[0] == "fairseq_collab" and len(parts) > 1 else None


def edges(imported: dict[str, set[str]]) -> dict[str, set[str]]:
    """Which parts of ``fairseq_collab`` each part imports."""
    found: dict[str, set[str]] = {}
    for module, names in imported.items():
        if (home := layer(module)) is not None:
            others = {other for name in names if (other := layer(name))} - {home}
            found.setdefault(home, set()).update(others)
    return found


def test_attention_knows_torch_only(imported: dict[str, set[str]]) -> None:
    allowed = {"torch", "fairseq_collab.attention", *sys.stdlib_module_names}
    for module in within(imported, "fairseq_collab.attention"):
        outside = {
            name
            for name in imported[module]
            if not any(within([name], package) for package in allowed)
        }
        assert not outside, module


def test_models_and_criterions_know_no_tool(imported: dict[str, set[str]]) -> None:
    found = edges(imported)
    assert found["models"] == {"attention"}
    assert found["criterions"] <= {"attention", "models"}


def test_no_two_parts_import_each_other(imported: dict[str, set[str]]) -> None:
    order = list(TopologicalSorter(edges(imported)).static_order())  # a CycleError names the parts
    tools = sorted(TOOLS, key=order.index)
    assert order.index("attention") < order.index("models") < order.index(tools[0])


def test_shared_modules_know_no_tool(imported: dict[str, set[str]]) -> None:
    shared = [module for module in within(imported, "fairseq_collab") if module.count(".") == 1]
    alone = {layer(module) for module in shared} - TOOLS
    found = edges(imported)
    assert {"bleu", "figure_style", "options", "progress", "provenance"} <= alone
    assert not [(one, found[one] & TOOLS) for one in alone if found[one] & TOOLS]


def test_commands_are_modules_that_exist() -> None:
    """``cli`` names modules in strings, which are imported when they are called."""
    cli = importlib.import_module("fairseq_collab.cli")
    for command in cli.COMMANDS.values():
        assert (REPOSITORY / command.module.replace(".", "/")).with_suffix(".py").is_file()


def test_compat_knows_nothing_of_the_rest(imported: dict[str, set[str]]) -> None:
    for module in within(imported, "fairseq_compat"):
        assert not within(imported[module], "fairseq_collab"), module
        assert not within(imported[module], "data_prep"), module


def test_data_prep_knows_nothing_of_the_plug_in(imported: dict[str, set[str]]) -> None:
    for module in within(imported, "data_prep"):
        assert not within(imported[module], "fairseq_collab"), module


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import fairseq_collab.pruning.votes as v", "fairseq_collab.pruning.votes"),
        ("from fairseq_collab import pruning", "fairseq_collab.pruning"),
        ("from fairseq_collab.pruning import votes", "fairseq_collab.pruning"),
        ("from ..pruning import votes", "fairseq_collab.pruning"),
        ("from .. import pruning", "fairseq_collab.pruning"),
        ("def f():\n    from fairseq_collab import pruning", "fairseq_collab.pruning"),
    ],
)
def test_every_form_of_import_is_seen(source: str, name: str) -> None:
    assert name in set(imports(source, "fairseq_collab.models.base"))


def test_a_cycle_is_seen() -> None:
    one, other = "fairseq_collab.pruning.votes", "fairseq_collab.evaluation.run"
    with pytest.raises(CycleError):
        test_no_two_parts_import_each_other({one: {other}, other: {one}})
