"""Statistics and prices: against autograd, naive sums, least squares, second derivatives."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch
import toy
from refusals import refusing
from torch import Tensor
from torch.nn import functional
from toy_reparametrize import Conversions, batch, inputs, target_of, trained

from collab_lab.mathematics import shared_projection
from collab_lab.mathematics.head_prices import head_noises, head_prices, head_removals
from collab_lab.mathematics.priced_attention import PricedAttention, products_of, queries_of
from collab_lab.metrics.cost import totals
from collab_lab.metrics.loss import mean_bits, summed_loss
from collab_lab.shrinking.apply import apply_cuts
from collab_lab.shrinking.by_hand import CONVERSIONS
from collab_lab.shrinking.cut import ANY_BITS
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.shrinking.draft import rows
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.knapsack import cheapest
from collab_lab.shrinking.plan import Allowed
from collab_lab.shrinking.planner import propose
from collab_lab.shrinking.price_list import Point
from collab_lab.statistics.moments import (
    Statistics,
    Sums,
    at_least_float32,
    collect,
    collect_all,
    free_memory,
    matched,
    memory_needed,
)
from collab_lab.trained.attentions import Attention, HeadMaps, attentions, projections
from collab_lab.trained.feed_forward import FeedForward, feed_forwards
from fairseq_collab.attention import SeparateAttention
from fairseq_collab.attention.grouped_query import GroupedQueryAttention
from fairseq_collab.attention.rounding import rounded
from fairseq_collab.attention.scores import over_keys

pytestmark = pytest.mark.usefixtures("float64")

MODELS = [
    ("transformer", {}),
    ("transformer_headsize_n", {"qk_head_size": 6, "heads_in_encoder": "8"}),
    ("transformer_collab", {"key_dim": 6, "value_heads": 2, "query_mixing": "full"}),
    ("transformer_latent", {"latent_dim": 8}),
    ("transformer_lm", {}),
    ("transformer_lm_headsize_n", {"adaptive_softmax_cutoff": "8,16"}),
]


@pytest.mark.parametrize(("arch", "options"), MODELS)
def test_statistics_are_naive_sums(arch: str, options: dict[str, Any]) -> None:
    """Sentence by sentence, position by position, head by head, from weights that modules show."""
    found = trained(arch, None, **options)
    # The second has other means: covariances are of both together.
    whole = batch(found)
    part = {"net_input": {n: x[1:] for n, x in whole["net_input"].items()}}
    batches = [whole, part | {"target": whole["target"][1:]}]
    statistics, units, _ = collect_all(found, batches, seed=5)
    chance = torch.Generator().manual_seed(5)
    naive = [Naive(found, one, chance) for one in batches]
    tokens = sum(one.tokens for one in naive)
    for block in feed_forwards(found.model):
        of_words = [each.units[block] for each in naive]
        h, gradients = (torch.cat(rows) for rows in zip(*of_words, strict=True))
        close(units[block].covariance, h.T.cov(correction=0))
        close(units[block].output_fisher, gradients.T @ gradients / tokens)
    for attention in attentions(found.model):
        one, rows = statistics[attention], list(chain(*(each.rows(attention) for each in naive)))
        close(one.query_moment, sum(torch.outer(x, x) for x, *_ in rows) / len(rows))
        gammas, reads, h, gradients = (torch.stack([row[i] for row in rows]) for i in range(1, 5))
        close(one.key_fisher, torch.einsum("nhi,nhj->hij", gammas, gammas) / tokens)
        close(one.output_fisher, gradients.T @ gradients / tokens)
        close(one.value_mean, reads.mean(0))
        reads = reads - reads.mean(0)
        close(one.value_covariance, torch.einsum("nhi,nhj->hij", reads, reads) / len(rows))
        close(one.head_covariance, h.T.cov(correction=0))
        errors = torch.cat([each.cached[attention] for each in naive])
        close(one.cache_fisher, errors.T @ errors / tokens)


def close(found: Tensor, expected: Any) -> None:
    """Attention weights of fairseq's own modules are in single precision."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max()))


