"""What every kind of attention head shares: masks, dropout, weights on request, cache, beams.

    head_i = softmax(q_i k_g(i)^T + mask) v_i,      output = [head_1, ..., head_H] Wo^T + bo

A variant (a subclass of :class:`HeadAttention`) says how inputs become queries, keys and values;
everything else is written once, here.  The forward contract is that of fairseq's
``MultiheadAttention``, so that fairseq's layers call a variant unchanged.

Shapes:
    B  sentences        T  queries (target length)    S  keys (source length)     d  model size
    H  heads            G  key heads: H, or 1 if all heads share one key
    e  size of a scored query/key vector              h_v  size of a head's value

Beams: when the query has ``beam`` rows for each sentence of the key, rows
``b*beam ... b*beam+beam-1`` belong to sentence ``b``.  They are folded into query positions, so
that the keys and values of a sentence are computed and cached once, never once a beam.
"""

from __future__ import annotations

import uuid
from typing import Any

import torch
from torch import Tensor, nn

IncrementalState = dict[str, dict[str, Any]]

#: First number of every signature; raised when the meaning of a field changes.
SIGNATURE_VERSION = 1


class ZeroBiasLinear(nn.Linear):
    """A linear map without bias, for callers that read ``.bias.shape`` (fairseq's encoder layer).

    The bias is a constant zero: neither a parameter nor part of the state dict.
    """

    def __init__(self, in_features: int, out_features: int):
        super().__init__(in_features, out_features, bias=False)
        del self.bias
        self.register_buffer("bias", torch.zeros(out_features), persistent=False)


def linear(in_features: int, out_features: int, bias: bool = True) -> nn.Linear:
    """A linear map with a trained bias, or with one that stays zero."""
    return (nn.Linear if bias else ZeroBiasLinear)(in_features, out_features)


