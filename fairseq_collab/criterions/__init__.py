"""Losses with a term for heads: importing this package registers them with fairseq."""

from fairseq_collab.criterions import losses

__all__ = ["losses"]
