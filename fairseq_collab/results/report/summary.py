"""The method table of a report as Markdown, for a terminal or another page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairseq_collab.results.page import decimals
from fairseq_collab.results.report.words import between, interval_text, row_text, whole

Content = Mapping[str, Any]
HEADS = (
    "row, method", "runs in", "seeds", "BLEU (95 %)", "SD", "chrF", "parameters", "multiply-adds",
    "key-cache bytes, self / cross", "training tokens/s", "epochs",
)  # fmt: skip


def methods(section: Content) -> list[str]:
    """A row a model, numbered as on the page; the units are those of the page's own table."""
    rows = [HEADS, ("---", "---", *["---:"] * (len(HEADS) - 2)), *map(_row, section["rows"])]
    return [f"| {' | '.join(row)} |" for row in rows]


def _row(row: Content) -> list[str]:
    caches = ("key_bytes_per_target_token", "key_bytes_per_source_token")
    epochs = between(row["epochs"])
    return [
        row_text(row),
        row["experiment"],
        ", ".join(map(str, row["seeds"])),
        interval_text(row["bleu"]),
        decimals(row["bleu"]["sd"]),
        decimals(row["chrf"]["mean"]),
        whole(row["parameters"]),
        whole(row["multiply_adds"]),
        " / ".join(whole(row[cache]) for cache in caches),
        whole(row["train_tokens_per_second"]),
        f"{epochs} more" if row["fine_tuned"] else epochs,
    ]
