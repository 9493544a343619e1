"""Attention to packed numbers, by the kernel in C and by blocks, equals that to unpacked ones.

Once under the address sanitiser, after a change of ``rounded.c``:

    CC='cc -g -fsanitize=address' LD_PRELOAD=$(cc -print-file-name=libasan.so) \
        ASAN_OPTIONS=detect_leaks=0 pytest tests/parity/test_rounded_kernel.py
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from fairseq.sequence_generator import SequenceGenerator
from parity.test_search import sample
from torch import Tensor

from collab_common.errors import UserError
from fairseq_collab.attention import base, packed
from fairseq_collab.attention.cache import Cache, PackedContext
from fairseq_collab.attention.packed import Heads
from fairseq_collab.attention.scores import head_scores, mask_scores, weighted_values
from fairseq_collab.cpu_kernels import rounded as module
from fairseq_collab.models.variants import VARIANTS

PROCESSOR = torch.backends.cpu.get_cpu_capability()
PROCESSORS = ["DEFAULT", "AVX2", "AVX512"]
WAYS = ["blocks", *PROCESSORS]
INFINITY = float("inf")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kernel is chosen anew, for a test and after it; small caches have threads, too."""
    monkeypatch.setattr(module, "_THREADED", 0)
    monkeypatch.setattr(module, "_PART", 16)
    monkeypatch.delenv(module.ROUNDED_ENV, raising=False)
    choose, threads = module.kernel, torch.get_num_threads()
    choose.cache_clear()
    yield
    torch.set_num_threads(threads)
    choose.cache_clear()


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Heads]:
    """A way to attend: by blocks of torch's operators, or compiled for a processor."""
    if request.param == "blocks":
        monkeypatch.setattr(packed, "BLOCK", 2**13)
        monkeypatch.setattr(packed, "_kernels", [])
        return lambda q, context, weigh: packed.packed_heads(q, context, None, weigh)
    order = {name: number for number, name in enumerate(PROCESSORS)}
    if order[request.param] > order.get(PROCESSOR, -1):
        pytest.skip(f"a processor with {PROCESSOR}")
    try:
        attend = module.library(request.param)
    except OSError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(module, "kernel", lambda: attend)
    return lambda *case: module.compiled_heads(*case) or pytest.fail("the kernel did nothing")


def oracle(q: Tensor, context: PackedContext, need_weights: bool = True) -> Heads:
    keys, values, mask = context.unpacked()
    weights = mask_scores(head_scores(q, keys), mask).softmax(-1)
    return weighted_values(weights, values), weights


def equal(found: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """To two millionths of the greatest number: 16 roundings."""
    for ours, theirs in zip(found, expected, strict=True):
        greatest = float(theirs[theirs.isfinite()].abs().max()) if theirs.isfinite().any() else 0
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6 * greatest, equal_nan=True)


def pick(*choices: Any) -> Any:
    return choices[int(torch.randint(len(choices), ()))]


def random_case(bits: int, broken: float = 0) -> tuple[Tensor, PackedContext]:
    """Queries and a context of random shapes; with probability ``broken``, not all is finite."""
    sentences, queries, slots = pick(1, 2, 3), pick(1, 2, 5), pick(1, 7, 33, 70, 100)
    heads = pick(1, 2, 4, 6)
    groups, value_groups = (pick(*(g for g in (1, 2, 4, 6) if heads % g == 0)) for _ in "kv")
    sizes = 1, 3, 8, 13, 16, 31, 32, 64, 70, 180  # 1 to 3 scales for most, up to 17
    size, value_size = pick(*sizes), pick(*sizes)
    q = torch.randn(sentences, heads, queries, size) / size**0.5
    keys = torch.randn(sentences, groups, slots, size) + torch.randn(())
    values = torch.randn(sentences, value_groups, slots, value_size)
    if pick(True, False):  # a latent
        values = keys
    for x in (keys, values):
        if float(torch.rand(())) < broken:
            x.view(-1)[torch.randint(x.numel(), (2,))] = pick(
                INFINITY, -INFINITY, 1e8, float("nan")
            )
    hidden = torch.rand(sentences, 1, queries, slots) < pick(0.0, 0.3, 0.8)
    if pick(True, False):  # as if hypotheses had ended
        hidden |= torch.rand(sentences, 1, 1, slots) < 0.7
    added = torch.zeros(hidden.shape).masked_fill(hidden, -INFINITY)
    mask = pick(None, added, hidden[:, :, :1], added + torch.randn(slots))
    first, rest = keys[:, :, :1], keys[:, :, 1:]
    one = values is keys
    cache = Cache(first, first if one else values[:, :, :1], bits=bits)
    cache.append(rest, rest if one else values[:, :, 1:])  # with spare slots
    context = cache.context(mask)
    assert isinstance(context, PackedContext)
    return q, context


@pytest.mark.parametrize("broken", [0, 0.8], ids=["finite", "broken"])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(
    ("way", "threads"), [("blocks", 1), *product(PROCESSORS, (1, 2))], indirect=["way"]
)
def test_random_shapes(way: Callable[..., Heads], bits: int, threads: int, broken: float) -> None:
    torch.manual_seed(bits + threads)
    torch.set_num_threads(threads)
    for _ in range(25):
        q, context = random_case(bits, broken)
        expected = oracle(q, context)
        equal(way(q, context, True), expected)
        equal(way(q, context, False)[:1], expected[:1])


