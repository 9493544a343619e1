"""Our attention is the papers' equations, whole and step by step, whatever beam search does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from attention_cases import SIZE, VARIANTS, Draw, draw_case
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from toy import close

from fairseq_collab.attention import (
    CollaborativeAttention,
    HeadAttention,
    SeparateAttention,
    base,
    cache,
)
from fairseq_collab.attention.cache import (
    Slots,
    as_cached,
    fold_beams,
    start_beam_history,
    unfold_beams,
)
from fairseq_collab.attention.collaborative import QUERY_MIXINGS

BITS = st.sampled_from([0, 8, 4])


def cache_bytes(attention: HeadAttention, state: dict) -> tuple[int, int]:
    """Bytes of keys and values; a tensor that is both counts once, as keys."""
    keys, values = (getattr(state[attention._state_key]["cache"], x) for x in ("keys", "values"))
    return keys.filled.nbytes, 0 if values is keys else values.filled.nbytes


@contextmanager
def dropping(every: int, share: float) -> Iterator[None]:
    """Search for dead slots so often, and drop them where they are this share of the live ones."""
    with mock.patch.multiple(cache, DROP_EVERY=every, DROP_SHARE=share):
        yield


def moved(sentences: int) -> Tensor:
    """Sentences that stay, leave, or change places."""
    left = torch.randperm(sentences)[: torch.randint(1, sentences + 1, ())]
    return left if torch.rand(()) < 0.3 else left.sort().values


def within_sentences(sentences: Tensor, beam: int) -> Tensor:
    """An order of rows: these sentences, each with any of its beams."""
    beams = torch.randint(beam, (len(sentences), beam))
    return (sentences[:, None] * beam + beams).flatten()


@pytest.mark.parametrize("variant", VARIANTS)
@settings(deadline=None, max_examples=10, derandomize=True)
@given(st.data())
def test_self_attention_under_random_reorders(variant: str, data: Any) -> None:
    """Beams descend from each other, sentences end, and caches keep only what a beam still sees."""
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 99)))
    attention, _ = draw_case(draw, variant)
    attention.cache_bits = draw(BITS)
    sentences, beam = draw(SIZE), draw(st.integers(1, 4))
    steps = draw(st.integers(1, 40))  # more than the cache makes room for at once
    every, share = draw(st.sampled_from([1, 2, 16])), draw(st.sampled_from([0, cache.DROP_SHARE]))
    wrote = torch.empty(sentences * beam, 0, dtype=torch.long)  # the slots of each row's steps
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
        slots = sentences * history.mask.size(3)
        bytes_of_slots = [n // 8 * slots for n in attention.cached_bits_per_token(64)]
        assert cache_bytes(attention, state) == tuple(bytes_of_slots)
        wrote = torch.cat([wrote, step * beam + torch.arange(beam).repeat(sentences)[:, None]], 1)
        left = moved(sentences) if torch.rand(()) < 0.1 else torch.arange(sentences)
        order = within_sentences(left, beam)
        with dropping(every, share):
            history.reorder(order, history.moved_sentences(order))
        attention.reorder_incremental_state(state, order)
        sentences, rows = len(left), len(order)
        past, padding, wrote = past[:, order], padding[order], wrote[order]
        if history.kept is not None:
            seen_by = wrote.masked_fill(padding, -1).view(sentences, -1).tolist()
            assert history.mask.size(3) == max(len({*slots} - {-1}) for slots in seen_by)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(deadline=None, max_examples=10, derandomize=True)
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
    with pytest.raises(ValueError, match="padding"):
        attention(x, x, x, key_padding_mask=padding, incremental_state={})
    with pytest.raises(ValueError, match="beam history"):
        attention(x, x, x, incremental_state={})
    with pytest.raises(ValueError, match="key"):
        attention(x, None, None)
    state: dict = {}
    start_beam_history(state, 3, 3, x).extend(padding)
    attention(x, x, x, incremental_state=state)
    with pytest.raises(ValueError, match="padding"):  # nor in a later step
        attention(x, x, x, key_padding_mask=padding, incremental_state=state)


# ---- caches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [0, 8, 4])
def test_slots_grow_in_place(bits: int) -> None:
    first = torch.randn(2, 3, 1, 4)
    slots, expected = Slots(first, bits), as_cached(first, bits)
    for step in range(50):
        new = torch.randn(slots.filled.size(0), 3, 2, 4)
        before = slots.filled.data_ptr()
        slots.append(new)
        expected = torch.cat([expected, as_cached(new, bits)], dim=2)
        assert torch.equal(slots.numbers(), expected)
        if 1 <= step < 17:
            assert slots.filled.data_ptr() == before, "there was room"
        if step == 20:
            slots.select(torch.tensor([1]))
            expected = expected[[1]]
            assert torch.equal(slots.numbers(), expected)


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.data())
def test_live_slots_of_random_masks(data: Any) -> None:
    """All that some beam sees, in their order; then what fills up to the longest sentence."""
    torch.manual_seed(data.draw(st.integers(0, 99)))
    sizes = [data.draw(x) for x in (SIZE, st.integers(1, 4), st.integers(0, 20))]
    mask = torch.zeros(sizes).masked_fill(torch.rand(sizes) < 0.7, float("-inf"))
    expected = [
        [slot for slot in range(sizes[2]) if not mask[index, :, slot].isinf().all()]
        for index in range(sizes[0])
    ]
    found = cache.live_slots(mask).tolist()
    assert {len(row) for row in found} == {max(map(len, expected))}
    for row, live in zip(found, expected, strict=True):
        assert row[: len(live)] == live
        assert len({*row}) == len(row), "no slot twice"


@pytest.mark.parametrize("bits", [0, 8, 4])
@pytest.mark.parametrize("is_latent", [True, False])
def test_caches_keep_slots(bits: int, is_latent: bool) -> None:
    """Each sentence others; the slots of a source stay."""
    keys, values = torch.randn(2, 3, 2, 7, 4).unbind()
    kept = torch.tensor([[0, 2, 6], [1, 3, 4], [0, 1, 2]])
    history = start_beam_history({}, 3, 6, keys)
    history.kept, history.moved = kept, torch.tensor([2, 0, 0])
    for is_source in (True, False):
        of = cache.Cache(keys, keys if is_latent else values, bits=bits, is_source=is_source)
        before = {name: getattr(of, name).numbers() for name in ("keys", "values")}
        of.follow(history)
        for name, numbers in before.items():
            expected = numbers[[2, 0, 0]]
            if not is_source:
                expected = torch.stack([x[:, i] for x, i in zip(expected, kept, strict=True)])
            assert torch.equal(getattr(of, name).numbers(), expected)


# ---- whole ---------------------------------------------------------------------------------------

in_double = pytest.mark.usefixtures("float64")
D, H, T, B = 24, 4, 5, 3
Masks = dict[str, Tensor | None]


def gradients(output: Tensor, module: nn.Module, *tensors: Tensor) -> dict[str, Tensor]:
    direction = torch.linspace(-1, 1, output.numel()).view_as(output)
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    wanted = [*parameters.values(), *tensors]
    found = torch.autograd.grad((output * direction).sum(), wanted)
    return dict(zip([*parameters, *map(str, range(len(tensors)))], found, strict=True))


@in_double
def test_shown_weights_are_those_before_dropout() -> None:
    ours, x = SeparateAttention(D, H, dropout=0.5), torch.randn(T, B, D)
    output, weights = ours(x, x, x, need_head_weights=True)
    whole, expected = ours.eval()(x, x, x, need_head_weights=True)
    close(weights, expected)
    assert not torch.allclose(output, whole), "no weight was dropped"
    with pytest.raises(ValueError, match="one input"):
        ours(x, x, x + 1)


@contextmanager
def fused(always: bool) -> Iterator[None]:
    """torch's fused kernel at every size, or never."""
    with mock.patch.object(base, "can_fuse", return_value=always):
        yield


