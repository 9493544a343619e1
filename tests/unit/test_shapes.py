"""Hydra configurations of pruned models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from toy_heads import write_pruned

from collab_common.errors import UserError
from fairseq_collab.checkpoints.prune import shapes

SIZES = {"qk_head_size": 16, "v_head_size": 16, "encoder_embed_dim": 128}
SIZES |= {"encoder_ffn_embed_dim": 256, "decoder_ffn_embed_dim": 256}


def test_configurations_of_shapes(tmp_path: Path) -> None:
    file = write_pruned(tmp_path / "all-0.01.pt", "4,1", **SIZES)
    write_pruned(tmp_path / "all-0.1.pt", "1,1", **SIZES)
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
    write_pruned(tmp_path / "a.pt", "", _name="transformer")
    with pytest.raises(UserError, match=r"a\.pt: not a transformer_headsize_n; give checkpoints"):
        shapes.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


@pytest.mark.slow
def test_shapes_as_a_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairseq_collab.checkpoints.prune.shapes", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("python -m fairseq_collab.checkpoints.prune.shapes: error: ")
