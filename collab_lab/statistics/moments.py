"""Statistics of every attention of a model, from one forward and backward pass over sentences.

    g_ts    = a_ts (v_s . delta_t - sum_u a_tu v_u . delta_t)     gradient of the scores of a head
    gamma_t = sum_s g_ts y_s,     z_t = sum_s a_ts y_s            what a head reads: z

    X       = 1/N_q sum_t [x_t 1]^T [x_t 1]       inputs of the queries
    Gamma_i = 1/N   sum_t gamma_t^T gamma_t       price of a change of a key
    Z_i     = Cov_t z_t,  mean_i = mean of z_t    inputs of the values
    Delta   = 1/N   sum_t G_t^T G_t               price of a change of the output
    C       = Cov_t h_t                           outputs of all heads, side by side: h
    Psi     = 1/N   sum_s e_s^T e_s               price of errors of keys and values

``e_s`` has the gradients of the keys and values of all heads at a token,
``dL/dk_is = sum_t g_its q_it`` and ``dL/dv_is = sum_t a_its delta_it``.

``G_t = dL/do_t`` at the output of the attention, ``delta_t = G_t Wo_i`` at that of head i, and
``h_t`` is what ``out_proj`` reads.  ``L`` is the loss of labels that are drawn from the
model, summed over target tokens: the second moments of its gradients are the Fisher information.
Keys need no centring: each row of ``g`` sums to zero, as the softmax ignores what all keys share.

Shapes:
    B  sentences    T  queries    S  keys    H  heads    N  target tokens    N_q  queries in all
    x, G (T, B, d)    y (S, B, d_y)    a, g (H, B, T, S)    v (H, B, S, h_v)    delta (H, B, T, h_v)
    h (T, B, H h_v)

Sums are in double precision.  Memory is O(H d^2) for an attention, whatever N is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from collab_common.errors import UserError
from collab_common.progress import bar, say
from collab_lab.metrics.loss import (
    check_any,
    predicted,
    read_by_decoder,
    sampled_loss,
    say_if_guessing,
)
from collab_lab.statistics.gram import gram, ridged, size_of_upper
from collab_lab.statistics.units import UnitStatistics, UnitSums
from collab_lab.trained.attentions import (
    Attention,
    HeadMaps,
    OnePass,
    arguments_of,
    attentions,
    hooked,
    own_bits,
    projections,
)
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.contexts import in_evaluation
from collab_lab.trained.feed_forward import FeedForward, feed_forwards, recorded
from fairseq_collab.attention.scores import mask_scores, over_keys
from fairseq_compat.checkpoints import naming

#: Target tokens per number of the model's width below which prices are far too low.
FEW = 10
#: Bytes of statistics that a line tells.
MUCH = 2e9
#: Most inputs of keys and values that are kept as they are.
KEPT = 1024
#: Share of an attention's largest output by which the formulas above may miss it: of float32.
ROUNDING = 1e-3


@dataclass(frozen=True)
class Statistics:
    """Statistics of one attention with ``H`` heads.

    Attributes:
        query_moment: second moment of query inputs, ``X (d + 1, d + 1)``.
        key_fisher: Fisher information of ``x A_i B_i^T``, ``Gamma (H, d_y, d_y)``.
        value_covariance: covariance of the inputs ``z`` that heads read, ``Z (H, d_y, d_y)``.
        value_mean: mean of ``z``, ``(H, d_y)``.
        output_fisher: Fisher information of the output, ``Delta (d, d)``.
        head_covariance: covariance of the outputs ``h`` of heads, ``C (H h_v, H h_v)``.
        cache_fisher: Fisher information of keys ``(H, e)`` and values ``(H, h_v)`` of a token, side
            by side: ``Psi (H (e + h_v), H (e + h_v))``.
        inputs: ``y`` of some tokens, evenly spread over all, ``(n, d_y)``: at most :data:`KEPT`.
        half_fishers, half_covariances: ``output_fisher`` and ``head_covariance`` of every other
            sentence, and of the rest, ``(2, d, d)`` and ``(2, H h_v, H h_v)``: see :meth:`halves`;
            ``(0, ...)`` if there was a single sentence.
    """

    query_moment: Tensor
    key_fisher: Tensor
    value_covariance: Tensor
    value_mean: Tensor
    output_fisher: Tensor
    head_covariance: Tensor
    cache_fisher: Tensor
    inputs: Tensor
    half_fishers: Tensor
    half_covariances: Tensor

    @classmethod
    def unweighted(cls, maps: HeadMaps) -> Statistics:
        """Statistics that give all directions of the weights equal weight, for any input."""
        (heads, d, h_v), rows, size = maps.out.shape, maps.queries.size(1), maps.keys.size(1)
        x, y, out, h = (torch.eye(n).to(maps.keys) for n in (rows, size, d, heads * h_v))
        y = y.repeat(heads, 1, 1)
        cached = torch.eye(heads * (maps.keys.size(2) + maps.values.size(2))).to(y)
        means = y.new_zeros(heads, size)
        return cls(x, y, y, means, out, h, cached, y[0], out.expand(0, d, d), h.expand(0, *h.shape))

    def halves(self) -> list[Statistics]:
        """The statistics of each half of the sentences that prices of heads need, or nothing.

        The difference between prices from the two halves shows how noisy prices from all are.
        """
        pairs = zip(self.half_fishers, self.half_covariances, strict=True)
        return [replace(self, output_fisher=g, head_covariance=c) for g, c in pairs]

    def of_heads(self, heads: Sequence[int]) -> Statistics:
        """The statistics of only these heads (counted from 0), in this order."""
        index, number = torch.tensor(heads), len(self.value_mean)
        value = len(self.head_covariance) // number  # h_v
        key = len(self.cache_fisher) // number - value  # e
        own = _numbers(index, value)
        cached = torch.cat([_numbers(index, key), number * key + own])
        return replace(
            self,
            key_fisher=self.key_fisher[index],
            value_covariance=self.value_covariance[index],
            value_mean=self.value_mean[index],
            head_covariance=self.head_covariance[own][:, own],
            half_covariances=self.half_covariances[:, own][:, :, own],
            cache_fisher=self.cache_fisher[cached][:, cached],
        )

    def ridged(self) -> Statistics:
        """With :data:`.gram.RIDGE` on every metric."""
        others = ("value_mean", "inputs")
        metrics = {name: ridged(one) for name, one in vars(self).items() if name not in others}
        return replace(self, **metrics)


def _numbers(heads: Tensor, size: int) -> Tensor:
    """The places of heads' numbers, side by side, ``size`` each."""
    return (heads.unsqueeze(1) * size + torch.arange(size)).flatten()


