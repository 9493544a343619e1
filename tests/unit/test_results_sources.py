"""Every page of ``results/`` says where its numbers come from; every file there has its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import REPOSITORY
from documents import PAGES, RESULTS, links, name_of
from results_figures import FIGURES

from fairseq_collab.results.names import METHODS, named

FOLDER = REPOSITORY / "results"
#: Pages without results of their own.
INDEXES = ("README.md",)

#: What each page with results must name.
NAMED = {
    "command": r"```bash|`fairseq-collab ",
    "commit": r"(?i)\b(commits?|-dirty\b)[^.]*\b[0-9a-f]{7,40}\b|\| commit +\|",
    "seed": r"(?i)\bseeds? *(\||\d)|\b(one|two) seeds?\b",
    "hardware": r"AMD EPYC|Intel Xeon",
    "date": r"\b20\d\d-\d\d-\d\d\b",
}
SIGNATURE = r"nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:[\d.]+"


@pytest.mark.parametrize("page", RESULTS, ids=name_of)
def test_pages_say_where_they_come_from(page: Path) -> None:
    text = page.read_text()
    missing = {name for name, pattern in NAMED.items() if not re.search(pattern, text)}
    assert not missing
    assert page.name in INDEXES or "BLEU" not in text or re.search(SIGNATURE, text)


def data_of(page: Path) -> set[str]:
    """The JSON and CSV that a page links to, or names as what it was made from."""
    linked = {link for link in links(page) if link.endswith((".json", ".csv"))}
    return linked | set(re.findall(r"results/(\S+\.json)", page.read_text()))


@pytest.mark.parametrize(
    "page", [page for page in RESULTS if page.name not in INDEXES], ids=name_of
)
def test_pages_name_their_data(page: Path) -> None:
    assert data_of(page)


def test_every_page_is_in_the_index() -> None:
    index = set(links(FOLDER / "README.md"))
    assert {page.name for page in RESULTS} - {"README.md"} <= index


def test_every_file_is_linked_to() -> None:
    found = {Path(link).name for page in PAGES for link in links(page)}
    found |= {name for page in RESULTS for name in data_of(page)}
    files = {path.name for path in FOLDER.iterdir() if path.suffix != ".j2"}
    assert files - found <= {"README.md"}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_name_methods_in_words(name: str) -> None:
    """Their legends have no names of folders, options or the program's own."""
    figure = FIGURES[name]
    assert (FOLDER / f"{name}.png").exists()
    for label, table in zip(figure.tables.values(), figure.read(), strict=True):
        shown = {label or named(row.label, METHODS | figure.names) for row in table.rows}
        assert not [text for text in shown if re.search(r"_|=\S|\bcollab\b|\bplain\b", text)]
