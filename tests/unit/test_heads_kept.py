"""Heads kept against BLEU: what is read of the recipe's folders, and what is told of it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from run_folders import start_run, write_run

from collab_common.errors import UserError
from fairseq_collab.checkpoints.prune import shapes
from fairseq_collab.metrics.provenance import circumstances
from fairseq_collab.results import kept, kept_report
from fairseq_collab.results.kept_runs import Found, gates_of, read

CONFIG = {
    "model": {
        **{f"{side}_attention_heads": 8 for side in ("encoder", "decoder")},
        **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
    }
}
#: ``log_alpha`` of gates that are closed, open and between, in evaluation.
CLOSED, OPEN, BETWEEN = -4.0, 4.0, 0.5
SPEED = 20


def run(parent: Path, name: str, bleu: float) -> Path:
    """A finished run with ordinary heads, or of whatever kind."""
    folder = write_run(parent, "any", 64, bleu=bleu)
    folder = folder.rename(parent / name)
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    return folder


def gated_weights(folder: Path, *layers: list[float]) -> None:
    """A checkpoint with nothing but gates, by layer."""
    theta = {f"layers.{i}.theta": torch.tensor(layer) / SPEED for i, layer in enumerate(layers)}
    options = {"_name": "transformer_gated_heads", "gate_speed": SPEED}
    save(folder / "average.pt", options, theta)


def save(path: Path, options: dict[str, Any], weights: dict[str, Any]) -> None:
    """What fairseq's checkpoints have at least."""
    state = {
        "cfg": {"model": options},
        "model": weights,
        "optimizer_history": [],
        "extra_state": {},
    }
    torch.save(state, path)


def pruned(path: Path, encoder: str, decoder: str = "8,8", cross: str = "8,8") -> Path:
    """A checkpoint with nothing but the options of a pruned model."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {
        "_name": "transformer_headsize_n",
        **{"heads_in_encoder": encoder, "heads_in_decoder": decoder, "heads_in_cross": cross},
        **{"qk_head_size": 16, "v_head_size": 16, "encoder_embed_dim": 128},
        **{"encoder_ffn_embed_dim": 256, "decoder_ffn_embed_dim": 256},
    }  # fmt: skip
    save(path, options, {})
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A control and two penalties in all attentions, one in the encoder, not all of it finished."""
    folder = tmp_path / "out"
    run(tmp_path / "trained", "model-concatenated_seed-1", 33.0)
    for name, bleu in (("0", 33.5), ("0.01", 33.1), ("0.1", 30.0)):
        gated_weights(
            run(folder / "gated" / "all", f"gate_penalty-{name}_seed-1", bleu),
            *([OPEN, BETWEEN], [CLOSED, CLOSED]),
        )
    gated_weights(run(folder / "gated" / "encoder", "gate_penalty-0.01_seed-1", 32.0), [OPEN])
    pruned(folder / "pruned" / "1" / "all-0.pt", "8,8")
    pruned(folder / "pruned" / "1" / "all-0.01.pt", "4,1", "8,2", "8,7")
    pruned(folder / "pruned" / "1" / "all-0.1.pt", "1,1", "1,1", "2,3")
    run(folder / "tuned", "model-all-0_seed-1", 33.6)
    run(folder / "tuned", "model-all-0.01_seed-1", 33.4)
    run(folder / "scratch", "model-all-0.01_seed-1", 32.5)
    failed = start_run(folder / "tuned", "model-all-0.1_seed-1", verdict="failed", reason="memory")
    (failed / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    return folder


@pytest.fixture
def found(out: Path) -> Found:
    return read(out, out.parent / "trained")


def test_what_is_read(found: Found) -> None:
    assert found.baseline == {1: 33.0}
    assert found.heads == {site: [8, 8] for site in ("encoder", "decoder", "cross")}
    assert [(one.sites, one.penalty, one.total) for one in found.results] == [
        ("all", "0", 48), ("all", "0.01", 30), ("all", "0.1", 9), ("encoder", "0.01", None),
    ]  # fmt: skip
    chosen = found.results[1]
    assert chosen.heads == {"encoder": [4, 1], "decoder": [8, 2], "cross": [8, 7]}
    assert chosen.bleu == {"gated": 33.1, "tuned": 33.4, "scratch": 32.5}
    assert (chosen.between, chosen.empty) == (1, 1)
    assert found.unfinished == ["tuned/model-all-0.1_seed-1: failed (memory)"]


def made() -> dict[str, Any]:
    return {"command": "python -m ...", **circumstances(cpu=True)}


def test_table(found: Found) -> None:
    rows = [line.strip("| ").split(" | ") for line in kept_report.main_table(found)]
    assert rows[2] == ["none", "-", "1", "48", *["16 (8, 8)"] * 3, "-", "-", "33.00", "-", "-"]
    assert rows[4] == ["all", "0.01", "1", "30", "5 (4, 1)", "10 (8, 2)", "15 (8, 7)", "1", "1",
                       "33.10", "33.40", "32.50"]  # fmt: skip
    assert rows[6] == ["encoder", "0.01", "1", *["-"] * 4, "0", "0", "32.00", "-", "-"]
    assert len({len(row) for row in rows}) == 1
    text = kept_report.markdown(found, made())
    assert "- tuned/model-all-0.1_seed-1: failed (memory)\n" in text
    assert "| 14 / 31 / 30 | 29.62 | 29.47 |" in text


def test_heads_that_can_go(found: Found) -> None:
    """18 of 48: 33.4 is within a quarter of the control's 33.6, and fewer heads have no BLEU."""
    lines = kept_report.free_heads(found)
    assert lines[0].startswith("**gates in all attentions**, seed 1: 18 of 48 heads can go within")
    assert "of 33.60, the control" in lines[0]
    assert lines[2].startswith("**gates in the encoder**, seed 1: no model is within 0.25 BLEU")


def test_without_a_control_nothing_can_be_said(out: Path) -> None:
    (out / "tuned" / "model-all-0_seed-1" / "score.json").unlink()
    assert kept_report.free_heads(read(out, out.parent / "trained")) == []


def test_figure_shows_what_is_there(found: Found) -> None:
    panels = kept_report.draw(found).axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in panels[0].get_lines()}
    assert lines["with gates"] == [[9, 30.0], [30, 33.1], [48, 33.5]]
    assert lines["pruned, fine-tuned"] == [[30, 33.4], [48, 33.6]]
    assert lines["baseline"] == [[48, 33.0]]
    shares = {line.get_label(): line.get_ydata().tolist() for line in panels[2].get_lines()}
    assert shares["encoder self-attention"] == [100 * 2 / 16, 100 * 5 / 16, 100]