class OfModel(dict[Attention, Statistics]):
    """Statistics of a model's attentions, with the model itself, so that no other one uses them."""

    def __init__(self, statistics: Mapping[Attention, Statistics], model: nn.Module):
        super().__init__(statistics)
        self.model = model


class Sums:
    """Running sums of the statistics of one attention.

    Args:
        heads_alone: collect only what prices of removed heads need; the rest, which is most of the
            work, is left empty.
    """

    def __init__(self, module: Any, heads_alone: bool = False):
        self.module, self.maps, self.heads_alone = module, HeadMaps.of(module), heads_alone
        self.sentences, self.queries, self.sums = 0, [0, 0], dict[str, Tensor]()
        self.inputs, self.every = list[Tensor](), 1
        self.shifts = dict[str, Tensor]()

    def add(
        self,
        x: Tensor,
        y: Tensor,
        not_padding: Tensor,
        gradient: Tensor,
        *masks: Tensor | None,
        output: Tensor | None = None,
    ) -> None:
        """Add a batch to the sums.

        Args:
            x, y, gradient: inputs of the queries, inputs of the keys, and ``G``, as above.
            not_padding: ``(T, B)``, false at padding.
            masks: masks of the scores ``(B, H, T, S)``: see :func:`.mask_scores`.
            output: what the attention returned ``(T, B, d)``, to be compared with the formulas.

        Raises:
            UserError: the formulas do not give ``output``.
        """
        maps = HeadMaps(*(weights.to(x) for weights in self.maps))
        with torch.no_grad():
            q = projections(self.module)[0](x).transpose(0, 1)  # (H, B, T, e)
        x = functional.pad(x.transpose(0, 1), (0, 1), value=1.0)  # (B, T, d + 1)
        y, gradient = y.transpose(0, 1), gradient.transpose(0, 1)  # (B, S, d_y), (B, T, d)
        k = _mapped(y, maps.keys)  # (H, B, S, e)
        v = _mapped(functional.pad(y, (0, 1), value=1.0), maps.values)  # (H, B, S, h_v)
        scores = mask_scores((q @ k.mT).transpose(0, 1), *masks).transpose(0, 1)
        a = scores.softmax(-1)  # (H, B, T, S)
        delta = _mapped(gradient, maps.out)  # (H, B, T, h_v)
        if not self.heads_alone:
            self._count_inputs(x, y, a, score_gradients(a, v, delta), q, delta, not_padding)
        of_heads = a @ v  # (H, B, T, h_v)
        if output is not None and not own_bits(self.module):
            computed = (of_heads @ maps.out.mT.unsqueeze(1)).sum(0) + maps.out_bias
            self._check(computed[not_padding.T], output.transpose(0, 1)[not_padding.T])
        h = of_heads.permute(1, 2, 0, 3).flatten(2)[not_padding.T]  # (N_q, H h_v)
        h = self._shifted("h", h)
        halves = (self.sentences + torch.arange(len(gradient), device=h.device)) % 2  # (B)
        self.sentences += len(halves)
        half_of_query = halves.unsqueeze(1).expand(not_padding.T.shape)[not_padding.T]  # (N_q)
        for half in (0, 1):
            ours, grads = h[half_of_query == half], gradient[halves == half].flatten(0, 1)
            self.queries[half] += len(ours)
            products = ours.sum(0), gram(ours), gram(grads)
            self._count(**dict(zip((f"h{half}", f"hh{half}", f"g{half}"), products, strict=True)))

    def _check(self, computed: Tensor, output: Tensor) -> None:
        """Raise UserError if the attention's output ``(N_q, d)`` is not what the formulas give.

        The attention of a plug-in may normalise its queries, or have no softmax.
        """
        if (computed - output).abs().max() > ROUNDING * output.abs().max():
            kind = type(self.module).__name__
            problem = f"a {kind} is not the softmax attention of linear queries, keys and values"
            raise UserError(f"{problem} that prices assume")

    def _count_inputs(
        self, x: Tensor, y: Tensor, a: Tensor, g: Tensor, q: Tensor, delta: Tensor, words: Tensor
    ) -> None:
        """Count what queries, keys, values and caches read."""
        gamma = (g @ y).flatten(1, 2)  # (H, B T, d_y)
        cached = torch.cat(
            [part.permute(1, 2, 0, 3).flatten(2) for part in (g.mT @ q, a.mT @ delta)], 2
        )
        read = (a * words.T.unsqueeze(2)).sum((0, 2)) > 0  # (B, S)
        self._keep(y[read])
        cached = cached.flatten(0, 1)  # (B S, H (e + h_v))
        x, z = x[words.T], self._shifted("z", (a @ y)[:, words.T])  # (N_q, d + 1), (H, N_q, d_y)
        self._count(x=gram(x), z=z.sum(1), zz=gram(z), gamma=gram(gamma), cached=gram(cached))

    def _shifted(self, name: str, rows: Tensor) -> Tensor:
        """Rows ``(..., N, n)`` less the mean of the first batch.

        The difference of a second moment and a squared mean that are nearly equal, of inputs that
        hardly vary, would be the noise of single precision: covariances below 0.
        """
        return rows - self.shifts.setdefault(name, rows.mean(-2, keepdim=True))

    def _keep(self, y: Tensor) -> None:
        """Keep one of :attr:`every` inputs ``(n, d_y)``; the more tokens, the larger it is."""
        self.inputs.append(y[:: self.every].double())
        while sum(map(len, self.inputs)) > KEPT:
            self.inputs, self.every = [torch.cat(self.inputs)[::2]], 2 * self.every

    def _count(self, **sums: Tensor) -> None:
        for name, value in sums.items():
            self.sums[name] = value.double() + self.sums.get(name, 0.0)

    def result(self, num_targets: float, where: Any = None) -> Statistics:
        """The statistics per target token, of ``num_targets``; UserError if one is not finite."""
        queries = sum(self.queries)
        output, heads = self._of_heads(num_targets, 0, 1)
        known = (0, 1) if all(self.queries) else ()
        halves = [self._of_heads(num_targets * self.queries[i] / queries, i) for i in known]
        fishers = torch.stack([g for g, _ in halves]) if halves else output.expand(0, -1, -1)
        covariances = torch.stack([c for _, c in halves]) if halves else heads.expand(0, -1, -1)
        x, gamma, z, mean, cached, inputs = self._of_inputs(num_targets)
        result = Statistics(x, gamma, z, mean, output, heads, cached, inputs, fishers, covariances)
        if not all(torch.isfinite(value).all() for value in vars(result).values()):
            raise UserError("statistics of its attentions hold NaN or infinity", where)
        return result

    def _of_inputs(self, num_targets: float) -> tuple[Tensor, ...]:
        """``X``, ``Gamma``, ``Z``, the mean of z, ``Psi`` and ``y``; empty without them."""
        if self.heads_alone:
            return (self.sums["h0"].new_zeros(0),) * 6
        sums, queries = self.sums, sum(self.queries)
        x, mean, z = (sums[name] / queries for name in ("x", "z", "zz"))
        gamma, cached = (sums[name] / num_targets for name in ("gamma", "cached"))
        z = z - mean.unsqueeze(2) * mean.unsqueeze(1)
        mean = mean + self.shifts["z"].squeeze(1)
        return x, gamma, z, mean, cached, torch.cat(self.inputs)

    def _of_heads(self, num_targets: float, *halves: int) -> tuple[Tensor, Tensor]:
        """``Delta`` and ``C`` of these halves of the sentences."""
        queries = sum(self.queries[half] for half in halves)
        h, hh, g = (
            torch.stack([self.sums[f"{name}{i}"] for i in halves]).sum(0)
            for name in ("h", "hh", "g")
        )
        h = h / queries
        return g / num_targets, hh / queries - torch.outer(h, h)


