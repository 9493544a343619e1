"""fairseq itself, apart from checkpoints and errors: each fix names its fault."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import dataclasses
import functools
import importlib.util
import os
import queue
import sys
import time
import types
import weakref
from collections.abc import Sequence
from typing import Any

from .patching import Proxy, wrap

UNDEFINED = "._float_tensor"  # how the names of buffers end that fairseq never initialises
#: Whose dataclasses are configurations.
ROOTS = ("fairseq", "hydra")
_PATIENCE = 10.0  # seconds that batches in the making are waited for


def make_hashable() -> None:
    """Python 3.11 rejects defaults such as `common: CommonConfig = CommonConfig()`.

    It wants them hashable, as a sign that they are not mutable, and a dataclass is not. A
    `default_factory` would not do: fairseq reads `Field.default`. So dataclasses of fairseq and
    hydra, and classes derived from them, get back the hash of `object`; equality stays.
    """
    plain = dataclasses.dataclass

    @functools.wraps(plain)
    def dataclass(cls: Any = None, /, **options: Any) -> Any:
        if cls is None:
            return functools.partial(dataclass, **options)
        cls = plain(cls, **options)
        roots = {base.__module__.partition(".")[0] for base in cls.__mro__}
        if cls.__hash__ is None and not roots.isdisjoint(ROOTS):
            cls.__hash__ = object.__hash__
        return cls

    # torch 2.6 looks up in these what can be given.
    dataclass.__kwdefaults__ = plain.__kwdefaults__  # type: ignore[attr-defined]
    dataclasses.dataclass = dataclass


def call_self_attention_in_evaluation() -> None:
    """In evaluation, encoder layers bypass self_attn, and torch 2 fails on padded batches there.

    Layers with loaded weights hand copies of the *stock* weights to torch, which ignores a custom
    attention. Later versions of fairseq have removed this path.
    """
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

    @wrap(TransformerEncoderLayerBase, "__init__")
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.can_use_fastpath = False


def train_in_bfloat16() -> None:
    """fairseq-train takes --bf16 for --tpu, on GPUs and CPUs too, and wants torch_xla."""
    from fairseq import options

    @wrap(options, "parse_args_and_arch")
    def parse_args_and_arch(
        original: Any, parser: Any, input_args: Sequence[str] | None = None, *args: Any, **kw: Any
    ) -> Any:
        result = original(parser, input_args, *args, **kw)
        found = result[0] if isinstance(result, tuple) else result  # with what it does not know
        if getattr(found, "bf16", False) and hasattr(found, "tpu"):
            found.tpu = "--tpu" in (sys.argv if input_args is None else input_args)
        return result


def define_buffers() -> None:
    """Positions and adaptive outputs hold a number of uninitialised memory, which may be NaN.

    Nothing reads it, but equal trainings write unequal files.
    """
    from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
    from fairseq.modules import AdaptiveInput, SinusoidalPositionalEmbedding
    from fairseq.modules.adaptive_softmax import TiedHeadModule

    for owner in (SinusoidalPositionalEmbedding, AdaptiveInput, TiedHeadModule):

        @wrap(owner, "__init__")
        def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            self._float_tensor.zero_()

    for owner in (TransformerEncoderBase, TransformerDecoderBase):

        @wrap(owner, "upgrade_state_dict_named")
        def upgrade_state_dict_named(original: Any, self: Any, state_dict: Any, name: str) -> Any:
            result = original(self, state_dict, name)
            for key in state_dict:
                if key.endswith(UNDEFINED):
                    state_dict[key] = state_dict[key].new_zeros(1)
            return result


def copy_integers() -> None:
    """The moving average multiplies integer entries of a model's state, which torch refuses."""
    from fairseq.models.ema.ema import EMA

    @wrap(EMA, "__init__")
    def __init__(original: Any, self: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        original(self, model, *args, **kwargs)
        whole = {key for key, value in model.state_dict().items() if not value.is_floating_point()}
        self.skip_keys = {*self.skip_keys, *whole}


def forget_previous_job() -> None:
    """Best metric and patience leak from one job of `-m` into the next, on functions."""
    from fairseq import checkpoint_utils
    from fairseq.trainer import Trainer

    @wrap(Trainer, "__init__")
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        vars(checkpoint_utils.save_checkpoint).pop("best", None)
        # Not imported here: it is absent where a Trainer is made without fairseq's command.
        train = sys.modules.get("fairseq_cli.train")
        if train is not None:
            for name in ("best", "num_runs"):
                vars(train.should_stop_early).pop(name, None)
        original(self, *args, **kwargs)


def end_loading_with_the_process() -> None:
    """A training that stops within an epoch may abort at exit, in the thread that loads batches.

    `--max-update` or Ctrl-C leaves a daemon thread inside torch: the exit status is then 134.
    """
    from fairseq.data import iterators

    started: weakref.WeakSet[Any] = weakref.WeakSet()

    @wrap(iterators.BufferedIterator, "_create_consumer")
    def _create_consumer(original: Any, self: Any) -> None:
        original(self)
        started.add(self)

    @atexit.register
    def end_all() -> None:
        for iterator in list(started):
            iterator._consumer._max_len = 0  # the batch in the making is the last
        deadline = time.monotonic() + _PATIENCE
        for iterator in list(started):
            while iterator._consumer.is_alive() and time.monotonic() < deadline:
                with contextlib.suppress(queue.Empty):
                    while True:
                        iterator._queue.get_nowait()  # it may wait for room
                iterator._consumer.join(0.01)


def name_the_type_of_indices() -> None:
    """A dataset of one sentence a line asks for np.compat.long, which NumPy 2 has removed.

    Language models need it: `--sample-break-mode eos`, and fairseq-interactive always.
    """
    import numpy
    from fairseq.data import token_block_dataset

    token_block_dataset.np = Proxy(numpy, compat=types.SimpleNamespace(long=int))


def accept_package_names() -> None:
    """fairseq finds a plug-in of an editable install by its path only."""
    from fairseq import utils

    @wrap(utils, "import_user_module")
    def import_user_module(original: Any, args: Any) -> None:
        name = getattr(args, "user_dir", None)
        if name and name.isidentifier() and not os.path.exists(name):
            spec = importlib.util.find_spec(name)
            for folder in (spec and spec.submodule_search_locations) or []:
                args = argparse.Namespace(user_dir=os.path.abspath(folder))
        original(args)