def test_the_command_writes_all(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(out), "--baseline", str(out.parent / "trained")]
    assert kept.main(arguments) == 0
    assert (out / "heads_kept.md").read_text() == capsys.readouterr().out
    content = json.loads((out / "heads_kept.json").read_text())
    assert content["results"][1]["heads"]["encoder"] == [4, 1]
    assert content["made"]["command"].startswith("python -m fairseq_collab.results.kept")
    first = (out / "heads_kept.png").read_bytes()
    assert kept.main(arguments) == 0
    assert (out / "heads_kept.png").read_bytes() == first


@pytest.mark.parametrize(
    ("folder", "message"),
    [("none", "no runs with gates in gated/; give the"), ("out", "it has no config.yaml")],
)
def test_what_it_refuses(
    folder: str, message: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing there; and a baseline that is not there."""
    assert kept.main([str(out.parent / folder), "--baseline", str(out / "no")]) == 1
    line = capsys.readouterr().err
    assert line.startswith("python -m fairseq_collab.results.kept: error: ")
    assert message in line


def test_scores_of_other_data_are_refused(out: Path) -> None:
    file = out / "tuned" / "model-all-0_seed-1" / "score.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "data": "other"}))
    with pytest.raises(UserError, match="differ in data: toy and other; they are of different"):
        read(out, out.parent / "trained")


# ---- shapes.py -----------------------------------------------------------------------------------


def test_configurations_of_shapes(tmp_path: Path) -> None:
    file = pruned(tmp_path / "all-0.01.pt", "4,1")
    pruned(tmp_path / "all-0.1.pt", "1,1")
    assert shapes.write(tmp_path) == ["all-0.01", "all-0.1"]
    texts = {kind: (tmp_path / kind / "model" / "all-0.01.yaml").read_text() for kind in
             shapes.KINDS}  # fmt: skip
    tuned, scratch = (yaml.safe_load(text) for text in texts.values())
    assert tuned.pop("checkpoint") == {"finetune_from_model": str(file)}
    assert tuned == scratch
    assert scratch["model"] == {
        "heads_in_encoder": "4,1", "heads_in_decoder": "8,8", "heads_in_cross": "8,8",
        "qk_head_size": 16, "v_head_size": 16, "encoder_ffn_embed_dim": 256,
        "decoder_ffn_embed_dim": 256,
    }  # fmt: skip
    assert all(text.startswith("# @package _global_\n") for text in texts.values())


def test_shapes_of_no_pruned_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no checkpoint in it; put checkpoints of"):
        shapes.write(tmp_path)
    save(tmp_path / "a.pt", {"_name": "transformer"}, {})
    with pytest.raises(UserError, match=r"a\.pt: not a transformer_headsize_n; give checkpoints"):
        shapes.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_shapes_as_a_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairseq_collab.checkpoints.prune.shapes", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("python -m fairseq_collab.checkpoints.prune.shapes: error: ")


def test_gates_are_what_the_model_would_have(tmp_path: Path) -> None:
    """0.5 is clip(1.2 sigmoid(0.5) - 0.1): between; 4 and -4 are 1 and 0."""
    assert 0 < 1.2 / (1 + math.exp(-BETWEEN)) - 0.1 < 1
    gated_weights(tmp_path, [BETWEEN, CLOSED], [OPEN, CLOSED], [CLOSED, CLOSED])
    assert gates_of(tmp_path / "average.pt") == (1, 1)