def masks_of(draw: Draw, queries: int, keys: int, sentences: int) -> tuple[Masks, Tensor]:
    """Random padding and, for self-attention, a causal mask; the equation's masks ``(B, T, S)``."""
    padding = torch.rand(sentences, keys) < draw(st.sampled_from([0, 0.5]))
    padding[torch.arange(sentences), torch.randint(keys, (sentences,))] = False
    later = torch.ones(queries, keys, dtype=torch.bool).triu(1)
    kinds = ["none", "boolean", "added"] if queries == keys else ["none"]
    kind = draw(st.sampled_from(kinds))
    if kind == "none":
        later = later & False
    masked = padding[:, None] | later
    blind = masked.all(-1, keepdim=True)  # a query without keys sees the padding
    added = torch.zeros(queries, keys).double().masked_fill(later, float("-inf"))
    attn_mask = {"none": None, "boolean": later, "added": added}[kind]
    return {"key_padding_mask": padding, "attn_mask": attn_mask}, masked & ~blind | later


@pytest.mark.parametrize("variant", VARIANTS)
@settings(deadline=None, max_examples=30, derandomize=True)
@given(st.data())
def test_it_is_the_equation(variant: str, data: Any) -> None:
    """Output and all gradients, of any sizes, with and without torch's fused kernel."""
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 99)))
    crosses, queries, sentences = draw(st.booleans()), draw(st.integers(1, 6)), draw(SIZE)
    keys, kdim = (draw(SIZE), draw(SIZE)) if crosses else (queries, None)
    ours, equation = draw_case(draw, variant, kdim=kdim)
    ours.train()  # gates then have gradients
    x = torch.randn(queries, sentences, ours.embed_dim).double().requires_grad_()
    y = torch.randn(keys, sentences, kdim or 1).double().requires_grad_() if crosses else x
    masks, masked = masks_of(draw, queries, keys, sentences)
    with fused(draw(st.booleans())):
        torch.manual_seed(5)
        output, nothing = ours(x, y, y, **masks, need_weights=False)
    assert nothing is None
    weights, outputs = dict(ours.named_parameters()), []
    for b in range(sentences):
        torch.manual_seed(5)
        outputs.append(equation(x[:, b], y[:, b], weights, masked[b]))
    expected = torch.stack(outputs, dim=1)
    close(output, expected)
    leaves = (x, y) if crosses else (x,)
    grads, wanted = (gradients(o, ours, *leaves) for o in (output, expected))
    for name, gradient in wanted.items():
        close(grads[name], gradient, msg=name)


@in_double
@pytest.mark.parametrize("key_dim", [3, 7, D])
def test_all_mixings_start_as_one_function(key_dim: int) -> None:
    """With block mixing: same function, same seed, and the same draws for what comes after."""
    outputs, after = [], []
    x = torch.randn(T, B, D)
    for mixing in QUERY_MIXINGS:
        torch.manual_seed(5)
        ours = CollaborativeAttention(D, H, key_dim, query_mixing=mixing)
        after.append(float(torch.rand(1)))
        outputs.append(ours(x, x, x)[0])
    close(outputs[1], outputs[0])
    close(outputs[2], outputs[0])
    assert len(set(after)) == 1
