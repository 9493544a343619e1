"""The fairseq seams: importing this package registers our architectures."""

from fairseq_collab.models import (
    language_models,
    masked_lm,
    transformer_collab,
    transformer_gated_heads,
    transformer_grouped_heads,
    transformer_headsize_n,
)

__all__ = [
    "language_models",
    "masked_lm",
    "transformer_collab",
    "transformer_gated_heads",
    "transformer_grouped_heads",
    "transformer_headsize_n",
]
