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

__all__ = ["criterions", "models"]
