"""The fairseq seams: importing this package registers our architectures.

A *variant* is a kind of heads, a *family* a kind of fairseq's models that can have them;
:mod:`fairseq_collab.models.variants` is the table of variants and families.  A variant costs
five files: its attention, its options and factory here, a row of the table, a file in
``configs/model``, and a test.  One that others may export or convert to has a row in
``export/standard_weights.py`` and ``collab_lab/shrinking/shape.py``, too.
"""

from fairseq_collab.models import variants

__all__ = ["variants"]
