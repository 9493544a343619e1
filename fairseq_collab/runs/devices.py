"""Which GPUs a run of a sweep trains on.

A run has as many as its configuration says (``distributed_training.distributed_world_size``).  Runs
side by side have different ones; where there are too few, some share.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence

from omegaconf import DictConfig, OmegaConf

from collab_common.errors import UserError

#: What says so to CUDA, and so to a child of ours.
VISIBLE = "CUDA_VISIBLE_DEVICES"
_SIZE = "distributed_training.distributed_world_size"


def visible() -> list[str]:
    """The GPUs that there are for us, by the names that :data:`VISIBLE` takes."""
    import torch  # here: seconds, which only a sweep that runs something needs

    number = torch.cuda.device_count()  # of those that are named, as many as there are
    given = os.environ.get(VISIBLE)
    names = [str(one) for one in range(number)] if given is None else given.split(",")
    return names[:number]


class Gpus:
    """Deals out GPUs, those first that the fewest runs have."""

    def __init__(self, names: Sequence[str]):
        self._runs = dict.fromkeys(names, 0)
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def taken(self, size: int) -> Iterator[list[str]]:
        """So many, or all, while a run is at work; none where there are none."""
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
        todo = f"go on where there are, or give a new run {_SIZE}={there} and more update_freq"
        raise UserError(f"a run wants {size} GPUs; there are {len(gpus)}", _SIZE, todo)
