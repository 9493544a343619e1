"""The rows of a table against the baseline's: differences, intervals, p-values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_folders import REFERENCES, spoilt, write_run, write_translations

from collab_common.errors import UserError
from fairseq_collab.results import against
from fairseq_collab.results.rows import Row
from fairseq_collab.results.table import markdown
from fairseq_collab.results.table_content import as_csv, content_of, read_table


def test_tests_against_the_baseline(tmp_path: Path) -> None:
    for seed, (many, few) in enumerate([(30, 3), (36, 4)], start=1):
        for method, wrong in (("concatenated", many), ("collab", few)):
            run = write_run(tmp_path, method, 64, seed)
            write_translations(run, spoilt(wrong), REFERENCES)
    table = read_table([tmp_path])
    (found,) = table.differences
    ours, base = (row.values("bleu") for row in table.rows)
    gains = [a - b for a, b in zip(ours, base, strict=True)]
    assert found.mean == pytest.approx(sum(gains) / 2)
    assert found.interval is not None
    half = 12.7062 * abs(gains[0] - gains[1]) / 2  # t of one degree of freedom
    assert found.interval[1] - found.mean == pytest.approx(half, rel=1e-4)
    assert [seed for seed, _ in found.p] == [1, 2]
    assert all(p is not None and p < 0.01 for _, p in found.p)
    text = markdown(table)
    assert "## Against concatenated" in text
    assert "it speaks of other sentences for these two trained models" in text
    assert '"seed 1: 0.0' in as_csv(table)


def test_language_models_are_not_tested_by_bleu(tmp_path: Path) -> None:
    facts = {"version": 2, "task": "language_modeling", "perplexity": {"test": 100.0}}
    for method in ("concatenated", "collab"):
        folder = write_run(tmp_path, method, 64, 1, **facts)
        record = json.loads((folder / "score.json").read_text())
        (folder / "score.json").write_text(json.dumps(record | {"bleu": None}))
    assert read_table([tmp_path], "none").differences == []
    with pytest.raises(UserError, match="--against: differences are of BLEU, which the runs have"):
        read_table([tmp_path], "none", "concatenated")


def test_runs_of_one_name_in_two_folders(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write_run(tmp_path / folder, "collab", 64, seed=1 + (folder == "two"))
    (tmp_path / "two" / "collab_64_2").rename(tmp_path / "two" / "collab_64_1")
    table = read_table([tmp_path / "one", tmp_path / "two"])
    with pytest.raises(UserError, match="has a run of the same name as"):
        content_of(table)


def test_seeds_without_a_partner_or_translations(tmp_path: Path) -> None:
    write_run(tmp_path, "concatenated", 64, 1, 40)
    write_run(tmp_path, "collab", 64, 1, 41)
    write_run(tmp_path, "collab", 32, 2, 41)
    table = read_table([tmp_path])
    untested, alone = table.differences
    assert content_of(table)["p"].keys() <= {run.name for run in untested.row.runs}
    assert untested.mean == 1
    assert untested.interval is None
    assert untested.p == ((1, None),)
    assert "translations.txt: no such file" in untested.reason
    assert (alone.mean, alone.p) == (None, ())
    assert alone.reason == "no finished baseline run with the same seed"


def test_the_baseline_is_chosen() -> None:
    rows = [Row("collab", "", 64), Row("fork_concatenated", "", 64)]
    assert against.choose_baseline(rows, None) == "fork_concatenated"
    assert against.choose_baseline(rows, "collab") == "collab"
    assert against.choose_baseline(rows, "none") is None
    assert against.choose_baseline(rows[:1], None) is None
    refused = "--against: no run of the method 'ours', and no row of that name; give one of collab"
    with pytest.raises(UserError, match=refused):
        against.choose_baseline(rows, "ours")
