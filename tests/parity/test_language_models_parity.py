"""Language models in the limit where they are fairseq's, in double precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fairseq.models.fairseq_incremental_decoder import FairseqIncrementalDecoder
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor, nn
from toy import close
from toy_language_models import language_model, task

pytestmark = pytest.mark.usefixtures("float64")

#: The options by which a variant becomes fairseq's model.
LIMITS: dict[str, dict[str, Any]] = {
    "collab": {"key_dim": 16, "mixing_init": "block"},
    "headsize_n": {},
}
CUTOFFS = {"adaptive_input_cutoff": "8,16", "adaptive_softmax_cutoff": "8,16"}
LM_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "pre-norm": {"decoder_normalize_before": True},
    "no final norm": {"decoder_normalize_before": True, "no_decoder_final_norm": True},
    "shared": {"share_decoder_input_output_embed": True},
    "learned positions": {"decoder_learned_pos": True, "layernorm_embedding": True},
    "input and output size": {"decoder_input_dim": 8, "decoder_output_dim": 12},
    "adaptive": {"adaptive_input": True, **CUTOFFS},
    "adaptive, tied": {
        "adaptive_input": True,
        "tie_adaptive_weights": True,
        "tie_adaptive_proj": True,
        **CUTOFFS,
    },
    "adaptive softmax": {"adaptive_softmax_cutoff": "8,16"},
    "gelu": {"activation_fn": "gelu"},
}


def tokens() -> Tensor:
    """Sentences padded right, as both tasks pad them."""
    symbols = task().source_dictionary
    pad, eos = symbols.pad(), symbols.eos()
    return torch.tensor([[eos, 5, 6, 7, 8], [eos, 9, 5, pad, pad], [eos, 11, 6, 22, pad]])


def with_weights_of(stock: nn.Module, ours: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Give fairseq's model our weights."""
    weights = {k: v for k, v in ours.state_dict().items() if k in stock.state_dict()}
    stock.load_state_dict(weights)
    return ours.double(), stock.double()  # adaptive inputs have a buffer that is always single


def check_equal(ours: nn.Module, stock: nn.Module, outputs: tuple[Tensor, Tensor]) -> None:
    """The same outputs, and the same gradients of every weight."""
    close(*outputs)
    direction = torch.linspace(-1, 1, outputs[0].numel()).view_as(outputs[0])
    for output in outputs:
        (output * direction).sum().backward()
    own = dict(ours.named_parameters())
    for name, parameter in stock.named_parameters():
        close(own[name].grad, parameter.grad, msg=name)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("options", LM_OPTIONS)
@pytest.mark.parametrize("variant", LIMITS)
def test_language_model_in_the_limit_is_fairseqs(
    variant: str, options: str, training: bool
) -> None:
    chosen = {"dropout": 0.0, **LM_OPTIONS[options]}
    ours, stock = with_weights_of(
        language_model("transformer_lm", **chosen),
        language_model(f"transformer_lm_{variant}", **chosen, **LIMITS[variant]),
    )
    found, expected = (model.train(training)(tokens()) for model in (ours, stock))
    sample = {"target": tokens().roll(-1, 1)}
    probabilities = [
        model.get_normalized_probs(output, log_probs=True, sample=sample)
        for model, output in ((ours, found), (stock, expected))
    ]
    torch.testing.assert_close(*probabilities, rtol=0, atol=1e-5)  # fairseq: single precision
    check_equal(ours, stock, (found[0], expected[0]))


@pytest.mark.parametrize(
    "options",
    [
        {"arch": "transformer_lm_collab", "key_dim": 5},
        {"arch": "transformer_lm_collab", "key_dim": 5, "query_mixing": "own"},
        {"arch": "transformer_lm_headsize_n", "head_size": 3, "heads_in_decoder": "5,2"},
        {"arch": "transformer_lm_latent", "latent_dim": 6},
        {"arch": "transformer_lm_latent", "latent_dim": 6, "cache_bits": 4},
        {"arch": "transformer_lm_grouped_query", "cache_bits_in_decoder": "8,4"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_step_by_step_equals_all_at_once_under_reorders(options: dict[str, Any]) -> None:
    model = language_model(**options).eval()
    history = torch.randint(4, 24, (6, 1))
    state: dict = {}
    for _ in range(6):
        logits, _ = model(history, incremental_state=state)
        whole, _ = model(history)
        close(logits[:, -1], whole[:, -1])
        order = torch.randint(6, (6,))
        decoder: FairseqIncrementalDecoder = model.decoder
        decoder.reorder_incremental_state_scripting(state, order)
        history = torch.cat([history[order], torch.randint(4, 24, (6, 1))], dim=1)


def test_beam_search_from_a_prefix_equals_fairseqs() -> None:
    symbols = task()
    ours, stock = with_weights_of(
        language_model("transformer_lm", symbols),
        language_model("transformer_lm_collab", symbols, **LIMITS["collab"]),
    )
    prefix = torch.tensor([[5, 6], [9, 11]])
    sample = {"net_input": {"src_tokens": prefix}}
    found, expected = (
        SequenceGenerator(
            [model.eval()], symbols.target_dictionary, beam_size=3, max_len_b=8
        ).generate([model], sample, prefix_tokens=prefix)
        for model in (ours, stock)
    )
    for hypotheses, wanted in zip(found, expected, strict=True):
        assert [h["tokens"].tolist() for h in hypotheses] == [h["tokens"].tolist() for h in wanted]
