"""Lets a model search for its translations itself, under fairseq's unmodified commands.

`SequenceGenerator.generate` asks the model first:

    model.search(generator, sample, **arguments)    hypotheses as generate's; None: not this time

Models without `search`, as all of fairseq's own, are left alone. `_generate` is not wrapped:
TorchScript compiles its source.
"""

from __future__ import annotations

import os
from typing import Any

from collab_common.errors import UserError

from .patching import wrap

#: The environment variable that chooses the search, and its values.
VARIABLE = "FAIRSEQ_COLLAB_SEARCH"
SEARCHES = ("exact", "fairseq")


def choice() -> str:
    """Which search models of ours use: one of SEARCHES; UserError where another one is set."""
    asked = os.environ.get(VARIABLE) or SEARCHES[0]
    if asked not in SEARCHES:
        todo = f"set {VARIABLE} to {' or '.join(SEARCHES)}, or unset it"
        raise UserError(f"is {asked!r}", VARIABLE, todo)
    return asked


def ask_the_model() -> None:
    """SequenceGenerator has one loop for all; a plug-in's model can do the same with less work."""
    from fairseq.sequence_generator import SequenceGenerator

    @wrap(SequenceGenerator, "generate")
    def generate(original: Any, self: Any, models: Any, sample: Any, **arguments: Any) -> Any:
        search = getattr(self.model.single_model, "search", None)
        if search is not None and choice() == "exact":
            found = search(self, sample, **arguments)
            if found is not None:
                return found
        return original(self, models, sample, **arguments)
