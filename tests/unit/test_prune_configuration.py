"""The options of pruned and converted models: printed for fairseq-train, and for Hydra."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
import toy_checkpoints
import yaml
from commands import succeed
from fairseq import options as fairseq_options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from refusals import refusing

import collab_lab
from collab_common import ATTENTION_TYPES
from collab_lab.cli import main as cli
from collab_lab.pruning import surgery
from collab_lab.trained import configuration
from collab_lab.trained.attentions import attentions
from collab_lab.trained.checkpoint import Trained, open_model
from fairseq_compat import checkpoints


def test_configuration_of_a_pruned_model(tmp_path: Path) -> None:
    """It holds the shape and all other options, whatever the data's configuration says."""
    source = open_model(toy_checkpoints.write(tmp_path / "c.pt", encoder_embed_dim=16))
    result = surgery.pruned(source, {type_: [[0, 2], [3]] for type_ in ATTENTION_TYPES})
    path = configuration.write_configuration(result, tmp_path / "all-0.01.pt")
    assert path == tmp_path / "all-0.01.yaml"
    text = path.read_text()
    assert text.startswith("# @package _global_\n")
    found = yaml.safe_load(text)
    assert found["checkpoint"] == {"finetune_from_model": str(tmp_path / "all-0.01.pt")}
    expected = {"_name": "transformer_headsize_n", "heads_in_cross": "2,1", "qk_head_size": 4}
    expected |= {"encoder_embed_dim": 16, "share_all_embeddings": False}
    assert {name: found["model"][name] for name in expected} == expected


#: Options that do not show in the weights, and how they are printed.
OPTIONS = {
    "encoder_normalize_before": (True, "--encoder-normalize-before"),
    "no_scale_embedding": (True, "--no-scale-embedding"),
    "activation_fn": ("gelu", "--activation-fn gelu"),
    "share_decoder_input_output_embed": (True, "--share-decoder-input-output-embed"),
}


def changed(source: Trained, change: str) -> Trained:
    """The pruned or converted model."""
    if change == "prune":
        return surgery.pruned(source, {type_: [[0, 2], [3]] for type_ in ATTENTION_TYPES})
    by_type = dict.fromkeys(ATTENTION_TYPES, "8,6")
    return collab_lab.convert(source, "latent", by_type=by_type, sentences=9).model


@pytest.mark.parametrize("change", ["prune", "convert"])
def test_a_rounded_cache_stays_rounded(tmp_path: Path, change: str) -> None:
    options = {"cache_bits": "8", "cache_bits_in_cross": "4,0"}
    path = toy_checkpoints.write(tmp_path / "c.pt", "transformer_headsize_n", **options)
    changed(open_model(path, toy_checkpoints.COPY), change).save(tmp_path / "result.pt")
    found = open_model(tmp_path / "result.pt", toy_checkpoints.COPY)
    assert [a.module.cache_bits for a in attentions(found.model)] == [0, 0, 8, 8, 4, 0]


@pytest.mark.parametrize("change", ["prune", "convert"])
def test_what_is_printed_builds_the_same_model(tmp_path: Path, change: str) -> None:
    """Through fairseq's parser."""
    options = {name: value for name, (value, _) in OPTIONS.items()}
    source = open_model(toy_checkpoints.write(tmp_path / "c.pt", **options), toy_checkpoints.COPY)
    result = changed(source, change)
    printed = configuration.training_options(result)
    assert all(words in printed for _, words in OPTIONS.values())
    words = [str(toy_checkpoints.COPY), "--task", "translation", *shlex.split(printed)]
    args = fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), words)
    model: Any = source.task.build_model(convert_namespace_to_omegaconf(args).model).eval()
    assert toy.num_parameters(model) == toy.num_parameters(result.model)
    model.load_state_dict(result.model.state_dict())
    batch = toy.batch(source.task)
    ours, expected = (
        one.get_normalized_probs(one(**batch), log_probs=True) for one in (model, result.model)
    )
    assert torch.equal(ours, expected)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["prune --keep 1", "reparametrize --to latent --latent-dim 4"])
def test_the_printed_command_trains_the_model_on(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is, but for its number of updates: the weights of the first step are the model's."""
    path, out = toy_checkpoints.write(tmp_path / "c.pt"), tmp_path / "small.pt"
    data = ["--subset", "valid", "--sentences", "9", "--out", str(out), "--cpu"]
    assert cli.main([*command.split(), str(path), str(toy_checkpoints.COPY), *data]) == 0
    words = shlex.split(capsys.readouterr().out.splitlines()[-1])
    succeed(*words, "--max-update", 1, "--lr", "1e-9", "--total-num-update", 1, "--cpu")
    tuned = checkpoints.read(out.with_suffix("") / "checkpoint_last.pt")["model"]
    for name, weight in checkpoints.read(out)["model"].items():
        torch.testing.assert_close(tuned[name], weight)


@pytest.mark.parametrize("arch", ["transformer_headsize_n", "transformer_lm_headsize_n"])
def test_what_is_of_the_training_alone_is_not_said(arch: str) -> None:
    """Nor what the task says, such as a language model's ``tokens_per_sample``."""
    options = {"_name": arch, "data": "bin", "decoder_layers_to_keep": "0,1", "dropout": 0.3}
    options |= {"quant_noise_pq": 0.1, "checkpoint_activations": True, "tokens_per_sample": 64}
    assert configuration.shown_options({**options, "decoder_layers": 6}) == {"dropout": 0.3}


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    source = open_model(toy_checkpoints.write(tmp_path / "c.pt"))
    source.cfg.model.max_source_positions = "many"
    kept: Any = {type_: [[0]] * 2 for type_ in ATTENTION_TYPES}
    with refusing(str(tmp_path / "c.pt"), "its option max_source_positions is of another kind"):
        surgery.pruned(source, kept)
