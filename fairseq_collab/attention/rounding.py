"""Numbers of a KV cache in 8 or 4 bits, with a scale and an offset for each group of a token.

    x'_n = z_g + s_g c_n,                 c_n = clip(round((x_n - z_g) / s_g), 0, 2^b - 1),
    z_g = min over the group of x_n,      s_g = (max over the group of x_n - z_g) / (2^b - 1)

``z_g`` and ``s_g`` are rounded to float16 before the codes ``c_n`` are chosen.  A token's numbers
are dealt out in order, and as evenly as possible, to groups of at most :data:`GROUP`.

A group with NaN, infinity, or a scale or offset beyond float16 becomes NaN or infinite.

Shapes:
    n  numbers of a token    b  bits    G = ceil(n / GROUP)  groups    m = ceil(n / G)  their size
    x, codes (..., n)    scales (..., G, 2): s_g, z_g    packed (..., 4 G + ceil(n b / 8)): bytes,
    first the scales; byte i of codes with 4 bits is c_i + 16 c_j, j = ceil(n / 2) + i
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

#: The bits that a cached number may have.
BITS = (8, 4)
#: The most numbers that share a scale and an offset.
GROUP = 64
#: The smallest number above 0 in float16: the scale of a group of equal numbers.
_LEAST_SCALE = 2.0**-24


def rounded(x: Tensor, bits: int) -> Tensor:
    """Round ``x (..., n)``, straight-through in gradients (Bengio et al. 2013, arXiv 1308.3432)."""
    values = unpack(pack(x.detach(), bits), x.size(-1), bits, x.dtype)
    return values + (x - x.detach()) if x.requires_grad else values  # adds 0


def pack(x: Tensor, bits: int) -> Tensor:
    """Round ``x (..., n)`` to bytes ``(..., 4 G + ceil(n b / 8))``."""
    scales, codes = encode(x, bits)
    return torch.cat([scales.view(torch.uint8), codes], dim=-1)


def unpack(packed: Tensor, width: int, bits: int, dtype: torch.dtype) -> Tensor:
    """Return the rounded numbers ``(..., n)``, with ``n`` given as ``width``, contiguous."""
    end = 4 * group_sizes(width)[0]
    # A copy: float16 is read at even addresses only.
    scales = packed[..., :end].clone(memory_format=torch.contiguous_format)
    return decode(scales.view(torch.float16), packed[..., end:], width, bits, dtype)


def encode(x: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Round ``x (..., n)`` to scales ``(..., 2 G)`` in float16, codes ``(..., ceil(n b / 8))``."""
    width, levels = x.size(-1), 2**bits - 1
    groups, _ = group_sizes(width)
    padding = -width % groups
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    if padding:  # repeats the last number, which changes neither minimum nor maximum
        x = torch.cat([x, x[..., -1:].expand(*x.shape[:-1], padding)], dim=-1)
    x = x.unflatten(-1, (groups, -1))
    low, high = x.aminmax(dim=-1, keepdim=True)
    offset = low.half()
    scale = ((high - offset) / levels).clamp(min=_LEAST_SCALE).half()
    codes = ((x - offset) / scale).round().clamp(0, levels).flatten(-2)[..., :width]
    if bits == 4:  # in floats: not every ONNX engine can shift bytes
        first, second = F.pad(codes, (0, width % 2)).chunk(2, dim=-1)
        codes = first + 16 * second
    # Joined in float32, which is exact: autocast to bfloat16 refuses to join float16.
    scales = torch.cat([scale.float(), offset.float()], -1).half()
    return scales.flatten(-2), codes.to(torch.uint8)


def decode(scales: Tensor, codes: Tensor, width: int, bits: int, dtype: torch.dtype) -> Tensor:
    """Return the rounded numbers ``(..., n)`` of :func:`encode`, contiguous."""
    groups, _ = group_sizes(width)
    precise = torch.promote_types(dtype, torch.float32)  # s_g c_n is exact in it
    scale, offset = scales.unflatten(-1, (groups, 2)).to(precise).split(1, dim=-1)  # (..., G, 1)
    if bits == 4:
        high = (codes & 240).to(precise).div_(16)
        numbers = torch.cat([(codes & 15).to(precise), high], dim=-1)[..., :width]
    else:
        numbers = codes.to(precise, memory_format=torch.contiguous_format)
    if padding := -width % groups:
        numbers = F.pad(numbers, (0, padding))
    values = numbers.unflatten(-1, (groups, -1))
    return values.mul_(scale).add_(offset).flatten(-2)[..., :width].to(dtype).contiguous()


def group_sizes(width: int) -> tuple[int, int]:
    """Return the number ``G`` of groups of ``width`` numbers, and the size of all but the last."""
    groups = -(-width // GROUP)
    return groups, -(-width // max(groups, 1))


def cached_bits(width: int, bits: int) -> int:
    """Return the bits that ``width`` numbers of a token take, scales and offsets included."""
    return 32 * group_sizes(width)[0] + 8 * -(-width * bits // 8)
