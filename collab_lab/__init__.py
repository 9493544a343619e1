"""The laboratory around the plug-in: it opens, measures, shrinks and exports trained models.

These functions serve notebooks and the commands:

    open_model           open a checkpoint; ``model.save(path)`` writes one
    prices               predict the loss from removing or narrowing each part of a model
    convert, prune       convert or remove the heads that you name
    shrink               find and build the smaller model that loses least
    time_parts           time the parts of a model in the engine that will run it, for ``shrink``
    validation_loss      measure the loss, in bits per target token
    translate            translate sentences
    cost, multiply_adds  count parameters, bytes of the KV cache and multiply-adds
    average_checkpoints  average the weights of several checkpoints
    swap_attention       give a Hugging Face model shared keys

Importing the package imports neither torch nor fairseq; the first use of a function does.  Bad
input raises :class:`collab_common.errors.UserError`, whose text is one line.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collab_lab.clock.parts import time_parts
    from collab_lab.hugging_face import swap_attention
    from collab_lab.metrics.cost import cost, multiply_adds
    from collab_lab.metrics.loss import validation_loss
    from collab_lab.metrics.translate_text import translate
    from collab_lab.shrinking.by_hand import convert, prune
    from collab_lab.shrinking.price_list import prices
    from collab_lab.shrinking.shrink import shrink
    from collab_lab.trained.average import average_checkpoints
    from collab_lab.trained.checkpoint import open_model

#: No module of this package has the name of a function: importing it would replace the function.
_MODULE_OF = {
    "average_checkpoints": "trained.average",
    "convert": "shrinking.by_hand",
    "cost": "metrics.cost",
    "multiply_adds": "metrics.cost",
    "open_model": "trained.checkpoint",
    "prices": "shrinking.price_list",
    "prune": "shrinking.by_hand",
    "shrink": "shrinking.shrink",
    "swap_attention": "hugging_face",
    "time_parts": "clock.parts",
    "translate": "metrics.translate_text",
    "validation_loss": "metrics.loss",
}
__all__ = [
    "average_checkpoints", "convert", "cost", "multiply_adds", "open_model", "prices",
    "prune", "shrink", "swap_attention", "time_parts", "translate", "validation_loss",
]  # fmt: skip


def __dir__() -> list[str]:
    return [*globals(), *__all__]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    fairseq = logging.getLogger("fairseq")
    if fairseq.level == logging.NOTSET:  # else it tells a notebook what it lacks and what it reads
        fairseq.setLevel(logging.WARNING)
    import_module("fairseq_collab")  # registers all architectures
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
