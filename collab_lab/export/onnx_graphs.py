"""The two graphs of an ONNX export, as torch modules: the encoder, and one step of decoding.

Both call the model's own modules, so this file has no code for single kinds of heads.  The caller
keeps the caches between steps: a step takes them as inputs and returns only the slots to append, so
that no step copies the past.

Shapes:
    B  sentences    S  source length    beam  hypotheses a sentence    d  model size
    N  slots of earlier steps    G  heads of keys or of values    e  their size    V  vocabulary
    k  best words of a hypothesis = 2 beam + :data:`SPARE`    n  words whose score is asked for
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from collab_lab.trained.attentions import attentions
from fairseq_collab.attention import HeadAttention
from fairseq_collab.attention.building import merge_heads, split_heads
from fairseq_collab.attention.cache import Context, IncrementalState, keep_beam_history
from fairseq_collab.attention.parts import ContextInParts
from fairseq_collab.attention.rounding import decode, encode
from fairseq_collab.decoding.fixed_steps import POSITION

#: Words of each hypothesis beyond 2 beam, as padding, ``<unk>`` and ``</s>`` may be among them.
SPARE = 3


# ---- caches --------------------------------------------------------------------------------------


def owners(model: Any, type_: str) -> list[HeadAttention]:
    """The attentions of a type that have a cache; the first one of those that share a cache."""
    found: dict[str, HeadAttention] = {}
    for attention in attentions(model):
        if attention.type == type_ and attention.module.num_heads:
            found.setdefault(attention.module._state_key, attention.module)
    return list(found.values())


class Stored(NamedTuple):
    """How keys or values ``(B, G, S, e)`` are cached: as one tensor, or rounded as two.

    The two tensors are codes ``(B, 1, S, bytes)`` and scales ``(B, 1, S, 2 groups)``.
    """

    heads: int
    size: int
    bits: int

    @property
    def number(self) -> int:
        """The number of tensors: 1, or 2 if rounded."""
        return 2 if self.bits else 1

    def store(self, x: Tensor) -> list[Tensor]:
        """The tensors to cache."""
        if not self.bits:
            return [x]
        scales, codes = encode(merge_heads(x), self.bits)  # (S, B, ...)
        return [part.transpose(0, 1).unsqueeze(1) for part in (codes, scales)]

    def load(self, tensors: Sequence[Tensor]) -> Tensor:
        """The keys or values ``(B, G, S, e)`` from the cached tensors."""
        if not self.bits:
            return tensors[0]
        codes, scales = (part.squeeze(1).transpose(0, 1) for part in tensors)
        width = self.heads * self.size
        return split_heads(decode(scales, codes, width, self.bits, torch.float32), self.heads)


def cached(attention: HeadAttention, y: Tensor) -> list[Tensor]:
    """Keys and values of ``y (S, B, d)``, each ``(B, G, S, e)``; a single latent if it is both."""
    if attention.has_latent:
        return [attention.project_latent(y)]
    keys, values = attention.project_both(y)
    return [keys] if values is keys else [keys, values]


def stored_by(attention: HeadAttention) -> list[Stored]:
    """How an attention caches its keys and values, or the latent that is both."""
    found = cached(attention, attention.out_proj.weight.new_zeros(1, 1, attention.kdim))
    return [Stored(x.size(1), x.size(3), attention.cache_bits) for x in found]


def examples(model: Any, type_: str, slots: int) -> list[Tensor]:
    """Example inputs: all cached tensors of the attentions of a type, for two sentences."""
    return [
        tensor
        for attention in owners(model, type_)
        for stored in stored_by(attention)
        for tensor in stored.store(torch.zeros(2, stored.heads, slots, stored.size))
    ]


class StepCache:
    """The cache of an attention during a step: the past is an input, the new slots an output."""

    def __init__(
        self, stored: Sequence[Stored], given: Iterator[Tensor], mask: Tensor | None = None
    ):
        self.stored, self.mask = stored, mask
        self.past = [kind.load([next(given) for _ in range(kind.number)]) for kind in stored]
        self.new: list[Tensor] = []
        self._numbers: list[Tensor] = []

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Store the keys and values ``(B, G, beam, e)`` of this step."""
        parts = [keys] if values is keys else [keys, values]
        for kind, numbers in zip(self.stored, parts, strict=True):
            tensors = kind.store(numbers)
            self.new += tensors
            self._numbers.append(kind.load(tensors))

    def context(self, mask: Tensor | None) -> Context | ContextInParts:
        """The keys and values of the past and of this step."""
        if not self.new:  # of cross-attention
            return Context(self.past[0], self.past[-1], mask)
        assert mask is not None
        keys, values = ((self.past[i], self._numbers[i]) for i in (0, -1))
        return ContextInParts(keys, values, mask)


class StepHistory:
    """The beam history of a step, whose mask ``(B, 1, beam, N + beam)`` is an input."""

    def __init__(self, mask: Tensor):
        self.mask, self.beam = mask.unsqueeze(1), mask.size(1)

    def extend(self, padding: Tensor) -> None:
        """Do nothing, because the mask already has the slots of this step."""


