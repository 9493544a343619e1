"""Rounded numbers of a cache, and other options of the attention modules."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from toy import close

from fairseq_collab.attention import CollaborativeAttention, HeadAttention, SeparateAttention
from fairseq_collab.attention.collaborative import init_mixing
from fairseq_collab.attention.grouped_query import GroupedQueryAttention
from fairseq_collab.attention.head_groups import HeadGroupAttention
from fairseq_collab.attention.latent import LatentAttention
from fairseq_collab.attention.rounding import cached_bits, pack, rounded, unpack

WIDTHS = (1, 2, 7, 16, 63, 64, 65, 96, 129, 200)
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def _by_equation(x, bits):
    """The module's equation, number by number."""
    width, levels = x.numel(), 2**bits - 1
    groups = -(-width // 64)
    result = []
    for chunk in x.double().split(-(-width // groups)):
        offset = chunk.min().half().double()
        scale = ((chunk.max() - offset) / levels).clamp(min=2.0**-24).half().double()
        result += [offset + scale * c for c in ((chunk - offset) / scale).round().clamp(0, levels)]
    return torch.stack(result)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("width", WIDTHS)
def test_rounded_numbers_follow_the_equation(width, bits):
    x = 3 * torch.randn(4, width, dtype=torch.float64) + 1
    x[0, 0], x[1, -1] = 50, -50  # which widen the range of their own group only
    expected = torch.stack([_by_equation(row, bits) for row in x])
    assert torch.equal(rounded(x, bits), expected)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_within_autocast(dtype, bits):
    x = torch.randn(4, 96)
    with torch.autocast("cpu", dtype):
        found = rounded(x, bits)
    assert torch.equal(found, rounded(x, bits))


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_packed_numbers_are_the_rounded_ones(width, dtype, bits):
    x = torch.randn(2, 3, 5, width).to(dtype)
    packed = pack(x, bits)
    assert packed.dtype == torch.uint8
    assert 8 * packed.size(-1) == cached_bits(width, bits)
    values = unpack(packed, width, bits, dtype)
    assert values.dtype == dtype
    assert torch.equal(values, rounded(x, bits))
    # Parts of a cache have other strides, and any offset in memory.
    for part in ((slice(1, None), slice(None, None, 2)), (slice(1), slice(1), slice(1, 2))):
        assert torch.equal(unpack(packed[part], width, bits, dtype), values[part])


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 2.0**-24, 65504.0])
def test_constant_numbers_are_exact(value, bits):
    x = torch.full((2, 65), value)
    assert torch.equal(rounded(x, bits), x)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e8])
def test_what_has_no_rounding_is_not_finite(value, bits):
    x = torch.randn(3, 128)
    x[1, 3] = value
    values = unpack(pack(x, bits), 128, bits, x.dtype)
    assert not values[1, :64].isfinite().any()
    assert values[1, 64:].isfinite().all()
    assert values[[0, 2]].isfinite().all()


def test_the_gradient_is_the_identitys():
    x, factors = torch.randn(3, 70, requires_grad=True), torch.randn(3, 70)
    values = rounded(x, 4)
    (gradient,) = torch.autograd.grad((values * factors).sum(), x)
    assert torch.equal(values.detach(), rounded(x.detach(), 4))
    assert torch.equal(gradient, factors)


