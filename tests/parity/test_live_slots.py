"""Slots that no beam sees are dropped, and every search finds what it finds with all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
import toy
from fairseq import search as fairseq_search
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.token_generation_constraints import pack_constraints
from parity.test_search import ending_early, sample
from torch import Tensor, nn
from toy import close
from toy_language_models import language_model

from fairseq_collab.attention import cache
from fairseq_collab.attention.cache import beam_history
from fairseq_collab.decoding.beam_search import ModelDecoding
from fairseq_collab.models.layers import Encoder
from fairseq_compat.fairseq_fixes import SEARCH_ENV

NEVER = 2**62
BEAM, STEPS = 4, 36

#: Architectures and options.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "standard": ("headsize_n", {}),
    "key and value size": ("headsize_n", {"qk_head_size": 3, "v_head_size": 5}),
    "no heads": ("headsize_n", {"heads_in_decoder": "4,0", "heads_in_cross": "0,4"}),
    "shared key": ("collab", {"key_dim": 5, "query_mixing": "full", "value_heads": 2}),
    "grouped heads": ("grouped_heads", {}),
    "gated heads": ("gated_heads", {}),
    "grouped query": ("grouped_query", {"key_value_heads": 2}),
    "latent": ("latent", {"latent_dim": 6}),
    "8 bits": ("headsize_n", {"cache_bits": "8"}),
    "latent, 4 bits": ("latent", {"latent_dim": 6, "cache_bits": "4"}),
    "one copy for all cross-attentions": ("latent", {"shared_latent_in_cross": 16}),
    "without cross-attention": ("headsize_n", {"no_cross_attention": True}),
}


@contextmanager
def dropping(every: int) -> Iterator[None]:
    """Search for dead slots so often, and drop each of them."""
    with mock.patch.multiple(cache, DROP_EVERY=every, DROP_SHARE=0):
        yield


@pytest.fixture(scope="module")
def symbols() -> Any:
    return toy.task(words=150)


@pytest.fixture(scope="module")
def model(symbols: Any) -> nn.Module:
    return ending_early(symbols).double()


# ---- steps ---------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("name", KINDS)
def test_probabilities_are_equal(name: str, every: int, symbols: Any) -> None:
    """Beams descend from each other at random, tokens may be padding, and sentences leave."""
    arch, options = KINDS[name]
    torch.manual_seed(every)
    model = toy.randomised(toy.model(f"transformer_{arch}", symbols, **options), 0.3)
    source = sample(symbols, 4)["net_input"]
    both = [ModelDecoding(model.double().eval(), source, 1.0) for _ in range(2)]
    sentences, tokens = 4, torch.full((4 * BEAM, 1), 2)
    for step in range(24):
        (expected, weights), (found, own) = (decoding.step(tokens) for decoding in both)
        close(found, expected)
        if weights is not None:
            close(own, weights)
        staying = None
        if step % 7 == 6 and sentences > 1:
            sentences -= 1
            staying = torch.randperm(sentences + 1)[:sentences]
        left = torch.arange(sentences) if staying is None else staying
        rows = (left[:, None] * BEAM + torch.randint(BEAM, (sentences, BEAM))).flatten()
        for decoding, often in zip(both, (NEVER, every), strict=True):
            with dropping(often):
                decoding.reorder(rows, staying)
        words = torch.randint(4, 150, (len(rows), 1))
        words[torch.rand(len(rows)) < 0.1] = 1  # padding, behind tokens that each beam sees
        tokens = torch.cat([tokens[rows], words], dim=1)
    slots = [beam_history(decoding.state).mask.size(3) for decoding in both]
    assert slots[1] < 0.75 * slots[0] == 0.75 * 24 * BEAM


def test_weights_by_step_know_the_steps_of_slots() -> None:
    """A slot keeps its step, also where sentences have different live slots, and one leaves."""
    history = cache.BeamHistory(2, 2, torch.zeros(()))
    with dropping(1):
        for order in ([1, 1, 2, 2], [0, 1, 3, 3], [1, 1, 2, 3]):
            history.extend(torch.zeros(4, 1))
            history.reorder(torch.tensor(order), None)
        history.reorder(torch.tensor([2, 3]), torch.tensor([1]))
        history.extend(torch.zeros(2, 1))
    assert history.mask.size(3) < 4 * 2
    seen = (history.mask[:, 0] == 0).double()  # as weights ``(B, beam, slots)``
    assert torch.equal(history.per_step(seen), torch.ones(1, 2, 4).double())
    heads = history.per_step(seen.unsqueeze(1).expand(-1, 3, -1, -1))
    assert torch.equal(heads, torch.ones(1, 3, 2, 4).double())


# ---- searches ------------------------------------------------------------------------------------


def strategy(make: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    return lambda words: {"search_strategy": make(words)}


#: Options of fairseq's generator, of its target dictionary.
SEARCHES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "beams": lambda _: {},
    "beam 1": lambda _: {"beam_size": 1},
    "beam 10": lambda _: {"beam_size": 10},
    "early ends": lambda _: {"min_len": 1},
    "sampling": strategy(lambda words: fairseq_search.Sampling(words, 20)),
    "diverse groups": strategy(lambda words: fairseq_search.DiverseBeamSearch(words, 2, 0.5)),
    "diverse siblings": strategy(lambda words: fairseq_search.DiverseSiblingsSearch(words, 0.5)),
    "constraints": strategy(
        lambda words: fairseq_search.LexicallyConstrainedBeamSearch(words, "unordered")
    ),
    "prefixes": lambda _: {},
    "no repeated words": lambda _: {"no_repeat_ngram_size": 2},
}
CALLS: dict[str, dict[str, Any]] = {
    "prefixes": {"prefix_tokens": torch.tensor([[8, 9, 5], [7, 1, 1], [6, 5, 1], [4, 4, 9]])},
    "constraints": {
        "constraints": pack_constraints(
            [[torch.tensor(words)] if words else [] for words in ([9, 7], [5], [], [6, 8, 6])]
        )
    },
}


def translate(
    models: list[Any], generator: Any, every: int, batch: Any, **arguments: Any
) -> tuple[Any, int]:
    """Hypotheses, and the greatest number of slots of a sentence."""
    widths = [0]

    def look(_: Any, arguments: Any, options: Any) -> None:
        (state,) = (x for x in (*arguments, *options.values()) if isinstance(x, dict))
        widths.append(beam_history(state).mask.size(3))

    handle = models[0].decoder.layers[0].register_forward_pre_hook(look, with_kwargs=True)
    torch.manual_seed(4)
    try:
        with dropping(every):
            found = generator.generate(models, batch, **arguments)
    finally:
        handle.remove()
    return found, max(widths)


def check(expected: Any, found: Any) -> None:
    """All hypotheses of each sentence, in their order; fairseq adds scores in single precision."""
    for one, other in zip(expected, found, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a["tokens"].tolist() == b["tokens"].tolist()
            for name in ("score", "positional_scores", "attention"):
                if isinstance(a[name], Tensor):
                    torch.testing.assert_close(b[name], a[name], rtol=1e-6, atol=1e-6)


def both_ways(models: list[Any], generator: Any, batch: Any, **arguments: Any) -> list[int]:
    """Compare, and return the slots of a search that keeps all, and of one that drops."""
    expected, every_slot = translate(models, generator, NEVER, batch, **arguments)
    found, slots = translate(models, generator, 1, batch, **arguments)
    check(expected, found)
    return [every_slot, slots]


#: Those that are our search.  fairseq's has a history of one beam for each hypothesis, unless the
#: beams of a sentence share its encoder output.
OURS = ("beams", "beam 1", "beam 10", "early ends")


@pytest.mark.parametrize("search", ["ours", "fairseq's", "fairseq's, shared"])
@pytest.mark.parametrize("name", SEARCHES)
def test_hypotheses_are_equal(
    name: str, search: str, model: nn.Module, symbols: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if search == "ours" and name not in OURS:
        pytest.skip("left to fairseq's search")
    monkeypatch.setenv(SEARCH_ENV, "exact" if search == "ours" else "fairseq")
    if search == "fairseq's, shared":
        monkeypatch.setattr(Encoder, "reorder_encoder_out", lambda self, out, order: out)
    words = symbols.target_dictionary
    limits = {"beam_size": BEAM, "min_len": STEPS - 1, "max_len_b": STEPS}
    generator = SequenceGenerator([model], words, **{**limits, **SEARCHES[name](words)})
    every_slot, slots = both_ways([model], generator, sample(symbols), **CALLS.get(name, {}))
    if search == "fairseq's" or name == "beam 1":
        assert slots == every_slot <= STEPS + 1, "nothing is dead"
    else:
        assert slots < (1 if name == "sampling" else 0.9) * every_slot  # samples share no steps


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_of_either_side(side: str, model: nn.Module, symbols: Any) -> None:
    batch = sample(symbols)
    source = batch["net_input"]["src_tokens"]
    if side == "right":
        for row in source:
            row.copy_(row.roll(-int(row.eq(1).sum())))
    options: dict[str, Any] = {"beam_size": BEAM, "min_len": 20, "max_len_b": 24}
    generator = SequenceGenerator([model], symbols.target_dictionary, **options)
    every_slot, slots = both_ways([model], generator, batch)
    assert slots < 0.9 * every_slot


def test_an_ensemble_and_alignments(
    model: nn.Module, symbols: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two kinds of heads, whose histories are equal."""
    monkeypatch.setattr(Encoder, "reorder_encoder_out", lambda self, out, order: out)
    words, options = symbols.target_dictionary, {"beam_size": BEAM, "min_len": 20, "max_len_b": 24}
    other = ending_early(symbols, query_mixing="own").double()
    generator = SequenceGenerator([model, other], words, **options)
    every_slot, slots = both_ways([model, other], generator, sample(symbols))
    assert slots < 0.9 * every_slot
    aligned = SequenceGeneratorWithAlignment([model], words, **options)
    batch = {**sample(symbols), "target": torch.full((4, 3), 5)}
    batch["net_input"]["prev_output_tokens"] = torch.full((4, 3), 5)
    every_slot, slots = both_ways([model], aligned, batch)
    assert slots < 0.9 * every_slot


