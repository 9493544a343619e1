"""The refit: least squares that recover what pruned or converted heads lost, from input to output.

Each residual block of a transformer ends in a linear map of hidden numbers ``h``: ``out_proj`` of
an attention, ``fc2`` of a feed-forward block.  The refit fits this map of the changed model to the
trained model, where ``x`` is the residual stream and ``o`` the output of the block:

    argmin_W',b' sum_t w_t |(x + o)_t - x'_t - W' h'_t - b'|^2
                 + ridge (|W' - W|^2 + 1e-3 |b' - b|^2)

``h'`` and ``x'`` are those of the changed model, whose earlier maps are fitted already.  The target
is the trained model's output plus the difference of the residual streams, so that each map also
compensates for earlier blocks.  The ridge is the mean of ``w |h'|^2``: for each of its inputs the
old map counts as much as one average word, so that few sentences change little and the unit of the
weights does not matter.  A model that was not changed stays the same.  Even 30 sentences reduce the
loss of fewer heads and of grouped-query heads; latents gain least.

``w_t = 1 / var((x + o)_t)``, the variance over the numbers of a word: the norm that ends the block,
or that of the next one, divides by its root, so the fit concerns what the next block reads.  In
many trained models a few words have activations a hundred times those of others (Sun et al. 2024,
arXiv 2402.17762).  With equal weights these words dominate the fit, which then ruins all others.
In models whose norms come first, equal weights lose up to 0.002 bits more in a model of Multi30k
with d = 256, and nearly twice as much in one with such words; weights by the last norm of the model
differ little.

Encoder layers come first; each decoder layer follows with self-attention, cross-attention and the
feed-forward block.  Hidden states pass from block to block, so each model reads each sentence once.
They take about ``N (5 d + F)`` numbers of memory for N tokens and feed-forward size F: 0.5 GB for
1,000 sentences of 30 tokens on each side, with d = 512 and F = 2048.

Related work: GPTQ (Frantar et al. 2022, arXiv 2210.17323) and SVD-LLM (Wang et al. 2024, arXiv
2403.07378) use the same order and the inputs of the changed model.  Kwon et al. 2022 (arXiv
2204.09656, factors of heads) and ZipLM (Kurtic et al. 2023, arXiv 2302.04089, within one layer) fit
pruned heads by least squares.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from fairseq.models import FairseqEncoder
from torch import Tensor, nn
from torch.nn import functional

from collab_common.progress import bar, say
from collab_lab.metrics.loss import mean_bits, read_by_decoder
from collab_lab.statistics.gram import gram
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.contexts import in_evaluation

#: Bits per token by which exact models differ, in single precision.
NOISE = 1e-4
#: The part of the ridge that holds the bias.
BIAS_RIDGE = 1e-3
#: Squares of rounding errors, in those of the streams.
ROUNDING = 1e-6
#: The arguments of a layer on one batch, by name: masks, what cross-attention reads.
Call = Mapping[str, Any]


class Block(NamedTuple):
    """A residual block: ``x + f(norm(x))``, or ``norm(x + f(x))`` if the norm comes last.

    Attributes:
        last: the linear map that ends ``f``.
    """

    f: Callable[[Tensor, Call], Tensor]
    last: nn.Linear
    norm: nn.LayerNorm
    norm_first: bool

    def weights(self, stream: Tensor) -> Tensor:
        """The weights ``(N, 1)`` of N words in a fit, from their stream ``x + f(.) (N, d)``."""
        return 1 / (stream.var(1, correction=0, keepdim=True) + self.norm.eps)

    def output(self, x: Tensor, call: Call) -> Tensor:
        """The output ``f(.)`` for the stream ``x (T, B, d)``."""
        return self.f(self.norm(x) if self.norm_first else x, call)

    def stream(self, x: Tensor, output: Tensor) -> Tensor:
        """The stream after the block, from the stream before it and its output."""
        return x + output if self.norm_first else self.norm(x + output)

    def read(self, stream: Tensor) -> Tensor:
        """The stream after the block as the next block reads it, after its norm."""
        return functional.layer_norm(stream, stream.shape[-1:]) if self.norm_first else stream


def blocks(layer: Any) -> list[Block]:
    """The residual blocks of a layer of fairseq's encoder or decoder, first to last."""
    is_decoder = hasattr(layer, "encoder_attn")
    names = (
        ("self_attn_padding_mask", "self_attn_mask") if is_decoder else ("encoder_padding_mask",)
    )
    padding_name, mask_name = (*names, "attn_mask")[:2]

    def attend(x: Tensor, call: Call) -> Tensor:
        padding, mask = call.get(padding_name), call.get(mask_name)
        if mask is not None:  # as padding: torch warns of masks of two types
            mask = mask.isinf()
        masks = {"key_padding_mask": padding, "attn_mask": mask}
        output: Tensor = layer.self_attn(x, x, x, need_weights=False, **masks)[0]
        return output

    def attend_to_source(x: Tensor, call: Call) -> Tensor:
        y, padding = call["encoder_out"], call["encoder_padding_mask"]
        options = {"key_padding_mask": padding, "static_kv": True, "need_weights": False}
        output: Tensor = layer.encoder_attn(x, y, y, **options)[0]
        return output

    def feed_forward(x: Tensor, call: Call) -> Tensor:
        output: Tensor = layer.fc2(layer.activation_fn(layer.fc1(x)))
        return output

    first = layer.normalize_before
    result = [Block(attend, layer.self_attn.out_proj, layer.self_attn_layer_norm, first)]
    if is_decoder and layer.encoder_attn is not None:
        last, norm = layer.encoder_attn.out_proj, layer.encoder_attn_layer_norm
        result.append(Block(attend_to_source, last, norm, first))
    return [*result, Block(feed_forward, layer.fc2, layer.final_layer_norm, first)]


