"""Collaborative heads in trained models of Hugging Face; needs the extra ``hf``."""

from fairseq_collab.adapters.swap import swap_attention

__all__ = ["swap_attention"]
