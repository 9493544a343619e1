"""Common parts of all kinds of heads: masks, dropout, weights on request, cache.

    head_i = softmax(q_i k_g(i)^T + mask) v_g(i),      output = [head_1, ..., head_H] Wo^T + bo

A variant (a subclass of :class:`HeadAttention`) says how inputs become queries, keys and values;
everything else is written once, here.  The forward contract is that of fairseq's
``MultiheadAttention``, so that fairseq's layers call a variant unchanged.

Shapes:
    B  sentences        T  queries (target length)    S  keys (source length)     d  model size
    H  heads            G  heads of keys, or of values: each serves H/G heads
    e  size of a scored query/key vector              h_v  size of a head's value
    d_y  size of the input of keys and values         r  size of a latent

While sentences are decoded, the beams of a sentence are its queries here, and the decoder's history
(:mod:`fairseq_collab.attention.cache`) has the keys that each of them sees.
"""

from __future__ import annotations

import uuid
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_collab.attention.building import dequantized, merge_heads
from fairseq_collab.attention.cache import (
    Cache,
    Context,
    IncrementalState,
    PackedContext,
    as_cached,
    beam_history,
)
from fairseq_collab.attention.packed import can_stay_packed, packed_heads
from fairseq_collab.attention.parts import ContextInParts, heads_in_parts
from fairseq_collab.attention.rounding import cached_bits
from fairseq_collab.attention.scores import (
    can_fuse,
    fused_heads,
    head_scores,
    mask_scores,
    over_keys,
    weighted_values,
)
from fairseq_collab.attention.signature import Signature

#: Where keys and values can be.
AnyContext = Context | PackedContext | ContextInParts


