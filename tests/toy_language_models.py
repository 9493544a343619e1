"""Toy language models, ours and fairseq's, built in memory."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import toy
from torch import nn

LENGTH = 12
SIZES = {"embed_dim": 16, "ffn_embed_dim": 24, "attention_heads": 4, "layers": 2}


def task() -> Namespace:
    """What the builders read of a language modelling task."""
    symbols = toy.task()
    symbols.cfg = Namespace(tokens_per_sample=LENGTH)
    return symbols


def language_model(arch: str, symbols: Namespace | None = None, **options: Any) -> nn.Module:
    """A decoder of size 16."""
    return toy.build(arch, symbols or task(), language_model_options(arch, **options))


def language_model_options(arch: str, **options: Any) -> dict[str, Any]:
    """Options of a decoder of size 16; fairseq's own wants sizes of inputs and outputs, too."""
    sizes = {f"decoder_{name}": value for name, value in SIZES.items()}
    if arch == "transformer_lm":
        sizes |= {"decoder_input_dim": 16, "decoder_output_dim": 16}
    # What a whole configuration would give from its other parts.
    elsewhere = {
        "tokens_per_sample": LENGTH,
        "max_target_positions": LENGTH,
        "add_bos_token": False,
        "tpu": False,
    }
    return {**sizes, **elsewhere, **options}


#: A model of ours of each family.
FAMILIES = {
    "translation": lambda: toy.model("transformer_collab"),
    "language model": lambda: language_model("transformer_lm_headsize_n"),
}
