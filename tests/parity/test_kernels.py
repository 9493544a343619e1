"""Which of torch's kernels runs, and our dropout; test_attention_parity.py has the equations."""

from __future__ import annotations

import contextlib
import threading
from unittest import mock

import pytest
import torch
from fairseq.modules.fairseq_dropout import FairseqDropout
from operators import Operators, aten
from toy_language_models import FAMILIES

from fairseq_collab.attention import (
    CollaborativeAttention,
    HeadAttention,
    SeparateAttention,
    packed,
)
from fairseq_collab.attention.cache import PackedContext, Slots
from fairseq_collab.attention.head_groups import HeadGroupAttention
from fairseq_collab.attention.packed import packed_heads
from fairseq_collab.attention.parts import ContextInParts, heads_in_parts
from fairseq_collab.attention.scores import F, can_fuse, fused_heads, over_keys
from fairseq_collab.cpu_kernels.dropout import LEVELS, Dropout

D, H, MANY = 64, 4, 256
FUSED = aten._scaled_dot_product_flash_attention_for_cpu


def fuses(attention: HeadAttention, queries: int = MANY, keys: int = MANY) -> bool:
    """Whether the fused kernel runs, and no other softmax."""
    x, y = torch.randn(queries, 2, D), torch.randn(keys, 2, D)
    with Operators() as operators:
        attention(x, y, y, need_weights=False)
    softmaxes = {FUSED, aten._softmax, aten._safe_softmax}
    (used,) = softmaxes & {*operators.ran}
    return used is FUSED


def shared(key_dim: int, **options: int) -> CollaborativeAttention:
    return CollaborativeAttention(D, H, key_dim, query_mixing="diagonal", **options)


