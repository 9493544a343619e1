"""Our attention against fairseq's and against the papers' equations, in double precision.

The layers differ in one thing only, so outputs and all gradients must agree to 1e-10.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import reference
import torch
import toy
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn
from toy import close

from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention, HeadAttention
from fairseq_collab.attention.collaborative import QUERY_MIXINGS
from fairseq_collab.attention.gates import GatedAttention
from fairseq_collab.attention.grouped_query import GroupedQueryAttention
from fairseq_collab.attention.latent import LatentAttention
from fairseq_collab.attention.mfa import MFAAttention

pytestmark = pytest.mark.usefixtures("float64")

D, H, T, S, B = 24, 4, 5, 6, 3
#: ``(attention, x (T, d), y (S, d), mask (T, S))`` to ``(T, d)``, one sentence.
Oracle = Callable[[Any, Tensor, Tensor, Tensor], Tensor]


def limit_case(kind: str, **options: object) -> HeadAttention:
    """The variant's limit that is ordinary attention."""
    if kind == "concatenated":
        return ConcatenatedAttention(D, H, **options)
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


@pytest.mark.parametrize("kind", ["concatenated", "collaborative"])
def test_shown_weights_are_those_before_dropout(kind: str) -> None:
    ours = limit_case(kind, dropout=0.5).train()
    query, key, padding, causal = inputs(cross=False)
    masks = {"key_padding_mask": padding, "attn_mask": causal}
    output, weights = ours(query, key, key, **masks, need_head_weights=True)
    whole, expected = ours.eval()(query, key, key, **masks, need_head_weights=True)
    close(weights, expected)
    assert not torch.allclose(output, whole), "no weight was dropped"


def test_keys_and_values_have_one_input() -> None:
    x, y = torch.randn(2, T, B, D)
    with pytest.raises(ValueError, match="one input"):
        limit_case("concatenated")(x, x, y)


def per_sentence(oracle: Any, query: Tensor, key: Tensor, padding: Tensor, causal: Tensor | None):
    """Run a one-sentence oracle over a batch: ``(T, B, d)``."""
    outputs = []
    for b in range(query.size(1)):
        mask = padding[b].expand(query.size(0), -1)
        outputs.append(
            oracle(query[:, b], key[:, b], mask if causal is None else mask | (causal < 0))
        )
    return torch.stack(outputs, dim=1)


def check_oracle(ours: HeadAttention, oracle: Oracle, cross: bool) -> None:
    """Output and gradients equal the oracle's."""
    toy.randomised(ours).eval()
    query, key, padding, causal = inputs(cross)
    masks = {"key_padding_mask": padding, "attn_mask": causal}
    output, _ = ours(query, key, key, **masks, need_head_weights=True)
    expected = per_sentence(partial(oracle, ours), query, key, padding, causal)
    close(output, expected)
    leaves = (query, key) if cross else (query,)
    grads, wanted = (gradients(o, ours, *leaves) for o in (output, expected))
    for name, gradient in wanted.items():
        close(grads[name], gradient, msg=name)


def by(equation: Any, heads: int, scale: float) -> Oracle:
    """An equation of :mod:`reference` with the weights of the attention."""
    return lambda ours, x, y, mask: equation(
        x, y, dict(ours.named_parameters()), heads, scale, mask
    )


def gated_attention(*sizes: int, **options: Any) -> GatedAttention:
    """In evaluation a gate is 0 or 1, and has no gradient."""
    ours = GatedAttention(*sizes, **options).eval()
    ours.theta.requires_grad = False
    return ours


def gated(ours: GatedAttention, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Each gate multiplies the output of its head, which ``out_proj`` reads."""
    weights = dict(ours.named_parameters())
    columns = ours.gates().repeat_interleave(ours.v_head_size)
    weights["out_proj.weight"] = weights["out_proj.weight"] * columns
    return reference.heads(x, y, weights, H, (D / H) ** -0.5, mask)


#: How an attention is made, and its equation.
Case = tuple[Callable[..., HeadAttention], Oracle]
FORK, LIBRARY = (D / H) ** -0.5, {"scale": "key"}


def collaborative(key_dim: int, query_mixing: str = "diagonal", **options: Any) -> Case:
    scale = (key_dim / H) ** -0.5 if "scale" in options else FORK
    options = {"query_mixing": query_mixing, "mixing_init": "xavier", **options}
    make = partial(CollaborativeAttention, D, H, key_dim, **options)
    return make, by(reference.shared_key, H, scale)


def concatenated(heads: int, qk: int, v: int, scale: str) -> Case:
    make = partial(ConcatenatedAttention, D, heads, qk_head_size=qk, v_head_size=v, scale=scale)
    return make, by(reference.heads, heads, (qk if scale == "key" else D / heads) ** -0.5)


def mfa(heads: int, width: int) -> Case:
    return partial(MFAAttention, D, heads, width), by(reference.shared_key, heads, width**-0.5)


def grouped_query(groups: int) -> Case:
    return partial(GroupedQueryAttention, D, H, groups), by(reference.heads, H, FORK)


CASES: dict[str, Case] = {
    **{f"fork, K = {k}": collaborative(k) for k in (1, 7, D, 40)},
    **{f"library, K = {k}": collaborative(k, **LIBRARY) for k in (1, 7, D, 40)},
    **{f"{g} value heads": collaborative(7, value_heads=g) for g in (1, 2)},
    **{
        f"{mixing} mixing, K = {k}": collaborative(k, query_mixing=mixing, **options)
        for mixing in ("full", "own")
        for k, options in (
            (1, {}),
            (6, {"value_heads": 2}),
            (7, LIBRARY),
            (40, {"bias": False, "value_heads": 1, "v_head_size": 9}),
        )
    },
    **{f"MFA of {h} heads": mfa(h, width) for h, width in ((4, 7), (5, 40), (1, 1))},
    **{
        f"{sizes}, {scale}": concatenated(*sizes, scale)
        for sizes in ((5, 3, 7), (1, 24, 2), (4, 6, 6))
        for scale in ("key", "embed")
    },
    **{f"grouped query, G = {g}": grouped_query(g) for g in (1, 2, 4)},
    "latent": (
        partial(LatentAttention, D, H, 9, qk_head_size=5, v_head_size=7),
        by(reference.latent, H, 5**-0.5),
    ),
    "narrow latent": (
        partial(LatentAttention, D, H, 5, scale="embed"),
        by(reference.latent, H, FORK),
    ),
    "gated": (partial(gated_attention, D, H), gated),
}


@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_equation(case: str, cross: bool) -> None:
    make, oracle = CASES[case]
    check_oracle(make(), oracle, cross)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("key_dim", [3, 7, D])
def test_all_mixings_start_as_one_function(key_dim: int, bias: bool) -> None:
    """With block mixing: same function, same seed, and the same draws for what comes after."""
    outputs, after = [], []
    x = torch.randn(T, B, D)
    for mixing in QUERY_MIXINGS:
        torch.manual_seed(5)
        ours = CollaborativeAttention(D, H, key_dim, query_mixing=mixing, bias=bias)
        after.append(float(torch.rand(1)))
        outputs.append(ours(x, x, x)[0])
    close(outputs[1], outputs[0])
    close(outputs[2], outputs[0])
    assert len(set(after)) == 1
