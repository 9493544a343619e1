"""Hydra configurations of pruned models."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import old_checkpoints
import pytest
import torch
import toy
import yaml
from fairseq import options as fairseq_options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from refusals import refusing
from toy_heads import write_pruned

from collab_common.errors import UserError
from fairseq_collab.commands.prune import options_for_training
from fairseq_collab.models.layers import SITES
from fairseq_collab.prune import shapes, surgery

SIZES = {"qk_head_size": 16, "v_head_size": 16, "encoder_embed_dim": 128}
SIZES |= {"encoder_ffn_embed_dim": 256, "decoder_ffn_embed_dim": 256}


def test_configurations_of_shapes(tmp_path: Path) -> None:
    file = write_pruned(tmp_path / "all-0.01.pt", "4,1", share_all_embeddings=False, **SIZES)
    write_pruned(tmp_path / "all-0.1.pt", "1,1", **SIZES)
    assert shapes.write(tmp_path) == ["all-0.01", "all-0.1"]
    texts = {kind: (tmp_path / kind / "model" / "all-0.01.yaml").read_text() for kind in
             shapes.KINDS}  # fmt: skip
    tuned, scratch = (yaml.safe_load(text) for text in texts.values())
    assert tuned.pop("checkpoint") == {"finetune_from_model": str(file)}
    # A tuned model is its own, though the data's configuration may share embeddings.
    rest = {"encoder_embed_dim": 128, "share_all_embeddings": False}
    assert tuned["model"] == scratch["model"] | rest
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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"versions": False, "encoder_normalize_before": True, "decoder_normalize_before": True},
            "--encoder-normalize-before",
        ),
        ({"no_scale_embedding": True}, "--no-scale-embedding"),
        ({"activation_fn": "gelu"}, "--activation-fn gelu"),
        ({"share_decoder_input_output_embed": True}, "--share-decoder-input-output-embed"),
        ({"adaptive_softmax_cutoff": "8,14"}, "--adaptive-softmax-cutoff 8,14"),
    ],
)
def test_what_prune_prints_builds_the_same_model(
    options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """Through fairseq's parser; in the weights the options do not show."""
    source = surgery.load(old_checkpoints.write(tmp_path / "c.pt", **options))
    kept: Any = {site: [[0, 2], [3]] for site in SITES}
    result = surgery.pruned(source, kept)
    printed = options_for_training(result)
    assert said in printed
    words = [str(old_checkpoints.COPY), "--task", "translation", *shlex.split(printed)]
    args = fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), words)
    model: Any = source.task.build_model(convert_namespace_to_omegaconf(args).model).eval()
    assert toy.num_parameters(model) == toy.num_parameters(result.model) + (
        0 if options.get("versions", True) else 4 * toy.SIZES["encoder_embed_dim"]
    )  # norms that loading removes
    model.load_state_dict(result.model.state_dict())
    batch = toy.batch(source.task)
    found, expected = (
        one.get_normalized_probs(one(**batch), log_probs=True) for one in (model, result.model)
    )
    assert torch.equal(found, expected)


@pytest.mark.parametrize("arch", ["transformer_headsize_n", "transformer_lm_headsize_n"])
def test_what_is_of_the_training_alone_is_not_said(arch: str) -> None:
    """Nor what the task says, such as a language model's ``tokens_per_sample``."""
    options = {"_name": arch, "data": "bin", "decoder_layers_to_keep": "0,1", "dropout": 0.3}
    options |= {"quant_noise_pq": 0.1, "checkpoint_activations": True, "tokens_per_sample": 64}
    assert shapes.own_options({**options, "decoder_layers": 6}) == {"dropout": 0.3}


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    source = surgery.load(old_checkpoints.write(tmp_path / "c.pt"))
    source.cfg.model.max_source_positions = "many"
    kept: Any = {site: [[0]] * 2 for site in SITES}
    with refusing(str(tmp_path / "c.pt"), "its option max_source_positions is of another kind"):
        surgery.pruned(source, kept)


@pytest.mark.slow
def test_shapes_as_a_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairseq_collab.prune.shapes", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("python -m fairseq_collab.prune.shapes: error: ")
