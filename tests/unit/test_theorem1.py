"""Theorem 1 of Bhojanapalli et al. 2020 (arXiv 2002.07028) on small cases, through our attention.

A head as large as the sequence is long computes any positive weights; a smaller one stays away from
most, and by how much is computed and never undercut.  The paper's tokens are columns, ours rows.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fairseq_collab.attention import SeparateAttention

TOKENS = 6
WIDTH = 8

pytestmark = pytest.mark.usefixtures("float64")


def centre_rows(scores: Tensor) -> Tensor:
    """Rows less their means, which the softmax ignores: ``P C`` with ``C = I - 1 1^T / n``."""
    return scores - scores.mean(-1, keepdim=True)


def one_head(size: int) -> SeparateAttention:
    return SeparateAttention(WIDTH, 1, qk_head_size=size, v_head_size=1).eval()


def weights_of(attention: SeparateAttention, x: Tensor) -> Tensor:
    """What the module attends with: ``(n, d) -> (n, n)``."""
    batch = x[:, None]
    _, weights = attention(batch, batch, batch, need_head_weights=True)
    return weights[0, 0]


def random_target(spread: float = 1.0) -> Tensor:
    """Positive rows of sum 1."""
    return (spread * torch.randn(TOKENS, TOKENS)).softmax(-1)


def built(size: int, x: Tensor, queries: Tensor, keys: Tensor) -> SeparateAttention:
    """A head with these queries and keys ``(n, k)`` of the tokens ``x``, by a right inverse."""
    attention, inverse = one_head(size), torch.linalg.pinv(x)
    with torch.no_grad():
        for projection, wanted in (
            (attention.q_proj, queries / attention.scaling),
            (attention.k_proj, keys),
        ):
            projection.bias.zero_()
            projection.weight.zero_()[: wanted.size(1)] = (inverse @ wanted).T
    return attention


def distance(attention: SeparateAttention, x: Tensor, target: Tensor) -> float:
    """Of log ratios within rows: ``||(log Q - log P) C||_F``."""
    return float(centre_rows(weights_of(attention, x).log() - target.log()).norm())


@pytest.mark.parametrize("size", [TOKENS, TOKENS + 3])
def test_a_large_head_is_built_for_any_target(size: int) -> None:
    """Queries are ``log P``, and keys ``I``."""
    x, target = torch.randn(TOKENS, WIDTH), random_target(spread=4)
    attention = built(size, x, target.log(), torch.eye(TOKENS))
    torch.testing.assert_close(weights_of(attention, x), target, rtol=0, atol=1e-10)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_no_small_head_comes_nearer_than_the_bound(size: int) -> None:
    """The best head reaches the bound, and no random one is below it.

    Logits have rank ``size`` at most, rows less their means, too: by Eckart, Young and Mirsky they
    miss the other singular values.  One less than the sequence is enough, as the softmax ignores a
    constant in each row.
    """
    x, target = torch.randn(TOKENS, WIDTH), random_target()
    u, s, v = torch.linalg.svd(centre_rows(target.log()))
    bound = s[size:].norm().item()
    assert (bound > 0.05) == (size < TOKENS - 1)
    best = built(size, x, u[:, :size] * s[:size], v[:size].T)
    assert distance(best, x, target) == pytest.approx(bound, abs=1e-9)
    assert all(distance(one_head(size), x, target) > bound for _ in range(20))