class HeadAttention(nn.Module):
    """Base of all attention variants, with the forward contract of fairseq's attention.

    A variant sets ``signature_type``, ``num_heads``, ``v_head_size`` (``h_v``), ``out_proj``, and
    ``k_proj`` or, without one, ``kdim``: the size of the keys' input.  It defines
    ``project_query``, ``project_key``, ``project_value``, ``cached_floats_per_token``.

    Args:
        embed_dim: model size ``d`` of the queries and of the output.
        dropout: probability with which an attention weight is dropped in training.

    An example of a variant is in ``docs/own_heads.md``.
    """

    #: Hyper-parameters that tensor shapes do not reveal; compared when weights are loaded.
    signature_type: type[Signature]
    num_heads: int
    v_head_size: int
    k_proj: nn.Linear
    out_proj: nn.Linear
    #: False where every forward pass has to show its attention weights.
    may_fuse = True
    #: Whether a decoder keeps a latent, of which keys and values are linear maps, instead of both:
    #: see :mod:`fairseq_collab.attention.latent`.
    has_latent = False
    #: Bits of a cached number: 8, 4, or 0 without rounding; a pass over a whole text also rounds.
    cache_bits = 0

    def __init__(self, embed_dim: int, *, dropout: float = 0.0):
        super().__init__()
        self.embed_dim = embed_dim
        # Replaced by the models with fairseq's own, which --retain-dropout can keep on in decoding.
        self.dropout_module: nn.Module = nn.Dropout(dropout)
        self._state_key = f"{uuid.uuid4()}.attn_state"

    # ---- what a variant defines ------------------------------------------------------------------

    def project_query(self, x: Tensor) -> Tensor:
        """Scaled queries: ``(T, B, d) -> (B, H, T, e)``."""
        raise NotImplementedError

    def project_key(self, y: Tensor) -> Tensor:
        """Keys: ``(S, B, d_y) -> (B, G, S, e)``."""
        raise NotImplementedError

    def project_value(self, y: Tensor) -> Tensor:
        """Values: ``(S, B, d_y) -> (B, G, S, h_v)``."""
        raise NotImplementedError

    def project_both(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values; variants may compute both from a common part: a latent as cached."""
        return self.project_key(y), self.project_value(y)

    def project_latent(self, y: Tensor) -> Tensor:
        """The latent, with :attr:`has_latent`: ``(S, B, d_y) -> (B, 1, S, r)``."""
        raise NotImplementedError

    def absorb_keys(self, q: Tensor) -> Tensor:
        """Map queries of keys to queries of the latent: ``(B, H, T, e) -> (B, H, T, r)``."""
        raise NotImplementedError

    def absorb_values(self, heads: Tensor) -> Tensor:
        """Map the weighted latent to weighted values: ``(B, H, T, r) -> (B, H, T, h_v)``."""
        raise NotImplementedError

    def cached_floats_per_token(self) -> tuple[int, int]:
        """Numbers that the cache keeps for one token of one sentence: ``(keys, values)``.

        A latent counts once, as keys.
        """
        raise NotImplementedError

    # ---- what all variants share -----------------------------------------------------------------

    def describe(self) -> Signature:
        """Return the present values of :attr:`signature_type`."""
        return self.signature_type.of(self)

    def cached_bits_per_token(self, unrounded: int = 32) -> tuple[int, int]:
        """Return the bits of one token's ``(keys, values)`` in the cache.

        Args:
            unrounded: bits of a number if the cache is not rounded.
        """
        keys, values = self.cached_floats_per_token()
        if not self.cache_bits:
            return keys * unrounded, values * unrounded
        return cached_bits(keys, self.cache_bits), cached_bits(values, self.cache_bits)

    @property
    def kdim(self) -> int:
        """The size ``d_y`` of the input of keys, as fairseq calls it."""
        return self.k_proj.in_features

    @property
    def head_dim(self) -> int:
        """The size of a head's output, under the name by which fairseq's decoder layer asks."""
        return self.v_head_size

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}signature"] = self.describe().to_tensor()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state_dict.pop(f"{prefix}signature", None)  # the model compares all signatures at once
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from every query to all keys.

        Args:
            query: ``(T, B, d)``; in a step of decoding ``T`` counts the beams of a sentence.
            key: ``(S, B, d_y)``, the input of keys and values; ignored once cached with
                ``static_kv``.
            value: ``key`` again, as fairseq's layers give it, or None.
            key_padding_mask: ``(B, S)``, true at padding; that of earlier steps of decoding is in
                the decoder's history.
            incremental_state: where keys and values of earlier steps are kept, if decoding.
            need_weights: return the attention weights, averaged over heads.
            static_kv: the cached keys and values are complete.
            attn_mask: ``(T, S)``, true where a query may not look, or added to the scores.
            need_head_weights: return the attention weights of each head.

        Returns:
            The output ``(T, B, d)`` and the weights: ``(B, T, S)``, ``(H, B, T, S)``, or None.
            Without heads the output is ``bo``, and there are no weights.

        Raises:
            ValueError: ``value`` is another tensor than ``key``.
        """
        if value is not None and value is not key:
            raise ValueError("keys and values have one input: give one tensor as both")
        if not self.num_heads:
            return torch.zeros_like(query) + dequantized(self.out_proj.bias), None
        to_latent = self.has_latent and incremental_state is not None
        mask = over_keys(key_padding_mask, attn_mask)
        context = self._context(key, mask, incremental_state, static_kv)
        q = self.project_query(query)  # (B, H, T, e)
        if to_latent:
            q = self.absorb_keys(q)  # (B, H, T, r)
        wants_weights = need_weights or need_head_weights or not self.may_fuse
        heads, weights = self._attend(q, context, attn_mask, wants_weights)
        if to_latent:
            heads = self.absorb_values(heads)  # of (B, H, T, r)
        output = self.out_proj(merge_heads(heads))  # (T, B, d)
        if weights is None or not (need_weights or need_head_weights):
            return output, None
        if incremental_state is not None and not static_kv:
            weights = beam_history(incremental_state).per_step(weights)
        per_head = weights.transpose(0, 1)  # (H, B, T, S)
        return output, per_head if need_head_weights else per_head.mean(dim=0)

    def _attend(
        self, q: Tensor, context: AnyContext, attn_mask: Tensor | None, weigh: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the outputs of all heads ``(B, H, T, h_v)`` and their weights ``(B, H, T, S)``.

        Weights are None unless ``weigh`` asks for them or they are found on the way to the outputs;
        for a context in parts they are always None.
        """
        if isinstance(context, ContextInParts):
            return heads_in_parts(q, context), None
        dropout = self._dropout()
        if isinstance(context, PackedContext):
            if can_stay_packed(q, context, dropout):
                return packed_heads(q, context, attn_mask, weigh)
            context = context.unpacked()
        masks = attn_mask, context.mask
        if not weigh and can_fuse(q, context.keys, context.values, dropout):
            return fused_heads(q, context.keys, context.values, *masks, dropout=dropout), None
        scores = mask_scores(head_scores(q, context.keys), *masks)
        # Under autocast the softmax is in single precision.
        weights = scores.softmax(dim=-1).to(context.values.dtype)
        return weighted_values(self.dropout_module(weights), context.values), weights

    def _dropout(self) -> float:
        """The present probability with which an attention weight is dropped."""
        module = self.dropout_module  # fairseq's --retain-dropout acts in evaluation, too
        active = self.training or getattr(module, "apply_during_inference", False)
        return getattr(module, "p", 0.0) if active else 0.0

    # ---- keys and values, new or cached ----------------------------------------------------------

    def _context(
        self,
        key: Tensor | None,
        mask: Tensor | None,
        incremental_state: IncrementalState | None,
        static_kv: bool,
    ) -> AnyContext:
        """Return keys and values of ``key (S, B, d_y)`` and of the cache, or the latent as both."""
        cache = self._cache(incremental_state)
        if static_kv and cache is not None:
            return cache.context(cache.mask)
        if key is None:
            raise ValueError("no key was given, and none is cached from an earlier step")
        if incremental_state is None:
            k, v = self.project_both(key)
            if not self.has_latent:
                k, v = as_cached(k, self.cache_bits), as_cached(v, self.cache_bits)
            return Context(k, v, mask)
        if self.has_latent:
            k = v = self.project_latent(key)
        else:
            k, v = self.project_both(key)
        if static_kv:
            cache = Cache(k, v, mask, self.cache_bits, is_source=True)
            self.keep(incremental_state, cache)
            return cache.context(mask)
        if mask is not None:
            raise ValueError("padding of a step belongs in the decoder's beam history")
        if cache is None:
            cache = Cache(k, v, bits=self.cache_bits)
            self.keep(incremental_state, cache)
        else:
            cache.append(k, v)
        return cache.context(beam_history(incremental_state).mask)

    def keep(self, incremental_state: IncrementalState, cache: Any) -> None:
        """Use ``cache``, a :class:`.Cache` or one with its methods, in the steps of decoding."""
        incremental_state[self._state_key] = {"cache": cache}

    def _cache(self, incremental_state: IncrementalState | None) -> Cache | None:
        return self._get_input_buffer(incremental_state).get("cache")

    def _get_input_buffer(self, incremental_state: IncrementalState | None) -> dict[str, Any]:
        """This module's part of the incremental state, under the name by which fairseq asks."""
        return {} if incremental_state is None else incremental_state.get(self._state_key, {})

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Follow the decoder's beam history, which ``new_order`` has reordered already.

        The beams of a sentence share its keys and values.  So these move only if sentences move,
        for example because one is finished and leaves the batch, or if the history drops slots.
        """
        cache = self._cache(incremental_state)
        if cache is not None:
            cache.follow(beam_history(incremental_state))
        return incremental_state
