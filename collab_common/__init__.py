"""Errors, commands, files, provenance, names of attention types: the base of every package here.

It imports nothing else of the project.
"""

from __future__ import annotations

from typing import Literal

#: An attention type: encoder self-attention, decoder self-attention, or cross-attention.
AttentionType = Literal["encoder", "decoder", "cross"]
ATTENTION_TYPES: tuple[AttentionType, ...] = ("encoder", "decoder", "cross")
#: Stands between two sentences of a document; one subword of models that are made for documents.
BREAK = "<break>"
