"""Our attention against fairseq's and against the papers' equations, in double precision.

The layers differ in one thing only, so outputs and all gradients must agree to 1e-10.
"""

from __future__ import annotations

import pytest
import reference
import torch
import toy
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn
from toy import close

from fairseq_collab.attention import (
    CollaborativeAttention,
    ConcatenatedAttention,
    HeadAttention,
)

pytestmark = pytest.mark.usefixtures("float64")

D, H, T, S, B = 24, 4, 5, 6, 3


def limit_case(kind: str, **options: object) -> HeadAttention:
    """The variant's limit that is ordinary attention."""
    if kind == "concatenated":
        return ConcatenatedAttention(D, H, **options)
    return CollaborativeAttention(D, H, D, mixing_init="block", **options)


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
    parameters = dict(module.named_parameters())
    wanted = [*parameters.values(), *tensors]
    found = torch.autograd.grad((output * direction).sum(), wanted)
    return dict(zip([*parameters, *map(str, range(len(tensors)))], found, strict=True))


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("kind", ["concatenated", "collaborative"])
def test_limit_equals_fairseq(kind: str, cross: bool, training: bool) -> None:
    options = {"encoder_decoder_attention": True} if cross else {"self_attention": True}
    ours = limit_case(kind, **options).train(training)
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
def test_limit_has_fairseqs_initial_weights(kind: str) -> None:
    torch.manual_seed(3)
    ours = limit_case(kind, self_attention=True).state_dict()
    torch.manual_seed(3)
    for name, weight in MultiheadAttention(D, H, self_attention=True).state_dict().items():
        assert torch.equal(ours[name], weight), name


def per_sentence(oracle, query: Tensor, key: Tensor, padding: Tensor, causal: Tensor | None):
    """Run a one-sentence oracle over a batch: ``(T, B, d)``."""
    outputs = []
    for b in range(query.size(1)):
        mask = padding[b].expand(query.size(0), -1)
        outputs.append(
            oracle(query[:, b], key[:, b], mask if causal is None else mask | (causal < 0))
        )
    return torch.stack(outputs, dim=1)


def check_oracle(ours: HeadAttention, oracle, cross: bool) -> None:
    """Output and gradients equal those of ``oracle(weights, x, y, mask)``."""
    toy.randomised(ours)
    query, key, padding, causal = inputs(cross)
    weights = dict(ours.named_parameters())
    output, _ = ours(query, key, key, key_padding_mask=padding, attn_mask=causal)
    expected = per_sentence(
        lambda x, y, mask: oracle(weights, x, y, mask), query, key, padding, causal
    )
    close(output, expected)
    leaves = (query, key) if cross else (query,)
    grads, wanted = (gradients(o, ours, *leaves) for o in (output, expected))
    for name, gradient in wanted.items():
        close(grads[name], gradient, msg=name)


SITES = [
    pytest.param({"self_attention": True}, id="self"),
    pytest.param({"encoder_decoder_attention": True}, id="cross"),
]


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("key_dim", [1, 7, D, 40])
def test_collaborative_equals_authors_fork(key_dim: int, site: dict) -> None:
    ours = CollaborativeAttention(D, H, key_dim, mixing_init="xavier", scale="embed", **site)
    check_oracle(
        ours,
        lambda weights, x, y, mask: reference.collaborative_fork(x, y, weights, D, mask),
        "encoder_decoder_attention" in site,
    )


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("key_dim", [1, 7, D, 40])
def test_collaborative_equals_authors_library(key_dim: int, site: dict) -> None:
    options = {"mixing_init": "xavier", "bias": "content", "scale": "key"}
    ours = CollaborativeAttention(D, H, key_dim, **options, **site)
    check_oracle(
        ours,
        lambda weights, x, y, mask: reference.collaborative_library(x, y, weights, mask),
        "encoder_decoder_attention" in site,
    )


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("scale", ["key", "embed"])
@pytest.mark.parametrize(("heads", "qk", "v"), [(5, 3, 7), (1, 24, 2), (4, 6, 6)])
def test_concatenated_equals_equation(heads: int, qk: int, v: int, scale: str, site: dict) -> None:
    ours = ConcatenatedAttention(D, heads, qk_head_size=qk, v_head_size=v, scale=scale, **site)
    factor = qk**-0.5 if scale == "key" else (D / heads) ** -0.5
    check_oracle(
        ours,
        lambda weights, x, y, mask: reference.concatenated(x, y, weights, heads, factor, mask),
        "encoder_decoder_attention" in site,
    )


def test_collaborative_block_of_ones_is_concatenation() -> None:
    """Paper 1: with K = H h and a block of ones, heads of size h side by side."""
    concatenated = ConcatenatedAttention(D, H, qk_head_size=2, scale="embed", self_attention=True)
    collaborative = CollaborativeAttention(D, H, 2 * H, mixing_init="block", self_attention=True)
    collaborative.load_state_dict(dict(concatenated.named_parameters()), strict=False)
    x = torch.randn(T, B, D)
    close(collaborative(x, x, x)[0], concatenated(x, x, x)[0])


@pytest.mark.parametrize("bias", ["projection", "content", "none"])
def test_gradients_are_those_of_finite_differences(bias: str) -> None:
    ours = CollaborativeAttention(4, 2, 3, mixing_init="xavier", bias=bias, self_attention=True)
    x = torch.randn(3, 2, 4, requires_grad=True)
    names, parameters = zip(*ours.named_parameters(), strict=True)

    def run(x: Tensor, *weights: Tensor) -> Tensor:
        state = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(ours, state, (x, x, x))[0]

    assert torch.autograd.gradcheck(run, (x, *parameters))


@pytest.mark.parametrize("key_dim", [D, D // 2])
@pytest.mark.parametrize("init", ["constant", "fork"])
def test_initial_gain_of_the_authors_fork(init: str, key_dim: int) -> None:
    """Gain 1/sqrt(2) at K = d; below, the fork has gain 1 in queries, keys *and* values."""
    attention = ConcatenatedAttention(
        D, H, qk_head_size=key_dim // H, key_init=init, value_init=init, self_attention=True
    )
    gain = 1 if init == "fork" and key_dim < D else 2**-0.5
    for projection, outputs in (("k_proj", key_dim), ("q_proj", key_dim), ("v_proj", D)):
        bound = gain * (6 / (D + outputs)) ** 0.5  # of Xavier's uniform distribution
        largest = getattr(attention, projection).weight.abs().max().item()
        assert 0.97 * bound < largest <= bound, projection
