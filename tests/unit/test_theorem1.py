"""Theorem 1 of Bhojanapalli et al. 2020 (arXiv 2002.07028) on small cases, through our attention.

A head as large as the sequence is long computes any positive weights; a smaller one stays away from
most, and by how much is computed and never undercut.  The paper's tokens are columns, ours rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import rank_bottleneck
import torch
from torch import Tensor, nn

from fairseq_collab.attention import ConcatenatedAttention

TOKENS = 6
WIDTH = 8

pytestmark = pytest.mark.usefixtures("float64")


def one_head(size: int, width: int = WIDTH) -> ConcatenatedAttention:
    return ConcatenatedAttention(
        width, 1, qk_head_size=size, v_head_size=1, self_attention=True
    ).eval()


def without_biases(attention: ConcatenatedAttention) -> ConcatenatedAttention:
    for projection in (attention.q_proj, attention.k_proj):
        nn.init.zeros_(projection.bias)
        projection.bias.requires_grad_(False)
    return attention


def weights_of(attention: ConcatenatedAttention, x: Tensor) -> Tensor:
    """What the module attends with: ``(n, d) -> (n, n)``."""
    batch = x[:, None]
    _, weights = attention(batch, batch, batch, need_head_weights=True)
    return weights[0, 0]


def random_target(spread: float = 1.0, tokens: int = TOKENS) -> Tensor:
    """Positive rows of sum 1."""
    return (spread * torch.randn(tokens, tokens)).softmax(-1)


def minimise(
    attention: ConcatenatedAttention, loss: Callable[[], Tensor], steps: int = 150
) -> float:
    """The least loss that BFGS finds in the query and key projections."""
    parameters = [*attention.q_proj.parameters(), *attention.k_proj.parameters()]
    parameters = [parameter for parameter in parameters if parameter.requires_grad]
    optimiser = torch.optim.LBFGS(
        parameters, max_iter=steps, tolerance_grad=1e-12, tolerance_change=1e-15,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    optimiser.step(closure)
    return loss().item()


def squared_log_distance(attention: ConcatenatedAttention, x: Tensor, target: Tensor) -> Tensor:
    return rank_bottleneck.log_distance(weights_of(attention, x), target).square()


@pytest.mark.parametrize("size", [TOKENS, TOKENS + 3])
def test_a_large_head_is_built_for_any_target(size: int) -> None:
    x, target = torch.randn(TOKENS, WIDTH), random_target(spread=4)
    attention = without_biases(one_head(size))
    wq, wk = rank_bottleneck.reaching_projections(target, x, x, size)
    with torch.no_grad():
        attention.q_proj.weight.copy_(wq)
        attention.k_proj.weight.copy_(wk)
    torch.testing.assert_close(weights_of(attention, x), target, rtol=0, atol=1e-10)


def test_the_construction_refuses_what_it_cannot_do() -> None:
    x, target = torch.randn(TOKENS, WIDTH), random_target()
    with pytest.raises(ValueError, match="size is 5; it must be at least 6"):
        rank_bottleneck.reaching_projections(target, x, x, TOKENS - 1)
    x[1] = x[0]
    with pytest.raises(ValueError, match=r"x, \(6, 8\), has not full row rank"):
        rank_bottleneck.reaching_projections(target, x, x, TOKENS)


@pytest.mark.parametrize("start", range(3))
def test_a_large_head_learns_any_target(start: int) -> None:
    torch.manual_seed(start)
    x, target = torch.randn(TOKENS, WIDTH), random_target(spread=2)
    attention = one_head(TOKENS)
    # Cross-entropy less the target's own entropy, as a model would be trained.
    minimise(
        attention, lambda: torch.xlogy(target, target / weights_of(attention, x)).sum(), steps=400
    )
    assert (weights_of(attention, x) - target).abs().max() < 1e-5


def test_one_less_than_the_sequence_is_enough() -> None:
    """The softmax ignores a constant in each row, which is worth one dimension."""
    target = random_target()
    assert rank_bottleneck.least_log_distance(target, TOKENS - 1) < 1e-12
    assert rank_bottleneck.least_log_distance(target, TOKENS - 2) > 0.05


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_no_small_head_comes_nearer_than_the_bound(size: int) -> None:
    """Optimisation from several starts ends on the bound, and never below it."""
    x, target = torch.randn(TOKENS, WIDTH), random_target()
    bound = rank_bottleneck.least_log_distance(target, size)
    assert bound > 0.1
    found = []
    for start in range(4):
        torch.manual_seed(start)
        attention = one_head(size)
        least = minimise(attention, lambda a=attention: squared_log_distance(a, x, target))
        found.append(math.sqrt(least))
    assert min(found) >= bound - 1e-9
    assert min(found) == pytest.approx(bound, rel=1e-3)


@pytest.mark.parametrize("size", [1, 3])
def test_the_weights_themselves_stay_away(size: int) -> None:
    """Trained for the weights, not for their logarithms: the plain error has a bound, too."""
    x, target = torch.randn(TOKENS, WIDTH), random_target()
    bound = rank_bottleneck.least_error(target, size)
    assert bound > 1e-3

    def squared_error(attention: ConcatenatedAttention) -> Tensor:
        return (weights_of(attention, x) - target).square().sum()

    for start in range(3):
        torch.manual_seed(start)
        attention = one_head(size)
        least = minimise(attention, lambda a=attention: squared_error(a))
        assert math.sqrt(least) >= bound
    large = one_head(TOKENS)
    assert math.sqrt(minimise(large, lambda: squared_error(large), steps=400)) < bound / 10


def test_too_few_dimensions_of_the_input_are_a_bottleneck_too() -> None:
    """d = 1 and n = 2, as in the theorem's second half: a token whose input is zero.

    Without biases all its logits are zero, and so its weights equal, whatever the head's size.
    """
    x = torch.tensor([[1.0], [0.0]])
    target = torch.tensor([[0.5, 0.5], [0.75, 0.25]])
    bound = rank_bottleneck.least_log_distance_on(target, x, x, head_size=2)
    assert bound == pytest.approx(math.log(3) / math.sqrt(2))
    attention = without_biases(one_head(2, width=1))
    least = minimise(attention, lambda: squared_log_distance(attention, x, target))
    assert math.sqrt(least) == pytest.approx(bound)


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_bound_for_given_inputs_is_attained(size: int, biases: bool) -> None:
    """Fewer dimensions (3, and one for biases) than tokens: more is lost than by rank alone."""
    x, target = torch.randn(TOKENS, 3), random_target()
    inputs = torch.cat([x, torch.ones(TOKENS, 1)], dim=1) if biases else x
    bound = rank_bottleneck.least_log_distance_on(target, inputs, inputs, size)
    assert bound >= rank_bottleneck.least_log_distance(target, size)
    found = []
    for start in range(4):
        torch.manual_seed(start)
        attention = one_head(size, width=3)
        if not biases:
            without_biases(attention)
        least = minimise(attention, lambda a=attention: squared_log_distance(a, x, target))
        found.append(math.sqrt(least))
    assert min(found) >= bound - 1e-9
    assert min(found) == pytest.approx(bound, rel=1e-3)


def test_both_bounds_agree_where_the_inputs_are_no_limit() -> None:
    x, target = torch.randn(TOKENS, WIDTH), random_target()
    for size in range(1, TOKENS):
        assert rank_bottleneck.least_log_distance_on(target, x, x, size) == pytest.approx(
            rank_bottleneck.least_log_distance(target, size), abs=1e-6
        )


def test_the_error_bound_holds_for_random_small_heads() -> None:
    """Not only where an optimiser goes."""
    target = random_target()
    for size in (1, 2, 3):
        bound = rank_bottleneck.least_error(target, size)
        for spread in (0.1, 1, 3):
            queries = spread * torch.randn(200, TOKENS, size)
            weights = (queries @ torch.randn(200, size, TOKENS)).softmax(-1)
            distances = rank_bottleneck.log_distance(weights, target)
            assert distances.min() >= rank_bottleneck.least_log_distance(target, size)
            assert torch.linalg.matrix_norm(weights - target).min() >= bound
