"""Which GPUs a run of a sweep trains on.

A run has as many as its configuration says (``distributed_training.distributed_world_size``).  Runs
side by side have different ones; where there are too few, some share.
"""

from __future__ import annotations

import os

from omegaconf import DictConfig, OmegaConf

from collab_common.errors import UserError

#: What says so to CUDA, and so to a child of ours.
VISIBLE = "CUDA_VISIBLE_DEVICES"
_SIZE = "distributed_training.distributed_world_size"


def visible() -> list[str]:
    """The GPUs that there are for us, by the names that :data:`VISIBLE` takes."""
    given = os.environ.get(VISIBLE)
    if given is not None:
        return [name for name in given.split(",") if name]
    import torch  # here: seconds, which only a sweep that runs something needs

    return [str(number) for number in range(torch.cuda.device_count())]


def share(gpus: list[str], place: int, size: int) -> list[str]:
    """The ``size`` GPUs of the run at one of the places of a sweep, counted from 0."""
    return [gpus[(place * size + number) % len(gpus)] for number in range(size)] if gpus else []


def wanted(config: DictConfig) -> int:
    """How many GPUs a run trains on, if there are GPUs at all."""
    return int(OmegaConf.select(config, _SIZE, default=1))


def check_enough(config: DictConfig, gpus: list[str]) -> None:
    """Raises UserError if a run wants more GPUs than there are."""
    there, size = max(1, len(gpus)), wanted(config)
    if size > there:
        todo = f"give {_SIZE}={there}, and as many times more optimization.update_freq"
        raise UserError(f"a run wants {size} GPUs; there are {len(gpus)}", _SIZE, todo)
