"""What decoders keep of a source sentence: keys and values of each layer, or the encoder's output.

    q_i k_i^T = (q_i Wk_i) y^T,      P_i v_i = (P_i y) Wv_i^T + bv_i

So cross-attention can attend to the encoder's output ``y (S, d)`` itself, one copy of which serves
the keys and values of all heads of all layers: ``d`` numbers a source token in place of ``2 d`` a
layer.  This is EL-attention (Yan et al. 2021, arXiv 2105.04779).  It changes no weight and is exact
but for rounding, so every trained model can decode so; but each head's products are with ``d``
numbers a token in place of ``d/H``.

The environment variable ``FAIRSEQ_COLLAB_CROSS_CACHE`` chooses, for all models that a process
builds; ``keys`` unless given.  Training is the same with both.
"""

from __future__ import annotations

import os

from torch import nn

from fairseq_collab.attention import HeadAttention

#: The environment variable, and its values.
VARIABLE = "FAIRSEQ_COLLAB_CROSS_CACHE"
CHOICES = ("keys", "source")


def set_cross_cache(model: nn.Module) -> None:
    """Let the cross-attentions of ``model`` keep what :data:`VARIABLE` says, in place.

    Raises:
        ValueError: it is set to something else, or an attention cannot decode from the source.
    """
    chosen = os.environ.get(VARIABLE, CHOICES[0])
    if chosen not in CHOICES:
        raise ValueError(f"{VARIABLE} is {chosen!r}; it must be one of {', '.join(CHOICES)}")
    for name, module in model.named_modules():
        if isinstance(module, HeadAttention) and module.encoder_decoder_attention:
            module.from_source = chosen == "source"
            # Not by a call: gates would draw random numbers.
            if module.from_source and type(module).source_maps is HeadAttention.source_maps:
                raise ValueError(
                    f"{name}, a {type(module).__name__}, cannot decode from the encoder's output: "
                    f"leave {VARIABLE} unset"
                )
