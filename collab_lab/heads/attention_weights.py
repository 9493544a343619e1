"""Attention weights of all heads from one forward pass, and their outputs for gradients.

    weights_i = softmax(q_i k_i^T + mask),     a row for each query, a column for each key
    Att(x) = [head_1, ..., head_H] Wo^T + bo,  head_i (T, B, h_v)

Shapes: ``B`` sentences, ``H`` heads, ``T`` queries, ``S`` keys; weights ``(B, H, T, S)``; outputs
``(T, B, H * h_v)``, caught where they enter ``out_proj``.

| type    | queries                         | keys          |
|---------|---------------------------------|---------------|
| encoder | source tokens                   | source tokens |
| decoder | reference tokens, shifted right | the queries   |
| cross   | reference tokens, shifted right | source tokens |

A language model has only decoder self-attention; its queries and keys are the tokens of a block.
Decoding is teacher-forced.

Measures count *words*: the tokens that are neither padding nor the end of sentence.  A row of the
decoder reads one token and predicts the next.  In decoder self-attention a row is a word if it
reads one, in cross-attention if it predicts one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from collab_common import ATTENTION_TYPES, AttentionType
from collab_lab.metrics.loss import read_by_decoder
from collab_lab.trained.attentions import Attention, OnePass, hooked


class Means:
    """Means over batches, for each head of each layer of some attention types."""

    def __init__(self, types: Iterable[AttentionType] = ATTENTION_TYPES):
        self.types = tuple(types)
        self._sums: dict[tuple[AttentionType, int], tuple[Tensor, Tensor]] = {}

    def add(self, type_: AttentionType, layer: int, values: Tensor, count: Tensor | int) -> None:
        """Add a layer's sums ``(H, ...)`` over ``count`` summands: ``(...)`` or ``(H, ...)``."""
        zero = torch.tensor(0.0)
        total, number = self._sums.get((type_, layer), (zero, zero))
        number = number + torch.as_tensor(count).double().cpu()
        self._sums[type_, layer] = total + values.double().cpu(), number

    def result(self) -> dict[AttentionType, Any]:
        """The means by attention type, layer and head; None for other types or without summands."""
        lists: dict[AttentionType, Any] = {
            type_: [] if type_ in self.types else None for type_ in ATTENTION_TYPES
        }
        for type_, layer in sorted(self._sums):
            total, count = self._sums[type_, layer]
            lists[type_].append(_listed(total / count))
        return lists


def _listed(values: Tensor) -> Any:
    """Nested lists of numbers, None in place of NaN."""
    if values.dim():
        return [_listed(value) for value in values]
    return None if values.isnan() else values.item()


@dataclass(frozen=True)
class AttentionBatch:
    """A batch of sentences, with the attention weights of all heads of a model in eval mode.

    Attributes:
        sample: fairseq's batch.
        weights: attention weights by type, one ``(B, H, T, S)`` per layer; only the encoder's if
            the batch has no target.
        pad, eos: the indices of padding and of ``</s>``.
    """

    sample: dict[str, Any]
    weights: dict[AttentionType, list[Tensor]]
    pad: int
    eos: int

    @property
    def source(self) -> Tensor:
        """The tokens of the source, or the tokens that a language model reads: ``(B, S)``."""
        return self.sample["net_input"]["src_tokens"]

    def words(self, tokens: Tensor) -> Tensor:
        """Mask of the tokens that are words: ``(B, T) -> (B, T)``."""
        return tokens.ne(self.pad) & tokens.ne(self.eos)

    def key_words(self, type_: AttentionType) -> Tensor:
        """Mask of the keys that are words: ``(B, S)``; the decoder's are tokens that it reads."""
        return self.words(read_by_decoder(self.sample) if type_ == "decoder" else self.source)

    def query_words(self, type_: AttentionType) -> Tensor:
        """Mask of the queries that are words: ``(B, T)``."""
        return self.words(self.sample["target"]) if type_ == "cross" else self.key_words(type_)


def attend(model: Any, sample: dict[str, Any]) -> AttentionBatch:
    """Run a model on a batch, teacher-forced; without a target, run only its encoder."""
    net_input, symbols = sample["net_input"], model.decoder.dictionary
    with torch.no_grad(), shown_weights(model) as seen:
        if "prev_output_tokens" in net_input or not hasattr(model, "encoder"):
            model(**net_input)
        else:
            model.encoder(net_input["src_tokens"], net_input["src_lengths"])
    weights: dict[AttentionType, list[Tensor]] = {}
    for attention in sorted(seen, key=lambda attention: attention.layer):
        weights.setdefault(attention.type, []).append(seen[attention])
    return AttentionBatch(sample, weights, symbols.pad(), symbols.eos())


@contextmanager
def shown_weights(model: nn.Module) -> Iterator[dict[Attention, Tensor]]:
    """Context in which a forward pass fills the dictionary with weights ``(B, H, T, S)``.

    Gradients flow through the weights if gradients are enabled.
    """
    seen = OnePass[Attention, Tensor]()

    def hook(attention: Attention) -> Any:
        def record(module: Any, args: Any, output: tuple[Tensor, Tensor]) -> None:
            seen[attention] = output[1].transpose(0, 1)  # (H, B, T, S) -> (B, H, T, S)

        return attention.module.register_forward_hook(record)

    with hooked(model, ask_for_weights), hooked(model, hook):
        yield seen


@contextmanager
def head_outputs(model: nn.Module) -> Iterator[dict[Attention, Tensor]]:
    """Context in which a forward pass fills the dictionary with outputs ``(T, B, H * h_v)``.

    The outputs are part of the graph of gradients, starting with the first attention.
    """
    seen = OnePass[Attention, Tensor]()

    def hook(attention: Attention) -> Any:
        def record(module: Any, args: tuple[Tensor]) -> None:
            seen[attention] = args[0] if args[0].requires_grad else args[0].requires_grad_()

        return attention.module.out_proj.register_forward_pre_hook(record)

    with hooked(model, ask_for_weights), hooked(model, hook):
        yield seen


def ask_for_weights(attention: Attention) -> Any:
    """Make an attention return the weights of all its heads in every call.

    It then computes them without a fused kernel, and calls ``out_proj``.
    """

    def ask(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        # static_kv keeps fairseq's own module from a function that knows only averages; without
        # incremental state it has no other meaning (fairseq_compat.fairseq_fixes).
        all_weights = {"need_weights": True, "need_head_weights": True, "static_kv": True}
        return args, {**kwargs, **all_weights}

    return attention.module.register_forward_pre_hook(ask, with_kwargs=True)


def per_head(x: Tensor, num_heads: int) -> Tensor:
    """The sum over each head's neurons: ``(T, B, H * h_v) -> (T, B, H)``."""
    return x.unflatten(2, (num_heads, -1)).sum(-1)
