"""Rounded numbers of a cache: the equation, packed and unpacked, gradients, bytes."""

import pytest
import torch

from fairseq_collab.attention.rounding import GROUP, cached_bits, pack, rounded, unpack

WIDTHS = (1, 2, 7, 16, 63, 64, 65, 96, 129, 200)
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def _by_equation(x, bits, group):
    """The module's equation, number by number."""
    width, levels = x.numel(), 2**bits - 1
    groups = -(-width // group)
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
    for group in (GROUP, 5):
        expected = torch.stack([_by_equation(row, bits, group) for row in x])
        assert torch.equal(rounded(x, bits, group), expected)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_packed_numbers_are_the_rounded_ones(width, dtype, bits):
    x = torch.randn(2, 3, 5, width).to(dtype)
    for group in (GROUP, 5):
        packed = pack(x, bits, group)
        assert packed.dtype == torch.uint8
        assert 8 * packed.size(-1) == cached_bits(width, bits, group)
        values = unpack(packed, width, bits, dtype, group)
        assert values.dtype == dtype
        assert torch.equal(values, rounded(x, bits, group))
        # Parts of a cache: other strides, and any offset in memory.
        part = unpack(packed[1:, ::2, 1:], width, bits, dtype, group)
        assert torch.equal(part, values[1:, ::2, 1:])


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


@pytest.mark.parametrize(("width", "bits", "expected"), [(64, 8, 544), (64, 4, 288), (65, 4, 328)])
def test_bits_count_scales_and_offsets(width, bits, expected):
    assert cached_bits(width, bits) == expected
