"""Attentions of Hugging Face's BERT, RoBERTa, DistilBERT, ALBERT, Marian, ViT and DeiT.

An adapter keeps the original's output projection and what else belongs to it; queries, keys, values
and mixing are in ``core``.

Masks are prepared by the model for the implementation that it is set to.  Adapters understand those
of "eager"; others, which may leave the causal mask out, are refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn
from transformers.cache_utils import EncoderDecoderCache
from transformers.models.albert.modeling_albert import AlbertAttention
from transformers.models.bert.modeling_bert import BertSelfAttention
from transformers.models.deit.modeling_deit import DeiTAttention
from transformers.models.distilbert.modeling_distilbert import DistilBertSelfAttention
from transformers.models.marian.modeling_marian import MarianAttention
from transformers.models.roberta.modeling_roberta import RobertaSelfAttention
from transformers.models.vit.modeling_vit import ViTAttention

from fairseq_collab.adapters.core import Keep, attend, weigh
from fairseq_collab.attention import CollaborativeAttention

Output = tuple[Tensor, Tensor | None]


class Adapter(nn.Module):
    """What stands in for a model's attention: its core, and what it keeps of the original."""

    #: Attributes of the original that stay: settings, and what comes after the heads.
    KEPT: tuple[str, ...] = ("config", "is_causal")

    core: CollaborativeAttention
    config: Any

    def __init__(self, original: nn.Module, core: CollaborativeAttention):
        # Not the class that this one stands in for, which would make weights of its own.
        nn.Module.__init__(self)
        self.core = core
        for name in self.KEPT:
            setattr(self, name, getattr(original, name))
        # transformers records attention weights by hooks, which it installs once a model.
        self._forward_hooks.update(original._forward_hooks)
        self.train(original.training)

    def check_call(self, options: dict[str, Any]) -> None:
        """Refuse what would be ignored.

        Raises:
            ValueError: another implementation than "eager" is set, or a head mask is given.
        """
        implementation = self.config._attn_implementation
        if implementation != "eager":
            raise ValueError(
                f"the attention implementation is {implementation!r}: collaborative heads need the "
                "masks of 'eager'; call model.set_attn_implementation('eager')"
            )
        if options.get("head_mask") is not None:
            raise ValueError("head_mask is not supported by collaborative heads: leave it out")


class BertHeads(Adapter):
    """In place of BERT's and RoBERTa's self-attention; the output projection comes after it."""

    KEPT = ("config", "is_causal", "is_decoder", "layer_idx")
    layer_idx: Any  # a number wherever there is a cache

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        **options: Any,
    ) -> Output:
        self.check_call(options)
        keep = cache_of(past_key_values, self.layer_idx)
        return attend(self.core, hidden_states, hidden_states, attention_mask, keep)


class ProjectedHeads(Adapter):
    """In place of DistilBERT's, ViT's and DeiT's attention, which ends in its output projection."""

    OUTPUT = ""

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **options: Any
    ) -> Output:
        self.check_call(options)
        heads, weights = attend(self.core, hidden_states, hidden_states, attention_mask)
        return self.get_submodule(self.OUTPUT)(heads), weights


class DistilBertHeads(ProjectedHeads):
    OUTPUT = "out_lin"
    KEPT = ("config", "is_causal", OUTPUT)


class ImageHeads(ProjectedHeads):
    OUTPUT = "o_proj"
    KEPT = ("config", "is_causal", OUTPUT)


class AlbertHeads(Adapter):
    """In place of ALBERT's attention, which also adds its input and normalises."""

    KEPT = ("config", "is_causal", "dense", "output_dropout", "LayerNorm")
    dense: nn.Linear
    output_dropout: nn.Dropout
    LayerNorm: nn.LayerNorm

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **options: Any
    ) -> Output:
        self.check_call(options)
        heads, weights = attend(self.core, hidden_states, hidden_states, attention_mask)
        output = self.output_dropout(self.dense(heads))
        return self.LayerNorm(hidden_states + output), weights


class MarianHeads(Adapter):
    """In place of Marian's attention: in the encoder, in the decoder, and between them."""

    KEPT = ("config", "is_causal", "is_decoder", "layer_idx", "out_proj")
    layer_idx: Any  # a number wherever there is a cache
    out_proj: nn.Linear

    def forward(
        self,
        hidden_states: Tensor,
        key_value_states: Tensor | None = None,
        past_key_values: Any = None,
        attention_mask: Tensor | None = None,
        **options: Any,
    ) -> Output:
        self.check_call(options)
        if key_value_states is None:
            keep = cache_of(past_key_values, self.layer_idx)
            heads, weights = attend(self.core, hidden_states, hidden_states, attention_mask, keep)
        else:
            k, v = self._source(key_value_states, past_key_values)
            q = self.core.project_query(hidden_states.transpose(0, 1))  # (B, H, T, K + H)
            heads, weights = weigh(self.core, q, k, v, attention_mask)
        return self.out_proj(heads), weights

    def _source(self, states: Tensor, past: Any) -> tuple[Tensor, Tensor]:
        """Keys and values of the encoder's output, computed at the first step only."""
        if isinstance(past, EncoderDecoderCache) and past.is_updated.get(self.layer_idx):
            layer: Any = past.cross_attention_cache.layers[self.layer_idx]
            return layer.keys, layer.values
        source = states.transpose(0, 1)
        k, v = self.core.project_key(source), self.core.project_value(source)
        if not isinstance(past, EncoderDecoderCache):
            return k, v
        past.is_updated[self.layer_idx] = True
        return past.cross_attention_cache.update(k, v, self.layer_idx)


def cache_of(past: Any, layer: Any) -> Keep | None:
    """Appends keys and values of a self-attention to transformers' cache; None without one."""
    if past is None:
        return None
    if isinstance(past, EncoderDecoderCache):
        past = past.self_attention_cache

    def keep(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return past.update(k, v, layer)

    return keep


class Kind(NamedTuple):
    """What to put in the place of a class, and what that class calls its parts."""

    adapter: type[Adapter]
    projections: tuple[str, str, str]
    heads: str
    dropout: str


def standing_in_for(
    original: type, adapter: type[Adapter], projections: tuple[str, str, str], *others: str
) -> tuple[type, Kind]:
    """``adapter`` as a subclass of ``original``: transformers records attentions by their class."""
    both = type(f"{original.__name__}WithCollaborativeHeads", (adapter, original), {})
    return original, Kind(both, projections, *others)


_SPELT, _SHORT = ("query", "key", "value"), ("q_proj", "k_proj", "v_proj")
_LIN = ("q_lin", "k_lin", "v_lin")
KINDS: dict[type, Kind] = dict(
    standing_in_for(*kind)
    for kind in (
        (BertSelfAttention, BertHeads, _SPELT, "num_attention_heads", "dropout"),
        (RobertaSelfAttention, BertHeads, _SPELT, "num_attention_heads", "dropout"),
        (AlbertAttention, AlbertHeads, _SPELT, "num_attention_heads", "attention_dropout"),
        (DistilBertSelfAttention, DistilBertHeads, _LIN, "n_heads", "dropout"),
        (MarianAttention, MarianHeads, _SHORT, "num_heads", "dropout"),
        (ViTAttention, ImageHeads, _SHORT, "num_attention_heads", "attention_dropout"),
        (DeiTAttention, ImageHeads, _SHORT, "num_attention_heads", "attention_dropout"),
    )
)
