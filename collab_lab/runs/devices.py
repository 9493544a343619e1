"""Which GPUs a run of a sweep trains on.

A run trains on ``distributed_training.distributed_world_size`` GPUs.  Where there are
too few for all runs at a time, some share.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence

import torch
from omegaconf import DictConfig, OmegaConf

from collab_common.errors import UserError

#: The variable that says so to CUDA.
VISIBLE = "CUDA_VISIBLE_DEVICES"
_SIZE = "distributed_training.distributed_world_size"


def visible() -> list[str]:
    """Names of the GPUs that this process may use, as :data:`VISIBLE` takes them."""
    number = torch.cuda.device_count()
    given = os.environ.get(VISIBLE)
    names = [str(one) for one in range(number)] if given is None else given.split(",")
    return names[:number]


class Gpus:
    """Hands out GPUs, those with the fewest runs first."""

    def __init__(self, names: Sequence[str]):
        self._runs = dict.fromkeys(names, 0)
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def taken(self, size: int) -> Iterator[list[str]]:
        """``size`` GPUs, or all there are, while a run trains."""
        with self._lock:
            chosen = sorted(self._runs, key=self._runs.__getitem__)[:size]
            for name in chosen:
                self._runs[name] += 1
        try:
            yield chosen
        finally:
            with self._lock:
                for name in chosen:
                    self._runs[name] -= 1


def wanted(config: DictConfig) -> int:
    """How many GPUs a run trains on, if there are GPUs at all."""
    return int(OmegaConf.select(config, _SIZE, default=1))


def check_enough(config: DictConfig, gpus: Sequence[str]) -> None:
    """Raises UserError if a run wants more GPUs than there are."""
    there, size = max(1, len(gpus)), wanted(config)
    if size > there:
        todo = f"use a machine with {size}, or set {_SIZE}={there} and raise update_freq"
        raise UserError(f"a run wants {size} GPUs; there are {len(gpus)}", _SIZE, todo)
