"""Head-efficient multi-head attention for stock fairseq: pass this folder as ``--user-dir``.

Importing it registers all architectures and criterions; nothing else happens.  Commands on finished
runs alone, such as ``fairseq-collab table``, do without, and without fairseq and torch.
"""

import collab_common
import fairseq_compat  # first: it lets fairseq be imported at all

if collab_common.MODELS:
    fairseq_compat.require_fairseq()
    # isort: split
    from fairseq_collab import criterions, models

__all__ = ["advise", "criterions", "models"]


def __getattr__(name: str) -> object:
    """``fairseq_collab.advise``, imported when it is asked for: fairseq alone needs none of it."""
    if name == "advise":
        from fairseq_collab.advice.search import advise

        return advise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