def _mapped(x: Tensor, maps: Tensor) -> Tensor:
    """``(B, T, n), (H, n, e) -> (H, B, T, e)``."""
    return x @ maps.unsqueeze(1)


def score_gradients(a: Tensor, v: Tensor, delta: Tensor) -> Tensor:
    """The gradients ``g (H, B, T, S)`` of the scores, from the gradients of the heads' outputs."""
    along = delta @ v.mT  # (H, B, T, S)
    return a * (along - (a * along).sum(-1, keepdim=True))


# ---- of a model ----------------------------------------------------------------------------------


def collect(
    trained: Trained, batches: Sequence[dict[str, Any]], seed: int = 1
) -> dict[Attention, Statistics]:
    """Statistics of all attentions with heads; ``seed`` determines the labels."""
    return collect_all(trained, batches, seed, parts=("heads", "cache")).attentions


class Collected(NamedTuple):
    """What one pass over sentences collects.

    Attributes:
        attentions: statistics of each attention with heads.
        units: statistics of each feed-forward block, if units may be cut.
        bits: the model's loss on the sentences, in bits per target token.
    """

    attentions: dict[Attention, Statistics]
    units: dict[FeedForward, UnitStatistics]
    bits: float


def collect_all(
    trained: Trained,
    batches: Sequence[dict[str, Any]],
    seed: int = 1,
    parts: Collection[str] = ("heads", "units", "cache"),
) -> Collected:
    """Collect the statistics of all attentions with heads and of all feed-forward blocks.

    Args:
        parts: what may be cut: the rest takes no time.
    """
    check_memory(trained, parts)
    model, generator = trained.model, torch.Generator(trained.device).manual_seed(seed)
    padding, num_targets, nats = trained.task.source_dictionary.pad(), 0, 0.0
    sums: dict[Attention, Sums] = {}
    unit_sums: dict[FeedForward, UnitSums] = {}
    with naming(trained.path), in_evaluation(model), at_least_float32(model):
        say_if_guessing(trained, batches)
        for batch in bar("prices", batches):
            calls = OnePass[Attention, tuple[Any, ...]]()
            with (
                torch.enable_grad(),
                hooked(model, partial(_record, calls)),
                recorded(model) as unit_calls,
            ):
                loss, of_targets = sampled_loss(model, batch, generator)
            nats += of_targets
            if not calls:
                raise UserError("has no heads", trained.path, "give a model that has some")
            added = [zeros for *_, zeros in (*calls.values(), *unit_calls.values())]
            # Without cross-attention the encoder has no effect: its gradients are 0.
            gradients = torch.autograd.grad(loss, added, allow_unused=True, materialize_grads=True)
            of_attentions, of_units = gradients[: len(calls)], gradients[len(calls) :]
            net_input = batch["net_input"]
            read = {"encoder": net_input["src_tokens"], "decoder": read_by_decoder(batch)}
            is_word = {side: tokens.ne(padding).T for side, tokens in read.items()}
            for (attention, call), gradient in zip(calls.items(), of_attentions, strict=True):
                x, y, *masks, output, _ = call
                side = "encoder" if attention.type == "encoder" else "decoder"
                if attention not in sums:
                    sums[attention] = Sums(attention.module, heads_alone="cache" not in parts)
                sums[attention].add(x, y, is_word[side], gradient, *masks, output=output)
            of_blocks = zip(unit_calls.items(), of_units, strict=True)
            for (block, (h, _)), gradient in of_blocks if "units" in parts else ():
                unit_sums.setdefault(block, UnitSums()).add(h, is_word[block.side], gradient)
            num_targets += int(predicted(model.decoder, batch).sum())
    check_any(num_targets)
    if num_targets < FEW * (widest := max((a.module.embed_dim for a in sums), default=0)):
        say(f"prices from {num_targets} tokens of a model of width {widest} are too low: read more")
    # One after the other: sums take as much memory as results.
    found = {a: sums.pop(a).result(num_targets, trained.path) for a in [*sums]}
    units = {b: unit_sums.pop(b).result(num_targets, trained.path) for b in [*unit_sums]}
    bits = nats / num_targets / math.log(2)
    return Collected(OfModel({a: found[a] for a in attentions(model) if a in found}, model),
                     units, bits)  # fmt: skip


