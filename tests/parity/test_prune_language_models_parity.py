"""Language models without heads equal those with these heads at zero, in double precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY, build_model
from fairseq.sequence_generator import SequenceGenerator
from omegaconf import OmegaConf
from parity.test_prune_parity import as_trained, masked
from torch import Tensor, nn
from toy_language_models import language_model, language_model_options, roberta, task

from collab_common.errors import UserError
from fairseq_collab.checkpoints.opener import Trained
from fairseq_collab.checkpoints.prune.choices import all_heads, named_heads
from fairseq_collab.checkpoints.prune.surgery import Kept, check_heads, pruned
from fairseq_collab.checkpoints.prune.votes import count_votes, grouped_model

pytestmark = pytest.mark.usefixtures("float64")

STOCK, HEADSIZE = "transformer_lm", "transformer_lm_headsize_n"
GROUPED = "transformer_lm_grouped_heads"
CUTOFFS = {"adaptive_input_cutoff": "8,16", "adaptive_softmax_cutoff": "8,16"}
ADAPTIVE = {"adaptive_input": True, "tie_adaptive_weights": True, "tie_adaptive_proj": True}
SOURCES: dict[str, tuple[str, dict[str, Any]]] = {
    "stock": (STOCK, {}),
    "stock, pre-norm": (STOCK, {"decoder_normalize_before": True}),
    "stock, shared": (STOCK, {"share_decoder_input_output_embed": True}),
    "stock, other input size": (STOCK, {"decoder_input_dim": 8, "decoder_output_dim": 12}),
    "stock, adaptive": (STOCK, {**ADAPTIVE, **CUTOFFS}),
    "other sizes": (HEADSIZE, {"qk_head_size": 3, "v_head_size": 6}),
    "scale of the model size": (HEADSIZE, {"head_size": 5, "attention_scale": "embed"}),
    "grouped": (GROUPED, {"head_groups": "2", **ADAPTIVE, **CUTOFFS}),
}
KEPT: Kept = {"encoder": [], "decoder": [[1, 2, 3], [0, 3]], "cross": []}


def trained(arch: str, **options: Any) -> Trained:
    """A language model as it comes from a checkpoint, weights random, biases too."""
    torch.manual_seed(5)
    symbols = task()
    chosen = {"dropout": 0.0, "attention_dropout": 0.0, **options}
    # Adaptive inputs have a buffer that is always single.
    model = language_model(arch, symbols, **chosen).double()
    given = OmegaConf.merge(
        OmegaConf.structured(MODEL_DATACLASS_REGISTRY[arch]()),
        language_model_options(arch, **chosen),
    )
    return as_trained(model, given, symbols)


def built(result: Trained) -> nn.Module:
    """The model of the checkpoint that is saved, as fairseq loads it."""
    state = result.content()
    model = build_model(OmegaConf.create(state["cfg"]["model"]), task())
    model.load_state_dict(state["model"], strict=True)
    return model.double().eval()


def tokens() -> Tensor:
    """Sentences padded right, as the task pads them."""
    symbols = task().source_dictionary
    pad, eos = symbols.pad(), symbols.eos()
    return torch.tensor([[eos, 5, 6, 7, 8], [eos, 9, 5, pad, pad], [eos, 11, 6, 22, pad]])


def continuations(model: nn.Module) -> list[list[int]]:
    """What beam search makes of two prefixes."""
    symbols = task().target_dictionary
    prefix = torch.tensor([[5, 6], [9, 11]])
    generator = SequenceGenerator([model], symbols, beam_size=3, max_len_b=8)
    sample = {"net_input": {"src_tokens": prefix}}
    found = generator.generate([model], sample, prefix_tokens=prefix)
    return [hypothesis["tokens"].tolist() for sentence in found for hypothesis in sentence]


@pytest.mark.parametrize("source", SOURCES)
def test_pruned_equals_masked(source: str) -> None:
    """Outputs, and continuations token for token."""
    arch, options = SOURCES[source]
    whole = trained(arch, **options)
    result = pruned(whole, KEPT)
    assert (result.arch, result.options["heads_in_decoder"]) == (HEADSIZE, "3,2")
    smaller, expected = built(result), masked(whole, KEPT)
    torch.testing.assert_close(smaller(tokens())[0], expected(tokens())[0], rtol=0, atol=1e-10)
    assert continuations(smaller) == continuations(expected)


@pytest.mark.parametrize("source", SOURCES)
def test_with_all_heads_nothing_changes(source: str) -> None:
    arch, options = SOURCES[source]
    whole = trained(arch, **options)
    same = built(pruned(whole, all_heads(whole.heads)))
    torch.testing.assert_close(same(tokens())[0], whole.model(tokens())[0], rtol=0, atol=1e-10)


def test_fewer_units_equal_masked_ones() -> None:
    whole = trained(STOCK)
    for layer in whole.model.decoder.layers:
        gone = torch.randperm(24)[:10]
        layer.fc2.weight.data[:, gone] = 0  # and so they are the least important
    result = pruned(whole, all_heads(whole.heads), ffn_dim=14)
    assert result.options["decoder_ffn_embed_dim"] == 14
    smaller = built(result)
    assert smaller.decoder.layers[0].fc1.weight.shape == (14, 16)
    torch.testing.assert_close(smaller(tokens())[0], whole.model(tokens())[0], rtol=0, atol=1e-10)


# ---- votes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", [STOCK, GROUPED])
@pytest.mark.parametrize("adaptive", [{}, {**ADAPTIVE, **CUTOFFS}], ids=["plain", "adaptive"])
def test_the_typical_head_of_each_group_is_voted_for(arch: str, adaptive: dict) -> None:
    """Heads 0, 1 and 3 have values 0.9, 1 and 1.2 times the same: 1 is nearest to the centre."""
    source = trained(arch, **adaptive)
    for one in source.attentions["decoder"]:
        for weight in (one.module.v_proj.weight, one.module.v_proj.bias):
            heads = weight.data.unflatten(0, (4, -1))
            heads[0], heads[3] = 0.9 * heads[1], 1.2 * heads[1]
            heads[2] *= -1
    model = grouped_model(source, "2", None).double()
    sample = {"net_input": {"src_tokens": tokens(), "src_lengths": torch.tensor([5, 3, 4])}}
    padding = task().source_dictionary.pad()
    votes = count_votes(model, [sample] * 3, padding, torch.device("cpu")).votes
    assert (votes["encoder"], votes["cross"]) == ([], [])
    assert [sorted(layer) for layer in votes["decoder"]] == [[[0, 0, 3, 0], [0, 3, 0, 0]]] * 2


# ---- what is refused -----------------------------------------------------------------------------


def test_attention_that_a_language_model_lacks() -> None:
    heads = trained(STOCK).heads
    assert heads == {"encoder": [], "decoder": [4, 4], "cross": []}
    with pytest.raises(UserError, match="--keep-heads: the model has no cross attention"):
        named_heads(["cross:0"], heads)


def test_heads_that_share_their_keys() -> None:
    model = language_model("transformer_lm_collab")
    with pytest.raises(UserError, match=r"CollaborativeAttention, of which none can be taken"):
        check_heads(replace(trained(STOCK), model=model))


def test_models_that_are_neither_of_the_two_kinds() -> None:
    source = trained(STOCK)
    for model in (roberta("roberta"), _Recurrent()):
        with pytest.raises(UserError, match="neither an encoder-decoder transformer nor a trans"):
            check_heads(replace(source, model=model))


class _Recurrent(nn.Module):
    """Like fairseq's LSTM models: layers, but no attention in them."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Module(), nn.Module()
        self.encoder.layers = self.decoder.layers = nn.ModuleList([nn.LSTMCell(2, 2)])
