"""The table of ``recipes/reparametrize.sh``, from its folders alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collab_common.errors import UserError
from fairseq_collab.results import reparametrized as results


def write(folder: Path, bleu: float, fits: list[dict[str, float]] | None = None) -> None:
    folder.mkdir()
    score = {"bleu": bleu, "chrf": 60.0, "bleu_signature": "nrefs:1|case:mixed"}
    (folder / "score.json").write_text(json.dumps(score))
    line = json.dumps({"valid_loss": "4", "valid_nll_loss": "2.0"})
    (folder / "valid.log").write_text(f"2026 | INFO | other\n2026 | INFO | valid | {line}\n")
    if fits:
        (folder / "fit.json").write_text(json.dumps({"attentions": fits}))


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, out = tmp_path / "runs", tmp_path / "table"
    runs.mkdir()
    write(runs / "trained", 40.0)
    write(runs / "root-64", 39.25, [{"error": 0.1, "seconds": 2}, {"error": 0.3, "seconds": 3}])
    write(runs / "root-128", 40.5, [{"error": 0.1, "seconds": 2}])
    write(runs / "tuned-root-64", 39.9)
    (runs / "weights-64").mkdir()  # not finished
    assert results.main([str(runs), "--out", str(out)]) == 0
    table = (out / "table.md").read_text()
    assert capsys.readouterr().out == table
    assert "| trained model |  | 40.00 |  | 60.00 | 1.386 |  |" in table
    line = "| ours, halfway to scores (default) | 64 | 39.25 | -0.75 | 60.00 | 1.386 | 0.200 |"
    assert line in table
    assert table.index("| 128 |") < table.index("| 64 |")
    assert "`nrefs:1|case:mixed`" in table
    rows = json.loads((out / "table.json").read_text())
    assert [row["method"] for row in rows] == ["trained", "root", "root", "tuned-root"]
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no result of the trained model in it"):
        results.read_rows(tmp_path)
    write(tmp_path / "trained", 40.0)
    (tmp_path / "trained" / "valid.log").write_text("Killed\n")
    with pytest.raises(UserError, match=r"valid.log: no validation loss in it"):
        results.read_rows(tmp_path)
