"""The attention types, without torch: for the help of commands, too."""

from __future__ import annotations

from typing import Literal

#: An attention type: encoder self-attention, decoder self-attention, or cross-attention.
AttentionType = Literal["encoder", "decoder", "cross"]
ATTENTION_TYPES: tuple[AttentionType, ...] = ("encoder", "decoder", "cross")