@pytest.mark.parametrize("value_heads", [1, 2, H])
@pytest.mark.parametrize("key_dim", [1, D // 8, D // 4, D // 2])
def test_shared_keys_use_it(key_dim: int, value_heads: int) -> None:
    """torch takes keys and values of one width only, and is silent about others."""
    assert fuses(shared(key_dim, value_heads=value_heads).eval().requires_grad_(False))


def test_where_it_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = SeparateAttention(D, H)
    assert fuses(plain)
    assert not fuses(plain, queries=4), "as in a step of decoding"
    assert not fuses(plain, keys=MANY - 1)
    assert not fuses(shared(D // 2)), "training with padded values: slower"
    assert fuses(shared(D // 2), keys=2 * MANY)
    assert not fuses(shared(D), keys=2 * MANY), "padding would make values four times as wide"
    assert not fuses(HeadGroupAttention(D, H, groups=1, feature="attention"))
    q = torch.randn(1, 1, MANY, 8)
    assert can_fuse(q, q, q, dropout=0.0)
    assert not can_fuse(q, q, q, dropout=0.5), "which torch's kernel for CPUs has not"
    on_gpu = mock.Mock(is_cuda=True, requires_grad=False, size=q.size)
    assert can_fuse(on_gpu, q, q, dropout=0.5), "whose kernels have it"
    assert not can_fuse(on_gpu, q[:, :, 1:], q, dropout=0.0), "no other threshold was timed"
    dropping = SeparateAttention(D, H, dropout=0.5)
    assert not fuses(dropping)
    assert fuses(dropping.eval())
    monkeypatch.setattr(dropping.dropout_module, "apply_during_inference", True, raising=False)
    assert not fuses(dropping), "--retain-dropout"


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_cudnn_is_off_during_the_call(
    enabled: bool, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And as before it afterwards, of failed calls, too."""
    cuda, during = torch.backends.cuda, []

    def kernel(q: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        during.append(cuda.cudnn_sdp_enabled())
        return q if not fails else q @ q

    monkeypatch.setattr(F, "scaled_dot_product_attention", kernel)
    before, q = cuda.cudnn_sdp_enabled(), torch.randn(1, 2, 5, 3)
    cuda.enable_cudnn_sdp(enabled)
    try:
        with contextlib.suppress(RuntimeError):
            fused_heads(q, q, q)
        assert (during, cuda.cudnn_sdp_enabled()) == ([False], enabled)
    finally:
        cuda.enable_cudnn_sdp(before)


def test_cudnn_is_as_before_after_calls_of_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call begins within the first one, and ends after it."""
    cuda, q, during = torch.backends.cuda, torch.randn(1, 2, 5, 3), []
    second_began, first_ended = threading.Event(), threading.Event()

    def kernel(q: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        if threading.current_thread() is threading.main_thread():
            second.start()
            assert second_began.wait(60)
        else:
            second_began.set()
            assert first_ended.wait(60)
        during.append(cuda.cudnn_sdp_enabled())
        return q

    monkeypatch.setattr(F, "scaled_dot_product_attention", kernel)
    before, second = cuda.cudnn_sdp_enabled(), threading.Thread(target=fused_heads, args=(q, q, q))
    cuda.enable_cudnn_sdp(True)
    try:
        fused_heads(q, q, q)
        first_ended.set()
        second.join()
        assert (during, cuda.cudnn_sdp_enabled()) == ([False, False], True)
    finally:
        cuda.enable_cudnn_sdp(before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("types", [("float32",), ("bool",), ("float64", "bool"), ("bool", "bool")])
def test_masks_have_the_type_of_queries(
    dtype: torch.dtype, types: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    given, kernel = [], F.scaled_dot_product_attention

    def recording(
        q: torch.Tensor, k: object, v: object, mask: torch.Tensor, *more: float, scale: float
    ) -> torch.Tensor:
        given.append(mask.dtype)
        return kernel(q, k, v, mask, *more, scale=scale)

    monkeypatch.setattr(F, "scaled_dot_product_attention", recording)
    q = torch.randn(2, 2, 5, 3).to(dtype)
    forbidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    masks = [forbidden if t == "bool" else forbidden.to(getattr(torch, t)) * -9 for t in types]
    heads = fused_heads(q, q, q, *masks)
    assert (given, heads.dtype) == ([dtype], dtype)


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Outputs of heads ``(B, H, T, h_v)`` one by one, with an additive mask of their scores."""
    heads = []
    for head in range(q.size(1)):
        key, value = (x[:, head * x.size(1) // q.size(1)] for x in (k, v))
        scores = torch.einsum("bte,bse->bts", q[:, head], key) + mask[:, 0]
        heads.append(scores.softmax(-1) @ value)
    return torch.stack(heads, 1)


@pytest.mark.parametrize("sizes", [(3, 5), (5, 3), (4, 4)])
@pytest.mark.parametrize("groups", [(1, 4), (2, 1), (2, 2)])
def test_ways_to_attend_are_one_function(sizes: tuple[int, int], groups: tuple[int, int]) -> None:
    """Fused, in blocks of slots that are rounded, and in parts that are not joined."""
    torch.manual_seed(1)
    q = torch.randn(2, 4, 6, sizes[0]).double()
    k, v = (torch.randn(2, g, 11, size).double() for g, size in zip(groups, sizes, strict=True))
    bias = torch.randn(2, 1, 6, 11).double()
    hidden = torch.rand(2, 1, 6, 11) < 0.3
    hidden[..., 0] = False
    mask = bias.masked_fill(hidden, float("-inf"))
    torch.testing.assert_close(fused_heads(q, k, v, bias, hidden), by_hand(q, k, v, mask))
    parts = [x.split([4, 1, 6], 2) for x in (k, v)]
    context = ContextInParts(*parts, mask)
    torch.testing.assert_close(heads_in_parts(q, context), by_hand(q, k, v, mask))
    for block in (1, 200, 10**6):
        with mock.patch.object(packed, "BLOCK", block):
            slots = PackedContext(Slots(k, 8), Slots(v, 8), hidden)
            rounded = slots.unpacked()
            heads, weights = packed_heads(q, slots, bias, True)
            expected = by_hand(q, rounded.keys, rounded.values, mask)
            torch.testing.assert_close(heads, expected)
            assert weights is not None
            torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 6).double())
            latent = Slots(k, 4)
            both = PackedContext(latent, latent, hidden)
            found, _ = packed_heads(q, both, bias, False)
            numbers = both.unpacked().keys
            torch.testing.assert_close(found, by_hand(q, numbers, numbers, mask))


def test_only_infinite_numbers_of_a_mask_forbid() -> None:
    """A bias of scores is none: padding stays hidden, but from queries that see nothing else."""
    padding = torch.tensor([[True, True, False], [False, False, False]])
    bias = torch.tensor([[-3.0, 0.5, -2.0], [-3.0, 0.5, float("-inf")]])
    expected = padding[:, None, None].expand(-1, 1, 2, -1).clone()
    expected[0, 0, 1] = False  # whose only other key is forbidden
    assert torch.equal(over_keys(padding, bias).expand(2, 1, 2, 3), expected)
    assert torch.equal(over_keys(padding, bias == float("-inf")).expand(2, 1, 2, 3), expected)
    assert torch.equal(over_keys(padding), padding[:, None, None])


# ---- dropout -------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("p", [0.0, 1e-6, 1 - 1e-6, 1.0])
def test_rates_beyond_sixteen_bits_use_torch(p: float) -> None:
    x = torch.randn(1000)
    torch.manual_seed(1)
    expected = FairseqDropout(p)(x)
    torch.manual_seed(1)
    assert torch.equal(Dropout(p)(x), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_all_dropout_of_a_model_is_ours(family: str) -> None:
    modules = FAMILIES[family]().modules()
    kinds = {type(module) for module in modules if isinstance(module, FairseqDropout)}
    assert kinds == {Dropout}