def test_a_language_model_has_a_history_for_each_hypothesis() -> None:
    """Its beams do not know of each other: a slot a step, and nothing is dead."""
    sizes = {"latent_dim": 6, "tokens_per_sample": 40, "max_target_positions": 40}
    model = language_model("transformer_lm_latent", **sizes).double().eval()
    words = toy.dictionary()
    tokens = torch.tensor([[5, 6, 7], [1, 8, 9]])  # one with padding on the left
    batch = {"net_input": {"src_tokens": tokens, "src_lengths": torch.tensor([3, 2])}}
    options: dict[str, Any] = {"beam_size": BEAM, "min_len": 20, "max_len_b": 20}
    generator = SequenceGenerator([model], words, **options)
    slots = both_ways([model], generator, batch, prefix_tokens=tokens, bos_token=2)
    assert slots[0] == slots[1] <= 24


# ---- when ----------------------------------------------------------------------------------------


def test_a_cache_of_a_long_output_stays_small(model: nn.Module, symbols: Any) -> None:
    """With the constants as they are, buffers included."""
    peaks: dict[bool, int] = {}
    for drops in (False, True):
        options: dict[str, Any] = {"beam_size": BEAM, "min_len": 199, "max_len_b": 200}
        generator = SequenceGenerator([model], symbols.target_dictionary, **options)
        peaks[drops] = 0

        def look(_: Any, arguments: Any, __: Any, drops: bool = drops) -> None:
            (state,) = (x for x in arguments if isinstance(x, dict))
            own = model.decoder.layers[0].self_attn._cache(state)
            if own is not None:
                peaks[drops] = max(peaks[drops], own.keys._buffer.nbytes)

        handle = model.decoder.layers[0].register_forward_pre_hook(look, with_kwargs=True)
        with mock.patch.object(cache, "DROP_EVERY", cache.DROP_EVERY if drops else NEVER):
            generator.generate([model], sample(symbols, 2))
        handle.remove()
    assert peaks[True] < 0.6 * peaks[False]


def test_beam_1_searches_for_no_dead_slots(model: nn.Module, symbols: Any) -> None:
    generator = SequenceGenerator([model], symbols.target_dictionary, beam_size=1, max_len_b=40)
    with mock.patch.object(cache, "live_slots", side_effect=AssertionError):
        generator.generate([model], sample(symbols))
