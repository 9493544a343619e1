"""Losses beside the translation loss: importing this package registers them with fairseq."""

from fairseq_collab.criterions import with_head_gates, with_head_groups

__all__ = ["with_head_gates", "with_head_groups"]
