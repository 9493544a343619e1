"""Linear maps in 8 bits: how far off they are, when they are used, and where they are refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import toy
from torch import nn
from toy_language_models import FAMILIES

from collab_common import processor
from collab_common.errors import UserError
from fairseq_collab.kernels import int8, onednn
from fairseq_collab.kernels.int8 import Int8Linear, int8_linear, pack
from fairseq_collab.kernels.onednn import VARIABLE, OneDnnLinear, matrix_library
from fairseq_compat import doctor

pytestmark = pytest.mark.usefixtures("fresh_choice")


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """8 bits, whatever the processor, for weights of any size."""
    monkeypatch.setenv(VARIABLE, "int8")
    monkeypatch.setattr(onednn, "int8_instructions", lambda: ["amx_int8"])
    monkeypatch.setattr(int8, "SMALLEST", 1)


# ---- the product ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(40,), (5, 40), (3, 4, 40), (0, 40)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_error_is_that_of_rounding(shape: tuple[int, ...], bias: bool) -> None:
    """Each product of two numbers is off by half a step of either, and half a step of both."""
    torch.manual_seed(1)
    x, weight = torch.randn(shape), torch.randn(12, 40) * torch.logspace(-3, 3, 12)[:, None]
    b = torch.randn(12) if bias else None
    found = int8_linear(x, *pack(weight), b)
    exact = F.linear(x.double(), weight.double(), None if b is None else b.double())
    steps = [t.abs().amax(-1, keepdim=True).double() / 127 for t in (x, weight)]
    least = steps[0] * weight.abs().double().sum(1) / 2 + x.abs().double().sum(-1, keepdim=True) @ (
        steps[1].T / 2
    )
    bound = least + x.size(-1) * steps[0] @ steps[1].T / 4 + 1e-5 * exact.abs()
    assert found.shape == exact.shape
    assert ((found - exact).abs() <= bound).all()
    if x.numel():
        assert float((found - exact).norm() / exact.norm()) < 0.015


def test_rows_do_not_depend_on_each_other() -> None:
    """A large neighbour changes no other token; zeros give the bias."""
    packed, b = pack(torch.randn(12, 40)), torch.randn(12)
    x = torch.randn(3, 40)
    alone = int8_linear(x[:1], *packed, b)
    x[1], x[2] = 1e4, 0
    together = int8_linear(x, *packed, b)
    assert torch.equal(together[:1], alone)
    assert torch.equal(together[2], b)


def test_one_row_is_never_multiplied_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take a hundred times as long as two."""
    rows = []
    product = int8.INT8_LINEAR
    monkeypatch.setattr(int8, "INT8_LINEAR", lambda x, *a: rows.append(len(x)) or product(x, *a))
    x, packed = torch.randn(2, 256), pack(torch.randn(1000, 256))
    both = int8_linear(x, *packed, None)
    assert torch.equal(int8_linear(x[:1], *packed, None), both[:1])
    assert rows == [2, 2]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_so(value: float) -> None:
    """fairseq stops at such scores instead of printing nonsense."""
    x = torch.randn(2, 40)
    x[1, 3] = value
    found = int8_linear(x, *pack(torch.randn(12, 40)), None)
    assert found[0].isfinite().all()
    assert not found[1].isfinite().any()


# ---- in models -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("wanted")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_changes_only_as_it_is_made_fast(family: str) -> None:
    model = FAMILIES[family]()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    assert not [m for m in model.modules() if isinstance(m, Int8Linear)]
    model.make_generation_fast_()
    assert not [m for m in model.modules() if type(m) in (nn.Linear, OneDnnLinear)]
    assert [m for m in model.modules() if isinstance(m, Int8Linear)]
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    copied = copy.deepcopy(model).state_dict()  # without what is packed, which torch cannot copy
    assert all(torch.equal(value, state[key]) for key, value in copied.items())
    with pytest.raises(RuntimeError, match="cannot train after"):
        model.train()


