"""Trainings that follow one another in one process, as in `fairseq-hydra-train -m`."""

from __future__ import annotations

import functools
import sys
from typing import Any


def forget_previous_job() -> None:
    """Start every training with a clean slate: when its Trainer is made.

    fairseq keeps the best metric and the patience as attributes of functions, where the next
    job finds them: it may then save no best checkpoint, and stop early. Its tensorboard
    writers are global, too: the next job would write into the files of the first.
    """
    from fairseq.trainer import Trainer

    original = Trainer.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        _forget_scores()
        _close_tensorboard_files()
        original(self, *args, **kwargs)

    Trainer.__init__ = __init__


def _forget_scores() -> None:
    from fairseq import checkpoint_utils

    vars(checkpoint_utils.save_checkpoint).pop("best", None)
    # Not imported here: it is absent where a Trainer is made without fairseq's command.
    train = sys.modules.get("fairseq_cli.train")
    if train is not None:
        for name in ("best", "num_runs"):
            vars(train.should_stop_early).pop(name, None)


def _close_tensorboard_files() -> None:
    from fairseq.logging import progress_bar

    writers = progress_bar._tensorboard_writers
    while writers:
        writers.popitem()[1].close()
