"""Numbers of a KV cache in 8 or 4 bits, with a scale and an offset for each group of a token.

    x'_n = z_g + s_g c_n,                 c_n = clip(round((x_n - z_g) / s_g), 0, 2^b - 1),
    z_g = min over the group of x_n,      s_g = (max over the group of x_n - z_g) / (2^b - 1)

``z_g`` and ``s_g`` are rounded to float16 before the codes ``c_n`` are chosen.  A token's numbers
are dealt out in order, and as evenly as possible, to groups of at most :data:`GROUP`.

A group with NaN, infinity, or a scale or offset beyond float16 becomes NaN or infinite.

Shapes:
    n  numbers of a token    b  bits    G = ceil(n / GROUP)  groups    m = ceil(n / G)  their size
    x, codes (..., n)    scales (..., G, 2): s_g, z_g    packed (..., 4 G + ceil(n b / 8)): bytes
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

#: The bits that a cached number may have.
BITS = (8, 4)
#: The most numbers that share a scale and an offset.
GROUP = 64
#: The least number above 0 in float16: constant numbers get it as their scale.
_LEAST_SCALE = 2.0**-24


def rounded(x: Tensor, bits: int, group: int = GROUP) -> Tensor:
    """Round ``x (..., n)``, as ``unpack(pack(x))`` does, with the gradient of the identity.

    The gradient is the straight-through estimator (Bengio et al. 2013, arXiv 1308.3432).
    """
    values = _decoded(*_encoded(x.detach(), bits, group), x.dtype)
    return values + (x - x.detach()) if x.requires_grad else values  # adds 0


def pack(x: Tensor, bits: int, group: int = GROUP) -> Tensor:
    """Return scales, offsets and codes of ``x (..., n)`` as bytes: ``(..., 4 G + ceil(n b / 8))``.

    With 4 bits, byte ``i`` of the codes is ``c_i + 16 c_j``, ``j = ceil(n / 2) + i``.
    """
    codes, scales = _encoded(x, bits, group)
    if bits == 4:
        first, second = F.pad(codes, (0, codes.size(-1) % 2)).chunk(2, dim=-1)
        codes = first | second << 4
    return torch.cat([scales.flatten(-2).view(torch.uint8), codes], dim=-1)


def unpack(packed: Tensor, width: int, bits: int, dtype: torch.dtype, group: int = GROUP) -> Tensor:
    """Return the numbers ``(..., n)`` of ``packed``, with ``n`` given as ``width``."""
    groups = _groups(width, group)
    scales = packed[..., : 4 * groups].contiguous().view(torch.float16).unflatten(-1, (groups, 2))
    codes = packed[..., 4 * groups :]
    if bits == 4:
        codes = torch.cat([codes & 15, codes >> 4], dim=-1)[..., :width]
    return _decoded(codes, scales, dtype)


def cached_bits(width: int, bits: int, group: int = GROUP) -> int:
    """Return the bits that ``width`` numbers of a token take, scales and offsets included."""
    return 32 * _groups(width, group) + 8 * -(-width * bits // 8)


def _groups(width: int, group: int) -> int:
    return -(-width // group)


def _precise(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)  # s_g c_n is exact in it


def _encoded(x: Tensor, bits: int, group: int) -> tuple[Tensor, Tensor]:
    """Codes and scales of ``x (..., n)``."""
    width, levels = x.size(-1), 2**bits - 1
    groups = _groups(width, group)
    size = -(-width // groups)
    x = x.to(_precise(x.dtype))
    if groups * size > width:  # the last number again: no new least or greatest
        x = torch.cat([x, x[..., -1:].expand(*x.shape[:-1], groups * size - width)], dim=-1)
    x = x.unflatten(-1, (groups, size))
    low, high = x.aminmax(dim=-1, keepdim=True)
    offset = low.half()
    scale = ((high - offset) / levels).clamp(min=_LEAST_SCALE).half()
    codes = ((x - offset) / scale).round().clamp(0, levels).to(torch.uint8)
    return codes.flatten(-2)[..., :width], torch.cat([scale, offset], dim=-1)


def _decoded(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers ``(..., n)`` of codes and scales."""
    width, groups = codes.size(-1), scales.size(-2)
    padded = F.pad(codes, (0, -width % groups)) if width % groups else codes
    scale, offset = scales.to(_precise(dtype)).split(1, dim=-1)  # (..., G, 1)
    values = torch.addcmul(offset, padded.unflatten(-1, (groups, -1)).to(scale.dtype), scale)
    return values.flatten(-2)[..., :width].to(dtype)
