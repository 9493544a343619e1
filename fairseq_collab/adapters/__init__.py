"""Collaborative heads in trained models of other libraries: see :func:`swap_attention`."""

from fairseq_collab.adapters.swap import swap_attention

__all__ = ["swap_attention"]
