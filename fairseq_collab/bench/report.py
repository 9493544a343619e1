"""Runs of a benchmark as Markdown, through templates of :mod:`fairseq_collab.results`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collab_common.errors import UserError
from collab_common.files import read_versioned
from fairseq_collab.bench.run import VERSION
from fairseq_collab.results.pages import TEMPLATES, environment


def read(path: Path) -> dict[str, Any]:
    """A JSON file of ``fairseq-collab bench``.

    Raises:
        UserError: it is none.
    """
    todo = "give what fairseq-collab bench --out wrote"
    found = read_versioned(path, VERSION, "results of a benchmark", todo)
    if "records" not in found:
        raise UserError("it has no records", path, todo)
    return found


def markdown(template: str, **values: Any) -> str:
    """What a packaged template makes of runs, or of decoding speeds."""
    return environment(TEMPLATES, TEMPLATES).get_template(template).render(**values)
