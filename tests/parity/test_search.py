"""Our beam search finds fairseq's hypotheses in the same order, to the last bit."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
import torch
import toy
from fairseq import search as fairseq_search
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from hypothesis import given, settings
from hypothesis import strategies as st
from operators import Operators, aten
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.decoding import beam_search
from fairseq_collab.decoding import candidates as blocks
from fairseq_collab.decoding.beam_search import is_supported
from fairseq_collab.models.layers import Encoder
from fairseq_collab.models.variants import VARIANTS
from fairseq_compat.fairseq_fixes import SEARCH_ENV

INFINITY = float("inf")


def both(
    generator: SequenceGenerator, sample: Any, monkeypatch: pytest.MonkeyPatch, **arguments: Any
) -> list[list[list[dict[str, Tensor]]]]:
    """Hypotheses of our search, which must be the one that is used, and of fairseq's.

    In both, the beams of a sentence share its encoder output: equal to the last bit.
    """
    models = list(generator.model.models)
    assert is_supported(generator, sample, **arguments)
    monkeypatch.setenv(SEARCH_ENV, "exact")
    ours = generator.generate(models, sample, **arguments)
    monkeypatch.setenv(SEARCH_ENV, "fairseq")
    monkeypatch.setattr(Encoder, "reorder_encoder_out", lambda self, out, order: out)
    return [ours, generator.generate(models, sample, **arguments)]


def check(ours: list[Any], theirs: list[Any]) -> None:
    """Everything that a hypothesis has."""
    for one, other in zip(ours, theirs, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.keys() == b.keys()
            for name, tensor in b.items():
                assert torch.equal(a[name], tensor), name
                assert a[name].dtype == tensor.dtype


def sample(symbols: Any, sentences: int = 4) -> dict[str, Any]:
    """Sources of several lengths, one of them empty."""
    pad, eos = symbols.source_dictionary.pad(), symbols.source_dictionary.eos()
    sources = [[5, 6, 7, 8, 9, 4, 5], [9, 5], [], [11, 6, 10, 4], [8], [7, 5, 9]][:sentences]
    rows = [[pad] * (7 - len(words)) + words + [eos] for words in sources]
    lengths = torch.tensor([len(words) + 1 for words in sources])
    return {"net_input": {"src_tokens": torch.tensor(rows), "src_lengths": lengths}}


@pytest.fixture(scope="module")
def symbols() -> Any:
    return toy.task(words=150)  # three blocks, the last one not full


@pytest.fixture(scope="module")
def model(symbols: Any) -> nn.Module:
    return ending_early(symbols)


def ending_early(symbols: Any, **options: Any) -> nn.Module:
    """A model for which some sentences end early."""
    torch.manual_seed(3)
    model = toy.model("transformer_collab", symbols, key_dim=5, **options).eval()
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(3)
        model.decoder.output_projection.weight[2].mul_(8)  # eos
    return model


#: Options of fairseq's search, with several beam sizes.
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "longer are better": {"len_penalty": 1.4},
    "shorter are better": {"len_penalty": 0.6},
    "minimum length": {"min_len": 6},
    "maximum length": {"max_len_b": 3},
}
#: Options with one beam size.
OTHERS: dict[str, dict[str, Any]] = {
    "sums": {"normalize_scores": False},
    "may be empty": {"min_len": 0},
    "maximum length 0": {"min_len": 0, "max_len_b": 0},
    "maximum length by the source": {"max_len_a": 0.5, "max_len_b": 2},
    "fixed length": {"min_len": 5, "max_len_b": 5},
    "maximum length of all sentences": {"max_len": 5},
    "unknown words are worse": {"unk_penalty": 2.0},
    "unknown words are better": {"unk_penalty": -4.0},
    "temperature": {"temperature": 1.5},
    "another end": {"eos": 7},
}
CASES = [
    *((beam, name) for beam in (1, 5, 10) for name in OPTIONS),
    *((4, name) for name in OTHERS),
]


@pytest.mark.parametrize(("beam", "name"), CASES)
def test_finds_what_fairseq_finds(
    model: nn.Module, symbols: Any, beam: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"max_len_b": 9, **{**OPTIONS, **OTHERS}[name]}
    generator = SequenceGenerator([model], symbols.target_dictionary, beam_size=beam, **options)
    check(*both(generator, sample(symbols), monkeypatch))


def test_without_a_softmax_in_place(
    model: nn.Module, symbols: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a torch whose log-softmax may not write over its input."""
    assert beam_search.softmax_overwrites(), "this torch's may"
    monkeypatch.setattr(beam_search, "softmax_overwrites", lambda: False)
    monkeypatch.setattr(beam_search, "log_softmax_", None)
    generator = SequenceGenerator([model], symbols.target_dictionary, beam_size=2, max_len_b=9)
    check(*both(generator, sample(symbols), monkeypatch))


