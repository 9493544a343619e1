"""Multi-head attention: separate, shared, grouped, gated, grouped-query and latent heads.

These modules import nothing but torch and each other.
"""

from fairseq_collab.attention.base import HeadAttention
from fairseq_collab.attention.collaborative import CollaborativeAttention
from fairseq_collab.attention.separate import SeparateAttention

__all__ = ["CollaborativeAttention", "HeadAttention", "SeparateAttention"]
