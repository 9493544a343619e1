"""The attention weights of all heads of a model, from one forward pass.

    weights_i = softmax(q_i k_i^T + mask),     a row for each query, a column for each key

Shapes: ``B`` sentences, ``H`` heads, ``T`` queries, ``S`` keys; weights ``(B, H, T, S)``.

| site    | queries                         | keys          |
|---------|---------------------------------|---------------|
| encoder | source tokens                   | source tokens |
| decoder | reference tokens, shifted right | the same      |
| cross   | reference tokens, shifted right | source tokens |

Decoding is teacher-forced.  *Words* are what measures count: the tokens that are neither padding
nor the end of sentence.  A row of the decoder reads one token and predicts the next; in its
self-attention a row is a word if it reads one, in cross-attention if it predicts one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from fairseq_collab.analysis.scores import Attention, attentions
from fairseq_collab.models.layers import SITES, Site

#: How many heads each layer has, by site.
Heads = Mapping[Site, Sequence[int]]
#: A number for each head of each layer; None where there was nothing to count.
PerHead = dict[Site, list[list[float | None]]]


@dataclass(frozen=True)
class AttentionBatch:
    """A batch of sentences, and how all heads of a model in eval mode attend on it.

    Attributes:
        sample: fairseq's batch.
        weights: by site, one ``(B, H, T, S)`` a layer; the encoder's alone if the batch has no
            target.
        source_padding: ``(B, S)``, true at padding.
        target_padding: ``(B, T)``, likewise; ``(B, 0)`` if there is no target.
        eos: the symbol of the end of sentence.
    """

    sample: dict[str, Any]
    weights: dict[Site, list[Tensor]]
    source_padding: Tensor
    target_padding: Tensor
    eos: int

    @property
    def source_words(self) -> Tensor:
        """``(B, S)``: the tokens of the source that are words."""
        source = self.sample["net_input"]["src_tokens"]
        return ~self.source_padding & source.ne(self.eos)

    def key_words(self, site: Site) -> Tensor:
        """Which keys are words: ``(B, S)``."""
        return self._read_words() if site == "decoder" else self.source_words

    def query_words(self, site: Site) -> Tensor:
        """Which queries are words: ``(B, T)``."""
        if site == "encoder":
            return self.source_words
        if site == "decoder":
            return self._read_words()
        return ~self.target_padding & self.sample["target"].ne(self.eos)

    def _read_words(self) -> Tensor:
        """``(B, T)``: the words among the tokens that the decoder reads."""
        read = self.sample["net_input"]["prev_output_tokens"]
        return ~self.target_padding & read.ne(self.eos)


def heads_of(model: Any) -> dict[Site, list[int]]:
    """How many heads each layer of a model has, by site.

    Raises:
        TypeError: see :func:`fairseq_collab.analysis.scores.attentions`.
    """
    found: dict[Site, list[int]] = {site: [] for site in SITES}
    for attention in attentions(model):
        found[attention.site].append(attention.module.num_heads)
    return found


@contextmanager
def shown_weights(model: nn.Module) -> Iterator[dict[Site, list[Tensor]]]:
    """While it lasts, a forward pass fills the dictionary with weights ``(B, H, T, S)``.

    Gradients flow through them if they are on.

    Raises:
        TypeError: see :func:`fairseq_collab.analysis.scores.attentions`.
    """
    found = attentions(model)
    seen: dict[Site, list[Tensor]] = {}
    handles = [handle for attention in found for handle in _show(attention, seen)]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def ask_for_weights(attention: Attention) -> RemovableHandle:
    """From now on an attention returns the weights of all its heads, whatever it is called with.

    Whoever returns weights of heads computes them: no fused kernel, and ``out_proj`` is called.
    """

    def ask(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        # static_kv keeps fairseq's own module from a function that knows only averages; without
        # incremental state it has no other meaning (fairseq_compat.attention).
        wanted = {"need_weights": True, "need_head_weights": True, "static_kv": True}
        return args, {**kwargs, **wanted}

    handle: RemovableHandle = attention.module.register_forward_pre_hook(ask, with_kwargs=True)
    return handle


def _show(attention: Attention, seen: dict[Site, list[Tensor]]) -> Iterator[RemovableHandle]:
    def keep(module: Any, args: Any, output: tuple[Tensor, Tensor]) -> None:
        layers = seen.setdefault(attention.site, [])
        if attention.layer == 0:
            layers.clear()  # of an earlier pass
        layers.append(output[1].transpose(0, 1))  # (H, B, T, S) -> (B, H, T, S)

    yield ask_for_weights(attention)
    yield attention.module.register_forward_hook(keep)


def attend(model: Any, sample: dict[str, Any]) -> AttentionBatch:
    """Run a model on a batch, teacher-forced, or its encoder alone if there is no target.

    Args:
        model: an encoder-decoder transformer in eval mode.
        sample: fairseq's batch, on the model's device.
    """
    net_input = sample["net_input"]
    dictionary = model.encoder.dictionary
    source = net_input["src_tokens"]
    previous = net_input.get("prev_output_tokens", source[:, :0])
    with torch.inference_mode(), shown_weights(model) as weights:
        if "prev_output_tokens" in net_input:
            model(**net_input)
        else:
            model.encoder(source, net_input["src_lengths"])
    pad = dictionary.pad()
    return AttentionBatch(sample, weights, source.eq(pad), previous.eq(pad), dictionary.eos())