class HeadAttention(nn.Module):
    """Base of all attention variants.

    A variant sets ``num_heads``, ``head_dim`` (size of a head's value), ``out_proj``, and defines
    ``project_query``, ``project_key``, ``project_value`` and ``signature_fields``.

    Args:
        embed_dim: model size ``d`` of the queries and of the output.
        dropout: probability with which an attention weight is dropped in training.
        self_attention: keys and values come from the query's input.
        encoder_decoder_attention: keys and values come from the encoder, and never change while a
            sentence is decoded.
    """

    num_heads: int
    head_dim: int
    out_proj: nn.Linear
    signature: Tensor

    def __init__(
        self,
        embed_dim: int,
        *,
        dropout: float = 0.0,
        self_attention: bool = False,
        encoder_decoder_attention: bool = False,
    ):
        super().__init__()
        self.embed_dim = embed_dim
        # Replaced by the models with fairseq's own, which --retain-dropout can keep on in decoding.
        self.dropout_module: nn.Module = nn.Dropout(dropout)
        self.self_attention = self_attention
        self.encoder_decoder_attention = encoder_decoder_attention
        self._state_key = f"{uuid.uuid4()}.attn_state"

    # ---- what a variant defines ------------------------------------------------------------------

    def project_query(self, x: Tensor) -> Tensor:
        """Scaled queries: ``(T, B, d) -> (B, H, T, e)``."""
        raise NotImplementedError

    def project_key(self, y: Tensor) -> Tensor:
        """Keys: ``(S, B, d_y) -> (B, G, S, e)``."""
        raise NotImplementedError

    def project_value(self, y: Tensor) -> Tensor:
        """Values: ``(S, B, d_y) -> (B, H, S, h_v)``."""
        raise NotImplementedError

    def signature_fields(self) -> dict[str, int]:
        """What no tensor shape shows, by name, as integers (checked when weights are loaded)."""
        raise NotImplementedError

    def cached_floats_per_token(self) -> tuple[int, int]:
        """Numbers that the cache keeps for one token of one sentence: ``(keys, values)``."""
        raise NotImplementedError

    # ---- what all variants share -----------------------------------------------------------------

    def register_signature(self) -> None:
        """Keep the signature in the state dict: checkpoints then say what their shapes do not."""
        fields = [SIGNATURE_VERSION, *self.signature_fields().values()]
        self.register_buffer("signature", torch.tensor(fields, dtype=torch.int64))

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
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from every query to all keys.

        Args:
            query: ``(T, B, d)``, or ``(T, B * beam, d)`` where the keys have ``B`` sentences.
            key: ``(S, B, d_y)``; ignored in self-attention, and once cached with ``static_kv``.
            value: in place of ``key`` for the values, where it is another tensor.
            key_padding_mask: ``(B, S)``, true at padding.
            incremental_state: where keys and values of earlier steps are kept, if decoding.
            need_weights: return the attention weights, averaged over heads.
            static_kv: the cached keys and values are complete.
            attn_mask: ``(T, S)``, true where a query may not look, or added to the scores.
            before_softmax: return scores ``(B * H, T, S)`` and values ``(B * H, S, h_v)`` instead.
            need_head_weights: return the attention weights of each head.

        Returns:
            The output ``(T, B, d)`` and the weights: ``(B, T, S)``, ``(H, B, T, S)``, or None.
        """
        k, v, padding = self._keys_and_values(
            query, key, value, key_padding_mask, incremental_state, static_kv
        )
        steps, beam = query.size(0), query.size(1) // k.size(0)
        if beam > 1:
            query = fold_beams(query, beam)  # (T * beam, B, d)
        scores = head_scores(self.project_query(query), k)  # (B, H, T, S)
        scores = mask_scores(scores, attn_mask, padding)
        if before_softmax:
            return scores.flatten(0, 1), v.flatten(0, 1)

        weights = scores.softmax(dim=-1).to(v.dtype)  # under autocast it is in single precision
        heads = self.dropout_module(weights) @ v  # (B, H, T, h_v)
        output = self.out_proj(heads.permute(2, 0, 1, 3).flatten(2))  # (T, B, d)
        if beam > 1:
            output = unfold_beams(output, steps)
        if not (need_weights or need_head_weights):
            return output, None
        if beam > 1:  # (B, H, T * beam, S) -> (B * beam, H, T, S)
            weights = weights.unflatten(2, (steps, beam)).permute(0, 3, 1, 2, 4).flatten(0, 1)
        per_head = weights.transpose(0, 1)  # (H, B, T, S)
        return output, per_head if need_head_weights else per_head.mean(dim=0)

    # ---- cache -----------------------------------------------------------------------------------

    _CACHED = ("prev_key", "prev_value", "prev_key_padding_mask")

    def _keys_and_values(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        padding: Tensor | None,
        incremental_state: IncrementalState | None,
        static_kv: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """All keys ``(B, G, S, e)``, values ``(B, H, S, h_v)`` and their padding, cached or new."""
        cached = self._get_input_buffer(incremental_state)
        if static_kv and cached:
            return cached["prev_key"], cached["prev_value"], cached["prev_key_padding_mask"]
        source = query if self.self_attention else key
        if source is None:
            raise ValueError("no key was given, and none is cached from an earlier step")
        if value is None or self.self_attention or self.encoder_decoder_attention:
            value = source
        k, v = self.project_key(source), self.project_value(value)
        if cached:
            k, v, padding = self._append(cached, k, v, padding)
        if incremental_state is not None:
            state: dict[str, Any] = dict(zip(self._CACHED, (k, v, padding), strict=True))
            state["beam"] = query.size(1) // k.size(0)
            self._set_input_buffer(incremental_state, state)
        return k, v, padding

    def _append(
        self, cached: dict[str, Any], k: Tensor, v: Tensor, padding: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys, values and padding mask of the earlier steps, followed by this step's."""
        past, new = cached["prev_key"].size(2), k.size(2)
        k = torch.cat([cached["prev_key"], k], dim=2)
        v = torch.cat([cached["prev_value"], v], dim=2)
        return k, v, append_padding(cached["prev_key_padding_mask"], padding, past, new)

    def _get_input_buffer(self, incremental_state: IncrementalState | None) -> dict[str, Any]:
        """This module's part of the incremental state; empty before the first step."""
        return {} if incremental_state is None else incremental_state.get(self._state_key, {})

    def _set_input_buffer(
        self, incremental_state: IncrementalState, buffer: dict[str, Any]
    ) -> IncrementalState:
        incremental_state[self._state_key] = buffer
        return incremental_state

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Make row ``i`` of the cache what row ``new_order[i]`` is now (beam search).

        The cache of cross-attention has one row a sentence: beams of a sentence share it, so it
        follows the sentences only.
        """
        buffer = self._get_input_buffer(incremental_state)
        if not buffer:
            return incremental_state
        beam = buffer["beam"]
        if beam > 1:
            new_order = new_order.view(-1, beam)[:, 0].div(beam, rounding_mode="floor")
        for name in self._CACHED:
            if buffer[name] is not None:
                buffer[name] = buffer[name].index_select(0, new_order)
        return incremental_state

    def cache_bytes(self, incremental_state: IncrementalState) -> dict[str, int]:
        """Bytes that this module's keys and values take in ``incremental_state``."""
        buffer = self._get_input_buffer(incremental_state)
        names = {"keys": "prev_key", "values": "prev_value"}
        return {
            what: buffer[name].numel() * buffer[name].element_size() if buffer else 0
            for what, name in names.items()
        }


