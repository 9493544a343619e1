"""Step by step equals all at once, whatever beam search does to the rows; what the cache holds."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention, HeadAttention
from fairseq_collab.attention.beams import fold_beams, start_beam_history, unfold_beams

pytestmark = pytest.mark.usefixtures("float64")

D, H, S, B, BEAM, STEPS = 12, 3, 7, 4, 3, 6
TOLERANCE = 1e-10

VARIANTS = {
    "concatenated": lambda **o: ConcatenatedAttention(D, H, qk_head_size=2, v_head_size=5, **o),
    "collaborative": lambda **o: CollaborativeAttention(D, H, 5, **o),
    "content": lambda **o: CollaborativeAttention(D, H, 5, bias="content", **o),
}


@pytest.fixture(params=VARIANTS, ids=str)
def variant(request: pytest.FixtureRequest):
    return VARIANTS[request.param]


def randomise(attention: HeadAttention) -> HeadAttention:
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_(std=0.5)
    return attention.eval()


def random_order(rows: int) -> Tensor:
    """Beam search's reorder at its worst: any row may be dropped, copied, or moved."""
    return torch.randint(rows, (rows,))


def test_self_attention_under_random_reorders(variant) -> None:
    attention = randomise(variant(self_attention=True))
    rows = B * BEAM
    history = torch.empty(0, rows, D)
    padding = torch.zeros(rows, 0, dtype=torch.bool)
    state: dict = {}
    for step in range(STEPS):
        x = torch.randn(1, rows, D)
        pad = torch.rand(rows, 1) < 0.3 if step else torch.zeros(rows, 1, dtype=torch.bool)
        history, padding = torch.cat([history, x]), torch.cat([padding, pad], dim=1)
        # fairseq passes no mask at a step where no row is padding
        mask = pad if pad.any() else None
        output, weights = attention(x, x, x, key_padding_mask=mask, incremental_state=state)
        causal = torch.full((step + 1, step + 1), float("-inf")).triu(1)
        # only the last query: an earlier one may see nothing but padding
        whole, whole_weights = attention(
            history, history, history, key_padding_mask=padding, attn_mask=causal
        )
        torch.testing.assert_close(output[0], whole[-1], rtol=0, atol=TOLERANCE)
        torch.testing.assert_close(weights[:, 0], whole_weights[:, -1], rtol=0, atol=TOLERANCE)
        order = random_order(rows)
        attention.reorder_incremental_state(state, order)
        history, padding = history[:, order], padding[order]


