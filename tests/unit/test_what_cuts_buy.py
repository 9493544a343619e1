"""``results/what_cuts_buy.py``, tiny, through the tables of its page; no test looks at a time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import toy_checkpoints
from commands import warm
from refusals import refusing

from collab_lab.clock import parts
from collab_lab.clock.turns import Ratio, times_as_fast
from results import tables, tools_time
from results import what_cuts_buy as program


def test_ratios_are_of_one_turn() -> None:
    """A machine of half the speed in the second turn changes no ratio."""
    turns = [{"a": 2.0, "b": 1.0}, {"a": 4.0, "b": 2.0}]
    assert times_as_fast(turns, "b", "a") == (pytest.approx(2), None, None)
    ratio = times_as_fast([*turns, {"a": 2.0, "b": 1.1}], "b", "a")
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < ratio.mean < 2 < ratio.high
    assert str(Ratio(1.5)) == "1.50"
    assert str(Ratio(1.5, 1.25, 1.75)) == "1.50 ± 0.25"


def test_the_size_of_the_whole_model() -> None:
    """That of Vaswani et al. 2017, table 3, base: the preset leaves it to fairseq."""
    assert program.sizes_of("wmt_en_de") == (512, 8, 2048, 6)


@pytest.mark.slow
def test_the_program_makes_the_pages_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ctranslate2")
    out = tmp_path / "what_cuts_buy.json"
    monkeypatch.setattr(parts, "BUDGET", 0.1)
    words = [str(out), "--tiny", "--predict"]
    assert program.main(words) == 0
    content = json.loads(out.read_text())
    cuts, caches = content["records"]
    assert cuts["predicted"]["ct2-int8: whole model"] == 1
    assert {name.partition(":")[0] for name in cuts["predicted"]} == {*program.ENGINES}
    assert "fairseq: 4 heads, F 512" in cuts["predicted"]
    assert len(cuts["turns"]) == len(caches["turns"]) == 2
    assert {"ct2-int8: F 512", "fairseq: plan, 50%", "ct2-float32: shortlist of words"} <= {
        *cuts["turns"][0]
    }
    assert "fairseq: cache in 4 bits" in caches["turns"][0]
    assert "ct2-int8: cache in 4 bits" not in caches["turns"][0], "which CTranslate2 does not round"
    shares = {name: n / cuts["parameters"]["whole model"] for name, n in cuts["parameters"].items()}
    assert 0.4 < shares["4 heads, F 512"] < shares["4 of 8 heads"] < 1

    program.main(words)
    assert json.loads(out.read_text()) == content, "nothing is timed twice"
    del cuts["turns"][1:]
    out.write_text(json.dumps(content))
    program.main(words)
    assert len(json.loads(out.read_text())["records"][0]["turns"]) == 2, "it goes on"

    out.write_text(json.dumps(content | {"threads": 99}))
    with refusing("threads"):
        program.main(words)
    monkeypatch.setattr(tables, "load", lambda name: content)
    rows = [[str(cell) for cell in row] for row in tables.cuts_bought((60, 5))]
    assert [row[0] for row in rows][-1] == "whole model in CTranslate2's int8"
    assert len({*map(len, rows)}) == 1


@pytest.mark.slow
def test_the_time_of_our_own_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trained model, and one of random weights of another size; their commands are forks.

    So their processor time is not that of this process, but it is where an interpreter starts.
    """
    heads = tools_time.COMMANDS["shrink, heads"]
    export = "export --format fairseq --out {out}"  # a toy's translations hang on the last bit
    monkeypatch.setattr(tools_time, "COMMANDS", {"shrink, heads": heads, "export --check": export})
    monkeypatch.setattr(tools_time, "LAYERS", 1)
    checkpoint, out = toy_checkpoints.write(tmp_path / "c.pt"), tmp_path / "tools_time.json"
    words = [str(out), "--data", str(toy_checkpoints.COPY), "--model", f"toy={checkpoint}"]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(warm() / "python"))
        assert tools_time.main([*words, "--sizes", "16", "--sentences=20"]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [(row["model"], row["name"]) for row in rows] == [
        ("toy", "shrink, heads"), ("toy", "export --check"), ("d = 16", "shrink, heads"),
    ]  # fmt: skip
    assert all(row["seconds"] > 0 and row["sentences"] == 20 for row in rows)
    assert all(tools_time.timed("prices --help", checkpoint, tmp_path, 20).values())
    monkeypatch.setattr(tools_time, "timed", lambda *_: {"seconds": 1.0})
    tools_time.main([*words, "--sizes", "--sentences=10"])
    rows = json.loads(out.read_text())["rows"]
    assert [row["sentences"] for row in rows] == [10, 10, 20], "each row has its own number"
