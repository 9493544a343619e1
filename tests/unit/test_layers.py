"""Who may import whom: dependencies point one way, read off the sources, functions included.

The laboratory imports the plug-in, the plug-in imports compat, all import common; ``data_prep``
imports common alone.  A room imports only rooms that come before it in :data:`ROOMS`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
#: Each package, and which others it may import.
PACKAGES = {
    "collab_common": set(),
    "fairseq_compat": {"collab_common"},
    "data_prep": {"collab_common"},
    "fairseq_collab": {"collab_common", "fairseq_compat"},
    "collab_lab": {"collab_common", "fairseq_compat", "fairseq_collab", "data_prep"},
}
#: The rooms of the plug-in and of the laboratory, each before those that may import it.
ROOMS = {
    "fairseq_collab": ("attention", "cpu_kernels", "decoding", "models", "criterions"),
    "collab_lab": (
        "trained",
        "metrics",
        "statistics",
        "mathematics",
        "refitting",
        "shrinking",
        "hugging_face",
        "heads",
        "export",
        "runs",
        "results",
        "clock",
        "cli",
    ),
}


@pytest.fixture(scope="module")
def imported() -> dict[str, set[str]]:
    """Full names of all modules that each module imports, in functions, too, and of what they hold.

    ``from a import b`` gives ``a`` and ``a.b``: whether ``b`` is a module does not show.
    """
    found = {}
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            module = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
            names = found[module.removesuffix(".__init__")] = set[str]()
            tree = ast.parse(path.read_text())
            if path.name == "__init__.py":  # its lazy functions, typed: nothing is imported
                tree.body = [node for node in tree.body if not _is_for_types(node)]
            for node in ast.walk(tree):
                if isinstance(node, ast.Import):
                    names |= {name.name for name in node.names}
                elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
                    "import_module"
                ):  # by a string
                    names |= {one.value for one in node.args if isinstance(one, ast.Constant)}
                elif isinstance(node, ast.ImportFrom):
                    home = node.module or ""
                    if node.level:  # in compat alone, which has no packages in it
                        home = ".".join([package, *([home] if home else [])])
                    names |= {home, *(f"{home}.{name.name}" for name in node.names)}
    return found


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def within(names: Iterable[str], package: str) -> set[str]:
    return {name for name in names if name == package or name.startswith(f"{package}.")}


def test_attention_knows_torch_only(imported: dict[str, set[str]]) -> None:
    allowed = {"torch", "fairseq_collab.attention", *sys.stdlib_module_names}
    for module in within(imported, "fairseq_collab.attention"):
        for name in imported[module]:
            assert any(within([name], package) for package in allowed), (module, name)


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_import_only_those_before_them(imported: dict[str, set[str]], package: str) -> None:
    rooms = [f"{package}.{room}" for room in ROOMS[package]]
    assert within(imported, package) == {package}.union(*(within(imported, room) for room in rooms))
    for number, room in enumerate(rooms):
        for module in within(imported, room):
            assert not [one for one in rooms[number + 1 :] if within(imported[module], one)], module


def test_modules_do_not_import_each_other_in_circles(imported: dict[str, set[str]]) -> None:
    graph = {
        module: {name for name in names if name in imported and name != module}
        for module, names in imported.items()
    }
    packages = {m for m in imported if any(n.startswith(f"{m}.") for n in imported)}
    alone = {m: names - packages for m, names in graph.items() if m not in packages}
    list(TopologicalSorter(alone).static_order())  # a CycleError names the modules


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_those_they_may(imported: dict[str, set[str]], package: str) -> None:
    for module in within(imported, package):
        for other in PACKAGES.keys() - PACKAGES[package] - {package}:
            assert not within(imported[module], other), module


def reached(imported: dict[str, set[str]], module: str) -> set[str]:
    """All that importing a module may import, and so on: packages run their ``__init__``."""
    found, todo = set[str](), {module}
    while todo:
        found |= todo
        names = {name for one in todo for name in imported.get(one, ())} | {
            ".".join(parts[:length])
            for parts in (one.split(".") for one in todo)
            for length in range(1, len(parts))
        }
        todo = names - found
    return found


def test_scores_need_no_preparation_of_text(imported: dict[str, set[str]]) -> None:
    found = reached(imported, "collab_lab.runs.score")
    assert {"collab_common.errors", "collab_lab.trained.checkpoint", "fairseq"} <= found
    assert not within(found, "data_prep")
