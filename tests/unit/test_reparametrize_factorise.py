"""Factorising score maps: what is exact, what improves on what, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_collab.commands.reparametrize import build_parser
from fairseq_collab.convert import levenberg
from fairseq_collab.convert.collaborative import Collaborative
from fairseq_collab.convert.convert import normalised
from fairseq_collab.convert.factorise import (
    Factors,
    Problem,
    factorise,
    mean_correction,
    relative_error_of,
)
from fairseq_collab.convert.levenberg import (
    Slices,
    Terms,
    minimise,
    relative_error,
)
from fairseq_collab.convert.work import smallest

HEADS, SIZE, DIM, KEYS = 3, 4, 10, 9  # H, h, d, d_y


def weights(seed: int = 1) -> tuple[Tensor, Tensor]:
    """Heads whose spectra fall off, as those of trained heads do."""
    generator = torch.Generator().manual_seed(seed)
    falling = torch.linspace(0, -2, SIZE, dtype=torch.float64).exp()[None, :, None]
    wq = torch.randn(HEADS, SIZE, DIM, generator=generator, dtype=torch.float64) * falling
    return wq, torch.randn(HEADS, SIZE, KEYS, generator=generator, dtype=torch.float64)


def covariance(size: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    return root @ torch.diag(torch.linspace(0, -3, size, dtype=torch.float64).exp()) @ root.T


def maps(factors: Factors) -> Tensor:
    """``A~_i``, all written out: ``(H, d, d_y)``."""
    return torch.einsum("kd,hk,ke->hde", factors.query, factors.mixing, factors.key)


def naive_error(wq: Tensor, wk: Tensor, factors: Factors) -> float:
    exact = wq.mT @ wk
    return float((exact - maps(factors)).norm() / exact.norm())


def block_error(problem: Problem, key_dim: int) -> float:
    return relative_error(problem.slices, problem.block_start(key_dim))


def test_at_full_dimension_weights_are_copied() -> None:
    wq, wk = weights()
    factors = factorise(Problem(wq, wk, covariance(DIM, 2), covariance(KEYS, 3)), HEADS * SIZE)
    assert torch.equal(factors.query, wq.flatten(0, 1))
    assert torch.equal(factors.key, wk.flatten(0, 1))
    assert (maps(factors) - wq.mT @ wk).abs().max() < 1e-14
    assert (factors.error, factors.steps) == (0, 0)


@pytest.mark.parametrize("key_dim", [1, 5, 8, 11])
def test_the_error_is_that_of_the_maps(key_dim: int) -> None:
    wq, wk = weights()
    factors = factorise(Problem(wq, wk), key_dim, max_steps=12)
    assert factors.query.shape == (key_dim, DIM)
    assert factors.key.shape == (key_dim, KEYS)
    assert factors.mixing.shape == (HEADS, key_dim)
    assert factors.error == pytest.approx(naive_error(wq, wk, factors), abs=1e-7)
    assert factors.start_error is not None
    assert factors.error < factors.start_error


def test_the_block_start_is_the_best_for_heads_that_share_nothing() -> None:
    """Without steps: per head a truncated SVD, dimensions dealt out by size over all heads."""
    wq, wk = weights()
    problem = Problem(wq, wk)
    start = factorise(problem, 5, max_steps=0)
    values = torch.linalg.svdvals(wq.mT @ wk)[:, :SIZE].flatten().sort(descending=True).values
    expected = math.sqrt(values[5:].square().sum() / values.square().sum())
    assert start.error == pytest.approx(expected, abs=1e-3)  # compressed bases leave a little out
    assert block_error(problem, 5) == pytest.approx(expected, rel=1e-10)
    assert ((start.mixing != 0).sum(0) == 1).all()


def test_whitened_factors_minimise_the_error_of_scores() -> None:
    wq, wk = weights()
    cx, cy = covariance(DIM, 2), covariance(KEYS, 3)
    x = torch.linalg.cholesky(cx).T  # inputs with exactly this covariance
    y = torch.linalg.cholesky(cy).T
    exact = x @ (wq.mT @ wk) @ y.T

    def score_error(factors: Factors) -> float:
        return float((exact - x @ maps(factors) @ y.T).norm() / exact.norm())

    scores = Problem(wq, wk, cx, cy)
    weighted, plain = (factorise(p, 6, max_steps=20) for p in (scores, Problem(wq, wk)))
    assert score_error(weighted) < 0.8 * score_error(plain)
    # The ridge makes a small difference.
    assert weighted.error == pytest.approx(score_error(weighted), rel=0.05)
    assert relative_error_of(scores, plain) == pytest.approx(score_error(plain), rel=0.05)


def test_heads_that_share_their_maps_need_no_more_than_one_head_does() -> None:
    """H equal heads have H h directions in blocks, but h shared ones are exact."""
    wq, wk = weights()
    same = Problem(wq[:1].expand(HEADS, -1, -1), wk[:1].expand(HEADS, -1, -1))
    factors = factorise(same, SIZE)
    assert block_error(same, SIZE) > 0.5
    assert factors.error < 1e-7


def test_a_start_much_better_than_blocks_is_kept() -> None:
    """Heads that nearly share their dimensions already, of which the least is left out."""
    generator = torch.Generator().manual_seed(3)
    query, key, mixing = (
        torch.randn(rows, size, generator=generator, dtype=torch.float64)
        for rows, size in ((SIZE, DIM), (SIZE, KEYS), (HEADS, SIZE))
    )
    query[-2:] *= torch.tensor([[0.01], [1e-4]], dtype=torch.float64)
    wq = mixing.unsqueeze(2) * query
    problem = Problem(wq, key.expand(HEADS, -1, -1), own=(query, key, mixing))
    factors = factorise(problem, SIZE - 1, max_steps=0)
    assert factors.start_error is not None
    assert factors.start_error < 1e-3 < block_error(problem, SIZE - 1)
    assert factors.error < 1.5 * factors.start_error


def test_known_factors_are_found_again() -> None:
    """A sum of K terms whose slices have rank K > h is found to rounding from restarts."""
    generator = torch.Generator().manual_seed(4)
    query, key = (torch.randn(SIZE, n, generator=generator).double() for n in (DIM, KEYS))
    mixing = torch.randn(HEADS, SIZE, generator=generator).double()
    wq = mixing[:, :, None] * query  # A_i = Wq~^T diag(m_i) Wk~ with h = K
    factors = factorise(Problem(wq, key.expand(HEADS, -1, -1)), SIZE, max_steps=60)
    assert factors.error < 1e-4


def test_singular_covariances_give_finite_factors() -> None:
    wq, wk = weights()
    cx = torch.zeros(DIM, DIM, dtype=torch.float64)
    cx[0, 0] = 1.0
    factors = factorise(Problem(wq, wk, cx, covariance(KEYS, 3)), 3)
    assert all(torch.isfinite(x).all() for x in (factors.query, factors.key, factors.mixing))


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_heads_that_use_few_of_their_dimensions(rank: int) -> None:
    """More dimensions than the heads use: none is NaN, and nothing is lost."""
    wq, wk = weights()
    wq[:, rank:] = 0
    factors = factorise(Problem(wq, wk), 11, max_steps=20)
    assert all(torch.isfinite(x).all() for x in (factors.query, factors.key, factors.mixing))
    assert factors.error < 1e-6


@pytest.mark.parametrize(("size", "key_dim"), [(DIM, DIM + 2), (2 * DIM, HEADS * DIM + 1)])
def test_wide_heads_have_all_dimensions(size: int, key_dim: int) -> None:
    """More than the inputs have; those that nothing is left for are zeros, also in the model."""
    wq, wk = torch.randn(2, 1, size, DIM, generator=torch.Generator().manual_seed(1)).double()
    noise = torch.randn(2, HEADS, size, DIM, generator=torch.Generator().manual_seed(2)).double()
    alike = Problem(wq + 0.1 * noise[0], wk + 0.1 * noise[1])
    factors = factorise(alike, key_dim, max_steps=2)
    for part in (factors.query, factors.key, factors.mixing.T):
        assert len(part) == key_dim
    assert all(part.isfinite().all() for part in normalised(factors))
    assert factors.error < 0.3


def test_blocks_belong_to_one_head_each_where_sharing_loses_less() -> None:
    wq, wk = weights()
    same = Problem(wq[:1].expand(HEADS, -1, -1), wk[:1].expand(HEADS, -1, -1))
    args = build_parser().parse_args(["x", "--out=y", "--method=block"])
    blocks = Collaborative(args).factors(same, SIZE)
    assert ((blocks.mixing != 0).sum(0) == 1).all()
    assert blocks.start_error == pytest.approx(block_error(same, SIZE))


def test_restarts_are_repeatable_and_never_worse() -> None:
    problem = Problem(*weights())
    once = factorise(problem, 5, max_steps=8)
    first, second = (factorise(problem, 5, max_steps=8, restarts=2, seed=7) for _ in range(2))
    assert torch.equal(first.query, second.query)
    assert torch.equal(first.mixing, second.mixing)
    assert first.error <= once.error
    assert first.steps > once.steps


def test_mean_correction() -> None:
    """What the mean query loses is a score of the key alone, and comes back exactly."""
    wq, wk = weights()
    problem = Problem(wq, wk)
    mean = torch.randn(DIM, generator=torch.Generator().manual_seed(5)).double()
    factors = factorise(problem, 4)
    lost = mean @ (wq.mT @ wk - maps(factors))  # (H, d_y)
    assert (mean_correction(problem, factors, mean) - lost).abs().max() < 1e-12
    exact = factorise(problem, HEADS * SIZE)
    assert mean_correction(problem, exact, mean).abs().max() < 1e-12


def test_gradient_and_gauss_newton_product() -> None:
    """Against automatic differentiation of the residual, written out."""
    generator = torch.Generator().manual_seed(6)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    slices = Slices(random(HEADS, 6, 2), random(HEADS, 5, 2))
    terms = Terms(random(4, 6), random(4, 5), random(4, HEADS))
    direction = Terms(random(4, 6), random(4, 5), random(4, HEADS))

    def residual(u: Tensor, v: Tensor, n: Tensor) -> Tensor:
        return (torch.einsum("kp,kh,kq->hpq", u, n, v) - slices.p @ slices.q.mT).flatten()

    r, forward = torch.func.jvp(residual, tuple(terms), tuple(direction))
    _, backward = torch.func.vjp(residual, *terms)
    grams = [x @ x.T for x in terms]
    blocks = [levenberg._others(grams, mode) for mode in range(3)]
    product = levenberg._gauss_newton(terms, grams, blocks, direction)
    found: list[Any] = [*levenberg._gradient(slices, terms), *product]
    for expected, value in zip([*backward(r), *backward(forward)], found, strict=True):
        assert (expected - value).abs().max() < 1e-11
    error = relative_error(slices, terms)
    assert error == pytest.approx(float(r.norm() / (slices.p @ slices.q.mT).norm()), rel=1e-12)


def test_the_search_never_ends_worse_than_it_began() -> None:
    slices = Problem(*weights()).slices
    start = Problem(*weights()).block_start(5)
    terms, errors = minimise(slices, start, 25)
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == relative_error(slices, start)
    assert errors[-1] == pytest.approx(relative_error(slices, terms), rel=1e-9)
    assert len(errors) > 1


def test_bisection() -> None:
    for least in range(1, 13):
        asked: list[int] = []

        def good(key_dim: int, least: int = least, asked: list[int] = asked) -> bool:
            asked.append(key_dim)
            return key_dim >= least

        assert smallest(12, good) == least
        assert len(asked) <= 4
        assert 12 not in asked


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_factors() -> None:
    wq, wk = weights()
    here, there = factorise(Problem(wq, wk), 5), factorise(Problem(wq.cuda(), wk.cuda()), 5)
    assert there.query.is_cuda
    assert there.error == pytest.approx(here.error, rel=1e-6)
