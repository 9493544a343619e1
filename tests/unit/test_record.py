"""The typed record of a run: written, read, refused where it is faulty."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from refusals import refusing
from run_folders import facts_of, some_record

from collab_common.files import write_json
from collab_lab.runs.record import Outcome, Record, Started, read
from collab_lab.runs.run import Run


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Unknown fields are left out, and missing ones have their default."""
    record = replace(some_record(seed=3), heads_by_type={"encoder": [4, 2]}, key_dim=None)
    write_json(tmp_path / "score.json", {**asdict(record), "unknown": "field"})
    assert read(Record, tmp_path / "score.json") == record
    assert (record.seed, record.command) == (3, None)


def test_missing_fields_are_named(tmp_path: Path) -> None:
    facts = facts_of("collab", 64)
    del facts["seed"]
    write_json(tmp_path / "score.json", facts)
    with refusing("score.json", "'seed'"):
        Run(tmp_path).score()


def test_how_a_run_was_started_and_why_it_failed(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    assert read(Started, path) is None
    path.write_text('{"overrides": {"model.key_dim": "8"}, "date": "2026-11-21"}')
    started = read(Started, path)
    assert started == Started({"model.key_dim": "8"}, date="2026-11-21")
    path.write_text('{"verdict": "failed"}')
    with refusing("file.json", "'reason'"):
        read(Outcome, path)
