"""Head-efficient multi-head attention for stock fairseq: pass this folder as ``--user-dir``.

Importing it registers all architectures and criterions; fairseq's commands then print less.
"""

import fairseq_compat  # first: it lets fairseq be imported at all
from fairseq_compat import messages

fairseq_compat.require_fairseq()
messages.introduce()
# isort: split
from fairseq_collab import criterions, models  # noqa: E402

__all__ = ["criterions", "models"]
