"""Our models in fairseq: importing this package registers their architectures.

A *variant* is a kind of heads; a *family* is one of fairseq's kinds of models that can have them.
:mod:`fairseq_collab.models.variants` is the table of variants and families.  A new variant takes
five files: its attention, its options and factory here, a row of the table, a file in
``configs/model``, and a test.  If models are exported or converted to it, it also has a row in
``export/standard_weights.py`` and in ``collab_lab/shrinking/shape.py``.
"""

from fairseq_collab.models import variants

__all__ = ["variants"]
