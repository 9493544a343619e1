"""The moving average of weights (--store-ema) and integers in a model's state."""

from __future__ import annotations

import functools
from typing import Any


def copy_integers() -> None:
    """Make the average take integer entries over as they are.

    fairseq 0.12.2 multiplies every entry of the state dict with the decay, which torch refuses for
    an integer tensor (and which would mean nothing).
    """
    import torch
    from fairseq.models.ema.ema import EMA

    original = EMA.__init__

    @functools.wraps(original)
    def __init__(self: Any, model: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        original(self, model, *args, **kwargs)
        whole = {key for key, value in model.state_dict().items() if not value.is_floating_point()}
        self.skip_keys = {*self.skip_keys, *whole}

    EMA.__init__ = __init__
