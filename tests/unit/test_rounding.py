"""Rounded numbers of a cache: the equation, packed and unpacked, gradients, bytes."""

from typing import Any

import pytest
import torch
from toy import close

from fairseq_collab.attention import CollaborativeAttention, HeadAttention, SeparateAttention
from fairseq_collab.attention.latent import LatentAttention
from fairseq_collab.attention.rounding import GROUP, cached_bits, pack, rounded, unpack

WIDTHS = (1, 2, 7, 16, 63, 64, 65, 96, 129, 200)
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def _by_equation(x, bits):
    """The module's equation, number by number."""
    width, levels = x.numel(), 2**bits - 1
    groups = -(-width // GROUP)
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
    expected = torch.stack([_by_equation(row, bits) for row in x])
    assert torch.equal(rounded(x, bits), expected)


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
def test_an_error_is_at_most_half_a_step(bits):
    x = torch.randn(1000, GROUP, dtype=torch.float64)
    step = (x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True)) / (2**bits - 1)
    error = (rounded(x, bits) - x).abs()
    # Half a step, and what float16 loses of the offset and of all steps.
    assert (error <= step * (0.5 + 2**bits * 2.0**-11) + x.abs().amax() * 2.0**-11).all()


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 2.0**-24, 65504.0])
def test_constant_numbers_are_exact(value, bits):
    x = torch.full((2, 65), value)
    assert torch.equal(rounded(x, bits), x)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e8])
def test_what_has_no_rounding_is_not_finite(value, bits):
    x = torch.randn(3, 2 * GROUP)
    x[1, 3] = value
    values = unpack(pack(x, bits), 2 * GROUP, bits, x.dtype)
    assert not values[1, :GROUP].isfinite().any()
    assert values[1, GROUP:].isfinite().all()
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


@pytest.mark.parametrize(("width", "bits", "expected"), [(64, 8, 544), (64, 4, 288), (65, 4, 328)])
def test_bits_count_scales_and_offsets(width, bits, expected):
    assert cached_bits(width, bits) == expected
