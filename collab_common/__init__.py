"""Errors, commands, files, provenance, names of attention types: the base of every package here.

It lies outside ``fairseq_collab`` because importing that imports fairseq and torch, which
``data_prep`` and ``fairseq-collab doctor`` do without.  It imports nothing of the project.
"""

from __future__ import annotations

from typing import Literal

#: Whether importing ``fairseq_collab`` registers its models with fairseq, which takes seconds.
#: ``fairseq-collab`` sets it to False: its commands import the models when they need them.
MODELS = True

#: An attention type: encoder self-attention, decoder self-attention, or cross-attention.
AttentionType = Literal["encoder", "decoder", "cross"]
ATTENTION_TYPES: tuple[AttentionType, ...] = ("encoder", "decoder", "cross")
