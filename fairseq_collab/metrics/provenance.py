"""Where, when and with what a result was made: what every file of results tells of itself."""

from __future__ import annotations

import os
from typing import Any

import torch

from collab_common.provenance import commit, processor, today, versions

PACKAGES = ("fairseq", "torch", "sacrebleu", "sentencepiece", "fairseq-collab")


def circumstances(cpu: bool) -> dict[str, Any]:
    """Commit, versions, hardware and date of now.

    Args:
        cpu: no GPU was used, even if there is one.
    """
    return {
        "commit": commit(),
        "versions": versions(*PACKAGES),
        "hardware": hardware(cpu),
        "date": today(),
    }


def hardware(cpu: bool) -> str:
    """The GPU, or the processor with the number of threads that a training used."""
    if torch.cuda.is_available() and not cpu:
        return torch.cuda.get_device_name()
    threads = torch.get_num_threads()
    number = f"{threads} thread{'s' * (threads > 1)}"
    return f"{processor()}, {os.cpu_count()} cores, {number} a training"
