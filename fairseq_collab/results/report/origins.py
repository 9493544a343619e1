"""Where the numbers come from: every run, and the commands that started them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fairseq_collab.results.report.find import command_text
from fairseq_collab.results.report.matrix import DIGITS

Content = dict[str, Any]


def of_run(row: int, name: str, facts: Content) -> Content:
    """A run, by what its ``score.json`` says."""
    return {
        "row": row,
        "name": name,
        "seed": facts["seed"],
        "bleu": round(facts["bleu"], DIGITS),
        "chrf": round(facts["chrf"], DIGITS),
        "valid_loss": facts["valid_loss"],
        "updates": facts["train_updates"],
        "epochs": facts["epochs"],
        "averaged": len(facts["averaged"]),
        "beam": facts["beam"],
        "lenpen": facts["lenpen"],
        "date": facts["date"],
        "trained_at_commit": facts.get("trained_at_commit"),
        "scored_at_commit": facts["commit"],
        "hardware": facts["hardware"],
        "versions": facts["versions"],
    }


def commands(runs: Iterable[tuple[str, Content]]) -> list[Content]:
    """Every command that started runs, with their names.

    Args:
        runs: names and what their ``score.json`` say
    """
    found: dict[str, list[str]] = {}
    for name, facts in runs:
        text = command_text(facts.get("command")) or "not recorded"
        found.setdefault(text, []).append(name)
    return [{"command": text, "runs": sorted(names)} for text, names in sorted(found.items())]
