"""Step by step equals all at once, whatever beam search does to the rows; what the cache holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from parity.test_attention_parity import gated_attention
from parity.test_example_tied_heads import variant as tied_heads
from torch import Tensor
from toy import close

from fairseq_collab.attention import (
    CollaborativeAttention,
    ConcatenatedAttention,
    HeadAttention,
)
from fairseq_collab.attention.cache import fold_beams, start_beam_history, unfold_beams
from fairseq_collab.attention.grouped_query import GroupedQueryAttention
from fairseq_collab.attention.latent import LatentAttention
from fairseq_collab.attention.mfa import MFAAttention

pytestmark = pytest.mark.usefixtures("float64")

D, H, S, B, BEAM, STEPS = 12, 4, 7, 4, 3, 6


def collaborative(query_mixing: str = "diagonal", **options: Any) -> CollaborativeAttention:
    """Heads that mix all dimensions, as trained ones do."""
    options = {"query_mixing": query_mixing, "mixing_init": "xavier", **options}
    return CollaborativeAttention(D, H, 5, **options)


VARIANTS = {
    "concatenated": lambda **o: ConcatenatedAttention(D, H, qk_head_size=2, v_head_size=5, **o),
    "collaborative": collaborative,
    "value heads": lambda **o: collaborative(value_heads=2, **o),
    "one value head": lambda **o: collaborative(value_heads=1, **o),
    "latent": lambda **o: LatentAttention(D, H, 7, qk_head_size=2, v_head_size=5, **o),
    "grouped query": lambda **o: GroupedQueryAttention(D, H, 2, **o),
    "multi-query": lambda **o: GroupedQueryAttention(D, H, 1, **o),
    "full mixing": lambda **o: collaborative(query_mixing="full", **o),
    "own queries": lambda **o: collaborative(query_mixing="own", **o),
    "MFA": lambda **o: MFAAttention(D, H, 5, **o),
    "gated": lambda **o: gated_attention(D, H, **o),
    "one's own": lambda **o: tied_heads(D, H, **o),
}


@pytest.fixture(params=VARIANTS, ids=str)
def variant(request: pytest.FixtureRequest):
    return VARIANTS[request.param]


def cache_bytes(attention: HeadAttention, state: dict) -> tuple[int, int]:
    """Bytes of keys and values; a tensor that is both counts once, as keys."""
    cache = state[attention._state_key]["cache"]
    values = 0 if cache.values is cache.keys else cache.values.filled.nbytes
    return cache.keys.filled.nbytes, values


def within_sentences(sentences: Tensor, beam: int) -> Tensor:
    """An order of rows: sentences that stay or move, each with any of its own beams."""
    beams = torch.randint(beam, (len(sentences), beam))
    return (sentences[:, None] * beam + beams).flatten()


@pytest.mark.parametrize("beam", [1, BEAM])
def test_self_attention_under_random_reorders(variant, beam: int) -> None:
    """Keys and values stay where they are while beams descend from each other and sentences end.

    With one beam every row is a sentence, and any row may be dropped, copied, or moved.
    """
    attention = toy.randomised(variant()).eval()
    sentences, rows = B, B * beam
    past, padding = torch.empty(0, rows, D), torch.zeros(rows, 0, dtype=torch.bool)
    state: dict = {}
    history = start_beam_history(state, B, rows, past)
    for step in range(40):  # more than the cache makes room for at once
        x = torch.randn(1, rows, D)
        pad = (torch.rand(rows, 1) < 0.2) & (step % 3 == 1)
        past, padding = torch.cat([past, x]), torch.cat([padding, pad], dim=1)
        history.extend(pad if pad.any() else None)
        query = fold_beams(x, beam)
        output, weights = attention(query, query, query, incremental_state=state)
        output, weights = unfold_beams(output), weights.flatten(0, 1)  # (1, rows, d), (rows, t)
        causal = torch.full((step + 1, step + 1), float("-inf")).triu(1)
        whole, whole_weights = attention(
            past, past, past, key_padding_mask=padding, attn_mask=causal
        )
        seen = ~pad[:, 0]  # a query that is padding may see nothing at all
        close(output[0, seen], whole[-1, seen])
        close(weights[seen], whole_weights[seen, -1])
        kept = torch.arange(sentences)
        if step % 10 == 5 and sentences > 2:
            kept = kept[kept != step // 10]
        elif step % 10 == 8:
            kept = kept.flip(0)  # as many as before, in another order
        elif beam == 1:
            kept = torch.randint(sentences, (sentences,))
        order = within_sentences(kept, beam)
        history.reorder(order)
        attention.reorder_incremental_state(state, order)
        sentences, rows = len(kept), len(order)
        past, padding = past[:, order], padding[order]
    floats = sentences * attention.cached_floats_per_token()[0]
    assert cache_bytes(attention, state)[0] <= past.element_size() * floats * 40 * beam


def test_cross_attention_shares_the_cache_of_a_sentence(variant) -> None:
    """Beams move within their sentence, sentences drop out: as fairseq's generator does."""
    attention = toy.randomised(variant()).eval()
    source = torch.randn(S, B, D)
    padding = torch.zeros(B, S, dtype=torch.bool)
    padding[1, 4:] = padding[3, 2:] = True
    sentences = torch.arange(B)  # sentence of the encoder that each sentence of the cache is
    state: dict = {}
    history = start_beam_history(state, B, B * BEAM, source)
    for _ in range(STEPS):
        x = torch.randn(1, len(sentences) * BEAM, D)
        output, weights = attention(
            fold_beams(x, BEAM), source, source, key_padding_mask=padding, incremental_state=state,
            static_kv=True, need_head_weights=True,
        )  # fmt: skip
        cached = state[attention._state_key]["cache"].keys.filled
        assert cached.size(0) == len(sentences), "one row a sentence, not one a beam"
        rows = sentences.repeat_interleave(BEAM)
        tiled = source[:, rows]
        expected, expected_weights = attention(
            x, tiled, tiled, key_padding_mask=padding[rows], need_head_weights=True
        )
        close(unfold_beams(output), expected)
        rows = weights.flatten(1, 2).unsqueeze(2)  # (H, B, beam, S) -> (H, rows, 1, S)
        close(rows, expected_weights)
        kept = torch.arange(len(sentences))
        if len(sentences) > 2:
            kept = kept[kept != torch.randint(len(sentences), ()).item()]
        elif len(sentences) == 2:
            kept = kept.flip(0)  # as many sentences as before, in another order
        order = within_sentences(kept, BEAM)
        history.reorder(order)
        attention.reorder_incremental_state(state, order)
        sentences = sentences[kept]


