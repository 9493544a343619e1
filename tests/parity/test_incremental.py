"""Step by step equals all at once, whatever beam search does to the rows; what the cache holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention_cases import SIZE, VARIANTS, draw_case
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from toy import close

from fairseq_collab.attention import CollaborativeAttention, HeadAttention
from fairseq_collab.attention.cache import fold_beams, start_beam_history, unfold_beams

BITS = st.sampled_from([0, 8, 4])


def cache_bytes(attention: HeadAttention, state: dict) -> tuple[int, int]:
    """Bytes of keys and values; a tensor that is both counts once, as keys."""
    cache = state[attention._state_key]["cache"]
    values = 0 if cache.values is cache.keys else cache.values.filled.nbytes
    return cache.keys.filled.nbytes, values


def moved(sentences: int) -> Tensor:
    """Sentences that stay, leave, or change places."""
    left = torch.randperm(sentences)[: torch.randint(1, sentences + 1, ())]
    return left if torch.rand(()) < 0.3 else left.sort().values


def within_sentences(sentences: Tensor, beam: int) -> Tensor:
    """An order of rows: these sentences, each with any of its own beams."""
    beams = torch.randint(beam, (len(sentences), beam))
    return (sentences[:, None] * beam + beams).flatten()


@pytest.mark.parametrize("variant", VARIANTS)
@settings(deadline=None, max_examples=15, derandomize=True)
@given(st.data())
def test_self_attention_under_random_reorders(variant: str, data: Any) -> None:
    """Keys and values stay where they are while beams descend from each other and sentences end."""
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 99)))
    attention, _ = draw_case(draw, variant)
    attention.cache_bits = draw(BITS)
    sentences, beam = draw(SIZE), draw(st.integers(1, 4))
    steps = draw(st.integers(1, 40))  # more than the cache makes room for at once
    rows, d = sentences * beam, attention.embed_dim
    past, padding = torch.empty(0, rows, d).double(), torch.zeros(rows, 0, dtype=torch.bool)
    state: dict = {}
    history = start_beam_history(state, sentences, rows, past)
    for step in range(steps):
        x = torch.randn(1, rows, d).double()
        pad = (torch.rand(rows, 1) < 0.2) & (step % 3 == 1)
        past, padding = torch.cat([past, x]), torch.cat([padding, pad], dim=1)
        history.extend(pad)
        query = fold_beams(x, beam)
        output, weights = attention(query, query, query, incremental_state=state)
        output, weights = unfold_beams(output), weights.flatten(0, 1)  # (1, rows, d), (rows, t)
        causal = torch.ones(step + 1, step + 1, dtype=torch.bool).triu(1)
        whole, whole_weights = attention(
            past, past, past, key_padding_mask=padding, attn_mask=causal
        )
        seen = ~pad[:, 0]  # a query that is padding may see nothing at all
        close(output[0, seen], whole[-1, seen])
        close(weights[seen], whole_weights[seen, -1])
        bytes_per_token = [n // 8 * rows * (step + 1) for n in attention.cached_bits_per_token(64)]
        assert cache_bytes(attention, state) == tuple(bytes_per_token)
        left = moved(sentences) if torch.rand(()) < 0.1 else torch.arange(sentences)
        order = within_sentences(left, beam)
        history.reorder(order, history.moved_sentences(order))
        attention.reorder_incremental_state(state, order)
        sentences, rows = len(left), len(order)
        past, padding = past[:, order], padding[order]


@pytest.mark.parametrize("variant", VARIANTS)
@settings(deadline=None, max_examples=15, derandomize=True)
@given(st.data())
def test_cross_attention_shares_the_cache_of_a_sentence(variant: str, data: Any) -> None:
    """Beams move within their sentence, sentences drop out: as fairseq's generator does."""
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 99)))
    sentences, beam, keys, kdim = draw(SIZE), draw(st.integers(1, 4)), draw(SIZE), draw(SIZE)
    attention, _ = draw_case(draw, variant, kdim=kdim)
    attention.cache_bits = draw(BITS)
    source = torch.randn(keys, sentences, kdim).double()
    padding = torch.rand(sentences, keys) < 0.3
    padding[:, 0] = False
    state: dict = {}
    history = start_beam_history(state, sentences, sentences * beam, source)
    present = torch.arange(sentences)  # sentence of the encoder that each sentence of the cache is
    for _ in range(draw(SIZE)):
        x = torch.randn(1, len(present) * beam, attention.embed_dim).double()
        output, weights = attention(
            fold_beams(x, beam), source, source, key_padding_mask=padding, incremental_state=state,
            static_kv=True, need_head_weights=True,
        )  # fmt: skip
        tokens = keys * len(present)  # of the source: once a sentence, not once a beam
        bytes_per_token = [n // 8 * tokens for n in attention.cached_bits_per_token(64)]
        assert cache_bytes(attention, state) == tuple(bytes_per_token)
        rows = present.repeat_interleave(beam)
        tiled = source[:, rows]
        expected, expected_weights = attention(
            x, tiled, tiled, key_padding_mask=padding[rows], need_head_weights=True
        )
        close(unfold_beams(output), expected)
        rows = weights.flatten(1, 2).unsqueeze(2)  # (H, B, beam, S) -> (H, rows, 1, S)
        close(rows, expected_weights)
        left = moved(len(present))
        order = within_sentences(left, beam)
        history.reorder(order, history.moved_sentences(order))
        attention.reorder_incremental_state(state, order)
        present = present[left]


def test_wrong_calls() -> None:
    attention, x = CollaborativeAttention(12, 4, 5, query_mixing="full"), torch.randn(1, 3, 12)
    padding = torch.zeros(3, 1, dtype=torch.bool)
    with pytest.raises(ValueError, match="padding of a step belongs into the decoder's beam"):
        attention(x, x, x, key_padding_mask=padding, incremental_state={})
    with pytest.raises(ValueError, match="keeps no beam history: it must start one before a step"):
        attention(x, x, x, incremental_state={})
    with pytest.raises(ValueError, match="no key was given, and none is cached"):
        attention(x, None, None)


def test_a_shared_key_is_cached_once_per_token() -> None:
    attention = CollaborativeAttention(12, 4, 5, query_mixing="full")
    x, state = torch.randn(1, 3, 12), {}
    start_beam_history(state, 3, 3, x).extend(torch.zeros(3, 1))
    attention(x, x, x, incremental_state=state)
    assert state[attention._state_key]["cache"].keys.filled.shape == (3, 1, 1, 5)
