"""Errors, commands, files, provenance, and names: the base of every package here.

It imports nothing else of the project.
"""

from __future__ import annotations

from typing import Literal

#: An attention type: encoder self-attention, decoder self-attention, or cross-attention.
AttentionType = Literal["encoder", "decoder", "cross"]
ATTENTION_TYPES: tuple[AttentionType, ...] = ("encoder", "decoder", "cross")
#: The word between two sentences of a document, which is one subword in models of documents.
BREAK = "<break>"
#: The file to which fairseq writes a training's last checkpoint, and from which it resumes.
LAST_CHECKPOINT = "checkpoint_last.pt"
