"""fairseq itself, beside its checkpoints and its errors: each function mends one fault."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import importlib.util
import os
import queue
import sys
import time
import weakref
from collections.abc import Sequence
from typing import Any

from .patching import wrap

UNDEFINED = "._float_tensor"  # how the names of buffers end that fairseq never initialises
_PATIENCE = 10.0  # seconds that batches in the making are waited for


def call_self_attention_in_evaluation() -> None:
    """Close the encoder layer's way around its own `self_attn`.

    Once its weights were loaded from a checkpoint, an encoder layer in evaluation mode hands
    copies of the *stock* weights to `torch._transformer_encoder_layer_fwd`: a custom
    attention is ignored without a word, and torch 2 raises "Mask Type should be defined" for
    a padded batch. The encoder asks the same flag before it makes nested tensors. Later
    versions of fairseq have removed this path.
    """
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

    @wrap(TransformerEncoderLayerBase, "__init__")
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.can_use_fastpath = False


def return_weights_per_head() -> None:
    """Keep a call that wants head weights away from torch's attention function.

    That function knows only the average over heads, of shape (B, T, S) instead of
    (H, B, T, S). `static_kv` leads to fairseq's own code; without an incremental state it has
    no other meaning. `forward` is left alone, because TorchScript compiles its source.
    """
    from fairseq.modules import MultiheadAttention

    @wrap(MultiheadAttention, "__call__")
    def __call__(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("need_head_weights") and kwargs.get("incremental_state") is None:
            kwargs["static_kv"] = True
        return original(self, *args, **kwargs)


def train_in_bfloat16() -> None:
    """Let `--bf16` be of the device that is there: a GPU, a CPU, or with `--tpu` a TPU.

    fairseq takes it for `--tpu`, also on a GPU, and ends where torch_xla is not installed. Of
    `fairseq-hydra-train`, where `common.bf16` means no more than it says, nothing is changed.
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
    """Let `_float_tensor`, of positions and adaptive inputs and outputs, be 0.

    fairseq leaves it as memory happens to be, when it is made and again when a checkpoint is read.
    Nothing reads its value, but equal trainings write unequal files, and a model whose value is
    NaN is not equal to itself.
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
    """Make the moving average of weights (--store-ema) take integer entries over as they are.

    fairseq 0.12.2 multiplies every entry of the state dict with the decay, which torch refuses for
    an integer tensor (and which would mean nothing).
    """
    from fairseq.models.ema.ema import EMA

    @wrap(EMA, "__init__")
    def __init__(original: Any, self: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        original(self, model, *args, **kwargs)
        whole = {key for key, value in model.state_dict().items() if not value.is_floating_point()}
        self.skip_keys = {*self.skip_keys, *whole}


def forget_previous_job() -> None:
    """Start every training with a clean slate: when its Trainer is made.

    In `fairseq-hydra-train -m` trainings follow one another in one process. fairseq keeps the best
    metric and the patience as attributes of functions, where the next job finds them: it may then
    save no best checkpoint, and stop early. Its tensorboard writers are global, too: the next job
    would write into the files of the first.
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
    """End the threads that load batches ahead while Python still runs.

    They are daemons. A training that stops within an epoch (`--max-update`, Ctrl-C) leaves one
    behind, and if it is inside torch when the interpreter goes down, the process aborts: exit
    status 134 after a training that was fine.
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


def accept_package_names() -> None:
    """Take `--user-dir fairseq_collab` from any folder.

    fairseq looks for it in the current folder, and beside itself in site-packages. An editable
    install is in neither, so that a configuration could only name the plug-in by a path.
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
    """Let `bleu.Scorer(pad, eos, unk)` work beside `bleu.Scorer(config)`."""
    from fairseq.scoring import bleu

    @wrap(bleu.Scorer, "__init__")
    def __init__(original: Any, self: Any, cfg: Any, *indices: int) -> None:
        original(self, bleu.BleuConfig(cfg, *indices) if indices else cfg)


def accept_open_files() -> None:
    """Let `sacrebleu.corpus_bleu` read its lines from open files, as sacreBLEU 1 did."""
    import sacrebleu

    def lines(text: Any) -> Sequence[str]:
        return text if isinstance(text, Sequence) else [line.rstrip("\n") for line in text]

    @wrap(sacrebleu, "corpus_bleu")
    def corpus_bleu(original: Any, hypotheses: Any, references: Any, *args: Any, **kw: Any) -> Any:
        return original(lines(hypotheses), [lines(one) for one in references], *args, **kw)