def test_no_step_without_the_decoders_history(variant) -> None:
    attention, x = variant(), torch.randn(1, B, D)
    padding = torch.zeros(B, 1, dtype=torch.bool)
    with pytest.raises(ValueError, match="padding of a step belongs into the decoder's beam"):
        attention(x, x, x, key_padding_mask=padding, incremental_state={})
    with pytest.raises(ValueError, match="keeps no beam history: it must start one before a step"):
        attention(x, x, x, incremental_state={})


def test_no_key_and_nothing_cached_is_an_error() -> None:
    attention = collaborative()
    with pytest.raises(ValueError, match="no key was given, and none is cached"):
        attention(torch.randn(1, B, D), None, None)


@pytest.mark.parametrize("name", VARIANTS)
def test_reported_cache_is_the_cache(name: str) -> None:
    """Of shared keys, one of K numbers a token for all heads."""
    attention = VARIANTS[name]()
    x, state = torch.randn(1, B, D), {}
    history = start_beam_history(state, B, B, x)
    keys, values = attention.cached_floats_per_token()
    for step in range(1, 4):
        history.extend()
        attention(x, x, x, incremental_state=state)
        tokens = B * step * 8
        assert cache_bytes(attention, state) == (keys * tokens, values * tokens)
    if name == "collaborative":
        assert (keys, values) == (5, D)
        assert state[attention._state_key]["cache"].keys.filled.shape == (B, 1, step, 5)