def fold_beams(x: Tensor, beam: int) -> Tensor:
    """Beams become query positions: ``(T, B * beam, d) -> (T * beam, B, d)``."""
    return x.unflatten(1, (-1, beam)).transpose(1, 2).flatten(0, 1)


def unfold_beams(x: Tensor, steps: int) -> Tensor:
    """The way back: ``(T * beam, B, d) -> (T, B * beam, d)`` with ``T = steps``."""
    return x.unflatten(0, (steps, -1)).transpose(1, 2).flatten(1, 2)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """``(T, B, H * h) -> (B, H, T, h)``, without a copy."""
    return x.unflatten(2, (num_heads, -1)).permute(1, 2, 0, 3)


def head_scores(q: Tensor, k: Tensor) -> Tensor:
    """Scores of all heads: ``(B, H, T, e), (B, G, S, e) -> (B, H, T, S)``, with G = H or G = 1."""
    if k.size(1) == q.size(1):
        return q @ k.transpose(2, 3)
    # One key for all heads: the heads' queries are so many more rows of one product.
    scores = q.flatten(1, 2) @ k.squeeze(1).transpose(1, 2)  # (B, H * T, S)
    return scores.unflatten(1, q.shape[1:3])


def mask_scores(scores: Tensor, attn_mask: Tensor | None, padding: Tensor | None) -> Tensor:
    """Forbid what ``attn_mask (T, S)`` and ``padding (B, S)`` forbid; ``scores (B, H, T, S)``."""
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(attn_mask, float("-inf"))
        else:
            scores = scores + attn_mask
    if padding is not None:
        scores = scores.masked_fill(padding[:, None, None, :].to(torch.bool), float("-inf"))
    return scores


def append_padding(
    past_mask: Tensor | None, new_mask: Tensor | None, past: int, new: int
) -> Tensor | None:
    """Padding mask ``(B, past + new)`` of cached and new keys; None if neither has padding."""
    if past_mask is None and new_mask is None:
        return None
    known = past_mask if past_mask is not None else new_mask
    assert known is not None
    if past_mask is None:
        past_mask = known.new_zeros(known.size(0), past)
    if new_mask is None:
        new_mask = known.new_zeros(known.size(0), new)
    return torch.cat([past_mask.to(torch.bool), new_mask.to(torch.bool)], dim=1)
