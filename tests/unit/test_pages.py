"""Pages of results are what their templates and data make, and say where their numbers are from."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import REPOSITORY
from documents import RESULTS, links
from refusals import refusing

from collab_common.errors import UserError
from collab_lab.cli import pages as command
from collab_lab.results import pages

INDEX = REPOSITORY / "results" / "README.md"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "one.json").write_text('{"rows": [{"k": 1, "bleu": 2.345}]}')
    (tmp_path / "results" / "one.md.j2").write_text(
        '{% set rows = load("one.json").rows %}\n'
        '{{ grid(["K", "BLEU"], [["d", pick(rows, k=1).bleu | num(".2f")]]) }}\n'
        '{{ figure("one.svg", "Title", "K", "BLEU", {"ours": points(rows, "k", "bleu")}) }}\n'
    )
    return tmp_path


def test_pages_are_what_their_templates_and_data_make() -> None:
    for page in pages.pages(REPOSITORY):
        assert not page.stale, f"{page.path.name}: run `fairseq-collab pages`"


def test_a_page_is_its_template_and_data(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = project / "results" / "one.md"
    assert command.main([str(project), "--check"]) == 1  # not there yet
    assert command.main([str(project)]) == 0
    assert page.read_text().splitlines() == [
        "| K   |   BLEU |",
        "|:----|-------:|",
        "| d   |   2.35 |",
        "![Title](one.svg)",
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
    ("template", "message"),
    [
        ("{{ load('two.json') }}", "two.json: file not found"),
        ("{{ load('one.json').lines }}", "'dict object' has no attribute 'lines'"),
        ("{{ pick(load('one.json').rows, k=2) }}", "no run has {'k': 2}"),
        ("line\n{{ 1 +", "one.md.j2:2: "),
        ("{{ 1 / 0 }}", "one.md.j2: division by zero"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_a_faulty_template_takes_one_line(project: Path, template: str, message: str) -> None:
    (project / "results" / "one.md.j2").write_text(template)
    with refusing(message):
        pages.pages(project)


# ---- this project's pages ------------------------------------------------------------------------


def test_every_page_is_in_the_index_and_every_file_on_a_page() -> None:
    assert {page.name for page in RESULTS} - {INDEX.name} <= set(links(INDEX))
    linked = {Path(link).name for page in RESULTS for link in links(page)} | {INDEX.name}
    assert {path.name for path in INDEX.parent.iterdir() if path.suffix != ".j2"} <= linked
