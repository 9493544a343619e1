"""Adapters that replace the attentions of Hugging Face's BERT, DistilBERT, Marian and DeiT.

An adapter keeps the original's output projection and its settings; queries, keys, values and mixing
are in ``core``.

A model prepares masks for the attention implementation that it is set to.  Adapters understand only
those of "eager" and reject others, which may leave out the causal mask.

Shapes: ``x (B, T, d)``, ``y (B, S, d_y)``; masks ``(B or 1, 1 or H, T or 1, S)``, added to the
scores, or true where a query may look.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import EncoderDecoderCache
from transformers.models.bert.modeling_bert import BertSelfAttention
from transformers.models.deit.modeling_deit import DeiTAttention
from transformers.models.distilbert.modeling_distilbert import DistilBertSelfAttention
from transformers.models.marian.modeling_marian import MarianAttention

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention
from fairseq_collab.attention.scores import head_scores


class Adapter(nn.Module):
    """The replacement of a model's attention: its core, and settings of the original."""

    #: Settings of the original that stay, where it has them.
    SETTINGS: tuple[str, ...] = ("config", "is_causal", "is_decoder", "layer_idx")
    #: Modules of the original that the heads go through, one after the other.
    AFTER: tuple[str, ...] = ()

    core: CollaborativeAttention
    config: Any
    layer_idx: Any  # a number wherever there is a cache

    def __init__(self, original: nn.Module, core: CollaborativeAttention):
        # Not the class that this one replaces, which would make new weights.
        nn.Module.__init__(self)
        self.core = core
        for name in (*self.SETTINGS, *self.AFTER):
            if hasattr(original, name):
                setattr(self, name, getattr(original, name))
        # transformers records attention weights by hooks, which it installs once a model.
        for hooks in ("", "_with_kwargs", "_always_called"):
            getattr(self, f"_forward_hooks{hooks}").update(
                getattr(original, f"_forward_hooks{hooks}")
            )
        self.train(original.training)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        key_value_states: Tensor | None = None,
        past_key_values: Any = None,
        **_options: Any,
    ) -> tuple[Tensor, Tensor]:
        """Compute the output ``(B, T, d)`` and the attention weights ``(B, H, T, S)``.

        Args:
            key_value_states: the encoder's output, if this is cross-attention.
            past_key_values: a dynamic cache of transformers, which holds one key for all heads.

        Raises:
            ValueError: the model is set to another implementation than "eager", or the cache is
                static: its keys have the shape of its values.
        """
        if getattr(past_key_values, "is_compileable", False):
            raise ValueError(
                "collaborative heads have one key and several values, and a static cache has as "
                "many of both: leave cache_implementation out"
            )
        implementation = self.config._attn_implementation
        if implementation != "eager":
            raise ValueError(
                f"the attention implementation is {implementation!r}: collaborative heads need the "
                "masks of 'eager'; call model.set_attn_implementation('eager')"
            )
        if key_value_states is None:
            keys = self._own_keys(hidden_states, past_key_values)
        else:
            keys = self._source_keys(key_value_states, past_key_values)
        heads, weights = attend(self.core, hidden_states, keys, attention_mask)
        for name in self.AFTER:
            heads = self.get_submodule(name)(heads)
        return heads, weights

    def _own_keys(self, states: Tensor, past: Any) -> tuple[Tensor, Tensor]:
        """Keys and values of this step, after those of former ones."""
        keys = keys_and_values(self.core, states)
        if past is None:
            return keys
        if isinstance(past, EncoderDecoderCache):
            past = past.self_attention_cache
        return past.update(*keys, self.layer_idx)

    def _source_keys(self, states: Tensor, past: Any) -> tuple[Tensor, Tensor]:
        """Keys and values of the encoder's output, computed at the first step only."""
        if not isinstance(past, EncoderDecoderCache):
            return keys_and_values(self.core, states)
        if past.is_updated.get(self.layer_idx):
            layer: Any = past.cross_attention_cache.layers[self.layer_idx]
            return layer.keys, layer.values
        past.is_updated[self.layer_idx] = True
        keys = keys_and_values(self.core, states)
        return past.cross_attention_cache.update(*keys, self.layer_idx)


def keys_and_values(core: CollaborativeAttention, y: Tensor) -> tuple[Tensor, Tensor]:
    """The content of the cache: one key for all heads ``(B, 1, S, K)``, values ``(B, H, S, h)``."""
    source = y.transpose(0, 1)  # (S, B, d_y)
    return core.project_key(source), core.project_value(source)


def attend(
    core: CollaborativeAttention, x: Tensor, keys: tuple[Tensor, Tensor], mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The outputs of all heads side by side ``(B, T, d)``, and attention weights ``(B, H, T, S)``.

    No output projection is applied.  ``keys`` is the result of :func:`keys_and_values`.
    """
    k, v = keys
    scores = head_scores(core.project_query(x.transpose(0, 1)), k)  # (B, H, T, S)
    if mask is not None:
        boolean = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, -math.inf) if boolean else scores + mask
    weights = core.dropout_module(scores.softmax(dim=-1))
    return (weights @ v).transpose(1, 2).flatten(2), weights


_SPELT, _SHORT = ("query", "key", "value"), ("q_proj", "k_proj", "v_proj")
_LIN = ("q_lin", "k_lin", "v_lin")
_HEADS = "num_attention_heads"
#: What each class calls its projections, number of heads, dropout, and what comes after the heads.
ATTRIBUTES: dict[type, tuple[tuple[str, str, str], str, str, tuple[str, ...]]] = {
    # Their output projection is in another module.
    BertSelfAttention: (_SPELT, _HEADS, "dropout", ()),
    DistilBertSelfAttention: (_LIN, "n_heads", "dropout", ("out_lin",)),
    MarianAttention: (_SHORT, "num_heads", "dropout", ("out_proj",)),
    DeiTAttention: (_SHORT, _HEADS, "attention_dropout", ("o_proj",)),
}
#: Adapters are subclasses of the originals: transformers records attentions by their class.
ADAPTERS: dict[type, type] = {
    original: type(
        f"{original.__name__}WithCollaborativeHeads",
        (Adapter, original),
        {"AFTER": after},
    )
    for original, (*_, after) in ATTRIBUTES.items()
}


def attention_parts(module: Any) -> tuple[type, float, dict[str, Any]] | None:
    """The adapter, the dropout, and the arguments of :func:`.trained_heads` for an attention.

    It is None for a module that is not an attention of a known kind.

    Raises:
        UserError: the module has weights that the adapter would lose.
    """
    if type(module) not in ATTRIBUTES:
        return None
    projections, heads, dropout, after = ATTRIBUTES[type(module)]
    kept = {f"{linear}.{kind}" for linear in (*projections, *after) for kind in ("weight", "bias")}
    if lost := [name for name in module.state_dict() if name not in kept]:
        raise UserError(f"the weight {lost[0]} of a {type(module).__name__} would be lost")
    rate = getattr(module, dropout)
    linears = map(module.get_submodule, (*projections, *after))
    return (
        ADAPTERS[type(module)],
        rate.p if isinstance(rate, nn.Dropout) else rate,
        {
            "projections": [(linear.weight, linear.bias) for linear in linears],
            "num_heads": getattr(module, heads),
            "scaling": module.scaling,
        },
    )