def check_memory(trained: Trained, parts: Collection[str]) -> None:
    """Say how much memory statistics and prices take, if it is much; UserError for too much."""
    needed, free = memory_needed(trained, parts), free_memory(trained.device)
    if needed > free:
        problem = f"statistics and prices need about {_gigabytes(needed)} of memory"
        todo = f"{_gigabytes(free)} are free: cut fewer parts, or use a larger machine"
        raise UserError(problem, trained.path, todo)
    if needed > MUCH:
        say(f"statistics and prices take about {_gigabytes(needed)} of memory")


def memory_needed(trained: Trained, parts: Collection[str]) -> int:
    """Bytes of statistics, and of what prices make of them: numbers in double precision."""
    numbers, widest = 0, 0
    for attention in attentions(trained.model):
        module = attention.module
        if not module.num_heads:
            continue
        d, d_y, heads = module.embed_dim, module.kdim, module.num_heads
        h = module.out_proj.in_features  # H h_v
        numbers += 3 * (d**2 + h**2)  # of all sentences, and of two halves
        if "cache" in parts:
            of_cache = h + heads * projections(module)[1](_no_input(module)).size(-1)
            inputs = (d + 1) ** 2 + 2 * heads * d_y**2 + of_cache**2 + KEPT * d_y
            numbers += 2 * inputs + d**2 + h**2  # again with the ridge
    for block in feed_forwards(trained.model) if "units" in parts else ():
        d, units = block.module.fc2.out_features, block.width
        numbers, widest = numbers + d**2 + size_of_upper(units), max(widest, units)
    return 8 * (numbers + 4 * widest**2)  # an order of removal has two matrices, and their inverses


