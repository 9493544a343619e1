"""Which operators torch runs."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
#: Operators with which the host waits for a GPU; ``tolist`` is none, and waits, too.
WAITING = {aten._local_scalar_dense, aten.nonzero, aten.is_nonzero, aten.equal, "index by bool"}


class Operators(TorchDispatchMode):
    """Records operators in the order of their calls."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ran.append(func.overloadpacket)
        if func.overloadpacket is aten.index and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        ):
            self.ran.append("index by bool")
        return func(*args, **(kwargs or {}))

    def waits(self) -> int:
        """How often the host has waited so far."""
        return sum(operator in WAITING for operator in self.ran)
