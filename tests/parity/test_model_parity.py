"""Whole models in the limit where they are fairseq's, in double precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models.fairseq_incremental_decoder import FairseqIncrementalDecoder
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from omegaconf import OmegaConf
from torch import Tensor, nn
from toy import close
from toy_language_models import language_model, task

from collab_common.provenance import MATMUL_ENV
from collab_lab.metrics.cost import used_parameters
from fairseq_compat.fairseq_fixes import SEARCH_ENV

pytestmark = pytest.mark.usefixtures("float64")

COLLAB, HEADSIZE = "transformer_collab", "transformer_headsize_n"
LIMITS: dict[str, dict[str, Any]] = {
    "collaborative": {"arch": COLLAB, "key_dim": 16, "mixing_init": "block"},
    "ordinary": {"arch": COLLAB, "key_dim": 0},
    "cross only": {
        "arch": COLLAB,
        "key_dim": 16,
        "mixing_init": "block",
        "key_dim_in_encoder": "0",
        "key_dim_in_decoder": "0",
    },
    "head size": {"arch": HEADSIZE},
    "head size d/H": {"arch": HEADSIZE, "head_size": 4, "heads_in_cross": "4,4"},
    "as many groups as heads": {"arch": "transformer_grouped_query", "key_value_heads": 4},
    "key dimension d": {"arch": HEADSIZE, "key_dim": 16, "attention_scale": "embed"},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "shared": {"share_all_embeddings": True},
    "pre-norm": {"encoder_normalize_before": True, "decoder_normalize_before": True},
    "learned positions": {"encoder_learned_pos": True, "decoder_learned_pos": True},
    "embedding norm": {"layernorm_embedding": True},
    "gelu": {"activation_fn": "gelu"},
    "other encoder size": {"encoder_embed_dim": 8, "encoder_attention_heads": 2},
    "output size": {"decoder_output_dim": 12, "decoder_input_dim": 8},
    "checkpointing": {"checkpoint_activations": True},
}


def pair(limit: str, **options: Any) -> tuple[nn.Module, nn.Module]:
    """Our model and fairseq's, with the same weights and no dropout."""
    options = {"dropout": 0.0, **options}
    ours = toy.model(**options, **LIMITS[limit])
    stock = toy.model("transformer", **options)
    weights = ours.state_dict()
    # fairseq's encoder layers hold unused copies of their weights, which stay as they are.
    stock.load_state_dict({name: weights.get(name, w) for name, w in stock.state_dict().items()})
    return ours, stock


def no_copies(stock: nn.Module) -> dict[str, Tensor]:
    """fairseq's parameters without the unused copies in its encoder layers."""
    used = {id(parameter) for parameter in used_parameters(stock)}
    return {name: p for name, p in stock.named_parameters() if id(p) in used}


#: Each limit, and each option in training, where the code is fairseq's.
CASES = [(limit, "plain", training) for limit in LIMITS for training in (True, False)]
CASES += [("head size", options, True) for options in OPTIONS if options != "plain"]


@pytest.mark.parametrize(("limit", "options", "training"), CASES)
def test_limit_equals_fairseq(limit: str, options: str, training: bool) -> None:
    ours, stock = (model.train(training) for model in pair(limit, **OPTIONS[options]))
    batch = toy.batch()
    (logits, extra), (expected, expected_extra) = ours(**batch), stock(**batch)
    close(logits, expected)
    if training:
        assert extra["attn"] is None, "computed for nobody"
    elif expected_extra["attn"][0] is not None:
        close(extra["attn"][0], expected_extra["attn"][0])
    direction = torch.linspace(-1, 1, logits.numel()).view_as(logits)
    for output in (logits, expected):
        (output * direction).sum().backward()
    own = dict(ours.named_parameters())
    for name, parameter in no_copies(stock).items():
        close(own[name].grad, parameter.grad, msg=name)


@pytest.mark.parametrize(
    "limit", ["collaborative", "head size", "key dimension d", "as many groups as heads"]
)
def test_one_seed_gives_both_the_same_weights(limit: str) -> None:
    torch.manual_seed(5)
    ours = toy.model(**LIMITS[limit])
    torch.manual_seed(5)
    stock = no_copies(toy.model("transformer"))
    for name, weight in stock.items():
        assert torch.equal(ours.state_dict()[name], weight), name
    mixing = sum(p.numel() for name, p in ours.named_parameters() if "mixing" in name)
    assert toy.num_parameters(ours) - mixing == sum(p.numel() for p in stock.values())


def test_collaborative_heads_start_as_concatenated_ones_of_the_same_key_dimension() -> None:
    """Block mixing, scale and gains alike: then the methods differ in what training does."""
    torch.manual_seed(5)
    collab = toy.model(COLLAB, key_dim=8, mixing_init="block", attention_scale="key").eval()
    torch.manual_seed(5)
    concatenated = toy.model(HEADSIZE, key_dim=8, key_init="fork").eval()
    batch = toy.batch()
    close(collab(**batch)[0], concatenated(**batch)[0])


