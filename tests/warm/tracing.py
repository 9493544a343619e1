"""torch's exporter traces faster: most of the time of an ONNX export."""

from __future__ import annotations

import torch._dynamo.config


def trace_faster() -> None:
    """Have torch compute the shapes of every operation.

    Where sizes are symbols, it takes longer to look them up among those of equal operations.
    """
    assert torch._dynamo.config.fake_tensor_cache_enabled
    torch._dynamo.config.fake_tensor_cache_enabled = False