class Naive:
    """One batch: what each attention was called with, its weights, and its gradients."""

    def __init__(self, found: Any, sample: dict[str, Any], chance: torch.Generator):
        self.calls: dict[Attention, tuple[Tensor, Tensor, Tensor, Tensor, Tensor]] = {}
        self.cached: dict[Attention, Tensor] = {}
        self.units: dict[FeedForward, tuple[Tensor, Tensor]] = {}
        pad = found.task.source_dictionary.pad()
        self.tokens = int(sample["target"].ne(pad).sum())
        seen, handles = {}, []
        of_blocks: dict[FeedForward, tuple[Tensor, Tensor]] = {}
        for block in feed_forwards(found.model):

            def note(_: Any, args: Any, output: Tensor, to: FeedForward = block) -> None:
                of_blocks[to] = args[0], output

            handles.append(block.module.fc2.register_forward_hook(note))
        for attention in attentions(found.model):

            def show(module: Any, args: Any, kwargs: Any) -> Any:
                return args, {**kwargs, "need_head_weights": True, "static_kv": True}

            def after(
                module: Any, args: Any, kwargs: Any, output: Any, to: Any = attention
            ) -> None:
                seen[to] = kwargs["query"], kwargs["key"], output

            handles += [
                attention.module.register_forward_pre_hook(show, with_kwargs=True),
                attention.module.register_forward_hook(after, with_kwargs=True),
            ]
        loss = summed_loss(found.model, sample, chance)
        outputs = [output[0] for *_, output in seen.values()]
        outputs += [output for _, output in of_blocks.values()]
        gradients = torch.autograd.grad(loss, outputs)
        for handle in handles:
            handle.remove()
        net_input = sample["net_input"]
        previous = net_input.get("prev_output_tokens", net_input["src_tokens"])
        for (block, (h, _)), gradient in zip(
            of_blocks.items(), gradients[len(seen) :], strict=True
        ):
            words = (net_input["src_tokens"] if block.side == "encoder" else previous).ne(pad).T
            self.units[block] = h.detach()[words], gradient[words]
        of_attentions = zip(seen.items(), gradients[: len(seen)], strict=True)
        for (attention, (x, y, output)), gradient in of_attentions:
            tokens = net_input["src_tokens"] if attention.type == "encoder" else previous
            call = (x, y, output[1], gradient, tokens.ne(pad))
            self.calls[attention] = tuple(one.detach() for one in call)

    def rows(self, attention: Attention) -> Iterator[tuple[Tensor, ...]]:
        """Of each query: ``[x 1]``, and per head gamma, z, its output; ``G``.

        In the end :attr:`cached` has the gradients of keys and values of all heads, by token.
        """
        x, y, weights, gradient, real = self.calls[attention]
        heads, module = attention.module.num_heads, attention.module
        value = projections(module)[2](y).detach()  # (B, G, S, h_v)
        value = value.repeat_interleave(heads // value.size(1), 1)
        out = module.out_proj.weight.detach().unflatten(1, (heads, -1))  # (d, H, h_v)
        query = projections(module)[0](x).detach()  # (B, H, T, e)
        sizes = query.size(3), value.size(3)
        of_keys, of_values = (y.new_zeros(*weights.shape[:2], len(y), size) for size in sizes)
        for sentence, t in real.nonzero().tolist():
            a, v, of = weights[:, sentence, t], value[sentence], gradient[t, sentence]
            gamma = []
            for head in range(heads):
                delta = of @ out[:, head]
                expected = (a[head] * (v[head] @ delta)).sum()
                g = a[head] * (v[head] @ delta - expected)
                gamma.append(g @ y[:, sentence])
                of_keys[head, sentence] += torch.outer(g, query[sentence, head, t])
                of_values[head, sentence] += torch.outer(a[head], delta)
            z = a @ y[:, sentence]
            h = torch.einsum("hs,hsv->hv", a, v).flatten()
            yield torch.cat([x[t, sentence], torch.ones(1)]), torch.stack(gamma), z, h, of
        both = (grads.permute(1, 2, 0, 3).flatten(2) for grads in (of_keys, of_values))
        self.cached[attention] = torch.cat([*both], 2).flatten(0, 1)


def test_statistics_of_some_heads_are_those_of_an_attention_that_has_no_others() -> None:
    """With keys and values of two sizes, which lie side by side in what is cached."""
    module, kept = toy.randomised(SeparateAttention(16, 4, qk_head_size=3, v_head_size=5)), [2, 0]
    fewer = SeparateAttention(16, 2, qk_head_size=3, v_head_size=5)
    for name in ("q_proj", "k_proj", "v_proj"):
        for old, new in zip(*(getattr(m, name).parameters() for m in (module, fewer)), strict=True):
            new.data = rows(4, kept, old.data)
    fewer.out_proj.weight.data = rows(4, kept, module.out_proj.weight.data.T).T
    fewer.out_proj.bias.data = module.out_proj.bias.data
    x, y, gradient = torch.randn(3, 6, 8, 16)
    found = []
    for one in (module, fewer):
        sums = Sums(one)
        sums.add(x, y, torch.ones(6, 8, dtype=torch.bool), gradient)
        found.append(sums.result(48))
    for name, expected in vars(found[1]).items():
        toy.close(getattr(found[0].of_heads(kept), name), expected)


def test_inputs_that_are_kept_are_those_of_words() -> None:
    """Padding, which no query reads, is in no cache whose rounding has a price."""
    sums = Sums(toy.randomised(SeparateAttention(16, 4)))
    x, gradient, y = *torch.randn(2, 6, 3, 16), torch.randn(5, 3, 16)
    padding = torch.arange(5) >= torch.tensor([5, 3, 4])[:, None]  # (B, S)
    sums.add(x, y, torch.ones(6, 3, dtype=torch.bool), gradient, over_keys(padding))
    toy.close(sums.result(18).inputs, y.transpose(0, 1)[~padding])


# ---- prices of small changes are second derivatives ----------------------------------------------


def test_inputs_that_are_kept_are_spread_evenly() -> None:
    """Over all batches, however many there are."""
    for tokens in (900, 5000, 20_000):
        sums = Sums(toy.randomised(SeparateAttention(16, 4)))
        for batch_ in torch.arange(float(tokens)).unsqueeze(1).split(100):
            sums._keep(batch_)
        kept = torch.cat(sums.inputs).flatten()
        assert 1024 / 2 < len(kept) <= 1024
        steps = kept.diff()
        assert steps.min() > 0
        assert steps.max() <= 2 * max(steps.median(), 1)
        assert kept[-1] > 0.98 * tokens


def test_memory_is_that_of_the_statistics() -> None:
    """With what prices make of them: a ridge on most, and orders of removal."""
    found = trained("transformer_headsize_n", None, qk_head_size=5, v_head_size=3)
    of_all, none = attentions(found.model), ("value_mean",)
    every = collect_all(found, [batch(found)], parts=("heads", "units", "cache"))
    numbers = 0
    for attention_ in of_all:
        sizes = {name: x.numel() for name, x in vars(every.attentions[attention_]).items()}
        sizes["inputs"] = 1024 * attention_.module.kdim
        numbers += sum(size for name, size in sizes.items() if name not in none)
        again = (name for name in sizes if not name.startswith("half") and name not in none)
        numbers += sum(sizes[name] for name in again)
    for block in feed_forwards(found.model):
        numbers += sum(x.numel() for x in vars(every.units[block]).values())
    numbers += 4 * max(block.width for block in feed_forwards(found.model)) ** 2
    assert memory_needed(found, ("heads", "units", "cache")) == 8 * numbers
    fewer = sum(
        x.numel()
        for statistics in collect_all(found, [batch(found)], parts=("heads",)).attentions.values()
        for x in vars(statistics).values()
    )
    assert memory_needed(found, ("heads",)) == 8 * fewer


@pytest.mark.parametrize(("arch", "options"), MODELS)
def test_the_loss_of_a_pass_is_that_of_the_targets(arch: str, options: dict[str, Any]) -> None:
    """Next to labels that are drawn from the model."""
    found = trained(arch, None, **options)
    sentences = [batch(found)]
    bits = collect_all(found, sentences, parts=("heads",)).bits
    assert bits == pytest.approx(mean_bits(found.model, sentences))


def test_a_model_without_heads_has_no_prices() -> None:
    found = trained("transformer_lm_headsize_n", None, heads_in_decoder="0,0")
    with refusing("no heads"):
        collect_all(found, [batch(found)])


def test_a_unit_alone_costs_what_the_others_do_not_predict() -> None:
    """``1/2 w^T Delta w / (C^-1)_uu / ln 2`` of the cheapest, C with its ridge."""
    found = trained("transformer_headsize_n", None)
    evidence = Evidence(found, [], *collect_all(found, [batch(found)]))
    for block, of_it in evidence.units.items():
        c, size = of_it.covariance, block.width
        inverse = (c + 1e-3 * c.trace() / size * torch.eye(size)).inverse()
        weight = block.module.fc2.weight.detach()
        losses = torch.einsum("du,de,eu->u", weight, of_it.output_fisher, weight)
        expected = losses / inverse.diagonal() / 2 / math.log(2)
        removals = evidence.removals(block)
        assert removals.prices[:2] == [0, pytest.approx(float(expected.min()))]
        assert removals.order[0] == int(expected.argmin())
        assert removals.prices == sorted(removals.prices)
        assert removals.retained(2) == sorted(removals.order[-2:])


def test_free_memory_is_in_bytes() -> None:
    pages, size = (os.sysconf(f"SC_{name}") for name in ("PHYS_PAGES", "PAGE_SIZE"))
    unused = os.sysconf("SC_AVPHYS_PAGES") * size
    assert unused / 2 < free_memory(torch.device("cpu")) < pages * size


@pytest.mark.parametrize("part", ["self_attn.k_proj", "fc1"])
def test_statistics_are_of_a_model_with_these_weights(part: str) -> None:
    """Of all its layers; what is stored in half precision is the same."""
    one, other = (trained("transformer_headsize_n", None) for _ in range(2))
    other.model.load_state_dict(one.model.state_dict())
    found = collect(one, [batch(one)])
    weight = other.model.get_submodule(f"encoder.layers.1.{part}").weight.data
    weight.copy_(weight.half())
    assert matched(found, other).keys() == found.keys()
    weight.mul_(1.04)
    with refusing("another model"):
        matched(found, other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back(dtype: torch.dtype) -> None:
    """Also after an error; other numbers are not touched."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).to(dtype)
    module.append(torch.nn.Linear(3, 3).double())
    before = {name: x.clone() for name, x in module.state_dict().items()}
    with suppress(KeyError), at_least_float32(module):
        now = {x.dtype for x in module.state_dict().values()}
        assert now == {torch.float32, torch.float64, torch.int64}
        raise KeyError
    after = module.state_dict()
    assert all(x.dtype == after[n].dtype and x.equal(after[n]) for n, x in before.items())


class Small:
    """Sentences with one target each, and the cross-attention of the last layer.

    Its statistics have every label in proportion to its probability.  No position depends on
    another there, so that the approximations behind prices hold where a test says so.
    """

    def __init__(self, sentences: int):
        found = trained("transformer_headsize_n")
        self.model, attention = found.model, found.attentions["cross"][-1]
        self.module, self.priced = attention.module, PricedAttention(attention.module, None)
        self.maps = self.priced.maps
        self.net_input = {name: one[:sentences] for name, one in toy.batch(found.task).items()}
        self.net_input["prev_output_tokens"] = self.net_input["prev_output_tokens"][:, :1]
        call: dict[str, Any] = {}

        def after(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            call.update(kwargs, output=output[0])

        with self.module.register_forward_hook(after, with_kwargs=True):
            log_p = self.model(**self.net_input)[0][:, 0].log_softmax(-1)  # (B, symbols)
        padding, sums = call["key_padding_mask"][:, None, None], Sums(self.module)
        real = torch.ones(1, sentences, dtype=torch.bool)
        for label in range(log_p.size(1)):
            weight = (0.5 * log_p[:, label]).exp().detach()  # sums are quadratic in gradients
            loss = -(log_p[:, label] * weight).sum()
            (gradient,) = torch.autograd.grad(loss, call["output"], retain_graph=True)
            sums.add(call["query"].detach(), call["key"].detach(), real, gradient, padding)
        self.priced.statistics = sums.result(sentences)

    @torch.no_grad()
    def measured(self, change: Any, step: float = 1e-4) -> float:
        """Bits per token that a small ``change(step)`` of the weights loses, over its square."""
        before = self.model(**self.net_input)[0].log_softmax(-1)
        change(step)
        after = self.model(**self.net_input)[0].log_softmax(-1)
        lost = functional.kl_div(after, before, log_target=True, reduction="sum") / len(before)
        return float(lost) / step**2 / math.log(2)


def drawn(like: Tensor, *heads: int) -> Tensor:
    """A random change of these heads alone."""
    change = torch.zeros_like(like)
    for head in heads:
        change[head] = torch.randn(like[head].shape)
    return change


@pytest.mark.parametrize("head", [0, 2])
def test_price_of_keys(head: int) -> None:
    """Of one head in one sentence: inputs and gradients of several are not independent."""
    small = Small(1)
    change = drawn(small.maps.keys, head)
    price = small.priced.key_price(small.maps.queries, small.maps.keys + change)

    def apply(step: float) -> None:
        small.module.k_proj.weight += step * change.mT.flatten(0, 1)

    assert price == pytest.approx(small.measured(apply), rel=1e-3)


@pytest.mark.parametrize("head", [0, 2])
def test_price_of_values(head: int) -> None:
    """Of one head, which reads two sentences at equal distances from their mean."""
    small = Small(2)
    change = drawn(small.maps.values[:, :-1], head)
    values = small.maps.values[:, :-1] + change
    price = small.priced.value_price(values, small.maps.out)
    means = small.priced.statistics.value_mean
    means = torch.einsum("hy,hyv,hdv->d", means, change, small.maps.out)

    def apply(step: float) -> None:
        small.module.v_proj.weight += step * change.mT.flatten(0, 1)
        small.module.out_proj.bias -= step * means

    assert price == pytest.approx(small.measured(apply), rel=1e-3)


# ---- rounded caches ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "size", "bits"),
    [
        ("--to=separate", 16, 8),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("--to=latent", 6, 4),
                ("--to=grouped-query", 2, 4),
                ("--query-mixing=full", 6, 8),
            )
        ),
    ],
)
def test_price_of_a_rounding(option: str, size: int, bits: int) -> None:
    """At widths that no model has, too: the measured divergence is 0.4 to 1.6 times the price."""
    found, chance = trained("transformer"), torch.Generator().manual_seed(1)
    source, previous, target = torch.randint(4, 24, (3, 60, 6), generator=chance)
    given = {"src_tokens": source, "src_lengths": torch.full((60,), 6)}
    sentences = {"net_input": given | {"prev_output_tokens": previous}, "target": target}
    work = Conversions(found, target_of(option), collect(found, [sentences] * 4))
    sizes = dict.fromkeys(attentions(found.model), size)
    exact, free = work.convert(sizes)
    rounds = dict.fromkeys((a for a in sizes if a.type != "encoder"), bits)
    rounded, prices = work.convert(sizes, rounds)
    price = sum(prices.values()) - sum(free.values())
    with torch.no_grad():
        before, after = (
            one.model(**sentences["net_input"])[0].log_softmax(-1) for one in (exact, rounded)
        )
    lost = functional.kl_div(after, before, log_target=True, reduction="sum") / target.numel()
    assert 0.4 < float(lost) / math.log(2) / price < 1.6


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["own", "full", "grouped", "latent"])
def test_price_of_a_rounding_is_that_of_its_errors(kind: str, bits: int) -> None:
    """``1/2 mean_s n_s Psi n_s^T / ln 2``: new queries and outputs are known products of the old.

    An error of a shared key is one of ``A_i R_i`` in the trained head i, so ``n R_i^T`` there.
    """
    torch.manual_seed(bits)
    heads, h_qk, h_v, width, groups = 4, 5, 4, 5 if kind == "full" else 3, 2
    module = toy.randomised(SeparateAttention(16, heads, qk_head_size=h_qk, v_head_size=h_v))
    part = PricedAttention(module, None)
    root = torch.randn(heads * (h_qk + h_v), heads * (h_qk + h_v))
    fisher, inputs = root @ root.T, torch.randn(70, 16)
    part.statistics = replace(part.statistics, cache_fisher=fisher, inputs=inputs)

    def error(numbers: Tensor) -> Tensor:
        return rounded(numbers, bits) - numbers

    if kind == "latent":
        down, up = torch.randn(9, 16), torch.randn(heads * (h_qk + h_v), 9)
        weights = {"latent_proj.weight": down, "latent_proj.bias": torch.randn(9)}
        weights |= {"k_proj.weight": up[: heads * h_qk], "v_proj.weight": up[heads * h_qk :]}
        errors = error(inputs @ down.T + weights["latent_proj.bias"]) @ up.T
    else:
        shared = groups if kind == "grouped" else 1
        turn = torch.randn(heads, h_qk, width)  # R
        common = torch.randn(17, width)  # of all heads: A_i R_i = common M_i
        if kind == "full":
            mixing = torch.randn(heads, width, width)
            # Queries of the trained heads that contain those of the new ones.
            part.maps = part.maps._replace(queries=common @ torch.randn(heads, width, width))
            turn = torch.linalg.pinv(part.maps.queries) @ common @ mixing
            weights = {"mixing": mixing / part.scale}
            rows = common.T
        else:
            rows = (part.maps.queries @ turn / part.scale).mT.flatten(0, 1)
            weights = {}
        turn_v = torch.randn(heads, h_v, 6)
        key, value = torch.randn(shared * width, 16), torch.randn(shared * 6, 16)
        out = part.maps.out @ turn_v  # (H, d, 6)
        weights |= {"q_proj.weight": rows[:, :-1], "q_proj.bias": rows[:, -1]}
        weights |= {"k_proj.weight": key, "k_proj.bias": torch.randn(len(key))}
        weights |= {"v_proj.weight": value, "v_proj.bias": torch.randn(len(value))}
        weights["out_proj.weight"] = out.transpose(0, 1).flatten(1)
        keys = error(inputs @ key.T + weights["k_proj.bias"]).unflatten(1, (shared, width))
        values = error(inputs @ value.T + weights["v_proj.bias"]).unflatten(1, (shared, 6))
        of_head = [head * shared // heads for head in range(heads)]  # neighbours share
        errors = torch.cat(
            [keys[:, group] @ turn[head].T for head, group in enumerate(of_head)]
            + [values[:, group] @ turn_v[head].T for head, group in enumerate(of_head)],
            1,
        )
    expected = sum(float(one @ fisher @ one) for one in errors) / len(errors) / 2 / math.log(2)
    assert part.rounding_price(weights, bits) == pytest.approx(expected, rel=1e-6)


def test_a_rounding_is_priced_whatever_the_source_rounds() -> None:
    """Numbers that stay as they are, with their bits, are part of the source's loss."""
    rounds = {"cache_bits_in_decoder": "4", "cache_bits_in_cross": "4,8"}
    found = trained("transformer_headsize_n", None, **rounds)
    statistics = collect(found, [batch(found)])
    for target in (Latent(), target_of("--to=grouped-query"), target_of("--to=separate")):
        work = Conversions(found, target, statistics)
        for one in (a for a in work.attentions if a.type != "encoder"):
            own = one.module.cache_bits
            curve = {(point.size, point.bits): point.price for point in work.curve(one)}
            size = max(size for size, _ in curve)
            assert curve[size, 4] > curve[size, 8] > curve[size, 0]
            if (0, own) in curve:
                assert curve[0, own] == 0
                assert curve[0, 12 - own] > 0
            one.module.cache_bits = 0
            weights, price = target.convert(work.attentions[one], size, steps=0)
            rounding = work.attentions[one].rounding_price(weights, own)
            assert curve[size, own] == pytest.approx(price + rounding)
            one.module.cache_bits = own


def test_statistics_are_of_a_model_as_it_is_rounded() -> None:
    options = {"cache_bits_in_decoder": "4", "cache_bits_in_cross": "4,8"}
    rounds, plain = (trained("transformer_headsize_n", None, **o) for o in (options, {}))
    for one, other in ((rounds, plain), (plain, rounds)):
        assert matched(collect(one, [batch(one)]), one)
        with refusing("bits"):
            matched(collect(one, [batch(one)]), other)


@pytest.mark.parametrize("mixing", ["diagonal", "full", "own"])
def test_products_of_maps_are_least_squares(mixing: str) -> None:
    """``A' = A R`` in the metric of what queries read, where no R is exact: a narrow source.

    Of queries with a shared key: each head's own, or common ones with a mixing.
    """
    torch.manual_seed(3)
    heads, rows, e, k = 4, 17, 3, 5
    maps, common = torch.randn(heads, rows, e), torch.randn(rows, k)
    weights = {"q_proj.weight": common[:-1].T, "q_proj.bias": common[-1]}
    if mixing == "own":
        own = torch.randn(heads, rows, k)
        weights = {
            "q_proj.weight": own[:, :-1].mT.flatten(0, 1),
            "q_proj.bias": own[:, -1].flatten(),
        }
        expected = own
    elif mixing == "full":
        weights["mixing"] = torch.randn(heads, k, k)
        expected = common @ weights["mixing"]
    else:
        weights["mixing"] = torch.randn(heads, k)
        expected = torch.stack([common * row for row in weights["mixing"]])
    queries = queries_of(weights, heads)
    torch.testing.assert_close(queries, expected)
    root = torch.randn(rows, rows)
    found = products_of(maps, queries, root.T @ root)
    naive = [torch.linalg.lstsq(root @ a, root @ b).solution
             for a, b in zip(maps, expected, strict=True)]  # fmt: skip
    torch.testing.assert_close(found, torch.stack(naive))


def test_errors_are_at_the_heads_that_are_next_to_the_new_ones() -> None:
    """By least squares in the metrics of queries and of outputs, where they are no products."""
    torch.manual_seed(5)
    heads, h_qk, h_v, width = 4, 5, 4, 3
    module = toy.randomised(SeparateAttention(16, heads, qk_head_size=h_qk, v_head_size=h_v))
    part = PricedAttention(module, None)
    roots = [torch.randn(n, n) for n in (heads * (h_qk + h_v), 17, 16)]
    fisher, moment, output = (root.T @ root for root in roots)
    inputs = torch.randn(70, 16)
    part.statistics = replace(
        part.statistics,
        cache_fisher=fisher,
        inputs=inputs,
        query_moment=moment,
        output_fisher=output,
    )
    queries, out = torch.randn(heads, 17, width), torch.randn(heads, 16, 2)
    rows, scale = queries.mT.flatten(0, 1), 0.3  # of the new scores
    weights = {"q_proj.weight": rows[:, :-1], "q_proj.bias": rows[:, -1]}
    weights |= {"k_proj.weight": torch.randn(width, 16), "k_proj.bias": torch.randn(width)}
    weights |= {"v_proj.weight": torch.randn(2 * heads, 16), "v_proj.bias": torch.randn(2 * heads)}
    weights["out_proj.weight"] = out.transpose(0, 1).flatten(1)
    keys, values = (
        rounded(made, 4) - made
        for name in ("k_proj", "v_proj")
        for made in [inputs @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]]
    )
    errors = []
    for head in range(heads):
        turn = torch.linalg.lstsq(roots[1] @ part.maps.queries[head], roots[1] @ queries[head])
        errors.append(keys @ (scale * turn.solution).T)
    for head in range(heads):
        turn = torch.linalg.lstsq(roots[2] @ part.maps.out[head], roots[2] @ out[head])
        errors.append(values[:, 2 * head : 2 * head + 2] @ turn.solution.T)
    both = torch.cat(errors, 1)
    expected = sum(float(one @ fisher @ one) for one in both) / len(both) / 2 / math.log(2)
    assert part.rounding_price(weights, 4, scale) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("bits", [8, 4])
def test_price_of_rounding_trained_heads_is_that_of_their_errors(bits: int) -> None:
    """Of any size: their scores have their own scale, not ``(d/H)^-0.5``."""
    torch.manual_seed(bits)
    module = toy.randomised(SeparateAttention(16, 4, qk_head_size=6, v_head_size=5))
    part = PricedAttention(module, None)
    assert module.scaling != part.scale
    root, inputs = torch.randn(44, 44), torch.randn(70, 16)
    fisher = root @ root.T
    part.statistics = replace(part.statistics, cache_fisher=fisher, inputs=inputs)
    cached = [project(inputs).detach() for project in (module.k_proj, module.v_proj)]
    errors = torch.cat([rounded(numbers, bits) - numbers for numbers in cached], 1)
    expected = sum(float(one @ fisher @ one) for one in errors) / len(errors) / 2 / math.log(2)
    assert part.rounding_price(None, bits) == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_the_basis_of_a_latent_loses_least_and_changes_nothing() -> None:
    """The function of a model; by price, against the maps' own basis and random rotations."""
    found = trained("transformer")
    statistics = collect(found, [batch(found)] * 20)
    for size in (6, 16):
        work = Conversions(found, Latent(), statistics)
        sizes = dict.fromkeys(attentions(found.model), size)
        models = [work.convert(sizes)[0].model for _ in range(2)]
        assert all(
            torch.equal(*pair) for pair in zip(*(m.parameters() for m in models), strict=True)
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shared_projection, "rounding_basis", lambda s, _: [torch.eye(len(s))] * 2)
            plain = Conversions(found, Latent(), statistics)
            unrotated = plain.convert(sizes)[0].model
        toy.close(models[0](**inputs(found))[0], unrotated(**inputs(found))[0])
        prices = {"here": 0.0, "as it is": 0.0, "rotated": 0.0}
        for one in found.attentions["cross"]:
            weights, own = (
                dict(m.get_submodule(one.name).state_dict()) for m in (models[0], unrotated)
            )
            turn = torch.linalg.qr(torch.randn(size, size)).Q
            turned = own | {"latent_proj.weight": turn @ own["latent_proj.weight"]}
            turned |= {name: own[name] @ turn.T for name in ("k_proj.weight", "v_proj.weight")}
            for name, each in zip(prices, (weights, own, turned), strict=True):
                prices[name] += work.attentions[one].rounding_price(each, 4)
        assert prices["here"] < min(prices["as it is"], prices["rotated"]), size


# ---- budgets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "scale"), [(1, 1e-9), (2, 1e-6), (3, 1.0), (4, 1e3)])
def test_the_cheapest_sizes(seed: int, scale: float) -> None:
    """Against all choices of widths and bits; prices of any size, costs that are not alike."""
    chance = torch.Generator().manual_seed(seed)

    def curve(n: int) -> list[Point]:
        costs = torch.randint(1, 9, (n,), generator=chance).cumsum(0).tolist()
        prices = (scale * torch.rand(n, generator=chance)).sort(descending=True)[0].tolist()
        parameters = torch.randint(9, (n,), generator=chance).tolist()
        roundings = {16: 0.0, 8: 0.01 * scale, 4: 0.1 * scale}
        return [
            Point(i, 3 * costs[i] * bits // 8, parameters[i], prices[i] + rounding, bits)
            for i in range(n)
            for bits, rounding in roundings.items()
        ]

    curves = {name: curve(n) for name, n in (("a", 3), ("b", 5), ("c", 4))}
    for cache, parameters in itertools.product((0, 30, 60, 90, 200, 1000), (6, 12, 30)):
        choices = [
            each
            for each in itertools.product(*curves.values())
            if sum(point.cache for point in each) <= cache
            and sum(point.parameters for point in each) <= parameters
        ]
        found = cheapest(curves, {"cache": cache, "parameters": parameters})
        if found is None:
            assert not choices
        else:
            best = min(sum(point.price for point in each) for each in choices)
            assert sum(point.price for point in found.values()) == pytest.approx(best, rel=1e-9)
            assert tuple(found.values()) in choices


@pytest.mark.parametrize(
    ("kind", "shares"),
    [("grouped-query", (0.5,)), pytest.param("latent", (0.25,), marks=pytest.mark.slow)],
)
def test_a_plan_is_never_dearer_than_even_sizes(kind: str, shares: tuple[float, ...]) -> None:
    found = trained("transformer")
    statistics = collect(found, [batch(found)])
    work = Conversions(found, CONVERSIONS[kind](), statistics)
    narrowed = [*found.attentions["decoder"], *found.attentions["cross"]]
    for share, bits in itertools.product(shares, ((0,), (8,), (4,), ANY_BITS)):
        allowed = Allowed(("cache",), (kind,), bits)
        plan = propose(work.evidence, {"cache": share}, allowed)
        assert {one.type for one in (*plan.sizes, *plan.bits)} <= {"decoder", "cross"}
        budget = share * 32 * 16
        even = {
            one: max(
                (p for p in work.curve(one) if p.cache <= budget and p.bits in bits),
                key=lambda point: point.cache,
            )
            for one in narrowed
        }
        result, _ = apply_cuts(work.evidence, plan)
        assert totals(result.model)["cache"] <= budget * len(narrowed)
        assert plan.price <= sum(p.price for p in even.values()) + 1e-12


# ---- prices of heads -----------------------------------------------------------------------------


def test_the_noise_of_a_price_is_that_of_two_halves_of_the_sentences() -> None:
    """Every other sentence, across batches, also of one sentence."""
    module = toy.randomised(SeparateAttention(16, 4))
    batches = [torch.randn(4, 7, n, 16) for n in (3, 1, 1, 4)]  # x, y, G; words that are read
    whole, halves, seen = Sums(module), [Sums(module), Sums(module)], 0
    for x, y, gradient, words in batches:
        real = words[..., 0] > 0
        whole.add(x, y, real, gradient)
        for i in range(x.size(1)):
            one = (part[:, i : i + 1] for part in (x, y, real, gradient))
            halves[(seen + i) % 2].add(*one)
        seen += x.size(1)
    found = whole.result(90)
    queries = [sum(half.queries) for half in halves]
    prices = []
    for i, (half, statistics) in enumerate(zip(halves, found.halves(), strict=True)):
        alone = half.result(90 * queries[i] / sum(queries))
        torch.testing.assert_close(statistics.output_fisher, alone.output_fisher)
        torch.testing.assert_close(statistics.head_covariance, alone.head_covariance)
        prices.append(head_prices(module, alone))
    expected = [abs(a - b) / 2 for a, b in zip(*prices, strict=True)]
    assert head_noises(module, found) == pytest.approx(expected)
    assert min(expected) > 0
    halves[0] = Sums(module)
    halves[0].add(*(part[:, :1] for part in (x, y, real, gradient)))
    assert all(map(math.isnan, head_noises(module, halves[0].result(9))))


def test_heads_that_share_a_key_go_together() -> None:
    """Neighbours, whatever their order."""
    module = toy.randomised(GroupedQueryAttention(16, 8, 4))
    steps = [*head_removals(module, Statistics.unweighted(HeadMaps.of(module)))]
    assert sorted(heads for _, heads in steps) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    module = toy.randomised(GroupedQueryAttention(16, 8, 1))  # one key for all: heads by themselves
    steps = [*head_removals(module, Statistics.unweighted(HeadMaps.of(module)))]
    assert sorted(heads for _, heads in steps) == [[head] for head in range(8)]


D, H, SIZE = 6, 4, 3


def attention(seed: int) -> tuple[Any, Statistics]:
    """Heads that predict parts of each other, and a metric of the output."""
    torch.manual_seed(seed)
    module = toy.randomised(SeparateAttention(D, H, qk_head_size=2, v_head_size=SIZE))
    h, g = torch.randn(30, H * SIZE) @ torch.randn(H * SIZE, H * SIZE), torch.randn(20, D)
    plain = Statistics.unweighted(HeadMaps.of(module))
    return module, replace(plain, head_covariance=h.T.cov(), output_fisher=g.T @ g)


def least_price(module: Any, statistics: Statistics, removed: set[int]) -> float:
    """The least ``1/2 tr((W' - W) C (W' - W)^T Delta) / ln 2`` of all W' without some heads."""
    metric: Tensor = torch.linalg.cholesky(statistics.output_fisher)
    factor = torch.linalg.cholesky(statistics.ridged().head_covariance)  # C = L L^T
    weight = module.out_proj.weight.detach()
    free = [i for i in range(H * SIZE) if i // SIZE not in removed]
    # (W' - W) L in the metric, row-major: W' enters by a Kronecker product.
    design = torch.kron(metric.T.contiguous(), factor[free].T.contiguous())
    target = (metric.T @ weight @ factor).flatten()
    fitted = torch.linalg.lstsq(design, target[:, None]).solution if free else torch.zeros(0, 1)
    return float((target - (design @ fitted)[:, 0]).square().sum()) / 2 / math.log(2)


@pytest.mark.parametrize("seed", range(3))
def test_removed_heads_cost_what_no_refit_makes_up_for(seed: int) -> None:
    """Alone, and in the order of removal, in which each head is the cheapest of those left."""
    module, statistics = attention(seed)
    alone = [least_price(module, statistics, {head}) for head in range(H)]
    assert head_prices(module, statistics) == pytest.approx(alone)
    removed: set[int] = set()
    price = 0.0
    for rise, [head] in head_removals(module, statistics):
        others = {*range(H)} - removed
        prices = {other: least_price(module, statistics, removed | {other}) for other in others}
        removed.add(head)
        price += rise
        assert price == pytest.approx(min(prices.values()))
        assert prices[head] == pytest.approx(price)
    assert removed == {*range(H)}