def generator(model: nn.Module, symbols: Any, beam: int) -> SequenceGenerator:
    return SequenceGenerator([model], symbols.target_dictionary, beam_size=beam, max_len_b=12)


@pytest.mark.parametrize(
    ("limit", "beam", "search"),
    [
        ("collaborative", 1, "exact"),
        ("ordinary", 4, "exact"),
        ("head size", 4, "exact"),
        ("collaborative", 4, "fairseq"),
    ],
)
def test_beam_search_equals_fairseq(
    limit: str, beam: int, search: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same hypotheses, scores and attention, with shared caches and with fairseq's."""
    monkeypatch.setenv(SEARCH_ENV, search)
    symbols = toy.task()
    ours, stock = (model.eval() for model in pair(limit))
    sample = {"net_input": toy.batch(symbols)}
    found, expected = (generator(m, symbols, beam).generate([m], sample) for m in (ours, stock))
    for hypotheses, wanted in zip(found, expected, strict=True):
        for one, other in zip(hypotheses, wanted, strict=True):
            assert one["tokens"].tolist() == other["tokens"].tolist()
            torch.testing.assert_close(one["score"], other["score"], rtol=0, atol=1e-6)
            torch.testing.assert_close(one["attention"], other["attention"], rtol=0, atol=1e-6)


#: How fairseq makes a generator; the first is searched by our own loop.
GENERATORS: dict[str, Any] = {
    "beams": lambda model, symbols: SequenceGenerator([model], symbols, 4, max_len_b=9),
    "fairseq's search": lambda model, symbols: SequenceGenerator(
        [model], symbols, 4, max_len_b=9, no_repeat_ngram_size=2
    ),
    "alignments": lambda model, symbols: SequenceGeneratorWithAlignment(
        [model], symbols, beam_size=4, max_len_b=9
    ),
}


def state_of(model: nn.Module) -> dict[str, Any]:
    """All flags and other attributes of all modules, except weights."""
    return {
        f"{name}.{key}": value if isinstance(value, bool | int | str) else type(value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if key[0] != "_" and f"{name}.{key}" != ".train"  # fairseq's: no training after prepare_...
    }


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_generator_leaves_nothing_on_the_model(
    kind: str, monkeypatch: pytest.MonkeyPatch, fresh_choice: None
) -> None:
    """It is made by fairseq-generate's steps; a loop of the user's own then equals stock's."""
    monkeypatch.setenv(MATMUL_ENV, "onednn")
    torch.set_default_dtype(torch.float32)
    symbols = toy.task()
    models = [model.eval() for model in pair("collaborative")]
    cfg = OmegaConf.structured(FairseqConfig)
    logits = []
    for model in models:
        before = state_of(model)
        model.prepare_for_inference_(cfg)
        maker = GENERATORS[kind](model, symbols.target_dictionary)
        maker.generate([model], {"net_input": toy.batch(symbols)})
        if model is models[0]:
            assert state_of(model) == before
        with torch.no_grad():
            model.decoder.output_projection.weight.data[5:9] *= -1  # seen by nobody but the model
            logits.append(own_loop(model, toy.batch(symbols)))
    torch.testing.assert_close(*logits)


def own_loop(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Logits of a loop with two rows a sentence, which swaps rows and drops a sentence."""
    source = model.encoder.forward_torchscript(batch)
    source = model.encoder.reorder_encoder_out(source, torch.tensor([2, 2, 1, 1, 0, 0]))
    tokens, state, logits = torch.tensor([[2, 9], [2, 5]]).repeat(3, 1), {}, []
    for rows in ([1, 0, 2, 2, 5, 4], [0, 1, 3, 2, 4, 4], [0, 0, 5, 4], [1, 0, 2, 3]):
        step, _ = model.decoder(tokens, encoder_out=source, incremental_state=state)
        order = torch.tensor(rows)
        tokens = torch.cat([tokens, step[:, -1:, 4:].argmax(-1) + 4], dim=1)[order]
        source = model.encoder.reorder_encoder_out(source, order)
        model.decoder.reorder_incremental_state_scripting(state, order)
        logits.append(step.flatten())
    return torch.cat(logits)


# ---- language models in the limit ----------------------------------------------------------------

#: The options by which a variant becomes fairseq's model.
LM_LIMITS: dict[str, dict[str, Any]] = {
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


@pytest.mark.parametrize(
    ("variant", "options", "training"),
    [
        *(("collab", "plain", training) for training in (True, False)),
        *(("headsize_n", one, True) for one in LM_OPTIONS),
    ],
)
def test_language_model_in_the_limit_is_fairseqs(
    variant: str, options: str, training: bool
) -> None:
    chosen = {"dropout": 0.0, **LM_OPTIONS[options]}
    ours, stock = with_weights_of(
        language_model("transformer_lm", **chosen),
        language_model(f"transformer_lm_{variant}", **chosen, **LM_LIMITS[variant]),
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
        {"arch": "transformer_lm_headsize_n", "head_size": 3, "heads_in_decoder": "5,2"},
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
