"""``fairseq-collab heads-kept``: roles, sites and layers of the heads of pruned models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toy_heads import write_pruned

from collab_common.errors import UserError
from fairseq_collab.commands import heads_kept
from fairseq_collab.prune import shapes
from fairseq_collab.results.heads import kept

POSITIONAL, SYNTACTIC, RARE = "positional -1", "syntactic nsubj dependent->head", "rare tokens"


def write_analysis(path: Path, heads: dict[str, list[int]], roles: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True)
    content = {"version": 1, "measures": {}, "heads": heads, "roles": roles}
    path.write_text(json.dumps(content))


@pytest.fixture
def series(tmp_path: Path) -> Path:
    """Three models; the second was not analysed."""
    write_pruned(tmp_path / "all-0.1.pt", "1,0", "1,1", "2,1")
    write_pruned(tmp_path / "all-0.pt", "2", "2,2", "2,2", encoder_layers=2)
    write_pruned(tmp_path / "all-0.01.pt", "2,1", "1,2", "2,2")
    write_analysis(
        tmp_path / "heads/all-0/heads.json",
        {"encoder": [2, 2], "decoder": [2, 2], "cross": [2, 2]},
        {
            "encoder": [[[POSITIONAL], [POSITIONAL, "positional +1"]], [[SYNTACTIC, RARE], []]],
            "decoder": [[[POSITIONAL], []], [[], []]],
            "cross": [[[], []], [[], []]],
        },
    )
    write_analysis(
        tmp_path / "heads/all-0.1/heads.json",
        {"encoder": [1, 0], "decoder": [1, 1], "cross": [2, 1]},
        {"encoder": [[[SYNTACTIC]], []], "decoder": [[[]], [[]]], "cross": [[[], []], [[]]]},
    )
    return tmp_path


def run(folder: Path, *more: str) -> dict[str, Any]:
    checkpoints = sorted(map(str, folder.glob("*.pt")))
    out = folder / "out"
    assert heads_kept.main([*checkpoints, "--heads", f"{folder}/heads", "--out", str(out)]) == 0
    return json.loads((out / "kept.json").read_text())


def test_every_head_counts_once(series: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(series)
    assert [model["model"] for model in found["models"]] == ["all-0", "all-0.01", "all-0.1"]
    whole, unknown, least = found["models"]
    assert whole["roles"] == {
        "encoder": {"positional": 2, "syntactic": 0, "rare": 0, "several": 1, "none": 1},
        "decoder": {"positional": 1, "syntactic": 0, "rare": 0, "several": 0, "none": 3},
    }
    assert whole["heads"]["encoder"] == [2, 2]  # one number for all layers
    assert unknown["roles"] is None
    assert least["heads"] == {"encoder": [1, 0], "decoder": [1, 1], "cross": [2, 1]}
    assert sum(least["roles"]["encoder"].values()) == 1
    assert {"command", "commit", "versions", "date"} <= found.keys()
    names = {path.name for path in (series / "out").iterdir()}
    assert names == {"kept.json", "kept.md", "layers.png", "roles.png"}
    printed = capsys.readouterr().out
    assert printed == (series / "out" / "kept.md").read_text()
    assert "4 (2, 2)" in printed
    assert "not analysed" in printed


def test_figures_show_the_counts(series: Path) -> None:
    models = kept.read(sorted(series.glob("*.pt")), series / "heads")
    encoder, _ = kept.role_figure(models).axes
    heights = {bars.get_label(): [bar.get_height() for bar in bars] for bars in encoder.containers}
    assert heights == {
        "positional": [2, 0, 0], "syntactic": [0, 0, 1], "rare": [0, 0, 0], "several": [1, 0, 0],
        "none": [1, 0, 0],
    }  # fmt: skip
    assert [text.get_text() for text in encoder.texts] == ["not analysed"]
    sites, _, decoder, cross = kept.layer_figure(models).axes
    lines = {line.get_label(): list(line.get_ydata()) for line in sites.lines}
    assert lines == {"encoder": [4, 3, 1], "decoder": [4, 3, 2], "cross": [4, 4, 3]}
    assert list(sites.lines[0].get_xdata()) == [12, 10, 6]
    assert [list(line.get_ydata()) for line in decoder.lines] == [[2, 1, 1], [2, 2, 1]]
    assert [list(line.get_ydata()) for line in cross.lines] == [[2, 2, 2], [2, 2, 1]]


def test_deep_models_have_pairs_of_layers() -> None:
    assert kept.by_layer([[1, 2, 3, 4, 5], [0, 0, 1, 0, 2]]) == {
        "layers 1 and 2": [3, 0], "layers 3 and 4": [7, 1], "layer 5": [5, 2],
    }  # fmt: skip


def test_without_any_analysis_there_are_layers_only(tmp_path: Path) -> None:
    write_pruned(tmp_path / "a.pt", "1,1", "1,1", "1,1")
    (tmp_path / "heads").mkdir()
    run(tmp_path)
    assert not (tmp_path / "out" / "roles.png").exists()
    assert (tmp_path / "out" / "layers.png").exists()


def test_an_analysis_of_another_model(series: Path) -> None:
    write_pruned(series / "all-0.pt", "2,1", "2,2", "2,2")
    with pytest.raises(UserError, match=r"heads\.json: is of another model: its heads are"):
        run(series)


def test_what_is_no_pruned_model(tmp_path: Path) -> None:
    write_pruned(tmp_path / "a.pt", "1,x", "1,1", "1,1")
    with pytest.raises(UserError, match=r"a\.pt: heads_in_encoder is '1,x'; it must be a number"):
        shapes.heads_of(tmp_path / "a.pt")
    with pytest.raises(UserError, match="no: there is no such folder; give that of"):
        heads_kept.main([str(tmp_path / "a.pt"), "--heads", f"{tmp_path}/no", "--out", "x"])