# ---- graphs --------------------------------------------------------------------------------------


class EncoderGraph(nn.Module):
    """Computes the caches of cross-attention from the sources."""

    def __init__(self, model: Any):
        super().__init__()
        self.encoder = model.encoder
        self.cross: Any = nn.ModuleList(owners(model, "cross"))
        self.positions = positions(model.encoder)

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Encode ``tokens (B, S)``, padded on the right; return a mask ``(B, 1, 1, S)`` and caches.

        It replaces fairseq's method, which cannot be exported because it tests a tensor's values
        for padding.
        """
        encoder = self.encoder
        is_padding = tokens.eq(encoder.padding_idx)
        x = encoder.embed_scale * encoder.embed_tokens(tokens)
        if self.positions is not None:
            x = x + self.positions[: tokens.size(1)]
        if encoder.layernorm_embedding is not None:
            x = encoder.layernorm_embedding(x)
        x = x.transpose(0, 1)
        for layer in encoder.layers:
            x = layer(x, encoder_padding_mask=is_padding)
        if encoder.layer_norm is not None:
            x = encoder.layer_norm(x)
        mask = x.new_zeros(()).masked_fill(is_padding, float("-inf"))[:, None, None, :]
        caches = [
            tensor
            for attention in self.cross
            for stored, numbers in zip(stored_by(attention), cached(attention, x), strict=True)
            for tensor in stored.store(numbers)
        ]
        return mask, *caches


class StepGraph(nn.Module):
    """Computes the best next words from the last word of each hypothesis."""

    def __init__(self, model: Any):
        super().__init__()
        self.decoder = model.decoder
        self.cross, self.own = owners(model, "cross"), owners(model, "decoder")
        self.stored = {a: stored_by(a) for a in (*self.cross, *self.own)}
        self.positions = positions(model.decoder)

    def forward(
        self, words: Tensor, position: Tensor, mask: Tensor, asked: Tensor, *caches: Tensor
    ) -> tuple[Tensor, ...]:
        """Decode one step of all hypotheses.

        Args:
            words: last word of each hypothesis, ``(B, beam)``.
            position: position of these words, counted from 0: ``()``.
            mask: mask of the slots, added to the scores: ``(B, beam, N + beam)``.
            asked: words whose log-probability is also returned, ``(B, beam, n)``.
            caches: the mask of sources ``(B, 1, 1, S)`` and the caches of cross-attention, if the
                model has it; then the caches of decoder self-attention ``(B, G, N, e)``.

        Returns:
            Log-probabilities ``(B, beam, k)`` of the best next words, these words,
            log-probabilities ``(B, beam, n)`` of ``asked``, and the slots ``(B, G, beam, e)`` to
            append.
        """
        given = iter(caches)
        state: IncrementalState = {}
        keep_beam_history(state, StepHistory(mask))
        source_mask = next(given) if self.cross else None
        for attention in self.cross:
            attention.keep(state, StepCache(self.stored[attention], given, source_mask))
        own = [StepCache(self.stored[attention], given) for attention in self.own]
        for attention, cache in zip(self.own, own, strict=True):
            attention.keep(state, cache)
        if self.positions is not None:
            state[POSITION] = {"embedding": self.positions[position][None, None]}
        # Layers skip cross-attention without a source; what they read of it is in the caches.
        source = {"encoder_out": [mask.new_zeros(1, 1, 1)], "encoder_padding_mask": []}
        output, _ = self.decoder(words.reshape(-1, 1), source if self.cross else None, state)
        scores = log_probabilities(self.decoder, output[:, 0]).unflatten(0, words.shape)
        best, best_words = scores.topk(2 * words.size(1) + SPARE)
        new = [tensor for cache in own for tensor in cache.new]
        return best, best_words, scores.gather(2, asked), *new


def log_probabilities(decoder: Any, output: Tensor) -> Tensor:
    """Log-probabilities ``(rows, V)`` of a decoder's output, without targets.

    It replaces fairseq's adaptive softmax (Grave et al. 2016, arXiv 1609.04309), which cannot be
    exported because it fills a table in place.
    """
    adaptive = decoder.adaptive_softmax
    if adaptive is None:
        return output.log_softmax(-1)  # of logits
    frequent = adaptive.cutoff[0]
    head = adaptive.head(output).log_softmax(-1)  # frequent words, and one for each cluster
    clusters = [
        tail(output).log_softmax(-1) + head[:, frequent + i, None]
        for i, tail in enumerate(adaptive.tail)
    ]
    return torch.cat([head[:, :frequent], *clusters], dim=-1)


def positions(stack: Any) -> nn.Parameter | None:
    """The embeddings of all positions, in order: ``(positions, d)``."""
    if stack.embed_positions is None:
        return None
    words = torch.full((1, stack.max_positions()), stack.padding_idx + 1)
    return nn.Parameter(stack.embed_positions(words)[0].detach().clone(), requires_grad=False)