def sides(model: Any) -> list[str]:
    """The parts of a model that have layers, encoder first."""
    return [side for side in ("encoder", "decoder") if hasattr(model, side)]


class Stack:
    """The encoder or decoder of a model, with the streams of all batches at one of its blocks.

    Args:
        sources: the encoder's output for each batch, if a decoder has cross-attention.
    """

    def __init__(
        self, module: Any, batches: Sequence[Mapping[str, Any]], sources: Sequence[Any] | None
    ):
        self.module = module
        self.calls = [
            self._first_call(batch, None if sources is None else sources[i])
            for i, batch in enumerate(batches)
        ]
        self.streams: list[Tensor] = [call.pop("x") for call in self.calls]

    def _first_call(self, batch: Mapping[str, Any], source: Any) -> dict[str, Any]:
        """The arguments of the first layer: those of the others are the same, but for ``x``."""
        arguments: dict[str, Any] = {}

        def stop(layer: Any, args: Any, kwargs: Any) -> None:
            arguments.update(inspect.signature(layer.forward).bind(*args, **kwargs).arguments)
            raise _ReachedError

        hook = self.module.layers[0].register_forward_pre_hook(stop, with_kwargs=True)
        with hook, suppress(_ReachedError):
            if isinstance(self.module, FairseqEncoder):
                self.module(batch["net_input"]["src_tokens"], batch["net_input"]["src_lengths"])
            else:
                self.module(read_by_decoder(batch), encoder_out=source, features_only=True)
        return arguments

    def encoded(self, batches: Sequence[Mapping[str, Any]]) -> list[dict[str, list[Tensor]]]:
        """The encoder's output for each batch, after its last block."""
        norm, padding = self.module.layer_norm, self.module.padding_idx
        return [
            {
                "encoder_out": [x if norm is None else norm(x)],
                "encoder_padding_mask": [batch["net_input"]["src_tokens"].eq(padding)],
            }
            for x, batch in zip(self.streams, batches, strict=True)
        ]


class _ReachedError(Exception):
    """The first layer is reached: what is left of the model need not be computed."""


def refit_if_better(
    changed: Trained, trained: Trained, batches: Sequence[Mapping[str, Any]]
) -> float:
    """Refit a changed model in place; the maps return to what they were if that raises the loss.

    A line says where they do.

    Returns:
        The loss on ``batches`` with the maps that stay, in bits per target token.
    """
    unfitted = mean_bits(changed.model, batches)
    maps = [
        (weights, weights.detach().clone())
        for side in sides(changed.model)
        for layer in getattr(changed.model, side).layers
        for block in blocks(layer)
        for weights in block.last.parameters()
    ]
    refit(changed, trained, batches)
    fitted = mean_bits(changed.model, batches)
    if fitted <= unfitted + NOISE:
        return fitted
    with torch.no_grad():
        for weights, old in maps:
            weights.copy_(old)
    say(
        f"the refit is taken back: with it, the loss on the calibration sentences is {fitted:.4f} "
        f"bits per target token, without it {unfitted:.4f}"
    )
    return unfitted


