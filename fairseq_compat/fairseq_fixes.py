"""Fixes of fairseq itself, apart from checkpoints and errors; each docstring names the fault."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import io
import logging
import os
import queue
import sys
import time
import types
import warnings
import weakref
from pathlib import Path
from typing import Any

from collab_common.errors import UserError
from collab_common.files import locked

from .patching import Proxy, wrap

UNDEFINED = "._float_tensor"  # how the names of buffers end that fairseq never initialises
#: The packages whose dataclasses are configurations.
ROOTS = ("fairseq", "hydra")
_PATIENCE = 10.0  # seconds to wait for a batch that is still being loaded
logger = logging.getLogger("fairseq_collab")
#: The environment variable that chooses the search, and its values.
SEARCH_ENV = "FAIRSEQ_COLLAB_SEARCH"
SEARCHES = ("exact", "fairseq")


def make_hashable() -> None:
    """Python 3.11 rejects defaults like ``common: CommonConfig = CommonConfig()``.

    Python takes a default that is not hashable for a mutable one, and a dataclass is not hashable.
    A ``default_factory`` does not help, because fairseq reads ``Field.default``.  So dataclasses of
    fairseq and Hydra, and classes derived from them, get back the hash of ``object``; equality
    stays.
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

    # torch 2.6 reads here which options dataclass() takes.
    dataclass.__kwdefaults__ = plain.__kwdefaults__  # type: ignore[attr-defined]
    dataclasses.dataclass = dataclass


def hide_hydras_warnings() -> None:
    """Hydra 1.3 warns of how fairseq calls it, in twenty lines that no user can change."""
    # Its caller is fairseq's command; sys is a caller beyond the first.
    modules = r"hydra\..*|fairseq_cli\.hydra_train$|sys$"
    warnings.filterwarnings("ignore", category=UserWarning, module=modules)


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


def define_buffers() -> None:
    """Modules have a buffer of uninitialised memory, which may be NaN.

    Nothing reads it, but equal trainings write unequal files.
    """
    import torch
    from fairseq.models.transformer import transformer_decoder, transformer_encoder
    from fairseq.modules import adaptive_input, adaptive_softmax, sinusoidal_positional_embedding

    for module in (
        *(adaptive_input, adaptive_softmax, sinusoidal_positional_embedding),
        *(transformer_decoder, transformer_encoder),  # they write it anew into what they load
    ):
        module.torch = Proxy(torch, FloatTensor=torch.zeros)


