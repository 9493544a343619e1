"""Tables of runs as they are kept in JSON beside a page: the runs' facts, and the p of their tests.

Pages are rendered from it without the runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairseq_collab.results import against
from fairseq_collab.results.rows import Finished, rows
from fairseq_collab.results.table_content import Table
from fairseq_collab.runs.record import Record

#: Of ``score.json``: commands and paths say nothing that a table shows.
LEFT_OUT = ("command", "reference", "hypotheses")


def content_of(table: Table, subset: str | None = None) -> dict[str, Any]:
    """A table as it stands in the JSON; ``subset`` as of ``read_table``."""
    return {
        "x": table.x,
        **({"gen_subset": subset} if subset else {}),
        "baseline": table.baseline,
        "runs": {
            run.name: {name: fact for name, fact in run.facts.items() if name not in LEFT_OUT}
            for run in table.finished
        },
        "p": {
            run.name: dict(found.p)[run.record.seed]
            for found in table.differences
            for run in found.row.runs
        },
    }


def table_of(content: dict[str, Any], command: str = "") -> Table:
    """The table again; only its p values are taken over, all else is computed."""
    subset = content.get("gen_subset")
    finished = [  # earlier files do not say that they are of version 1
        Finished(Path(name), Record.of({"version": 1, **facts}, Path(name)), subset)
        for name, facts in content["runs"].items()
    ]
    found, without_x = rows(finished, content["x"])
    baseline, p = content["baseline"], content["p"]
    return Table(
        x=content["x"],
        rows=found,
        finished=[run for run in finished if run not in without_x],
        unfinished=[],
        without_x=without_x,
        baseline=baseline,
        differences=against.differences(found, baseline, lambda _, ours: p[ours.name])
        if baseline
        else [],
        command=command,
    )
