"""Head-efficient multi-head attention for stock fairseq: pass this folder as ``--user-dir``.

Importing it registers all architectures and criterions.
"""

import fairseq_compat  # first: without it, fairseq cannot be imported

fairseq_compat.require_fairseq()
# isort: split
from fairseq_collab import criterions, models  # noqa: E402

__all__ = ["criterions", "models"]