@pytest.mark.parametrize("folded", [False, True], ids=["rows", "folded"])
def test_beams_share_what_they_have_in_common(variant, folded: bool) -> None:
    """Keys and values stay where they are while beams descend from each other and sentences end."""
    attention = randomise(variant(self_attention=True))
    sentences, rows = B, B * BEAM
    past, padding = torch.empty(0, rows, D), torch.zeros(rows, 0, dtype=torch.bool)
    state: dict = {}
    history = start_beam_history(state, B, rows, past)
    for step in range(40):  # more than the cache makes room for at once
        x = torch.randn(1, rows, D)
        pad = (torch.rand(rows, 1) < 0.2) & (step % 3 == 1)
        past, padding = torch.cat([past, x]), torch.cat([padding, pad], dim=1)
        history.extend(pad if pad.any() else None)
        if folded:
            query = fold_beams(x, BEAM)
            output, _ = attention(query, query, query, incremental_state=state, need_weights=False)
            output, weights = unfold_beams(output, 1), None
        else:
            output, weights = attention(x, x, x, incremental_state=state)
        causal = torch.full((step + 1, step + 1), float("-inf")).triu(1)
        whole, whole_weights = attention(
            past, past, past, key_padding_mask=padding, attn_mask=causal
        )
        seen = ~pad[:, 0]  # a query that is padding may see nothing at all
        torch.testing.assert_close(output[0, seen], whole[-1, seen], rtol=0, atol=TOLERANCE)
        if weights is not None:
            torch.testing.assert_close(
                weights[seen, 0], whole_weights[seen, -1], rtol=0, atol=TOLERANCE
            )
        kept = torch.arange(sentences)
        if step % 10 == 5 and sentences > 2:
            kept = kept[kept != step // 10]
        elif step % 10 == 8:
            kept = kept.flip(0)  # as many as before, in another order
        order = (kept[:, None] * BEAM + torch.randint(BEAM, (len(kept), BEAM))).flatten()
        history.reorder(order)
        attention.reorder_incremental_state(state, order)
        sentences, rows = len(kept), len(order)
        past, padding = past[:, order], padding[order]


def test_cross_attention_shares_the_cache_of_a_sentence(variant) -> None:
    """Beams move within their sentence, sentences drop out: as fairseq's generator does."""
    attention = randomise(variant(encoder_decoder_attention=True))
    source = torch.randn(S, B, D)
    padding = torch.zeros(B, S, dtype=torch.bool)
    padding[1, 4:] = padding[3, 2:] = True
    sentences = torch.arange(B)  # sentence of the encoder that each sentence of the cache is
    state: dict = {}
    for _ in range(STEPS):
        rows = len(sentences) * BEAM
        x = torch.randn(1, rows, D)
        output, weights = attention(
            x, source, source, key_padding_mask=padding, incremental_state=state, static_kv=True,
            need_head_weights=True,
        )  # fmt: skip
        cached = state[attention._state_key]["prev_key"].filled
        assert cached.size(0) == len(sentences), "one row a sentence, not one a beam"
        tiled = sentences.repeat_interleave(BEAM)
        expected, expected_weights = attention(
            x, source[:, tiled], source[:, tiled], key_padding_mask=padding[tiled],
            need_head_weights=True,
        )  # fmt: skip
        torch.testing.assert_close(output, expected, rtol=0, atol=TOLERANCE)
        torch.testing.assert_close(weights, expected_weights, rtol=0, atol=TOLERANCE)
        kept = torch.arange(len(sentences))
        if len(sentences) > 2:
            kept = kept[kept != torch.randint(len(sentences), ()).item()]
        elif len(sentences) == 2:
            kept = kept.flip(0)  # as many sentences as before, in another order
        beams = torch.randint(BEAM, (len(kept), BEAM))
        order = (kept[:, None] * BEAM + beams).flatten()
        attention.reorder_incremental_state(state, order)
        sentences = sentences[kept]


def test_several_queries_of_beams_at_once(variant) -> None:
    """A prefix forced at the first step: more than one query a row."""
    attention = randomise(variant(encoder_decoder_attention=True))
    source, x = torch.randn(S, B, D), torch.randn(2, B * BEAM, D)
    output, weights = attention(x, source, source, need_head_weights=True)
    tiled = source.repeat_interleave(BEAM, dim=1)
    expected, expected_weights = attention(x, tiled, tiled, need_head_weights=True)
    torch.testing.assert_close(output, expected, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(weights, expected_weights, rtol=0, atol=TOLERANCE)

    state: dict = {}
    attention(x, source, source, incremental_state=state, static_kv=True)
    order = torch.arange(B * BEAM).view(B, BEAM)[1:].flip(1).flatten()  # one sentence is over
    attention.reorder_incremental_state(state, order)
    output, _ = attention(x[:1, order], None, None, incremental_state=state, static_kv=True)
    torch.testing.assert_close(output, expected[:1, order], rtol=0, atol=TOLERANCE)


def test_collaborative_cache_holds_one_key_for_all_heads() -> None:
    attention = CollaborativeAttention(D, H, 5, self_attention=True)
    x, state = torch.randn(1, B, D), {}
    for step in range(1, 4):
        attention(x, x, x, incremental_state=state)
        assert state[attention._state_key]["prev_key"].filled.shape == (B, 1, step, 5)
        assert attention.cache_bytes(state) == {
            "keys": B * step * 5 * 8,
            "values": B * step * D * 8,
        }
    assert attention.cached_floats_per_token() == (5, D)
    assert attention.cache_bytes({}) == {"keys": 0, "values": 0}


@pytest.mark.parametrize("name", VARIANTS)
def test_reported_cache_is_the_cache(name: str) -> None:
    attention = VARIANTS[name](self_attention=True)
    x, state = torch.randn(1, 1, D), {}
    attention(x, x, x, incremental_state=state)
    keys, values = attention.cached_floats_per_token()
    assert attention.cache_bytes(state) == {"keys": keys * 8, "values": values * 8}


def test_no_key_and_nothing_cached_is_an_error() -> None:
    attention = CollaborativeAttention(D, H, 5, encoder_decoder_attention=True)
    with pytest.raises(ValueError, match="no key was given, and none is cached"):
        attention(torch.randn(1, B, D), None, None)