@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_great_scores_and_whatever_nobody_sees(way: Callable[..., Heads]) -> None:
    torch.manual_seed(1)
    keys, values = torch.randn(2, 4, 100, 16), torch.randn(2, 4, 100, 16)
    mask = torch.zeros(2, 1, 3, 100)
    mask[0, :, 1] = -INFINITY  # a query sees nothing: NaN
    mask[..., 20:60] = -INFINITY
    for scale in (0.01, 30, 3000):
        context = Cache(keys, values, bits=8).context(mask)
        q = scale * torch.randn(2, 4, 3, 16)
        ours, theirs = way(q, context, False)[0], oracle(q, context)[0]
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6 * max(scale, 2), equal_nan=True)
        assert theirs.isnan().any(-1).sum() == 4


def test_a_mask_of_the_queries_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel takes one."""
    monkeypatch.setattr(packed, "_kernels", [module.compiled_heads])
    torch.manual_seed(2)
    keys, values = torch.randn(2, 4, 20, 16), torch.randn(2, 4, 20, 16)
    q, hidden = torch.randn(2, 4, 3, 16), torch.zeros(3, 20)
    hidden[1, 5:] = -INFINITY
    context = Cache(keys, values, bits=8).context(None)
    assert isinstance(context, PackedContext)
    masked = context._replace(mask=hidden.expand(2, 1, 3, 20))
    equal(packed.packed_heads(q, context, hidden, True), oracle(q, masked))


# ---- models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("variant", [variant.name for variant in VARIANTS])
def test_hypotheses(variant: str, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beams reorder and sentences leave; the last layer's weights are asked for."""
    symbols = toy.task()
    model = toy.randomised(toy.model(f"transformer_{variant}", symbols, cache_bits=bits)).eval()
    search = SequenceGenerator([model], symbols.target_dictionary, beam_size=4, max_len_b=12)
    used = []
    if module.kernel() is not None:

        def kernel(*case: Any) -> Heads | None:
            used.append(module.compiled_heads(*case))
            return used[-1]

        monkeypatch.setattr(packed, "_kernels", [kernel])
    ours = model.search(search, sample(symbols))
    assert all(used)
    monkeypatch.setattr(base, "can_stay_packed", lambda *_: False)
    for found, expected in zip(ours, model.search(search, sample(symbols)), strict=True):
        assert [h["tokens"].tolist() for h in found] == [h["tokens"].tolist() for h in expected]
        for one, other in zip(found, expected, strict=True):
            for name in ("score", "positional_scores", "attention"):
                # A number next to a boundary of rounding may get the other code.
                torch.testing.assert_close(one[name], other[name], rtol=1e-3, atol=1e-3)


def test_gradients_other_formats_and_no_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    q, context = random_case(8)
    assert packed.can_stay_packed(q, context, 0.0)
    assert not packed.can_stay_packed(q.requires_grad_(), context, 0.0)
    assert not packed.can_stay_packed(q.detach(), context, 0.1)
    assert module.compiled_heads(q.detach().double(), context, False) is None
    empty = torch.zeros(2, 3, 0, 4)
    assert not packed.can_stay_packed(q.detach(), Cache(empty, empty, bits=8).context(None), 0.0)


# ---- which is used -------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", ["no compiler", "fails", "no folder"])
def test_without_a_kernel_one_warning(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if problem == "no folder":
        (tmp_path / "fairseq_collab").write_text("")
    else:
        monkeypatch.setenv("CC", {"no compiler": str(tmp_path / "cc"), "fails": "false"}[problem])
    torch.manual_seed(2)
    q, context = random_case(4)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            equal(packed.packed_heads(q, context, None, True), oracle(q, context))
    assert len([r for r in caplog.records if r.name == module.__name__]) == 1
    assert "torch" in module.in_use()
    assert not [*tmp_path.rglob("*.so")]
    module.kernel.cache_clear()
    monkeypatch.setenv(module.ROUNDED_ENV, "compiled")
    with pytest.raises(UserError, match="torch"):
        module.kernel()


def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setenv(module.ROUNDED_ENV, "torch")
    assert module.kernel() is None
    assert not caplog.records
    module.kernel.cache_clear()
    monkeypatch.setenv(module.ROUNDED_ENV, "c")
    with pytest.raises(UserError, match=module.ROUNDED_ENV):
        module.kernel()


def test_the_library_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "OPTIONS", ["-O0", "-Wno-psabi", "-shared", "-fPIC"])  # at once
    compiled = partial(module._compiled, module.PROCESSORS["DEFAULT"])
    try:
        path = compiled()
    except OSError as error:
        pytest.skip(str(error))
    made = path.stat().st_mtime_ns
    assert compiled() == path
    assert path.stat().st_mtime_ns == made
    assert [*path.parent.iterdir()] == [path]  # nothing half-written is left
    monkeypatch.setattr(module, "OPTIONS", [*module.OPTIONS, "-g"])
    assert compiled() != path
