"""oneDNN's product equals torch's own, forward and backward; which models use it, and when."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
import toy
from torch import nn
from toy_language_models import FAMILIES

from collab_common.errors import UserError
from fairseq_collab.kernels import onednn as module
from fairseq_collab.kernels.onednn import (
    VARIABLE,
    OneDnnLinear,
    linear,
    matrix_library,
    restore_linear,
)

TOLERANCE = 1e-5
SHAPES = [(7,), (5, 7), (3, 4, 7), (0, 7)]


pytestmark = pytest.mark.usefixtures("fresh_choice")


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """oneDNN whatever the processor; the list grows with each of its products."""
    monkeypatch.setenv(VARIABLE, "onednn")
    calls: list[int] = []
    product = module._product
    monkeypatch.setattr(module, "_product", lambda *a: calls.append(1) or product(*a))
    return calls


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_forward_and_gradients(onednn: list[int], shape: tuple[int, ...], bias: bool) -> None:
    weight, b = torch.randn(6, 7), torch.randn(6) if bias else None
    x = torch.randn(shape[::-1]).permute(*range(len(shape))[::-1])  # transposed
    inputs = [t for t in (x, weight, b) if t is not None]
    direction = torch.randn(*shape[:-1], 6)
    found, expected = [], []
    for gradients, function in ((found, linear), (expected, F.linear)):
        leaves = [t.clone().requires_grad_() for t in inputs]
        output = function(*leaves)
        (output * direction).sum().backward()
        gradients += [output, *(leaf.grad for leaf in leaves)]
    assert len(onednn) == (3 if x.numel() else 0)
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_formats_use_torch(onednn: list[int], dtype: torch.dtype) -> None:
    x, weight = torch.randn(4, 7, dtype=dtype), torch.randn(6, 7, dtype=dtype)
    assert torch.equal(linear(x, weight), F.linear(x, weight))
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x.float(), weight.float()).dtype == torch.bfloat16
    assert not onednn


def test_packed_weights(onednn: list[int]) -> None:
    layer, x = OneDnnLinear(7, 6), torch.randn(4, 7)
    expected = layer(x).detach()
    state = layer.state_dict().keys()
    layer.make_generation_fast_(name="layer")
    assert layer.state_dict().keys() == state
    with torch.no_grad():
        torch.testing.assert_close(layer(x), expected, rtol=0, atol=TOLERANCE)
        layer.weight.mul_(2)  # the packed copy is of before
        layer.bias.mul_(2)
        torch.testing.assert_close(layer(x), 2 * expected, rtol=0, atol=TOLERANCE)


def test_a_packed_layer_can_be_copied_and_restored(onednn: list[int]) -> None:
    """torch cannot copy oneDNN's layout: a copy has the plain weight."""
    layer, x = nn.Sequential(OneDnnLinear(7, 6)), torch.randn(4, 7)
    layer[0].make_generation_fast_()
    with torch.no_grad():
        assert torch.equal(copy.deepcopy(layer)(x), linear(x, layer[0].weight, layer[0].bias))
    restore_linear(layer)
    assert type(copy.deepcopy(layer)[0]) is nn.Linear


@pytest.mark.parametrize(
    ("intel", "asked", "library"),
    [(True, None, "torch"), (False, None, "onednn"), (False, "torch", "torch")],
)
def test_the_processor_or_the_variable_chooses(
    monkeypatch: pytest.MonkeyPatch, intel: bool, asked: str | None, library: str
) -> None:
    if asked:
        monkeypatch.setenv(VARIABLE, asked)
    else:
        monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(module, "is_intel", lambda: intel)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert matrix_library() == library


@pytest.mark.parametrize("library", ["torch", "onednn"])
def test_a_model_is_swapped_as_it_is_built(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    """Weights and their names stay; the class of linear maps changes."""
    monkeypatch.setenv(VARIABLE, library)
    for build in FAMILIES.values():
        torch.manual_seed(3)
        found = build().eval()
        swapped = [m for m in found.modules() if isinstance(m, OneDnnLinear)]
        plain = [m for m in found.modules() if type(m) is nn.Linear]
        assert bool(swapped) == (library == "onednn")
        assert bool(plain) == (library == "torch")
        before = {name: id(p) for name, p in found.named_parameters()}
        restore_linear(found)
        assert not [m for m in found.modules() if isinstance(m, OneDnnLinear)]
        assert {name: id(p) for name, p in found.named_parameters()} == before


def test_an_unknown_library_is_an_error_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "blas")
    with pytest.raises(
        UserError, match="cannot build the model: FAIRSEQ_COLLAB_MATMUL is 'blas'; here"
    ):
        toy.model("transformer_collab")
