"""What the pass over sentences leaves out, and what several plans share; products by blocks."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import toy_checkpoints
from refusals import refusing

from collab_lab import open_model
from collab_lab.metrics.loss import mean_bits
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.planner import propose
from collab_lab.shrinking.shrink import shrink
from collab_lab.statistics.gram import BLOCK, gram, mirrored, size_of_upper, upper
from collab_lab.statistics.moments import Sums, collect_all
from collab_lab.statistics.units import UnitSums
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import sentences_of
from fairseq_collab.attention import SeparateAttention


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    path = toy_checkpoints.write(tmp_path_factory.mktemp("pass") / "c.pt")
    return open_model(path, toy_checkpoints.COPY)


@pytest.mark.parametrize("shape", [(5, 3), (7, 300), (2, 9, 600)])
def test_products_by_blocks(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    x = torch.randn(shape).double()
    torch.testing.assert_close(gram(x), x.mT @ x)
    weights = torch.rand(*shape[:-1], 1).double()
    torch.testing.assert_close(gram(x, weights * x), (weights * x).mT @ x)


@pytest.mark.parametrize("n", [3, 256, 600])
def test_the_half_of_a_product_suffices(n: int) -> None:
    """Bit for bit, and in fewer numbers than the whole has."""
    x = torch.randn(7, n, generator=torch.Generator().manual_seed(1))
    half = upper(x, x)
    assert torch.equal(mirrored(half), gram(x))
    assert len(half) == size_of_upper(n)
    assert n <= BLOCK or len(half) < 0.75 * n**2


def test_units_that_hardly_vary() -> None:
    """Single precision gives the covariance of double precision."""
    torch.manual_seed(3)
    sums, h = UnitSums(), 100 + 0.01 * torch.randn(50, 4, 6)
    sums.add(h, torch.ones(50, 4, dtype=torch.bool), torch.randn(50, 4, 16))
    expected = h.flatten(0, 1).double().T.cov(correction=0)
    torch.testing.assert_close(sums.result(200).covariance, expected, rtol=1e-3, atol=1e-8)


@pytest.mark.parametrize("wrong", [math.inf, math.nan])
def test_statistics_that_are_no_numbers_are_refused(wrong: float) -> None:
    x, words = torch.randn(5, 2, 16), torch.ones(5, 2, dtype=torch.bool)
    for sums in (Sums(SeparateAttention(16, 4)), UnitSums()):
        given = (x, x, words) if isinstance(sums, Sums) else (x, words)
        sums.add(*given, torch.full((5, 2, 16), wrong))
        with refusing("c.pt", "NaN or infinity"):
            sums.result(10, "c.pt")


def test_a_pass_of_what_may_be_cut(model: Trained) -> None:
    """Heads alone need a part of the statistics, which is the same; the loss comes with it."""
    batches = sentences_of(model, "train", 20)
    every, heads = collect_all(model, batches), collect_all(model, batches, parts=("heads",))
    assert every.bits == pytest.approx(mean_bits(model.model, batches), rel=1e-6)
    assert heads.bits == every.bits
    assert every.units
    assert not heads.units
    for attention, found in heads.attentions.items():
        same = every.attentions[attention]
        for name in ("head_covariance", "output_fisher", "half_fishers", "half_covariances"):
            assert torch.equal(getattr(found, name), getattr(same, name)), name
        assert not found.key_fisher.numel()
    with refusing("statistics"):
        Evidence(model, attentions=heads.attentions).check_caches()


def test_plans_of_one_model_share_prices(
    model: Trained, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = Evidence.of(model, sentences=20)
    first = shrink(model, parameters=0.8, cache=0.5, evidence=found)
    monkeypatch.setattr(Evidence, "_removals", lambda *_: pytest.fail("computed twice"))
    monkeypatch.setattr(Latent, "convert", lambda *_: pytest.fail("computed twice"))
    again = propose(found, {"parameters": 0.8, "cache": 0.5})
    assert again.units == first.plan.units
