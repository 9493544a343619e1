"""Fixes of what fairseq forgets when a training resumes; each docstring names the fault."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from collab_common import LAST_CHECKPOINT

from .patching import wrap

#: The part of a checkpoint's ``extra_state`` with the count of ``--patience``.
KEY = "patience"
#: The part of an optimizer's state with the weights in single precision.
EXACT = "exact_weights"
_COUNTED = ("best", "num_runs")  # of it
logger = logging.getLogger("fairseq_collab")


def _early_stop() -> dict[str, Any]:
    """Return fairseq's best loss and count of validations, which it keeps on a function."""
    # Not imported: ``python fairseq_cli/train.py`` has another name, and other commands none.
    for module in ("fairseq_cli.train", "__main__"):
        function = getattr(sys.modules.get(module), "should_stop_early", None)
        if function is not None:
            return vars(function)
    return {}


def _end(trainer: Any, reason: str) -> None:
    """Make fairseq's loop end before its first epoch, and say why."""
    logger.info(f"this training has ended: {reason}")
    trainer.cfg.optimization.max_epoch = -1  # 0 is no limit


def keep_patience() -> None:
    """A resumed training counts the epochs of --patience anew, and trains longer.

    Here the checkpoint keeps the count.  A training that ``--patience`` has ended stays ended; with
    a larger ``--patience`` it resumes.
    """
    from fairseq import checkpoint_utils
    from fairseq.trainer import Trainer

    @wrap(Trainer, "save_checkpoint")
    def save_checkpoint(original: Any, self: Any, filename: str, extra_state: Any) -> None:
        state = {name: value for name, value in _early_stop().items() if name in _COUNTED}
        if state:  # without --patience, the file is that of stock fairseq
            extra_state = {**extra_state, KEY: state}
        original(self, filename, extra_state)

    @wrap(checkpoint_utils, "load_checkpoint")
    def load_checkpoint(original: Any, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
        extra_state, epoch_itr = original(cfg, trainer, **kwargs)
        state = (extra_state or {}).get(KEY)
        # fairseq has restored its best loss, unless the training starts from the weights alone.
        if state and hasattr(checkpoint_utils.save_checkpoint, "best"):
            _early_stop().update(state)
            if 0 < cfg.patience <= state["num_runs"]:
                _end(trainer, f"no progress in {state['num_runs']} validations")
        return extra_state, epoch_itr


def keep_exact_weights() -> None:
    """With --bf16 or --fp16, a resumed training goes on from weights rounded to 16 bits.

    fairseq trains a copy of the weights in single precision, which it does not save.  Here the
    optimizer's state keeps it, and it is read where it rounds to the weights of the checkpoint: a
    script may have averaged those.
    """
    import torch
    from fairseq.optim.fp16_optimizer import _FP16OptimizerMixin

    def exact(optimizer: Any) -> list[Any]:
        params = optimizer.fp32_params
        several = params.values() if isinstance(params, dict) else params
        return [params] if torch.is_tensor(params) else list(several)

    @wrap(_FP16OptimizerMixin, "state_dict")
    def state_dict(original: Any, self: Any) -> Any:
        return {**original(self), EXACT: [weight.detach() for weight in exact(self)]}

    @wrap(_FP16OptimizerMixin, "load_state_dict")
    def load_state_dict(original: Any, self: Any, state_dict: Any, *args: Any, **kw: Any) -> None:
        original(self, {n: v for n, v in state_dict.items() if n != EXACT}, *args, **kw)
        saved, ours = state_dict.get(EXACT, []), exact(self)
        if [weight.shape for weight in saved] != [weight.shape for weight in ours]:
            return
        half = self.fp16_params[0].dtype
        with torch.no_grad():
            for weight, former in zip(ours, saved, strict=True):
                former = former.to(weight)
                weight.copy_(torch.where(former.to(half) == weight.to(half), former, weight))


def keep_plateau() -> None:
    """A resumed reduce_lr_on_plateau counts --lr-patience anew, without the last epoch's loss.

    fairseq saves before the schedule sees that loss.
    """
    from fairseq import checkpoint_utils
    from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

    count = "num_bad_epochs"

    @wrap(ReduceLROnPlateauLRSchedule, "state_dict")
    def state_dict(original: Any, self: Any) -> Any:
        return {**original(self), count: getattr(self.lr_scheduler, count)}

    @wrap(ReduceLROnPlateauLRSchedule, "load_state_dict")
    def load_state_dict(original: Any, self: Any, state: Any) -> None:
        original(self, state)
        self.resumes = count in state
        setattr(self.lr_scheduler, count, state.get(count, 0))

    @wrap(checkpoint_utils, "load_checkpoint")
    def load_checkpoint(original: Any, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
        extra_state, epoch_itr = original(cfg, trainer, **kwargs)
        if getattr(trainer.lr_scheduler, "resumes", False):
            position = extra_state["train_iterator"]
            if position["iterations_in_epoch"] == 0:  # saved at the end of the epoch before
                trainer.lr_step(position["epoch"] - 1, extra_state["val_loss"])
        return extra_state, epoch_itr


def end_at_max_update() -> None:
    """A training that has reached --max-update makes one more update each time it is resumed."""
    from fairseq import checkpoint_utils

    @wrap(checkpoint_utils, "load_checkpoint")
    def load_checkpoint(original: Any, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
        resumes = cfg.restore_file == LAST_CHECKPOINT and os.path.exists(
            os.path.join(cfg.save_dir, LAST_CHECKPOINT)
        )
        result = original(cfg, trainer, **kwargs)
        limit, updates = trainer.cfg.optimization.max_update, trainer.get_num_updates()
        if resumes and 0 < limit <= updates:
            _end(trainer, f"{updates} updates of {limit}")
        return result


def start_averages() -> None:
    """A training with --store-ema from a checkpoint without moving averages ends in a traceback.

    fairseq means to start the averages from the checkpoint's weights, which it has deleted by then.
    """
    from fairseq import checkpoint_utils
    from fairseq.trainer import Trainer

    @wrap(Trainer, "load_checkpoint")
    def load_checkpoint(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        read = checkpoint_utils.load_checkpoint_to_cpu

        def with_averages(path: str, *more: Any, **options: Any) -> Any:
            state = read(path, *more, **options)
            extra = state.get("extra_state")
            if extra is not None and "ema" not in extra:
                logger.info(f"moving averages start from the weights of {path}")
                extra["ema"] = {name: weight.clone() for name, weight in state["model"].items()}
            return state

        if self.cfg.ema.store_ema:
            checkpoint_utils.load_checkpoint_to_cpu = with_averages
        try:
            return original(self, *args, **kwargs)
        finally:
            checkpoint_utils.load_checkpoint_to_cpu = read
