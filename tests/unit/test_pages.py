"""Pages of results are what their templates and data make, and say where their numbers are from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import REPOSITORY
from documents import DOCS, README, RESULTS, links
from refusals import refusing

from collab_common.errors import UserError
from collab_lab.cli import pages as command
from collab_lab.results import pages

INDEX = REPOSITORY / "results" / "README.md"


CONTENTS = """
from pathlib import Path

from collab_common.files import read_json
from collab_lab.results.pages import Drawing, grid, num, pick, points

def one():
    rows = read_json(Path({json!r}))["rows"]
    table = grid(["K", "BLEU"], [["d", num(pick(rows, k={k})["bleu"], ".2f")]])
    drawing = Drawing("one.svg", "Title", "K", "BLEU", {{"ours": points(rows, "k", "bleu")}})
    return {{"table": table, "drawing": drawing}}

PAGES = {{"one.md.j2": ("results/one.md", one)}}
"""


def write_project(folder: Path, template: str, k: int = 1, rows: str = "one.json") -> Path:
    (folder / "results" / "templates").mkdir(parents=True)
    (folder / "results" / "one.json").write_text('{"rows": [{"k": 1, "bleu": 2.345}]}')
    contents = CONTENTS.format(json=str(folder / "results" / rows), k=k)
    (folder / "results" / "contents.py").write_text(contents)
    (folder / "results" / "templates" / "one.md.j2").write_text(template)
    return folder


def test_pages_are_what_their_templates_and_data_make() -> None:
    for page in pages.pages(REPOSITORY):
        assert not page.stale, f"{page.path.name}: run `fairseq-collab pages`"


def test_a_page_is_its_template_and_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = write_project(tmp_path, "{{ table }}\n{{ drawing }} (-1, `-1`)\n")
    page = project / "results" / "one.md"
    assert command.main([str(project), "--check"]) == 1  # not there yet
    assert command.main([str(project)]) == 0
    assert page.read_text().splitlines() == [
        "| K   |   BLEU |",
        "|:----|-------:|",
        "| d   |   2.35 |",
        "![Title](one.svg) (\N{MINUS SIGN}1, `-1`)",
    ]
    assert command.main([str(project), "--check"]) == 0
    page.write_text(page.read_text().replace("2.35", "2.53"))
    assert command.main([str(project), "--check"]) == 1
    assert "one.md: not what" in capsys.readouterr().out
    assert "2.53" in page.read_text(), "--check writes nothing"
    assert command.main([str(project)]) == 0
    (project / "results" / "one.svg").unlink()
    assert command.main([str(project), "--check"]) == 1


def test_runs_are_paired_by_seed() -> None:
    ours = [{"seed": seed, "bleu": bleu} for seed, bleu in ((2, 31.0), (1, 30.0), (4, 99.0))]
    theirs = [{"seed": seed, "bleu": bleu} for seed, bleu in ((1, 31.0), (2, 31.0), (3, 0.0))]
    found = pages.gain(ours, theirs, "bleu")
    assert found.mean == -0.5
    assert pages.interval(found) == "-0.50 (-6.85 to +5.85)"  # 12.706 / 2
    for seeds in ([5], [1, 1]):
        with pytest.raises(UserError, match="are no pairs"):
            pages.gain([{"seed": seed, "bleu": 30.0} for seed in seeds], theirs, "bleu")


@pytest.mark.parametrize(
    ("message", "faulty"),
    [
        ("'nothing' is undefined", {"template": "{{ nothing }}"}),
        ("one.md.j2:2: ", {"template": "line\n{{ 1 +"}),
        ("one.md.j2: division by zero", {"template": "{{ 1 / 0 }}"}),
        ("unsafe", {"template": "{{ ''.__class__.__mro__ }}"}),
        ("no run has {'k': 2}", {"template": "", "k": 2}),
        ("two.json", {"template": "", "rows": "two.json"}),
    ],
)
def test_a_faulty_page_takes_one_line(tmp_path: Path, message: str, faulty: dict[str, Any]) -> None:
    project = write_project(tmp_path, **faulty)
    with refusing(message):
        pages.pages(project)


# ---- this project's pages ------------------------------------------------------------------------


def test_every_page_is_in_the_index_and_every_file_on_a_page() -> None:
    assert {page.name for page in RESULTS} - {INDEX.name} <= set(links(INDEX))
    linked = {Path(link).name for page in RESULTS for link in links(page)} | {INDEX.name}
    files = {
        path.name for path in INDEX.parent.iterdir() if path.suffix in (".md", ".json", ".svg")
    }
    assert files <= linked


def test_documents_fit() -> None:
    """The front door stays small."""
    assert len(README.read_text().splitlines()) <= 120
    assert sum(len(page.read_text().splitlines()) for page in DOCS) <= 800
    assert all(len(page.read_text().splitlines()) <= 120 for page in RESULTS)
