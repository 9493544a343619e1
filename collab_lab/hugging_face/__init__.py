"""Collaborative heads in trained models of Hugging Face; needs the extra ``hf``."""

from collab_lab.hugging_face.swap import swap_attention

__all__ = ["swap_attention"]