@pytest.mark.usefixtures("wanted")
def test_training_is_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same loss and gradients, and the same in validation, to the last digit."""
    found = []
    for value in ("int8", ""):
        monkeypatch.setenv(VARIABLE, value) if value else monkeypatch.delenv(VARIABLE)
        matrix_library.cache_clear()
        torch.manual_seed(1)
        model = toy.model("transformer_collab")
        model.train()
        output, _ = model(**toy.batch())
        output.square().mean().backward()
        with torch.no_grad():
            valid, _ = model.eval()(**toy.batch())
        found.append([output.detach(), valid, *(p.grad for p in model.parameters())])
    assert all(map(torch.equal, *found))


@pytest.mark.usefixtures("wanted")
def test_decoding_is_rounded_and_follows_its_weights() -> None:
    torch.manual_seed(1)
    model = toy.model("transformer_headsize_n").eval()
    batch = toy.batch()
    with torch.no_grad():
        exact, _ = model(**batch)
        model.make_generation_fast_()
        rounded, _ = model(**batch)
        layer = model.decoder.output_projection
        x = torch.randn(3, 16)
        before = layer(x)
        layer.weight.mul_(2)
        assert torch.equal(layer(x), 2 * before), "not of the weights of before"
    assert 0 < float((rounded - exact).norm() / exact.norm()) < 0.1
    assert not torch.equal(layer(x.requires_grad_()), 2 * before), "float32 where gradients are"


def test_small_maps_and_fairseqs_own_stay(monkeypatch: pytest.MonkeyPatch, wanted: None) -> None:
    stock = toy.model("transformer")
    stock.make_generation_fast_()
    monkeypatch.undo()
    monkeypatch.setenv(VARIABLE, "int8")
    monkeypatch.setattr(onednn, "int8_instructions", lambda: ["amx_int8"])
    small = toy.model("transformer_collab")
    small.make_generation_fast_()
    for model in (stock, small):
        assert not [m for m in model.modules() if isinstance(m, Int8Linear)]


# ---- refused -------------------------------------------------------------------------------------


def test_a_slow_processor_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "int8")
    monkeypatch.setattr(processor, "cpuinfo", lambda: "flags : avx2 avx512f avx_vnni")
    told = "it would be slower on this processor, which has neither AVX512-VNNI nor AMX: unset it"
    with pytest.raises(UserError, match=told):
        toy.model("transformer_collab")
    assert doctor.linear_maps().endswith("int8 would be slower here")


def of_torch_2_6(*_: object) -> None:
    raise RuntimeError("qlinear with mkldnn tensor: data type of input should be uint8")


@pytest.mark.parametrize("kernel", [None, of_torch_2_6])
def test_a_torch_without_the_kernel_refuses(
    kernel: Callable[..., None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "int8")
    monkeypatch.setattr(onednn, "INT8_LINEAR", kernel)
    with pytest.raises(UserError, match=r"torch \S+ has no 8-bit linear map: unset it"):
        toy.model("transformer_collab")


@pytest.mark.usefixtures("wanted")
def test_half_precision_refuses() -> None:
    model = toy.model("transformer_collab").half()
    told = f"{VARIABLE}=int8: is for models in float32 on a CPU; this one is torch.float16 on cpu"
    with pytest.raises(UserError, match=told):
        model.make_generation_fast_()


# ---- never silent --------------------------------------------------------------------------------


@pytest.mark.usefixtures("wanted")
def test_it_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the log, in doctor, in a run's record."""
    caplog.set_level("INFO")
    toy.model("transformer_collab").make_generation_fast_()
    assert "FAIRSEQ_COLLAB_MATMUL=int8: 3" in caplog.text
    assert doctor.linear_maps().startswith("FAIRSEQ_COLLAB_MATMUL=int8; int8 ")
    monkeypatch.delenv(VARIABLE)
    matrix_library.cache_clear()
