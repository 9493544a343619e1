"""oneDNN's product equals torch's own, forward and backward; which models use it, and when.

What torch's own tools do with our models, whatever the library.
"""

from __future__ import annotations

import io
import pickle
from contextlib import ExitStack
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import toy
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.sequence_generator import SequenceGenerator
from torch import nn
from toy_language_models import FAMILIES

from collab_common.errors import UserError
from fairseq_collab.cpu_kernels import onednn as module
from fairseq_collab.cpu_kernels.onednn import (
    MATMUL_ENV,
    OneDnnLinear,
    linear,
    matrix_library,
    packed_weights,
)
from fairseq_collab.decoding import beam_search
from fairseq_collab.models.base import Variant
from fairseq_collab.models.variants import SEPARATE, VARIANTS

TOLERANCE = 1e-5
SHAPES = [(7,), (5, 7), (3, 4, 7), (0, 7)]


pytestmark = pytest.mark.usefixtures("fresh_choice")


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """oneDNN whatever the processor; the list grows with each of its products."""
    monkeypatch.setenv(MATMUL_ENV, "onednn")
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


@pytest.mark.parametrize("shape", [(0, 7), (6, 0)], ids=str)
def test_maps_of_a_block_without_units_have_gradients(
    onednn: list[int], shape: tuple[int, int]
) -> None:
    x, weight = torch.randn(5, shape[1], requires_grad=True), torch.randn(shape, requires_grad=True)
    bias = torch.randn(shape[0], requires_grad=True)
    linear(x, weight, bias).sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))
    assert torch.equal(bias.grad, torch.full_like(bias, 5.0))
    assert not onednn


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_formats_use_torch(onednn: list[int], dtype: torch.dtype) -> None:
    x, weight = torch.randn(4, 7, dtype=dtype), torch.randn(6, 7, dtype=dtype)
    assert torch.equal(linear(x, weight), F.linear(x, weight))
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x.float(), weight.float()).dtype == torch.bfloat16
    assert not onednn


@pytest.mark.parametrize("first", [0, 1])
def test_packed_weights(onednn: list[int], first: int) -> None:
    """Also where they overlap, as those of two threads, which may end in any order."""
    layer, x = OneDnnLinear(7, 6), torch.randn(4, 7)
    expected, both, state = layer(x).detach(), [ExitStack(), ExitStack()], [*layer.state_dict()]
    for one in both:
        one.enter_context(packed_weights(nn.Sequential(layer)))
    assert [*layer.state_dict()] == state
    layer.weight.data.mul_(2)  # the packed copy is of before
    with torch.no_grad():
        torch.testing.assert_close(layer(x), expected, rtol=0, atol=TOLERANCE)
    for one in (both[first], both[1 - first]):
        one.close()
        torch.testing.assert_close(layer(x), linear(x, layer.weight, layer.bias))
    assert layer.packed is None


def test_a_search_packs_the_weights(onednn: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    symbols = toy.task()
    model = toy.model("transformer_collab", symbols)
    layer = model.decoder.output_projection
    monkeypatch.setattr(beam_search.BeamSearch, "run", lambda self: [layer.packed])
    generator = SequenceGenerator([model], symbols.target_dictionary)
    (packed,) = generator.generate([model], {"net_input": toy.batch(symbols)})
    assert packed is not None
    assert layer.packed is None


def test_logits_may_change_in_place(onednn: list[int]) -> None:
    """As with torch's own product: their gradient is that of a copy."""
    layer, gradients = OneDnnLinear(7, 6), []
    x = torch.randn(2, 3, 7)
    for function in (layer, nn.Linear.forward.__get__(layer)):
        logits = function(x)
        logits[..., 1] = 0
        logits.masked_fill_(logits < 0, -1)
        gradients.append(torch.autograd.grad(logits.square().sum(), layer.parameters()))
    torch.testing.assert_close(*gradients, rtol=0, atol=TOLERANCE)
    assert len(onednn) == 2


@pytest.mark.parametrize(
    ("intel", "asked", "library"),
    [(True, None, "torch"), (False, None, "onednn"), (False, "torch", "torch")],
)
def test_the_processor_or_the_variable_chooses(
    monkeypatch: pytest.MonkeyPatch, intel: bool, asked: str | None, library: str
) -> None:
    if asked:
        monkeypatch.setenv(MATMUL_ENV, asked)
    else:
        monkeypatch.delenv(MATMUL_ENV, raising=False)
    monkeypatch.setattr(module, "is_intel", lambda: intel)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert matrix_library() == library


@pytest.mark.parametrize("library", ["torch", "onednn"])
def test_a_model_is_swapped_as_it_is_built(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    """Weights and their names stay; the class of linear maps changes."""
    monkeypatch.setenv(MATMUL_ENV, library)
    for build in FAMILIES.values():
        torch.manual_seed(3)
        found = build().eval()
        swapped = [m for m in found.modules() if isinstance(m, OneDnnLinear)]
        plain = [m for m in found.modules() if type(m) is nn.Linear]
        assert bool(swapped) == (library == "onednn")
        assert bool(plain) == (library == "torch")


def test_an_unknown_library_is_an_error_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MATMUL_ENV, "blas")
    with pytest.raises(UserError, match=r"FAIRSEQ_COLLAB_MATMUL.*blas"):
        toy.model("transformer_collab")


# ---- torch's own tools ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "library"), [(SEPARATE, "torch"), *((variant, "onednn") for variant in VARIANTS)]
)
def test_torchs_tools(variant: Variant, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each architecture, after a translation, is saved whole and quantised."""
    monkeypatch.setenv(MATMUL_ENV, library)
    symbols = toy.task()
    model = toy.model(f"transformer_{variant.name}", symbols).eval()
    batch = toy.batch(symbols)
    translate(model, symbols)
    expected, _ = model(**batch)
    torch.save(model, file := io.BytesIO())
    file.seek(0)
    torch.testing.assert_close(torch.load(file, weights_only=False)(**batch)[0], expected)
    options = MODEL_DATACLASS_REGISTRY[f"transformer_{variant.name}_multi30k"]()
    assert pickle.loads(pickle.dumps(options)) == options
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    found = [type(module) for module in quantised.modules()]
    assert found.count(torch.ao.nn.quantized.dynamic.Linear) > 30
    assert not {nn.Linear, OneDnnLinear} & {*found}
    torch.testing.assert_close(quantised(**batch)[0], expected, rtol=0, atol=0.3)
    translate(quantised, symbols)


def translate(model: nn.Module, symbols: Any) -> None:
    generator = SequenceGenerator([model], symbols.target_dictionary, beam_size=3, max_len_b=4)
    generator.generate([model], {"net_input": toy.batch(symbols)})
