"""The page of ``fairseq-collab report``: ``report.json`` for people, the answer first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_collab.results.html import render
from fairseq_collab.results.report import charts, words
from fairseq_collab.results.report.answer import answers
from fairseq_collab.results.report.significance import LEVEL
from fairseq_collab.results.tables import versions_text

Content = Mapping[str, Any]
QUESTION = "Which model is the cheapest without a significant loss of quality?"


def report(content: Content) -> str:
    """The whole page; the same content gives the same page."""
    sections = sorted(content["sections"], key=lambda section: -len(section["runs"]))
    data = [_data(section, number, len(sections)) for number, section in enumerate(sections, 1)]
    links = [
        (f"{one['id']}-{part.lower()}", f"{part}: {one['name']}")
        for part in ("Answer", "Numbers")
        for one in data
    ]
    return render(
        "report.html.j2",
        title=QUESTION,
        sections=[*links, ("made", "How this page was made")],
        content=content,
        data=data,
        words=words,
        versions_text=versions_text,
        level=LEVEL,
    )


def summary(content: Content, out: Path) -> str:
    """For a terminal: the models of each data set as Markdown, as on the page; what was written."""
    return render("report.md.j2", content=content, words=words, out=out)


def _data(section: Content, number: int, of: int) -> dict[str, Any]:
    """What the page shows of a data set: its name, its answers with figures, what notes count."""
    texts, identity = words.row_texts(section["rows"]), f"data{number}"
    rows = [{**row, "text": texts[row["number"]]} for row in section["rows"]]
    section = {**section, "rows": rows}
    name = words.data_text(section) + (f" ({number})" if of > 1 else "")
    found = answers(section)
    methods = list(dict.fromkeys(words.method_text(row["method"]) for row in rows))
    settings = [part.partition("=")[0] for row in rows for part in row["variant"].split(", ")]
    validated = {
        one["row"]: [run["points"] for run in one["runs"] if len(run["points"]) > 1]
        for one in section["curves"]
    }
    for answer in found:
        budget, best, pick = answer["budget"], answer["best"], answer["pick"]
        names = f"{identity}-{budget['letter']}"
        title = f"{name}, trained for {words.budget_text(budget)}"
        answer["figure"] = answer["cost"] and charts.against_cost(answer, names, title)
        shown = [row["number"] for row in (best, pick) if row]
        lines = [(row, points) for row in answer["rows"] for points in validated[row["number"]]]
        answer["curves"] = lines and charts.learning_curves(lines, shown, f"{names}-curves", title)
    return {
        "id": identity,
        "name": name,
        "section": section,
        "rows": {row["number"]: row for row in rows},
        "methods": len(methods),
        "names": {
            **{name: words.label_text(name) for name in methods},
            **{name: words.setting_text(name) for name in settings},
        },
        "versions": sorted({versions_text(run["versions"]) for run in section["runs"]}),
        "answers": found,
        "tested": sum(len(test["seeds"]) for one in found for test in one["tests"].values()),
        # Of every training: whether its last validation was the best.
        "falling": [
            points[-1][1] <= min(loss for _, loss in points)
            for of_row in validated.values()
            for points in of_row
        ],
    }
