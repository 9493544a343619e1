"""Our attention against fairseq's and against the papers' equations, in double precision.

The layers differ in one thing only, so outputs and all gradients must agree to 1e-10.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from attention_cases import SIZE, VARIANTS, Draw, draw_case
from fairseq.modules import MultiheadAttention
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call
from toy import close

from fairseq_collab.attention import CollaborativeAttention, HeadAttention, SeparateAttention, base
from fairseq_collab.attention.collaborative import QUERY_MIXINGS

in_double = pytest.mark.usefixtures("float64")

D, H, T, S, B = 24, 4, 5, 6, 3
Masks = dict[str, Tensor | None]


def limit_case(kind: str, **options: object) -> HeadAttention:
    """The variant's limit that is ordinary attention."""
    if kind == "concatenated":
        return SeparateAttention(D, H, **options)
    return CollaborativeAttention(D, H, D, query_mixing="diagonal", **options)


def inputs(cross: bool) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Query, key, padding mask and causal mask; gradients go through query and key."""
    query = torch.randn(T, B, D, requires_grad=True)
    keys = S if cross else T
    key = torch.randn(keys, B, D, requires_grad=True) if cross else query
    padding = torch.zeros(B, keys, dtype=torch.bool)
    padding[1, -1] = padding[2, -2:] = True
    causal = None if cross else torch.full((T, T), float("-inf")).triu(1)
    return query, key, padding, causal


def gradients(output: Tensor, module: nn.Module, *tensors: Tensor) -> dict[str, Tensor]:
    direction = torch.linspace(-1, 1, output.numel()).view_as(output)
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    wanted = [*parameters.values(), *tensors]
    found = torch.autograd.grad((output * direction).sum(), wanted)
    return dict(zip([*parameters, *map(str, range(len(tensors)))], found, strict=True))


@in_double
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("kind", ["concatenated", "collaborative"])
def test_limit_equals_fairseq(kind: str, cross: bool, training: bool) -> None:
    options = {"encoder_decoder_attention": True} if cross else {"self_attention": True}
    ours = limit_case(kind).train(training)
    stock = MultiheadAttention(D, H, **options).train(training)
    stock._set_skip_embed_dim_check()  # fairseq's explicit path, the one with weights per head
    missing, unexpected = stock.load_state_dict(ours.state_dict(), strict=False)
    assert not missing
    assert set(unexpected) <= {"signature", "mixing"}

    query, key, padding, causal = inputs(cross)
    masks = {"key_padding_mask": padding, "attn_mask": causal}
    output, weights = ours(query, key, key, **masks, need_head_weights=True)
    expected, expected_weights = stock(query, key, key, **masks, need_head_weights=True)
    close(output, expected)
    close(weights, expected_weights)
    mean = ours(query, key, key, **masks)[1]
    close(mean, expected_weights.mean(0))

    leaves = (query, key) if cross else (query,)
    grads = gradients(output, ours, *leaves)
    for name, gradient in gradients(expected, stock, *leaves).items():
        close(grads[name], gradient, msg=name)


@in_double
@pytest.mark.parametrize("kind", ["concatenated", "collaborative"])
def test_shown_weights_are_those_before_dropout(kind: str) -> None:
    ours = limit_case(kind, dropout=0.5).train()
    query, key, padding, causal = inputs(cross=False)
    masks = {"key_padding_mask": padding, "attn_mask": causal}
    output, weights = ours(query, key, key, **masks, need_head_weights=True)
    whole, expected = ours.eval()(query, key, key, **masks, need_head_weights=True)
    close(weights, expected)
    assert not torch.allclose(output, whole), "no weight was dropped"


@contextmanager
def fused(always: bool) -> Iterator[None]:
    """torch's fused kernel at every size, or never."""
    with mock.patch.object(base, "can_fuse", return_value=always):
        yield


def test_keys_and_values_have_one_input() -> None:
    x, y = torch.randn(2, T, B, D)
    with pytest.raises(ValueError, match="one input"):
        limit_case("concatenated")(x, x, y)


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
@settings(deadline=None, max_examples=40, derandomize=True)
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
        output, _ = ours(x, y, y, **masks, need_weights=False)
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


@pytest.mark.parametrize("fuses", [False, True], ids=["explicit", "fused"])
@pytest.mark.parametrize("variant", VARIANTS)
@settings(deadline=None, max_examples=3, derandomize=True)
@given(st.data())
def test_gradients_are_derivatives(variant: str, fuses: bool, data: Any) -> None:
    """In training; a gate is a fixed draw."""
    torch.manual_seed(5)
    ours, _ = draw_case(data.draw, variant)
    parameters = {name: p for name, p in ours.train().named_parameters() if p.numel()}

    def output(x: Tensor, *weights: Tensor) -> Tensor:
        torch.manual_seed(5)
        named = dict(zip(parameters, weights, strict=True))
        return functional_call(ours, named, (x, x, x), {"need_weights": False})[0]

    x = torch.randn(4, 2, ours.embed_dim).double().requires_grad_()
    with fused(fuses):
        assert torch.autograd.gradcheck(output, (x, *parameters.values()), fast_mode=True)


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
