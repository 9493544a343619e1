"""``fairseq-collab bench`` at its smallest; no test looks at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collab_lab.bench import BEAMS, CTRANSLATE2, TIMED
from collab_lab.cli import bench

pytestmark = pytest.mark.slow


def test_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Translation by all engines; training by fairseq's model and ours."""
    pytest.importorskip("ctranslate2")
    engines = ["fairseq", "ours", *CTRANSLATE2]
    out = tmp_path / "bench.json"
    options = ["--presets", "tiny", "--quick", "--threads", "1", "--cpu", "--out", str(out)]
    assert bench.main(options) == 0
    content = json.loads(out.read_text())
    found = [tuple(r[name] for name in ("heads", "task", "engine")) for r in content["records"]]
    tasks = {"translation": engines, "training": engines[:2]}
    assert found == [(heads, t, engine) for heads in TIMED for t in tasks for engine in tasks[t]]
    for record in content["records"]:
        assert 0 < record["low"] <= record["ratio"] <= record["high"]
        assert record["turns"] >= 2
        assert record["work"] / record["seconds"] > 0
    assert content["commit"]
    assert content["hardware"].endswith("1 thread a training")
    assert capsys.readouterr().out.count("| tiny ") == 2 * len(TIMED)


def test_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Narrow caches hold fewer bytes, and all caches grow with the length."""
    out = tmp_path / "bench.json"
    options = ["--lengths", "20", "40", "--quick", "--cpu", "--out", str(out)]
    assert bench.main(options) == 0
    records = json.loads(out.read_text())["records"]
    for beam in BEAMS:
        caches = {
            length: [r["cache"] for r in records if (r["beam"], r["length"]) == (beam, length)]
            for length in (20, 40)
        }
        _, standard, of_4, shared, quarter, quarter_of_4, eighth, grouped, single = caches[40]
        assert standard > shared > quarter > eighth
        assert standard > of_4 > quarter_of_4 < quarter
        assert shared > grouped > single
        assert all(long > short for short, long in zip(*caches.values(), strict=True))
    assert capsys.readouterr().out.count("| stock fairseq") == 4
