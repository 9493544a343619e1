"""Shared keys (collaborative heads) in trained Hugging Face models; needs the extra ``hf``."""

from collab_lab.hugging_face.swap import swap_attention

__all__ = ["swap_attention"]
