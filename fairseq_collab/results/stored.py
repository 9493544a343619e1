"""Tables of runs as they are kept in JSON beside a page: the runs' facts, and the p of their tests.

What ``fairseq-collab table --json FILE`` writes; pages are rendered from it without the runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairseq_collab.results import against
from fairseq_collab.results.rows import REQUIRED, Finished, rows
from fairseq_collab.results.table_content import Table

#: Of ``score.json``; what is left out (commands, paths) says nothing that a table shows.
FACTS = (*REQUIRED, "arch", "trained_at_commit")


def content_of(table: Table, subset: str | None = None) -> dict[str, Any]:
    """A table as it stands in the JSON; ``subset`` as of ``read_table``."""
    return {
        "x": table.x,
        **({"gen_subset": subset} if subset else {}),
        "baseline": table.baseline,
        "runs": {
            run.name: {name: run.facts[name] for name in FACTS if name in run.facts}
            for run in table.finished
        },
        "p": {
            run.name: dict(found.p)[run.facts["seed"]]
            for found in table.differences
            for run in found.row.runs
        },
    }


def table_of(content: dict[str, Any], command: str = "") -> Table:
    """The table again; only its p values are taken over, all else is computed."""
    subset = content.get("gen_subset")
    finished = [Finished(Path(name), facts, subset) for name, facts in content["runs"].items()]
    found, without_x = rows(finished, content["x"])
    p = content["p"]
    tested = (
        against.differences(found, content["baseline"], lambda _, ours: p[ours.name])
        if content["baseline"]
        else []
    )
    return Table(
        x=content["x"],
        rows=found,
        finished=[run for run in finished if run not in without_x],
        unfinished=[],
        without_x=without_x,
        baseline=content["baseline"],
        differences=tested,
        command=command,
    )
