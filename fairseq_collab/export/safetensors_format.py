"""Weights as safetensors, with all that a checkpoint says about them as JSON in the header.

The header's entry ``fairseq_collab`` holds the architecture, the model's and the task's options,
what the attentions' signatures say (heads, key dimension, ...), hashes of the dictionaries, and
which names share one weight (the format itself stores a shared weight once).
"""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from safetensors.torch import save
from torch import Tensor

from collab_common import atomic
from fairseq_collab.attention import HeadAttention
from fairseq_collab.models.config import plain_options
from fairseq_collab.trained.opener import Trained
from fairseq_compat.checkpoints import first_names
from fairseq_compat.fairseq_fixes import UNDEFINED

#: Raised when the meaning of the header's entry changes.
VERSION = 1


def export(trained: Trained, args: Namespace) -> None:
    """One file; never half of it."""
    weights, tied = untied(trained.model.state_dict())
    # One entry: several are written in random order, and equal models should give equal files.
    content = save(weights, {"fairseq_collab": json.dumps(describe(trained, tied), sort_keys=True)})
    atomic.write(args.out, lambda file: file.write(content))


def untied(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Each weight once, and for every other name of it the one that it is stored under."""
    # Without uninitialised memory that nothing reads.
    first = first_names({n: weight for n, weight in state.items() if not n.endswith(UNDEFINED)})
    weights = {name: state[name].contiguous() for name in first if first[name] == name}
    return weights, {name: other for name, other in first.items() if other != name}


def describe(trained: Trained, tied: dict[str, str]) -> dict[str, Any]:
    """What the file says of the model; see the head of the module."""
    modules = dict(trained.model.named_modules())
    return {
        "version": VERSION,
        "architecture": trained.arch,
        "model": trained.options,
        "task": plain_options(trained.cfg.task),
        "attention": {
            name: module.describe().numbers()
            for name, module in modules.items()
            if isinstance(module, HeadAttention)
        },
        "dictionaries": {
            name: {"symbols": size, "sha256_start": f"{digest & 0xFFFFFFFFFFFFFFFF:016x}"}
            for name, module in modules.items()
            if hasattr(module, "dictionary_signature")
            for _, size, digest in [module.dictionary_signature.tolist()]
        },
        "tied": tied,
    }
