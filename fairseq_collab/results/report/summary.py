"""The method table of a report as Markdown, for a terminal or another page."""

from __future__ import annotations

from fairseq_collab.results.html import render
from fairseq_collab.results.report import words


def methods(section: words.Content) -> list[str]:
    """A row a model, numbered as on the page; the units are those of the page's own table."""
    return render("report_methods.md.j2", rows=section["rows"], words=words).splitlines()
