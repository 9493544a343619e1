"""Theorem 1 of Bhojanapalli et al. 2020 (arXiv 2002.07028) on small cases, through our attention.

A head as large as the sequence is long computes any positive weights; a smaller one stays away from
most, and by how much is computed and never undercut.  The paper's tokens are columns, ours rows.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fairseq_collab.attention import ConcatenatedAttention

TOKENS = 6
WIDTH = 8

pytestmark = pytest.mark.usefixtures("float64")


def centre_rows(scores: Tensor) -> Tensor:
    """Rows less their means, which the softmax ignores: ``P C`` with ``C = I - 1 1^T / n``."""
    return scores - scores.mean(-1, keepdim=True)


def one_head(size: int) -> ConcatenatedAttention:
    return ConcatenatedAttention(
        WIDTH, 1, qk_head_size=size, v_head_size=1, self_attention=True
    ).eval()


def weights_of(attention: ConcatenatedAttention, x: Tensor) -> Tensor:
    """What the module attends with: ``(n, d) -> (n, n)``."""
    batch = x[:, None]
    _, weights = attention(batch, batch, batch, need_head_weights=True)
    return weights[0, 0]


def random_target(spread: float = 1.0) -> Tensor:
    """Positive rows of sum 1."""
    return (spread * torch.randn(TOKENS, TOKENS)).softmax(-1)


def least_distance_learnt(attention: ConcatenatedAttention, x: Tensor, target: Tensor) -> float:
    """How near BFGS brings log ratios within rows to the target's: ``||(log Q - log P) C||_F``."""
    parameters = [*attention.q_proj.parameters(), *attention.k_proj.parameters()]
    optimiser = torch.optim.LBFGS(
        parameters, max_iter=150,
        tolerance_grad=1e-12, tolerance_change=1e-15, line_search_fn="strong_wolfe",
    )  # fmt: skip

    def squared_distance() -> Tensor:
        difference = weights_of(attention, x).log() - target.log()
        return centre_rows(difference).square().sum()

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = squared_distance()
        value.backward()
        return value

    optimiser.step(closure)
    return math.sqrt(squared_distance().item())


@pytest.mark.parametrize("size", [TOKENS, TOKENS + 3])
def test_a_large_head_is_built_for_any_target(size: int) -> None:
    """With a right inverse of the inputs queries become ``log P`` and keys ``I``."""
    x, target = torch.randn(TOKENS, WIDTH), random_target(spread=4)
    attention, inverse = one_head(size), torch.linalg.pinv(x)
    with torch.no_grad():
        for projection in (attention.q_proj, attention.k_proj):
            projection.bias.zero_()
        attention.q_proj.weight.zero_()[:TOKENS] = (inverse @ target.log() / attention.scaling).T
        attention.k_proj.weight.zero_()[:TOKENS] = inverse.T
    torch.testing.assert_close(weights_of(attention, x), target, rtol=0, atol=1e-10)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_no_small_head_comes_nearer_than_the_bound(size: int) -> None:
    """Optimisation from several starts ends on the bound, and never below it.

    Logits have rank ``size`` at most, rows less their means, too: by Eckart, Young and Mirsky they
    miss the other singular values.  One less than the sequence is enough, as the softmax ignores a
    constant in each row.
    """
    x, target = torch.randn(TOKENS, WIDTH), random_target()
    bound = torch.linalg.svdvals(centre_rows(target.log()))[size:].norm().item()
    assert (bound > 0.05) == (size < TOKENS - 1)
    found = []
    for start in range(4):
        torch.manual_seed(start)
        found.append(least_distance_learnt(one_head(size), x, target))
    assert min(found) >= bound - 1e-9
    assert min(found) == pytest.approx(bound, rel=1e-3, abs=1e-4)
