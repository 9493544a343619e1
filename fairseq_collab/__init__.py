"""Head-efficient multi-head attention for stock fairseq: pass this folder as ``--user-dir``.

Importing it registers all architectures; nothing else happens.
"""

import fairseq_compat  # noqa: F401  (first: it lets fairseq be imported at all)

# isort: split
from fairseq_collab import models

__all__ = ["models"]
