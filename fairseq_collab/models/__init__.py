"""The fairseq seams: importing this package registers our architectures."""

from fairseq_collab.models import transformer_collab, transformer_headsize_n

__all__ = ["transformer_collab", "transformer_headsize_n"]
