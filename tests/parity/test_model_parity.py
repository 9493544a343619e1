"""Whole models in the limit where they are fairseq's transformer, in double precision."""

from __future__ import annotations

from argparse import Namespace
from itertools import chain
from typing import Any

import pytest
import torch
import toy
from fairseq.criterions.label_smoothed_cross_entropy_with_alignment import (
    LabelSmoothedCrossEntropyCriterionWithAlignment,
)
from fairseq.dataclass.configs import FairseqConfig
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.sequence_scorer import SequenceScorer
from omegaconf import OmegaConf
from torch import Tensor, nn
from toy import close
from toy_heads import sample

from collab_common.provenance import MATMUL_ENV
from collab_lab.metrics.cost import used_parameters
from fairseq_compat.fairseq_fixes import SEARCH_ENV, SEARCHES

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


#: With another encoder size, the limit K = d would be another K at each type.
CASES = [
    (limit, options)
    for limit in LIMITS
    for options in OPTIONS
    if options != "other encoder size" or limit in ("ordinary", "head size")
]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("limit", "options"), CASES)
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


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("limit", ["collaborative", "ordinary", "head size"])
@pytest.mark.parametrize("search", SEARCHES)
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


@pytest.mark.parametrize(
    "options",
    [
        {"arch": COLLAB, "key_dim": 5, "query_mixing": "diagonal"},
        {"arch": HEADSIZE, "qk_head_size": 3, "v_head_size": 7, "heads_in_decoder": "3,1"},
        {"arch": COLLAB, "key_dim": 6, "query_mixing": "own", "query_mixing_in_decoder": "full"},
        {"arch": "transformer_latent", "latent_dim": 6},
    ],
    ids=["diagonal", HEADSIZE, "mixing", "latent"],
)
def test_beam_search_with_reduced_keys_equals_rescoring(options: dict[str, Any]) -> None:
    """No limit case: the score of every hypothesis equals that of one teacher-forced pass."""
    symbols = toy.task()
    model = toy.model(**options).eval()
    batch = toy.batch(symbols)
    hypotheses = generator(model, symbols, beam=4).generate([model], {"net_input": batch})
    for i, candidates in enumerate(hypotheses):
        for hypothesis in candidates:
            tokens = hypothesis["tokens"]
            shifted = tokens.roll(1)[None]
            source = batch["src_tokens"][i : i + 1]
            net_output = model(source, batch["src_lengths"][i : i + 1], shifted)
            scores = model.get_normalized_probs(net_output, log_probs=True)[0]
            total = scores.gather(1, tokens[:, None]).sum()
            # fairseq's search keeps its scores in single precision
            assert hypothesis["score"] * len(tokens) == pytest.approx(total.item(), abs=1e-4)


def test_targets_may_be_padded_on_the_left() -> None:
    """As with --left-pad-target: the same output at each word, and the same gradients."""
    model = toy.model(COLLAB, key_dim=5, dropout=0.0)
    right = toy.batch()
    tokens = right["prev_output_tokens"]
    words = tokens.ne(toy.task().source_dictionary.pad())  # all of them on the left
    left = torch.stack(
        [row.roll(int((~own).sum())) for row, own in zip(tokens, words, strict=True)]
    )
    outputs = [
        model(**right)[0][words],
        model(**{**right, "prev_output_tokens": left})[0][words.flip(1)],
    ]
    close(*outputs)
    gradients = [torch.autograd.grad(x.square().sum(), model.parameters()) for x in outputs]
    close(*gradients)


#: How fairseq makes a generator; the first is searched by our own loop.
GENERATORS: dict[str, Any] = {
    "beams": lambda model, symbols: SequenceGenerator([model], symbols, 4, max_len_b=9),
    "greedy": lambda model, symbols: SequenceGenerator([model], symbols, 1, max_len_b=9),
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


def test_alignments_are_fairseqs() -> None:
    """Also after fairseq's announcement that none will be printed, as in its hub."""
    symbols = toy.task()
    found, expected = (
        GENERATORS["alignments"](model, symbols.target_dictionary).generate(
            [model], {"net_input": toy.batch(symbols)}
        )
        for model in pair("collaborative")
        if model.make_generation_fast_(need_attn=False) is None
    )
    for one, other in zip(chain(*found), chain(*expected), strict=True):
        assert one["alignment"] == other["alignment"] != []
        torch.testing.assert_close(one["attention"], other["attention"], rtol=0, atol=1e-6)


def test_references_are_scored_by_an_ensemble_with_fairseqs_own() -> None:
    """As --score-reference does it, which adds up attention weights of those that return some."""
    ours, stock = (model.eval() for model in pair("head size"))
    symbols = toy.task()
    for model in (ours, stock):
        model.make_generation_fast_(need_attn=False)
    batch = toy.batch(symbols)
    target = batch["prev_output_tokens"].roll(-1, dims=1)
    scorer = SequenceScorer(symbols.target_dictionary)
    mixed, expected = (
        scorer.generate([stock, other], {"net_input": batch, "target": target})
        for other in (ours, stock)
    )
    for one, two in zip(mixed, expected, strict=True):
        close(one[0]["positional_scores"], two[0]["positional_scores"])


def test_the_alignment_loss_is_fairseqs() -> None:
    """It reads the attention weights in training, where nobody else pays for them."""
    symbols = toy.task()
    symbols.cfg = Namespace(load_alignments=True)
    criterion = LabelSmoothedCrossEntropyCriterionWithAlignment(symbols, False, 0.1, 0.05)
    # Source and target positions, the latter over all sentences, as fairseq's data sets pair them.
    pairs = {"alignments": torch.tensor([[4, 0], [3, 5]]), "align_weights": torch.tensor([1, 0.5])}
    batch = {**sample(), **pairs}
    models = [model.train() for model in pair("head size", symbols=symbols)]
    (loss, _, log), (expected, _, expected_log) = (criterion(model, batch) for model in models)
    close(loss, expected)
    close(log["alignment_loss"], expected_log["alignment_loss"])
    for output in (loss, expected):
        output.backward()
    own, theirs = (model.decoder.layers[-1].encoder_attn.k_proj.weight.grad for model in models)
    close(own, theirs)
