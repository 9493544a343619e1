"""Which GPUs a run of a sweep trains on.

A run trains on ``distributed_training.distributed_world_size`` GPUs.  Where there are
too few for all runs at a time, some share.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from omegaconf import DictConfig, OmegaConf

from collab_common.errors import UserError

#: Environment variable that limits CUDA to these GPUs.
VISIBLE = "CUDA_VISIBLE_DEVICES"
_SIZE = "distributed_training.distributed_world_size"


def visible() -> list[str]:
    """Names of the GPUs that this process may use, as :data:`VISIBLE` takes them."""
    number = torch.cuda.device_count()
    limited = os.environ.get(VISIBLE)
    names = [*map(str, range(number))] if limited is None else limited.split(",")
    return names[:number]


def num_gpus(config: DictConfig) -> int:
    """How many GPUs a run trains on, if there are GPUs at all."""
    return int(OmegaConf.select(config, _SIZE, default=1))


def check_enough(config: DictConfig, gpus: Sequence[str]) -> None:
    """Raises UserError if a run wants more GPUs than there are."""
    available, number = max(1, len(gpus)), num_gpus(config)
    if number > available:
        todo = f"use a machine with {number}, or set {_SIZE}={available} and raise update_freq"
        raise UserError(f"a run wants {number} GPUs; there are {len(gpus)}", _SIZE, todo)