@pytest.mark.parametrize(
    ("attention", "cached"),
    [
        (SeparateAttention(12, 4), ("k_proj", "v_proj")),
        (CollaborativeAttention(12, 4, 5, query_mixing="full"), ("k_proj", "v_proj")),
        (LatentAttention(12, 4, 7), ("latent_proj",)),
    ],
    ids=lambda x: type(x).__name__,
)
def test_training_is_straight_through(attention: HeadAttention, cached: tuple[str, ...]) -> None:
    """Output and gradients are those of constant errors added to what is cached."""
    attention.double()
    x = torch.randn(6, 2, 12).double()

    def with_gradients() -> list[torch.Tensor]:
        output, _ = attention(x, x, x)
        return [output, *torch.autograd.grad(output.sin().sum(), [*attention.parameters()])]

    def add_error(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return output + (rounded(output, 4) - output).detach()

    attention.cache_bits = 4
    found = with_gradients()
    attention.cache_bits = 0
    assert not torch.allclose(found[0], with_gradients()[0], atol=1e-4)
    for name in cached:
        getattr(attention, name).register_forward_hook(add_error)
    close(found, with_gradients())


# ---- other options -------------------------------------------------------------------------------

FULL = partial(CollaborativeAttention, query_mixing="full")
XAVIER = {"query_mixing": "own", "mixing_init": "xavier"}
DIAGONAL = {**XAVIER, "query_mixing": "diagonal"}


@pytest.mark.parametrize(
    ("heads", "key_dim", "rows"),
    [
        (3, 7, ["1110000", "0001100", "0000011"]),  # as evenly as 7 / 3 allows
        (5, 2, ["10", "10", "10", "01", "01"]),  # heads share a dimension
    ],
)
def test_block_mixing_deals_out_the_dimensions(heads: int, key_dim: int, rows: list[str]) -> None:
    mixing = torch.empty(heads, key_dim)
    init_mixing(mixing, "block")
    assert mixing.tolist() == [[float(x) for x in row] for row in rows]


@pytest.mark.parametrize("key_dim", [64, 16, 128])
@pytest.mark.parametrize("init", ["constant", "fork"])
def test_initial_gains(init: str, key_dim: int) -> None:
    """1/sqrt(2) at K = d; else the fork has 1 in separate queries and keys, and in values."""
    concatenated = SeparateAttention(
        64, 4, qk_head_size=key_dim // 4, key_init=init, value_init=init
    )
    collaborative = FULL(64, 4, key_dim, value_init=init)
    for ours, of_keys in ((concatenated, init), (collaborative, "fork")):
        for name, outputs, how in (
            ("q", key_dim, of_keys),
            ("k", key_dim, of_keys),
            ("v", 64, init),
        ):
            gain = 1 if how == "fork" and key_dim != 64 else 2**-0.5
            bound = gain * math.sqrt(6 / (64 + outputs))  # of Xavier's uniform distribution
            largest = getattr(ours, f"{name}_proj").weight.abs().max()
            assert 0.95 * bound < largest <= bound, name


@pytest.mark.parametrize(
    ("ours", "name", "fans"),
    [
        (LatentAttention(64, 4, 32), "latent_proj.weight", 64 + 32),
        (LatentAttention(64, 4, 32), "k_proj.weight", 2 * (32 + 64)),  # gain 1/sqrt(2)
        (LatentAttention(64, 4, 32), "v_proj.weight", 2 * (32 + 64)),
        (CollaborativeAttention(64, 4, 16, **XAVIER), "q_proj.weight", 64 + 4 * 16),
        (CollaborativeAttention(64, 64, 64, **DIAGONAL), "mixing", 64 + 64),
    ],
)
def test_initial_deviations(ours: HeadAttention, name: str, fans: int) -> None:
    assert float(ours.get_parameter(name).std()) == pytest.approx((2 / fans) ** 0.5, rel=0.05)


@pytest.mark.parametrize(
    "ours",
    [
        SeparateAttention(64, 4, kdim=48),
        FULL(64, 4, 64, kdim=48),
        GroupedQueryAttention(64, 4, 2, kdim=48),
        LatentAttention(64, 4, 48, kdim=48),
    ],
    ids=lambda x: type(x).__name__,
)
def test_initial_gains_of_keys_of_another_size(ours: HeadAttention) -> None:
    """1, as in fairseq, also for queries."""
    for name in ("q_proj", "k_proj", "v_proj"):
        weight = ours.get_submodule(name).weight
        bound = math.sqrt(6 / sum(weight.shape))
        assert 0.95 * bound < weight.abs().max() <= bound, name


def test_scores_are_scaled_unless_told_otherwise() -> None:
    """By the size of what is scored; shared keys as in the authors' fork."""
    for ours in (
        SeparateAttention(64, 4, qk_head_size=9),
        LatentAttention(64, 4, 5, qk_head_size=9),
        GroupedQueryAttention(64, 4, 2, qk_head_size=9),
    ):
        assert ours.scaling == pytest.approx(9**-0.5)
    assert FULL(64, 4, 9).scaling == pytest.approx(16**-0.5)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: FULL(8, 0, 4), "num_heads"),
        (lambda: FULL(8, 2, 0), "key_dim"),
        (lambda: FULL(8, 2, 4, value_heads=0), "value_heads"),
        (lambda: GroupedQueryAttention(8, 0, 1), "num_heads"),
        (lambda: GroupedQueryAttention(8, 2, 0), "key_value_heads"),
        (lambda: LatentAttention(8, 0, 4), "num_heads"),
        (lambda: LatentAttention(8, 2, 0), "latent_dim"),
        (lambda: SeparateAttention(8, -1), "num_heads"),
        (lambda: HeadGroupAttention(8, 2, groups=0), "head_groups"),
    ],
)
def test_no_heads_and_no_sizes_are_rejected(make: Callable[[], Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        make()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_weights_sum_to_one(dtype: torch.dtype) -> None:
    """Many equal scores, whose sum 16 bits could not hold."""
    attention = FULL(8, 2, 4).to(dtype)
    x = torch.zeros(600, 1, 8, dtype=dtype)
    output, weights = attention(x, x, x)
    assert output.dtype == weights.dtype == dtype
    torch.testing.assert_close(weights.float().sum(-1), torch.ones(1, 600), rtol=0, atol=5e-3)