def test_attention_weights_and_first_words(symbols: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """None where the last layer has no heads; another bos."""
    for heads in ("4", "4,0"):
        model = toy.model("transformer_headsize_n", symbols, heads_in_cross=heads)
        generator = SequenceGenerator([model], symbols.target_dictionary, beam_size=4, max_len_b=9)
        ours, theirs = both(generator, sample(symbols), monkeypatch, bos_token=9)
        assert bool(ours[0][0]["attention"].numel()) is (heads == "4")
        check(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_in_other_number_formats(
    model: nn.Module, symbols: Any, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = SequenceGenerator([model], symbols.target_dictionary, beam_size=4, max_len_b=9)
    model.to(dtype)
    try:
        check(*both(generator, sample(symbols), monkeypatch))
    finally:
        model.to(torch.float32)


@pytest.mark.parametrize("variant", [variant.name for variant in VARIANTS])
def test_rounded_caches(variant: str, symbols: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beams share packed keys and values; scores are those of the whole pass."""
    model = toy.randomised(toy.model(f"transformer_{variant}", symbols, cache_bits=4).double())
    generator = SequenceGenerator([model], symbols.target_dictionary, beam_size=4, max_len_b=9)
    ours, theirs = both(generator, batch := sample(symbols), monkeypatch)
    check(ours, theirs)
    eos = torch.tensor([symbols.target_dictionary.eos()])
    for index, (best, *_) in enumerate(ours):
        one = {name: tensor[[index]] for name, tensor in batch["net_input"].items()}
        output = model(**one, prev_output_tokens=torch.cat([eos, best["tokens"][:-1]])[None])
        words = model.get_normalized_probs(output, log_probs=True)[0]
        scores = words.gather(1, best["tokens"][:, None])[:, 0].float()
        torch.testing.assert_close(best["positional_scores"], scores, rtol=0, atol=1e-5)


@pytest.mark.parametrize("beam", [1, 5])
def test_a_step_waits_for_a_gpu_once(
    symbols: Any, beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With learned positions: fairseq's sinusoids read sizes from tensors of the host."""
    model = toy.model("transformer_collab", symbols, decoder_learned_pos=True).eval()
    generator = SequenceGenerator([model], symbols.target_dictionary, beam_size=beam, max_len_b=9)
    waits, tolist = [], Tensor.tolist
    with Operators() as operators:
        monkeypatch.setattr(
            Tensor, "tolist", lambda x: operators.ran.append(aten.nonzero) or tolist(x)
        )
        model.decoder.register_forward_pre_hook(lambda *_: waits.append(operators.waits()))
        model.search(generator, sample(symbols))
    assert len(waits) > 5
    assert max(after - before for before, after in pairwise(waits)) == 1


# ---- what is left to fairseq ---------------------------------------------------------------------


@contextmanager
def output_weights(model: nn.Module, weight: Tensor) -> Iterator[None]:
    """Other weights of the output layer ``(V, d)`` for a while."""
    own = model.decoder.output_projection.weight
    before = own.detach().clone()
    with torch.no_grad():
        own.copy_(weight)
    try:
        yield
    finally:
        with torch.no_grad():
            own.copy_(before)


def generator_of(model: nn.Module, symbols: Any, **options: Any) -> SequenceGenerator:
    return SequenceGenerator([model], symbols.target_dictionary, max_len_b=5, **options)


#: Of fairseq's generator: a search strategy of a dictionary, or options, or what is done to its
#: model; or arguments of the call.
LEFT: dict[str, Any] = {
    "--sampling": fairseq_search.Sampling,
    "--diverse-beam-groups": lambda words: fairseq_search.DiverseBeamSearch(words, 5, 0.5),
    "--constraints": lambda words: fairseq_search.LexicallyConstrainedBeamSearch(words, "ordered"),
    "--diversity-rate": lambda words: fairseq_search.DiverseSiblingsSearch(words, 0.5),
    "--match-source-len": {"match_source_len": True},
    "--no-repeat-ngram-size": {"no_repeat_ngram_size": 2},
    "tokens_to_suppress": {"tokens_to_suppress": ("w3",)},
    "--lm-path": {"lm_model": nn.Identity()},
    "beam of half the vocabulary": {"beam_size": 77},
    "impossible lengths": {"min_len": 9},
}
CALLS: dict[str, dict[str, Any]] = {
    "--prefix-size": {"prefix_tokens": torch.full((4, 1), 8)},
    "constraints": {"constraints": torch.ones(4, 1)},
    "another argument": {"other": None},
}


@pytest.mark.parametrize("name", [*LEFT, *CALLS, "alignments", "ensemble", "dropout", "training"])
def test_left_to_fairseq(model: nn.Module, symbols: Any, name: str) -> None:
    words, option = symbols.target_dictionary, LEFT.get(name, {})
    options = option if isinstance(option, dict) else {"search_strategy": option(words)}
    generator = generator_of(model, symbols, **options)
    if name == "alignments":
        generator = SequenceGeneratorWithAlignment([model], words)
    elif name == "ensemble":
        generator = SequenceGenerator([model, model], words)
    elif name in ("dropout", "training"):
        model.train(name == "training")
        model.encoder.dropout_module.apply_during_inference = name == "dropout"
    try:
        assert model.search(generator, sample(symbols), **CALLS.get(name, {})) is None
    finally:
        model.eval()
        model.encoder.dropout_module.apply_during_inference = False


def test_speech_is_left_to_fairseq(model: nn.Module, symbols: Any) -> None:
    speech = {"net_input": {"source": torch.zeros(1, 9)}}
    assert model.search(generator_of(model, symbols), speech) is None


def test_plain_search_of_a_task_is_ours(
    model: nn.Module, symbols: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As fairseq-generate calls it; the environment switches it off, and rejects a wrong value."""
    from fairseq.tasks.fairseq_task import FairseqTask

    calls: list[int] = []
    monkeypatch.setattr(beam_search.BeamSearch, "run", lambda self: calls.append(1) or [])
    task = Namespace(target_dictionary=symbols.target_dictionary)
    generator = FairseqTask.build_generator(task, [model], Namespace(beam=3, nbest=2, max_len_b=4))
    for value, expected in (("exact", 1), ("fairseq", 1), ("", 2)):
        monkeypatch.setenv(SEARCH_ENV, value)
        FairseqTask.inference_step(task, generator, [model], sample(symbols))
        assert len(calls) == expected, value
    monkeypatch.setenv(SEARCH_ENV, "quick")
    with pytest.raises(UserError, match=f"{SEARCH_ENV}.*quick"):
        FairseqTask.inference_step(task, generator, [model], sample(symbols))


@pytest.mark.parametrize("value", [float("nan"), INFINITY])
def test_output_that_is_not_a_number_is_an_error(
    model: nn.Module, symbols: Any, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fairseq continues to the maximum length and fails there."""
    generator = generator_of(model, symbols, beam_size=2)
    broken = torch.full_like(model.decoder.output_projection.weight, value)
    with output_weights(model, broken):
        monkeypatch.setenv(SEARCH_ENV, "exact")
        with pytest.raises(UserError):
            generator.generate([model], sample(symbols))


# ---- candidates ----------------------------------------------------------------------------------


@st.composite
def tables(draw: Any) -> tuple[Tensor, Tensor | None, int]:
    """Log-probabilities of few values, so that many are equal, with NaN and -inf among them."""
    beam, words = draw(st.integers(1, 3)), draw(st.integers(7, 30))
    values = st.sampled_from([-0.5, -1.0, -1.5, -2.0, -INFINITY])
    row = st.lists(values, min_size=words, max_size=words) | st.just([float("nan")] * words)
    sentences = draw(st.integers(1, 3))
    flat = [draw(row) for _ in range(sentences * beam)]
    log_probs = torch.tensor(flat).view(sentences, beam, words)
    if not draw(st.booleans()):
        return log_probs[:, :1], None, 2 * beam
    score = st.sampled_from([-1.0, -0.5, -INFINITY])
    scores = draw(st.lists(score, min_size=sentences * beam, max_size=sentences * beam))
    return log_probs, torch.tensor(scores).view(sentences, beam), 2 * beam


@settings(deadline=None, max_examples=80, derandomize=True)
@given(tables(), st.sampled_from([3, 8, 64]))
def test_candidates_are_those_of_topk(table: tuple[Tensor, Tensor | None, int], block: int) -> None:
    """Bit for bit what fairseq's lines find: equal scores in the same order, whatever it is."""
    log_probs, scores, number = table
    theirs = log_probs.masked_fill(log_probs.isnan(), -INFINITY)
    if scores is not None:
        theirs = theirs + scores.unsqueeze(-1)
    best, where = theirs.flatten(1).topk(number)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(blocks, "BLOCK", block)
        found, tied = blocks.best_candidates(log_probs, scores, number)
        sentences = tied.nonzero().squeeze(1)
        found = blocks.in_order_of_torch(found, sentences, log_probs, scores)
    assert torch.equal(found.scores, best)
    possible = best > -INFINITY  # the order of impossible ones has no effect
    words = log_probs.size(2)
    assert torch.equal((found.beams * words + found.words)[possible], where[possible])
    assert int(found.words.max()) < words


def test_ties_are_searched_as_fairseq_does(
    model: nn.Module, symbols: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second word is the twin of the one before it: all scores occur twice or more."""
    weight = model.decoder.output_projection.weight.detach().clone()
    weight[5::2] = weight[4:-1:2]
    with output_weights(model, weight):
        for beam in (1, 4, 5):
            generator = generator_of(model, symbols, beam_size=beam)
            check(*both(generator, sample(symbols), monkeypatch))
