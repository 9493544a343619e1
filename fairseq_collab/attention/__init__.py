"""Multi-head attention: separate, shared, grouped, gated, grouped-query and latent heads.

Depends on torch only.
"""

from fairseq_collab.attention.base import HeadAttention
from fairseq_collab.attention.collaborative import CollaborativeAttention
from fairseq_collab.attention.separate import SeparateAttention

__all__ = ["CollaborativeAttention", "HeadAttention", "SeparateAttention"]
