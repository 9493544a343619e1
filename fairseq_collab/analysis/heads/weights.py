"""How all heads of a model attend, from one forward pass; and their outputs, for gradients.

    weights_i = softmax(q_i k_i^T + mask),     a row for each query, a column for each key
    Att(x) = [head_1, ..., head_H] Wo^T + bo,  head_i (T, B, h_v)

Shapes: ``B`` sentences, ``H`` heads, ``T`` queries, ``S`` keys; weights ``(B, H, T, S)``; outputs
``(T, B, H * h_v)``, caught where they enter ``out_proj``.

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

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from fairseq_collab.checkpoints.attentions import Attention, attentions
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
        return ~self.source_padding & self.sample["net_input"]["src_tokens"].ne(self.eos)

    def key_words(self, site: Site) -> Tensor:
        """Which keys are words: ``(B, S)``.  Those of the decoder are what it reads."""
        if site != "decoder":
            return self.source_words
        return ~self.target_padding & self.sample["net_input"]["prev_output_tokens"].ne(self.eos)

    def query_words(self, site: Site) -> Tensor:
        """Which queries are words: ``(B, T)``."""
        if site == "cross":
            return ~self.target_padding & self.sample["target"].ne(self.eos)
        return self.key_words(site)


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


@contextmanager
def shown_weights(model: nn.Module) -> Iterator[dict[Site, list[Tensor]]]:
    """While it lasts, a forward pass fills the dictionary with weights ``(B, H, T, S)``.

    Gradients flow through them if they are on.
    """
    seen: dict[Site, list[Tensor]] = {}

    def keep(attention: Attention, output: tuple[Tensor, Tensor]) -> None:
        layers = seen.setdefault(attention.site, [])
        if attention.layer == 0:
            layers.clear()  # of an earlier pass
        layers.append(output[1].transpose(0, 1))  # (H, B, T, S) -> (B, H, T, S)

    with ExitStack() as hooks:
        for found in attentions(model):
            hooks.enter_context(_ask_for_weights(found))
            hook = found.module.register_forward_hook(
                lambda module, args, output, found=found: keep(found, output)
            )
            hooks.enter_context(hook)
        yield seen


@contextmanager
def head_outputs(model: nn.Module) -> Iterator[dict[Attention, Tensor]]:
    """While it lasts, a forward pass fills the dictionary with outputs ``(T, B, H * h_v)``.

    They are part of the graph of gradients, from the first attention on.
    """
    seen: dict[Attention, Tensor] = {}

    def keep(attention: Attention, output: Tensor) -> None:
        if not output.requires_grad:
            output.requires_grad_()
        seen[attention] = output

    with ExitStack() as hooks:
        for found in attentions(model):
            hooks.enter_context(_ask_for_weights(found))
            hook = found.module.out_proj.register_forward_pre_hook(
                lambda module, args, found=found: keep(found, args[0])
            )
            hooks.enter_context(hook)
        yield seen


def _ask_for_weights(attention: Attention) -> RemovableHandle:
    """From now on an attention returns the weights of all its heads, however it is called.

    To return them it must compute them: no fused kernel, and ``out_proj`` is called.
    """

    def ask(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        # static_kv keeps fairseq's own module from a function that knows only averages; without
        # incremental state it has no other meaning (fairseq_compat.fairseq_fixes).
        wanted = {"need_weights": True, "need_head_weights": True, "static_kv": True}
        return args, {**kwargs, **wanted}

    handle: RemovableHandle = attention.module.register_forward_pre_hook(ask, with_kwargs=True)
    return handle


@contextmanager
def trained_alone(model: nn.Module, which: Callable[[str], bool]) -> Iterator[list[nn.Parameter]]:
    """While it lasts, only parameters whose name is one of ``which`` have gradients; gives them."""
    before = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    chosen = [parameter for name, parameter in model.named_parameters() if which(name)]
    model.requires_grad_(False)
    for parameter in chosen:
        parameter.requires_grad_()
    try:
        yield chosen
    finally:
        for parameter, required in before:
            parameter.requires_grad_(required)


def per_head(x: Tensor, num_heads: int) -> Tensor:
    """The sum over each head's neurons: ``(T, B, H * h_v) -> (T, B, H)``."""
    return x.unflatten(2, (num_heads, -1)).sum(-1)


def by_site(values: Mapping[Attention, Tensor]) -> dict[Site, list[list[float]]]:
    """Numbers of all heads, ``(H,)`` for each attention, by site and layer."""
    ordered = sorted(values, key=lambda attention: attention.layer)
    return {
        site: [values[found].tolist() for found in ordered if found.site == site] for site in SITES
    }
