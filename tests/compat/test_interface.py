"""Nothing that users could write at the time of ``stored/interface.json`` is lost."""

from __future__ import annotations

import json

from commands import REPOSITORY
from interface import interface, removals

BEFORE = json.loads((REPOSITORY / "tests" / "stored" / "interface.json").read_text())


def test_nothing_is_lost() -> None:
    """More commands, options, choices and architectures are welcome."""
    lost = [*removals(BEFORE, interface([*BEFORE["tools"]]))]
    assert not lost, "\n".join(["", *lost])


def test_a_removal_is_named_and_an_addition_is_none() -> None:
    before = {
        "commands": {"score": {"--json": {"default": False}, "--to": {"choices": ["a", "b"]}}},
        "configs": ["configs/base.yaml"],
    }
    now = {
        "commands": {"score": {"--json": {"default": True}, "--to": {"choices": ["b", "c"]}}},
        "models": {"new": {}},
        "configs": [],
    }
    assert [*removals(before, now)] == [
        "commands score --json default: was False, is True",
        "commands score --to choices a: is gone",
        "configs configs/base.yaml: is gone",
    ]
    assert [*removals({"commands": {"table": {}}}, {"commands": {}})] == ["commands table: is gone"]
