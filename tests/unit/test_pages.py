"""Pages of results are what their templates and data make."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import REPOSITORY
from refusals import refusing

from collab_common.errors import UserError
from fairseq_collab.commands import pages as command
from fairseq_collab.results import pages
from fairseq_collab.results.table_content import as_csv, table_of


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "one.json").write_text('{"rows": [{"k": 1, "bleu": 2.345}]}')
    (tmp_path / "results" / "one.md.j2").write_text(
        '{% set rows = load("one.json").rows %}\n'
        '{{ grid(["K", "BLEU"], [["d", pick(rows, k=1).bleu | num(".2f")]]) }}\n'
    )
    return tmp_path


def test_rendering_again_changes_nothing() -> None:
    for page, text in pages.pages(REPOSITORY):
        assert page.read_text() == text, f"{page.name}: run `fairseq-collab pages`"


@pytest.mark.parametrize(
    ("file", "content", "name"),
    [
        ("key_dim_multi30k.csv", "key_dim_multi30k.json", "main"),
        ("grouped_heads_multi30k.csv", "grouped_heads_multi30k.json", "tuned"),
        ("grouped_heads_multi30k_trained.csv", "grouped_heads_multi30k.json", "trained"),
    ],
)
def test_csv_is_what_the_json_says(file: str, content: str, name: str) -> None:
    results = REPOSITORY / "results"
    table = json.loads((results / content).read_text())["tables"][name]
    assert (results / file).read_text() == as_csv(table_of(table))


def test_rows_of_several_tables_are_named_by_what_was_chosen() -> None:
    """One table may then hold those of several pages."""
    content = json.loads((REPOSITORY / "results" / "equal_cache_multi30k.json").read_text())
    rows = pages.table_rows(content["tables"]["scratch"], "bleu", "cache_bytes_per_target_token")
    found = {name: (score, *cells) for name, score, cells, _ in rows}
    assert found["latent, latent_dim=64"][1:] == ("2", "33.44 ± 0.25", "512")
    assert found["plain"] == (pytest.approx(33.93, abs=0.01), "2", "33.93 ± 0.19", "2,048")


def test_rows_of_a_table_are_compared_seed_by_seed() -> None:
    """One seed against the mean of two would be another difference."""
    content = json.loads((REPOSITORY / "results" / "equal_cache_multi30k.json").read_text())
    rows = {name: runs for name, *_, runs in pages.table_rows(content["tables"]["scratch"])}
    found = pages.gain(rows["collab, key_dim=64"], rows["plain"], "bleu")
    assert list(found["by_seed"]) == [1]
    assert found["mean"] == pytest.approx(0.17, abs=0.005)


def test_methods_of_a_table_are_called_in_words() -> None:
    """Of its baseline, too: else its tests would be against no row."""
    content = json.loads((REPOSITORY / "results" / "equal_cache_multi30k.json").read_text())
    short = content["tables"]["scratch"]
    before, after = table_of(short), table_of(pages.in_words(short))
    assert after.baseline == "fewer ordinary heads"
    assert "collaborative heads, shared values" in {row.label for row in after.rows}
    assert {found.seeds_p for found in after.differences} == {
        found.seeds_p for found in before.differences
    }


def test_a_page_is_its_template_and_data(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = project / "results" / "one.md"
    assert command.main([str(project), "--check"]) == 1  # not there yet
    assert command.main([str(project)]) == 0
    assert page.read_text().splitlines() == [
        "| K   |   BLEU |",
        "|:----|-------:|",
        "| d   |   2.35 |",
    ]
    assert command.main([str(project), "--check"]) == 0
    page.write_text(page.read_text().replace("2.35", "2.53"))
    assert command.main([str(project), "--check"]) == 1
    assert "one.md: not what" in capsys.readouterr().out
    assert "2.53" in page.read_text(), "--check writes nothing"


def test_rows_are_chosen() -> None:
    rows = [{"k": 1, "seed": 1}, {"k": 1, "seed": 2}, {"k": 2}]
    assert pages.where(rows, k=1) == rows[:2]
    assert pages.distinct(rows, "k") == [{"k": 1}, {"k": 2}]
    assert pages.grid(["k"], [["a  b"]], padded=False) == "| k |\n|:---|\n| a b |"


def test_runs_are_paired_by_seed() -> None:
    ours = [{"seed": seed, "bleu": bleu} for seed, bleu in ((2, 31.0), (1, 30.0), (4, 99.0))]
    theirs = [{"seed": seed, "bleu": bleu} for seed, bleu in ((1, 31.0), (2, 31.0), (3, 0.0))]
    found = pages.gain(ours, theirs, "bleu")
    assert found["by_seed"] == {1: -1.0, 2: 0.0}
    assert (found["mean"], found["runs"], found["baseline"]) == (-0.5, 30.5, 31.0)
    assert found["interval"] == pytest.approx((-0.5 - 6.353, -0.5 + 6.353), abs=1e-3)  # 12.706 / 2
    assert found["p"] == pytest.approx(0.5)


@pytest.mark.parametrize("seeds", [[2], [1, 1]])
def test_runs_that_are_no_pairs(seeds: list[int]) -> None:
    runs = [{"seed": seed, "bleu": 30.0} for seed in seeds]
    with pytest.raises(UserError, match="are no pairs"):
        pages.gain(runs, [{"seed": 1, "bleu": 30.0}], "bleu")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ load('two.json') }}", "two.json: no such file"),
        ("{{ load('one.json').lines }}", "'dict object' has no attribute 'lines'"),
        ("{{ pick(load('one.json').rows, k=2) }}", "0 rows have {'k': 2}, not one"),
        ("line\n{{ 1 +", "one.md.j2:2: "),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_what_is_wrong_takes_one_line(project: Path, template: str, message: str) -> None:
    (project / "results" / "one.md.j2").write_text(template)
    with refusing(message):
        pages.write(project)


def test_a_folder_without_templates(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"results: no \*\.md\.j2 there"):
        pages.write(tmp_path)
