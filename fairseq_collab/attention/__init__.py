"""Multi-head attention: separate, shared, grouped, gated, grouped-query, latent and MFA heads.

Depends on torch only.
"""

from fairseq_collab.attention.collaborative import CollaborativeAttention
from fairseq_collab.attention.concatenated import ConcatenatedAttention
from fairseq_collab.attention.heads import HeadAttention

__all__ = ["CollaborativeAttention", "ConcatenatedAttention", "HeadAttention"]