@torch.no_grad()
def refit(changed: Trained, trained: Trained, batches: Sequence[Mapping[str, Any]]) -> None:
    """Fit the last map of each block of ``changed`` to ``trained`` on ``batches``, in place.

    Both models have the same layers, and the heads of ``changed`` are ours.  Sums are in double
    precision and skip padding.  If a fit would move the stream after a block farther from that of
    the trained model, the block keeps its old map, and a line says so.
    """
    padding, models = trained.task.source_dictionary.pad(), (trained.model, changed.model)
    sources: list[Any] = [None, None]
    with in_evaluation(*models):
        for side in sides(changed.model):
            target, own = (
                Stack(getattr(model, side), batches, source)
                for model, source in zip(models, sources, strict=True)
            )
            tokens = [
                read_by_decoder(batch) if side == "decoder" else batch["net_input"]["src_tokens"]
                for batch in batches
            ]
            words = [read.ne(padding).T for read in tokens]
            layers = list(zip(target.module.layers, own.module.layers, strict=True))
            for number, pair in enumerate(bar(f"refit {side}", layers)):
                for of_trained, of_changed in zip(*map(blocks, pair), strict=True):
                    if not _refit_block(of_trained, of_changed, target, own, words):
                        say(f"a block of {side} layer {number} keeps its map: the refit is worse")
            if side == "encoder":
                sources = [stack.encoded(batches) for stack in (target, own)]


def _refit_block(
    trained: Block, changed: Block, target: Stack, own: Stack, words: Sequence[Tensor]
) -> bool:
    """Fit one map, and take both streams through the block; False if it keeps its old map."""
    last, hidden, outputs = changed.last, list[Tensor](), list[Tensor]()
    size, number = last.in_features + 1, sum(int(of_words.sum()) for of_words in words)
    moments = torch.zeros(size, size, dtype=torch.float64, device=last.bias.device)
    product = moments.new_zeros(size, last.out_features)
    for i, of_words in enumerate(words):
        x, wanted_x = own.streams[i], target.streams[i]
        seen = [x.new_empty(*x.shape[:2], 0)]  # without heads the map is never called
        with last.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(args[0])):
            outputs.append(changed.output(x, own.calls[i]))
        hidden.append(seen[-1])
        wanted = trained.output(wanted_x, target.calls[i])
        error = wanted - outputs[i] + wanted_x - x
        h = functional.pad(hidden[i][of_words].double(), (0, 1), value=1.0)
        weighted = h * trained.weights((wanted_x + wanted)[of_words].double())
        moments += gram(h, weighted)
        product += weighted.T @ error[of_words].double()
        target.streams[i] = trained.stream(wanted_x, wanted)
    ridge = moments.diagonal()[:-1].sum() / number  # the mean of w |h|^2
    ridges = ridge.clamp_min(1e-30).repeat(size)  # numbers that are always 0 stay without effect
    ridges[-1] *= BIAS_RIDGE
    change = torch.linalg.solve(moments + ridges.diag(), product).to(last.bias)  # (size, d)
    weight, bias = change[:-1].T, change[-1]
    streams, own.streams = own.streams, []
    for x, output in zip(streams, outputs, strict=True):
        own.streams.append(changed.stream(x, output))
    fitted = [
        changed.stream(x, output + functional.linear(h, weight.to(h), bias.to(h)))
        for x, output, h in zip(streams, outputs, hidden, strict=True)
    ]
    wanted_reads = [*map(trained.read, target.streams)]
    before, after = (
        _distance(map(changed.read, streams), wanted_reads, words)
        for streams in (own.streams, fitted)
    )
    rounding = ROUNDING * sum(_squares(x, of) for x, of in zip(wanted_reads, words, strict=True))
    if not after <= before + rounding:
        return False
    last.weight.add_(weight)
    last.bias.add_(bias)
    own.streams = fitted
    return True


def _distance(
    streams: Iterable[Tensor], target: Iterable[Tensor], words: Iterable[Tensor]
) -> float:
    """Sum of squares of the difference to the trained model's streams."""
    triples = zip(streams, target, words, strict=True)
    return sum(_squares(x - wanted, of_words) for x, wanted, of_words in triples)


def _squares(x: Tensor, of_words: Tensor) -> float:
    return float(x[of_words].double().square().sum())
