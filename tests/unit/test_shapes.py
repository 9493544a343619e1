"""Hydra configurations of pruned models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from collab_common.errors import UserError
from fairseq_collab.checkpoints.prune import shapes


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


@pytest.mark.slow
def test_shapes_as_a_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairseq_collab.checkpoints.prune.shapes", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("python -m fairseq_collab.checkpoints.prune.shapes: error: ")
