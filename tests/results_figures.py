"""Draws the figures of ``results/`` again, each from the JSON that stands beside it.

    python tests/results_figures.py

Figures of other commands are theirs: ``heads``, ``bench --report``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from fairseq_collab.results.figure import draw
from fairseq_collab.results.names import METHODS
from fairseq_collab.results.rows import Finished, Row
from fairseq_collab.results.table_content import Table, table_of

RESULTS = Path(__file__).parent.parent / "results"
KEYS = {
    "collab": "shared keys (collaborative heads)",
    "concatenated": "separate keys (concatenated heads)",
}
SMALL = "Multi30k, d = 128"


@dataclass(frozen=True)
class Drawn:
    """A figure of one table, or of several with a line each.

    Attributes:
        content: the JSON, without its ending.
        tables: names of tables there; of several, what the legend calls each.
        names: what the legend calls methods or rows, where it is not their usual name.
    """

    content: str
    tables: dict[str, str]
    title: str
    names: dict[str, str] = field(default_factory=dict)

    def read(self) -> list[Table]:
        tables = json.loads((RESULTS / f"{self.content}.json").read_text())["tables"]
        return [table_of(tables[name]) for name in self.tables]

    def png(self) -> bytes:
        tables = self.read()
        if len(tables) > 1:
            rows = by_heads(zip(self.tables.values(), tables, strict=True))
            return draw(rows, "heads that are left (mean over seeds)", self.title)["figure.png"]
        (table,) = tables
        return draw(table.rows, table.noun, self.title, names=METHODS | self.names)["figure.png"]


def by_heads(tables: Iterable[tuple[str, Table]]) -> list[Row]:
    """A point is a model, at the mean over seeds of its number of heads."""

    def heads(run: Finished) -> int:
        return sum(map(sum, (run.record.heads_by_site or {}).values()))

    rows = []
    for label, table in tables:
        for row in table.rows:
            left = fmean(map(heads, row.runs))
            rows.append(Row(label, "", int(left) if left.is_integer() else left, row.runs))
    return rows


FIGURES = {
    "key_dim_large_multi30k": Drawn(
        "key_dim_multi30k", {"large": ""}, "Multi30k, d = 256, 12 epochs: BLEU against K", KEYS
    ),
    "key_dim_multi30k": Drawn(
        "key_dim_multi30k", {"main": ""}, f"{SMALL}, 6 epochs: BLEU against K", KEYS
    ),
    "manuals": Drawn("manuals", {"main": ""}, "Software manuals, d = 128: BLEU against K", KEYS),
    "equal_cache_multi30k": Drawn(
        "equal_cache_multi30k", {"scratch": ""}, f"{SMALL}: BLEU against the decoder's cache"
    ),
    "grouped_heads_multi30k": Drawn(
        "grouped_heads_multi30k",
        {"tuned": ""},
        f"{SMALL}: 2 of 8 heads left, fine-tuned",
        {"concatenated": "ordinary heads, all 8"},
    ),
    "head_size_multi30k": Drawn(
        "head_size_multi30k",
        {"main": ""},
        f"{SMALL}: heads of size d/H and of a fixed size",
        {
            "size-d/H, encoder_attention_heads=4": "4 heads of size d/H = 32",
            "size-d/H, encoder_attention_heads=16": "16 heads of size d/H = 8",
            "size-d/H-wide, encoder_attention_heads=16": "16 heads of size 8, wider feed-forward",
            "size-32, encoder_attention_heads=16": "16 heads of size 32",
        },
    ),
}


def main() -> None:
    for name, figure in FIGURES.items():
        (RESULTS / f"{name}.png").write_bytes(figure.png())


if __name__ == "__main__":
    main()
