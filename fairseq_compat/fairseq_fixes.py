"""fairseq itself, beside its checkpoints and its errors: each fix names the fault that it mends."""

from __future__ import annotations

import argparse
import atexit
import contextlib
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
#: Parameters of an encoder layer of fairseq that are copies of others, for its fast path alone.
COPIES = tuple(
    f"{module}_{kind}"
    for module in ("in_proj", "out_proj", "fc1", "fc2")
    for kind in ("weight", "bias")
)
_PATIENCE = 10.0  # seconds that batches in the making are waited for


def call_self_attention_in_evaluation() -> None:
    """In evaluation they by-pass self_attn, and torch 2 fails on padded batches there.

    Once its weights were loaded from a checkpoint, an encoder layer hands copies of the *stock*
    weights to `torch._transformer_encoder_layer_fwd`: a custom attention is ignored without a
    word, and torch 2 raises "Mask Type should be defined" for a padded batch. The encoder asks the
    same flag before it makes nested tensors. Later versions of fairseq have removed this path.
    """
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

    @wrap(TransformerEncoderLayerBase, "__init__")
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.can_use_fastpath = False


def train_encoders_on_several_devices() -> None:
    """Copies of an encoder's weights get no gradient, and `--ddp-backend pytorch_ddp` wants one.

    That is fairseq's default. torch waits for the gradient of those that
    `call_self_attention_in_evaluation` leaves unused, and the second update ends with "Expected to
    have finished reduction in the prior iteration". They stay parameters: the states of optimisers
    count them.
    """
    from fairseq import models
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
    from torch.nn.parallel import DistributedDataParallel

    @wrap(models, "DistributedFairseqModel")
    def DistributedFairseqModel(original: Any, args: Any, model: Any, *more: Any, **kw: Any) -> Any:
        layers = (
            name
            for name, module in model.named_modules()
            if isinstance(module, TransformerEncoderLayerBase)
        )
        copies = [f"{layer}.{copy}" for layer in layers for copy in COPIES]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, copies)
        return original(args, model, *more, **kw)


def return_weights_per_head() -> None:
    """MultiheadAttention(need_head_weights=True) returns their average over the heads.

    torch's attention function knows only that, of shape (B, T, S) instead of (H, B, T, S).
    `static_kv` leads to fairseq's own code; without an incremental state it has no other meaning.
    `forward` is left alone, because TorchScript compiles its source.
    """
    from fairseq.modules import MultiheadAttention

    @wrap(MultiheadAttention, "__call__")
    def __call__(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("need_head_weights") and kwargs.get("incremental_state") is None:
            kwargs["static_kv"] = True
        return original(self, *args, **kwargs)


def keep_attention_in_the_hub() -> None:
    """What `from_pretrained` returns calls attention weights off before it knows who wants them.

    When it is made it has its models calculate no weights but for the `print_alignment` of the
    checkpoint. Decoders that listen have none for a later `translate(..., print_alignment="hard")`,
    which then fails, and in an ensemble those of the others count for too little.
    """
    from fairseq.hub_utils import GeneratorHubInterface

    @wrap(GeneratorHubInterface, "__init__")
    def __init__(original: Any, self: Any, cfg: Any, task: Any, models: Any) -> None:
        original(self, cfg, task, models)
        for model in models:
            decoder: Any = getattr(model, "decoder", None)
            if hasattr(decoder, "need_attn"):
                decoder.need_attn = True


def train_in_bfloat16() -> None:
    """fairseq-train takes --bf16 for --tpu, on GPUs and CPUs too, and wants torch_xla.

    Of `fairseq-hydra-train`, where `common.bf16` means no more than it says, nothing is changed.
    """
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

    It is as memory happens to be, when it is made and again when a checkpoint is read. Nothing
    reads it, but equal trainings write unequal files, and a model with NaN is not equal to itself.
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
    """Best metric, patience and tensorboard files leak from one job of `-m` into the next.

    Trainings follow one another in one process. fairseq keeps the best metric and the patience as
    attributes of functions, and its tensorboard writers are global: the next job may save no best
    checkpoint, stop early, and write into the files of the first. Hence a clean slate for every
    Trainer.
    """
    from fairseq import checkpoint_utils
    from fairseq.logging import progress_bar
    from fairseq.trainer import Trainer

    @wrap(Trainer, "__init__")
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        vars(checkpoint_utils.save_checkpoint).pop("best", None)
        # Not imported here: it is absent where a Trainer is made without fairseq's command.
        train = sys.modules.get("fairseq_cli.train")
        if train is not None:
            for name in ("best", "num_runs"):
                vars(train.should_stop_early).pop(name, None)
        writers = progress_bar._tensorboard_writers
        while writers:
            writers.popitem()[1].close()
        original(self, *args, **kwargs)


def end_loading_with_the_process() -> None:
    """A training that stops within an epoch may abort at exit, in the thread that loads batches.

    Such threads are daemons. `--max-update` or Ctrl-C leaves one behind, and if it is inside torch
    when the interpreter goes down, the exit status is 134 after a training that was fine.
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
    """A dataset's indices are of the type np.compat.long, which NumPy 2 has dropped: int.

    It is needed for one sentence a line (`--sample-break-mode eos`), as fairseq-interactive
    and `from_pretrained` give them to language models.
    """
    import numpy
    from fairseq.data import token_block_dataset

    token_block_dataset.np = Proxy(numpy, compat=types.SimpleNamespace(long=int))


def accept_package_names() -> None:
    """fairseq finds no plug-in of an editable install but by its path.

    It looks for --user-dir in the current folder, and beside itself in site-packages.
    """
    from fairseq import utils

    @wrap(utils, "import_user_module")
    def import_user_module(original: Any, args: Any) -> None:
        folder = _package_folder(getattr(args, "user_dir", None))
        original(args if folder is None else argparse.Namespace(user_dir=folder))


def _package_folder(name: str | None) -> str | None:
    """Return the folder of the package `name`; None for a path, or where there is no such one."""
    if not name or not name.isidentifier() or os.path.exists(name):
        return None
    spec = importlib.util.find_spec(name)
    folders = spec.submodule_search_locations if spec is not None else None
    return os.path.abspath(next(iter(folders))) if folders else None


def accept_symbol_indices() -> None:
    """It calls the scorer with arguments that the scorer no longer takes."""
    from fairseq.scoring import bleu

    @wrap(bleu.Scorer, "__init__")
    def __init__(original: Any, self: Any, cfg: Any, *indices: int) -> None:
        original(self, bleu.BleuConfig(cfg, *indices) if indices else cfg)


def accept_open_files() -> None:
    """It hands open files to sacreBLEU 2, which takes lists of lines only."""
    import sacrebleu

    def lines(text: Any) -> Sequence[str]:
        return text if isinstance(text, Sequence) else [line.rstrip("\n") for line in text]

    @wrap(sacrebleu, "corpus_bleu")
    def corpus_bleu(original: Any, hypotheses: Any, references: Any, *args: Any, **kw: Any) -> Any:
        return original(lines(hypotheses), [lines(one) for one in references], *args, **kw)