def copy_integers() -> None:
    """The moving average multiplies integer entries of a model's state, which torch rejects."""
    from fairseq.models.ema.ema import EMA

    @wrap(EMA, "__init__")
    def __init__(original: Any, self: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        original(self, model, *args, **kwargs)
        whole = {key for key, value in model.state_dict().items() if not value.is_floating_point()}
        self.skip_keys = {*self.skip_keys, *whole}


def forget_previous_job() -> None:
    """Best metric and patience leak from one job of ``-m`` into the next.

    fairseq keeps them as attributes of functions.
    """
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

    ``--max-update`` or Ctrl-C leaves a daemon thread running inside torch; the exit status is then
    134.
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
            iterator._consumer._max_len = 0  # the batch that is being loaded is the last
        deadline = time.monotonic() + _PATIENCE
        for iterator in list(started):
            while iterator._consumer.is_alive() and time.monotonic() < deadline:
                with contextlib.suppress(queue.Empty):
                    while True:
                        iterator._queue.get_nowait()  # it may wait for room
                iterator._consumer.join(0.01)


def restore_removed_names() -> None:
    """fairseq uses names and arguments that NumPy 2 and sacreBLEU 2 have removed.

    Language models that read one sentence per line need them, and ``--num-batch-buckets``, spans
    that are masked without overlap, the CRF of non-autoregressive models, and ``fairseq-score
    --sacrebleu``.
    """
    import numpy
    import sacrebleu
    from fairseq.data import data_utils, language_pair_dataset, token_block_dataset
    from fairseq.modules import dynamic_crf_layer

    def percentile(*args: Any, interpolation: str = "linear") -> Any:
        return numpy.percentile(*args, method=interpolation)  # type: ignore[call-overload]

    names = {"int": int, "float": float, "compat": types.SimpleNamespace(long=int)}
    for module in (data_utils, language_pair_dataset, token_block_dataset, dynamic_crf_layer):
        module.np = Proxy(numpy, percentile=percentile, **names)

    sacrebleu.compute_bleu = sacrebleu.BLEU.compute_bleu  # type: ignore[attr-defined]

    @wrap(sacrebleu, "corpus_bleu")
    def corpus_bleu(original: Any, hypotheses: Any, references: Any, *args: Any, **kw: Any) -> Any:
        """Accept open files, as sacreBLEU 1 did."""
        texts = [list(x) if isinstance(x, io.IOBase) else x for x in (hypotheses, *references)]
        return original(texts[0], texts[1:], *args, **kw)


def choice() -> str:
    """Return which search our models use: one of :data:`SEARCHES`.

    Raises:
        UserError: the environment variable has another value.
    """
    asked = os.environ.get(SEARCH_ENV) or SEARCHES[0]
    if asked not in SEARCHES:
        todo = f"set {SEARCH_ENV} to {' or '.join(SEARCHES)}, or unset it"
        raise UserError(f"is {asked!r}", SEARCH_ENV, todo)
    return asked


def ask_the_model() -> None:
    """SequenceGenerator has one loop for all models; a model of a plug-in can do with less work.

    A model's ``search(generator, sample, **arguments)`` returns the hypotheses of ``generate``, or
    None to leave the batch to fairseq.  ``_generate`` is not wrapped: TorchScript compiles it.
    """
    from fairseq.sequence_generator import SequenceGenerator

    @wrap(SequenceGenerator, "generate")
    def generate(original: Any, self: Any, models: Any, sample: Any, **arguments: Any) -> Any:
        search = getattr(self.model.single_model, "search", None)
        if search is not None and choice() == "exact":
            hypotheses = search(self, sample, **arguments)
            if hypotheses is not None:
                return hypotheses
        return original(self, models, sample, **arguments)


def check_architecture(options: Any) -> None:
    """Raise UserError if no model of this name is registered."""
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY

    name = getattr(options, "_name", None) or getattr(options, "arch", None)
    if name and name not in {*ARCH_MODEL_REGISTRY, *MODEL_DATACLASS_REGISTRY}:
        todo = "name the folder of its plug-in with --user-dir, as in --user-dir fairseq_collab"
        raise UserError(f"there is no architecture {name}", todo=todo)


def name_unknown_architectures() -> None:
    """A checkpoint of a plug-in that is not loaded ends in a KeyError of '_name'."""
    from fairseq import models

    @wrap(models, "build_model")
    def build_model(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
        check_architecture(cfg)
        return original(cfg, *args, **kwargs)


def override_new_options() -> None:
    """--model-overrides ignores options that are newer than the checkpoint."""
    from fairseq import checkpoint_utils
    from fairseq.models import MODEL_DATACLASS_REGISTRY
    from omegaconf import open_dict

    @wrap(checkpoint_utils, "overwrite_args_by_name")
    def overwrite_args_by_name(original: Any, cfg: Any, overrides: Any) -> None:
        original(cfg, overrides)
        model = cfg.get("model")
        kind = MODEL_DATACLASS_REGISTRY.get(getattr(model, "_name", None))
        for name in {*getattr(kind, "__dataclass_fields__", ())} & {*overrides}:
            with open_dict(model):
                model[name] = overrides[name]


def save_languages() -> None:
    """A checkpoint does not say which languages were inferred from its data folder."""
    from fairseq import tasks

    @wrap(tasks, "setup_task")
    def setup_task(original: Any, cfg: Any, **kwargs: Any) -> Any:
        task = original(cfg, **kwargs)
        for option in ("source_lang", "target_lang"):
            language = getattr(getattr(task, "cfg", None), option, None)
            if language and getattr(cfg, option, "") is None:
                setattr(cfg, option, language)
        return task


def lock_save_dir() -> None:
    """Two trainings in one --save-dir overwrite each other's checkpoints."""
    from fairseq.trainer import Trainer

    held = contextlib.ExitStack()  # the lock of this process's training
    atexit.register(held.close)

    @wrap(Trainer, "__init__")
    def __init__(original: Any, self: Any, cfg: Any, *args: Any, **kwargs: Any) -> None:
        held.close()  # a job of ``-m`` follows another one
        original(self, cfg, *args, **kwargs)
        options = self.cfg.checkpoint  # cfg may be a Namespace
        if self.is_data_parallel_master and not options.no_save:
            held.enter_context(locked(Path(options.save_dir) / "lock"))
