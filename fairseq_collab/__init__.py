"""Head-efficient multi-head attention for stock fairseq: pass this folder as ``--user-dir``.

Importing it registers all architectures and criterions; nothing else happens.
"""

import fairseq_compat  # first: it lets fairseq be imported at all

fairseq_compat.require_fairseq()

# isort: split
from fairseq_collab import criterions, models  # noqa: E402 (after the check above)

__all__ = ["advise", "criterions", "models"]


def __getattr__(name: str) -> object:
    """``fairseq_collab.advise``, imported when it is asked for: fairseq alone needs none of it."""
    if name == "advise":
        from fairseq_collab.advice.search import advise

        return advise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