def _no_input(module: Any) -> Tensor:
    return next(module.parameters()).new_zeros(1, 1, module.kdim)


def free_memory(device: torch.device) -> float:
    """The free memory of a device in bytes, as far as the system reports it."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    table = Path("/proc/meminfo")  # of Linux
    match = re.search(r"MemAvailable:\s+(\d+) kB", table.read_text()) if table.exists() else None
    return 1024.0 * int(match[1]) if match else math.inf


def _gigabytes(number: float) -> str:
    return f"{number / 1e9:.1f} GB"


@contextmanager
def at_least_float32(*modules: nn.Module) -> Iterator[None]:
    """Context in which half-precision weights are float32, so that gradients do not overflow."""
    tensors = (x for module in modules for x in (*module.parameters(), *module.buffers()))
    half = {x: x.dtype for x in tensors if x.dtype in (torch.float16, torch.bfloat16)}
    for tensor in half:
        tensor.data = tensor.data.float()
    try:
        yield
    finally:  # exactly the former numbers
        for tensor, dtype in half.items():
            tensor.data = tensor.data.to(dtype)


def matched(
    statistics: Mapping[Attention, Statistics], trained: Trained
) -> dict[Attention, Statistics]:
    """Statistics by attention of this model; UserError if they belong to another model."""
    every = {a: a for a in attentions(trained.model) if a.module.num_heads}
    sources = {a: a for a in statistics}
    modules = ((a.module, sources[a].module) for a in every)
    is_equal = every.keys() == sources.keys() and all(_equal(*pair) for pair in modules)
    if isinstance(statistics, OfModel):
        is_equal = is_equal and _equal_weights(trained.model, statistics.model)
    if not is_equal:
        problem = "the statistics belong to another model, or to only some attentions"
        raise UserError(problem, trained.path, "give the statistics of this model")
    if any(own_bits(a.module) != own_bits(sources[a].module) for a in every):
        problem = "the statistics were collected with other bits in the KV cache"
        raise UserError(problem, trained.path, "collect them again from this model")
    return {every[attention]: statistics[attention] for attention in sources}


def check_of_caches(statistics: Mapping[Attention, Statistics], trained: Trained) -> None:
    """Raise UserError if the statistics do not suffice to price other heads and caches."""
    if any(not of_it.query_moment.numel() for of_it in statistics.values()):
        problem = "the statistics are only those for removing heads"
        raise UserError(problem, trained.path, "collect them with `cache` among the cuts")


def _equal(module: Any, other: Any) -> bool:
    """Whether two attentions have the same weights, but for a loss of precision."""
    return module.num_heads == other.num_heads and _equal_weights(module, other)


def _equal_weights(module: nn.Module, other: nn.Module) -> bool:
    weights, others = module.state_dict(), other.state_dict()
    return all(
        (b := others.get(name)) is not None
        and a.shape == b.shape
        and torch.allclose(a.double(), b.to(a.device).double(), 0.004, 1e-4)
        for name, a in weights.items()
    )


def _record(calls: dict[Attention, tuple[Any, ...]], attention: Attention) -> Any:
    """Make an attention with heads add its next call to ``calls``.

    What it adds: the inputs of queries and of keys, masks of the scores, the output, and zeros
    that are added to it.
    """

    def after(module: Any, args: Any, kwargs: dict[str, Any], output: tuple[Tensor, Any]) -> Any:
        arguments = arguments_of(module, args, kwargs)
        mask = arguments.get("attn_mask")
        masks = mask, over_keys(arguments.get("key_padding_mask"), mask)
        if not module.num_heads:
            return None
        # Gradients of zeros exist even if weights are frozen.
        zeros = torch.zeros_like(output[0], requires_grad=True)
        calls[attention] = (
            arguments["query"].detach(),
            arguments["key"].detach(),
            *masks,
            output[0].detach(),
            zeros,
        )
        return output[0] + zeros, *output[1:]

    return attention.module.register_forward_hook(after, with_kwargs=True)
