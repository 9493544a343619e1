"""Nothing that users could write at the time of ``stored/interface.json`` is lost."""

from __future__ import annotations

import json

from commands import REPOSITORY
from interface import interface, removals

BEFORE = json.loads((REPOSITORY / "tests" / "stored" / "interface.json").read_text())
#: What has changed on purpose, and stands in CHANGELOG.md.
CHANGED = {
    f"criterions {criterion}_with_head_groups group_normalisation: was 'paper', is 'released'"
    for criterion in ("label_smoothed_cross_entropy", "adaptive_loss")
} | {
    f"models {family}collab mixing_init: was 'xavier', is 'block'"
    for family in ("transformer_", "transformer_lm_", "roberta_")
}


def test_nothing_is_lost() -> None:
    """More commands, options, choices and architectures are welcome."""
    lost = [line for line in removals(BEFORE, interface([*BEFORE["tools"]])) if line not in CHANGED]
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
