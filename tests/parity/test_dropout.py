"""Dropout on a CPU: rate, independence, gradients, seeds; every model of ours has it."""

from __future__ import annotations

import pytest
import torch
from fairseq.modules.fairseq_dropout import FairseqDropout
from toy_language_models import FAMILIES

from fairseq_collab.cpu_kernels.dropout import LEVELS, Dropout

NUMBERS = 2**20


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_elements_are_dropped_independently_at_the_rate(p: float) -> None:
    """Within five standard deviations, for each of the four that share a word, and for pairs."""
    torch.manual_seed(1)
    y = Dropout(p)(torch.ones(NUMBERS, dtype=torch.float64))
    dropped = (y == 0).double()
    rows = dropped.view(-1, 4)
    deviation = (p * (1 - p) / len(rows)) ** 0.5
    assert torch.allclose(rows.mean(0), torch.tensor(p).double(), atol=5 * deviation)
    pairs = rows[:, :-1] * rows[:, 1:]
    assert torch.allclose(pairs.mean(0), torch.tensor(p * p).double(), atol=5 * deviation)
    kept = round((1 - p) * LEVELS)
    assert torch.equal(y.unique(), torch.tensor([0, LEVELS / kept], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_dropped_elements_have_no_gradient(dtype: torch.dtype) -> None:
    x = torch.randn(7, 5, 3, dtype=dtype).transpose(0, 1).requires_grad_()  # 105: no multiple of 4
    y = Dropout(0.4)(x)
    y.sum().backward()
    assert y.dtype == dtype
    assert y.shape == x.shape
    assert x.grad is not None
    assert 0 < (x.grad == 0).sum() < x.numel()
    torch.testing.assert_close(y, x * x.grad)


def test_seeds_and_stored_states_repeat() -> None:
    x = torch.ones(1000)
    torch.manual_seed(1)
    first, state = Dropout(0.3)(x), torch.get_rng_state()
    second = Dropout(0.3)(x)
    torch.manual_seed(1)
    assert torch.equal(Dropout(0.3)(x), first)
    assert not torch.equal(first, second)
    torch.set_rng_state(state)
    assert torch.equal(Dropout(0.3)(x), second)


@pytest.mark.parametrize("p", [0.0, 1e-6, 1 - 1e-6, 1.0])
def test_rates_beyond_sixteen_bits_use_torch(p: float) -> None:
    x = torch.randn(1000)
    torch.manual_seed(1)
    expected = FairseqDropout(p)(x)
    torch.manual_seed(1)
    assert torch.equal(Dropout(p)(x), expected)


def test_translation_drops_nothing_unless_asked_to() -> None:
    """fairseq's --retain-dropout."""
    x = torch.ones(1000)
    module = Dropout(0.3).eval()
    assert torch.equal(module(x), x)
    module.apply_during_inference = True
    assert not torch.equal(module(x), x)


@pytest.mark.parametrize("family", FAMILIES)
def test_all_dropout_of_a_model_is_ours(family: str) -> None:
    modules = FAMILIES[family]().modules()
    kinds = {type(module) for module in modules if isinstance(module, FairseqDropout)}
    assert kinds == {Dropout}
