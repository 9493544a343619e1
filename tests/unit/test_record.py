"""The typed record of a run: written, read, refused where it is faulty."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from refusals import refusing
from run_folders import facts_of, some_record

from collab_common.errors import UserError
from fairseq_collab.runs.record import Failure, Record, Started, read


def test_what_is_written_is_read(tmp_path: Path) -> None:
    record = replace(some_record(), heads_by_type={"encoder": [4, 2]}, key_dim=None)
    record.write(tmp_path / "score.json")
    assert Record.read(tmp_path / "score.json") == record


def test_unknown_fields_are_left_out_and_missing_ones_have_their_default() -> None:
    facts = facts_of("collab", 64, seed=3, bleu=41)
    record = Record.of({**facts, "unknown": "field"}, Path("score.json"))
    assert (record.bleu, record.seed, record.command) == (41.0, 3, None)
    assert {name: getattr(record, name) for name in facts} == facts


def test_missing_fields_are_named() -> None:
    facts = facts_of("collab", 64)
    del facts["seed"]
    with refusing("run/score.json: missing 1 required keyword-only argument: 'seed'; remove the"):
        Record.of(facts, Path("run/score.json"))
    with refusing("run/score.json: lacks bleu; remove the file and score the run again"):
        Record.of(facts_of("collab", 64, bleu=None), Path("run/score.json"))


def test_each_task_has_its_scores() -> None:
    whole = json.loads(json.dumps(some_record().__dict__))
    with pytest.raises(UserError, match=r"score.json: lacks perplexity; remove the file and"):
        Record.of({**whole, "task": "language_modeling"}, Path("run/score.json"))
    with pytest.raises(UserError, match="task is 'parsing', not one of translation"):
        Record.of({**whole, "task": "parsing"}, Path("run/score.json"))
    perplexity = {"valid": 90.5, "test": 88.0}
    of_words = {**whole, "task": "language_modeling", "bleu": None, "perplexity": perplexity}
    assert Record.of(of_words, Path("run/score.json")).perplexity == perplexity


def test_how_a_run_was_started_and_why_it_failed(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    assert read(Started, path) is None
    path.write_text('{"overrides": {"model.key_dim": "8"}, "date": "2026-11-21"}')
    started = read(Started, path)
    assert started == Started({"model.key_dim": "8"}, date="2026-11-21")
    path.write_text('{"verdict": "failed"}')
    with pytest.raises(UserError, match=r"file\.json: missing 1 required .*: 'reason'"):
        read(Failure, path)
