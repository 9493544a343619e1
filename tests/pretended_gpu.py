"""A GPU for machines without one: what is "on" it is computed on the CPU, and told apart from that.

    with pretended_gpu():
        model.cuda()(tokens)    # raises RuntimeError: tokens are on the CPU

So tests notice a tensor that is made on the wrong device, or read without being copied.  They
notice nothing else: kernels, streams and rounding are those of the CPU.

A tensor of it is a wrapper whose device is ``meta`` inside torch, which computes there without a
GPU, and ``cuda:0`` to those who ask.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_iter, tree_map_only

aten = torch.ops.aten
OUTSIDE, INSIDE = torch.device("cuda:0"), torch.device("meta")
#: These take indices from the CPU on a real GPU, too.
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
INDEXING |= {aten._index_put_impl_.default}
COMPOSITE = "CompositeImplicitAutograd"
#: What functions of ``torch.cuda`` return; the others do nothing.
ANSWERS: dict[str, Any] = {
    "is_available": True, "is_bf16_supported": True, "device_count": 1, "current_device": 0,
    "max_memory_allocated": 0, "get_rng_state": torch.zeros(0, dtype=torch.uint8),
    "get_device_properties": mock.Mock(major=9, minor=0, total_memory=2**30),
}  # fmt: skip
NOTHING = ("synchronize", "manual_seed", "manual_seed_all", "set_rng_state", "empty_cache")
NOTHING += ("reset_peak_memory_stats", "set_device")


@contextlib.contextmanager
def pretended_gpu() -> Iterator[None]:
    """Torch has one GPU."""
    properties = ANSWERS["get_device_properties"]
    properties.name = "pretended"  # an option of Mock, otherwise
    with contextlib.ExitStack() as stack:
        for name in (*ANSWERS, *NOTHING):
            answer = mock.Mock(return_value=ANSWERS.get(name))
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        stack.enter_context(Names())
        stack.enter_context(Kernels())
        yield


class OnGpu(Tensor):
    """A tensor on it; ``near`` has its numbers."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> OnGpu:
        like = {"strides": near.stride(), "storage_offset": near.storage_offset()}
        like |= {"dtype": near.dtype, "layout": near.layout}
        return Tensor._make_wrapper_subclass(cls, near.size(), device=INSIDE, **like)

    def __init__(self, near: Tensor):
        self.near = near

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        with Kernels():  # in the thread of a backward pass
            return func(*args, **(kwargs or {}))


class Kernels(TorchDispatchMode):
    """What runs: each operation is one of the CPU's, on tensors of one device."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), COMPOSITE):
            with self:  # reached in inference mode only
                return func.decompose(*args, **options)
        tensors = [each for each in tree_iter((args, options)) if isinstance(each, Tensor)]
        there = [each for each in tensors if isinstance(each, OnGpu)]
        here = [each for each in tensors if not isinstance(each, OnGpu)]
        assert not any(each.is_meta for each in here), f"{func} on a tensor without numbers"
        to_gpu = bool(there)
        if options.get("device") is not None:
            to_gpu = options["device"] == INSIDE
            options["device"] = torch.device("cpu")
        elif func is aten.copy_.default:
            to_gpu = isinstance(args[0], OnGpu)
        elif there and func not in INDEXING and any(each.dim() for each in here):
            shapes = [tuple(each.shape) for each in here]
            raise RuntimeError(f"{func}: tensors on two devices, of shapes {shapes} on the CPU")
        near_args, near_options = tree_map_only(OnGpu, lambda each: each.near, (args, options))
        found = func(*near_args, **near_options)
        if not to_gpu:
            return found
        found = tree_map_only(Tensor, OnGpu, found)
        return return_and_correct_aliasing(func, args, options, found) if there else found


class Names(TorchFunctionMode):
    """What Python sees: ``cuda`` in place of the device that it is inside torch."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        if args and isinstance(args[0], OnGpu):
            for method, answer in SEEN.items():
                if func == method:
                    return answer(args[0])
            if func == Tensor.data.__set__:
                args[0].near = args[1].near
            elif func is Tensor.new:  # this and the next make tensors without an operation
                return args[0].near.new(*args[1:]).to(INSIDE)
            elif func is Tensor.new_tensor:
                options = {"dtype": args[0].dtype, "device": INSIDE, **options}
                func, args = torch.tensor, args[1:]
            elif func in (Tensor.__getitem__, Tensor.__setitem__):
                places = tree_map_only(list, torch.tensor, args[1], lambda x: isinstance(x, list))
                args = (args[0], places, *args[2:])
        if func is torch.device:
            return func(*args, **options)
        if func is Tensor.cuda:
            return args[0].to(INSIDE)
        numbers = func is Tensor.to  # a device may be one
        args = [inside(each, numbers and place == 1) for place, each in enumerate(args)]
        options = {name: inside(each, name == "device") for name, each in options.items()}
        if func in (torch.tensor, torch.as_tensor) and options.get("device") == INSIDE:
            return func(*args, **{**options, "device": None}).to(INSIDE)
        return func(*args, **options)


def inside(value: Any, numbers: bool) -> Any:
    """A device, maybe by its number, as torch is to have it; anything else as it is."""
    named = isinstance(value, str | torch.device) and str(value).startswith("cuda")
    return INSIDE if named or (numbers and type(value) is int) else value


def refused(_: OnGpu) -> Any:
    raise TypeError("can't convert a tensor on cuda:0 to numpy: copy it to the CPU first")


#: What Python asks of a tensor on it.
SEEN: dict[Any, Callable[[OnGpu], Any]] = {
    Tensor.device.__get__: lambda _: OUTSIDE,
    Tensor.get_device: lambda _: 0,
    Tensor.is_cuda.__get__: lambda _: True,
    Tensor.is_cpu.__get__: lambda _: False,
    Tensor.is_meta.__get__: lambda _: False,
    Tensor.tolist: lambda it: it.near.tolist(),
    Tensor.numpy: refused,
    Tensor.__array__: refused,
}
