"""The steps of a refit one after the other, and choices of heads: what cache.json compares.

h are the numbers that the last map W of a block reads, o its output, x the residual stream; those
of the changed model have a prime.  Heads are masked: columns of W are 0.

    plain                        the trained W without the columns of removed heads
    mean                         and the mean of what these wrote in the bias
    local refit                  W' h fits o, each attention by itself
    in order                     W' h' fits W h', with h' of all heads behind earlier refits
    target of the trained model  W' h' fits o
    with the residual            W' h' fits o + x - x'
    and fc2                      so do the maps that end the feed-forward blocks

``W'`` is ``argmin sum_t |target_t - W' h_t - b'|^2 + ridge (|W' - W|^2 + 1e-3 |b' - b|^2)``.  Only
models whose norms end the blocks (post-norm) are known.

Shapes: ``h (N, n)``, ``o, x (N, d)`` of N words; ``W (d, n)``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from collab_common.errors import UserError
from collab_lab.heads.importance import importance
from collab_lab.mathematics.head_prices import head_removals
from collab_lab.metrics.loss import predicted, read_by_decoder, summed_loss
from collab_lab.shrinking.retained import all_heads, pruned
from collab_lab.statistics.moments import Statistics
from collab_lab.trained.attentions import Attention, Retained, attentions, inputs_of
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.contexts import in_evaluation

Batches = Sequence[Mapping[str, Any]]
#: The steps, and their names in the table of results/shrink.md.
STEPS = {
    "plain": "removed",
    "mean": "removed, their mean in the bias",
    "local refit": "each attention refitted by itself",
    "in order": "in the order of data",
    "target of the trained model": "to the trained output",
    "with the residual": "and residual stream",
    "and fc2": "and `fc2`",
}
#: The ridge of :mod:`collab_lab.refitting.refit`, in place of a share of the mean square of h.
A_WORD = "mean |h|^2 (as in the code)"
BIAS_RIDGE = 1e-3


class Site(NamedTuple):
    """A block: its last map, the module that reads its stream, and the side of its words."""

    last: Any
    reader: Any
    side: str

    def stream(self, args: Any, kwargs: Any) -> Tensor:
        """What the reader was called with."""
        return args[0] if self.reader is not self.owner else inputs_of(self.reader, args, kwargs)[0]

    @property
    def owner(self) -> Any:
        """The attention whose last map it is; None of a feed-forward block."""
        return self.reader if hasattr(self.reader, "out_proj") else None


def sites(model: Any) -> list[Site]:
    """The blocks of a model in the order of data; UserError if norms come first."""
    found = []
    for side in ("encoder", "decoder"):
        for layer in getattr(model, side).layers:
            if layer.normalize_before:
                raise UserError("the ladder is of models whose norms come last")
            found.append(Site(layer.self_attn.out_proj, layer.self_attn, side))
            if side == "decoder":
                found.append(Site(layer.encoder_attn.out_proj, layer.encoder_attn, side))
            found.append(Site(layer.fc2, layer.fc1, side))
    return found


@torch.no_grad()
def record(trained: Trained, batches: Batches, chosen: Sequence[Site]) -> list[list[Tensor]]:
    """``h`` and ``x`` at some blocks, of all words."""
    padding = trained.task.source_dictionary.pad()
    hidden: list[list[Tensor]] = [[] for _ in chosen]
    streams: list[list[Tensor]] = [[] for _ in chosen]
    with in_evaluation(trained.model), ExitStack() as hooks:

        def keep(to: list[Tensor], site: Site, x: Tensor) -> None:
            to.append(x[words[site.side]].double())

        for to_h, to_x, site in zip(hidden, streams, chosen, strict=True):
            see_h = lambda _, args, to=to_h, site=site: keep(to, site, args[0])  # noqa: E731
            see_x = lambda _, args, kwargs, to=to_x, site=site: keep(  # noqa: E731
                to, site, site.stream(args, kwargs)
            )
            hooks.enter_context(site.last.register_forward_pre_hook(see_h))
            hooks.enter_context(site.reader.register_forward_pre_hook(see_x, with_kwargs=True))
        for batch in batches:
            read = {"encoder": batch["net_input"]["src_tokens"], "decoder": read_by_decoder(batch)}
            words = {side: tokens.ne(padding).T for side, tokens in read.items()}
            trained.model(**batch["net_input"])
    pairs = zip(hidden, streams, strict=True)
    return [[torch.cat(part) for part in of_site] for of_site in pairs]


class Ladder:
    """A trained model and what its blocks read, for all steps.

    Args:
        trained: any model with separate heads; it is rebuilt with heads of ours, exactly.
    """

    def __init__(self, trained: Trained, batches: Batches):
        self.trained = pruned(trained, all_heads(trained))
        self.batches, self.sites = batches, sites(self.trained.model)
        self.seen = record(self.trained, batches, self.sites)

    def masked(self, retained: Retained) -> tuple[Trained, dict[int, Tensor]]:
        """The model without some heads, and the columns that are left, by block."""
        model = self.trained.with_model(copy.deepcopy(self.trained.model))
        places = {site.reader: i for i, site in enumerate(sites(model.model))}
        columns = {}
        for attention in attentions(model.model):
            module, heads = attention.module, retained[attention.type][attention.layer]
            is_left = torch.zeros(module.num_heads, dtype=torch.bool)
            is_left[list(heads)] = True
            left = is_left.repeat_interleave(module.out_proj.in_features // module.num_heads)
            module.out_proj.weight.data[:, ~left] = 0
            columns[places[module]] = left
        return model, columns

    def climb(
        self,
        changed: Trained,
        step: str,
        ridge: float | str = 0.01,
        columns: Mapping[int, Tensor] | None = None,
    ) -> Trained:
        """The changed model at one step, in place.

        Args:
            ridge: a share of the mean square of h, summed over words; or :data:`A_WORD`.
            columns: those of masked heads; None where heads were converted.
        """
        if step == "plain":
            return changed
        own = sites(changed.model)
        for i, (site, trained) in enumerate(zip(own, self.sites, strict=True)):
            if site.owner is None and step != "and fc2":
                continue
            h, x = self.seen[i]
            left = None if columns is None else columns.get(i)
            weight, bias = (part.detach().double() for part in trained.last.parameters())
            output = functional.linear(h, weight, bias)  # o
            if step == "mean":
                assert left is not None
                site.last.bias.data += (weight[:, ~left] @ h[:, ~left].mean(0)).to(site.last.bias)
                continue
            if step != "local refit":
                [(h, own_x)] = record(changed, self.batches, [site])
                if step == "in order":
                    output = functional.linear(h, weight, bias)
                elif step != "target of the trained model":
                    output = output + x - own_x
            fit(site.last, h, output, ridge, left)
        return changed


def fit(last: Any, h: Tensor, target: Tensor, ridge: float | str, left: Tensor | None) -> None:
    """Fit a map to its target, in place; ``left``: the columns that may change."""
    left = torch.ones(h.size(1), dtype=torch.bool) if left is None else left
    error = target - functional.linear(h, last.weight.double(), last.bias.double())
    h = functional.pad(h[:, left], (0, 1), value=1.0)
    gram = h.T @ h
    squares = gram.diagonal()[:-1]
    number = max(1, len(squares))  # of an attention that lost all heads the bias is left
    size = squares.sum() / len(h) if isinstance(ridge, str) else ridge * squares.sum() / number
    ridges = size.clamp_min(1e-30).repeat(len(gram))
    ridges[-1] *= BIAS_RIDGE
    change = torch.linalg.solve(gram + ridges.diag(), h.T @ error).to(last.bias)
    with torch.no_grad():
        last.weight[:, left] += change[:-1].T
        last.bias += change[-1]


# ---- choices of heads ----------------------------------------------------------------------------

#: Heads in the order in which they go, with what each removal adds, by attention.
Orders = dict[Attention, list[tuple[float, int]]]


def by_price(found: Mapping[Attention, Statistics]) -> Orders:
    """By the price given the refit (optimal brain surgeon)."""
    return {
        a: [(rise, head) for rise, [head] in head_removals(a.module, statistics)]
        for a, statistics in found.items()
    }


def by_importance(trained: Trained, batches: Batches) -> Orders:
    """By the importance of Michel et al. 2019, without its norm over a layer."""
    values = importance(trained.model, batches)
    return {
        a: sorted((x, i) for i, x in enumerate(values[a.type][a.layer]))
        for a in attentions(trained.model)
    }


def by_pairs(ladder: Ladder, seed: int = 1) -> Orders:
    """By ``1/2 1_R^T M 1_R / ln 2`` of the removed heads R, without a refit (Kwon et al. 2022).

    ``M_ij = 1/N sum_t (G_t . o_it)(G_t . o_jt)``, ``o_i`` a head's part of the output less its
    mean, G the gradient at the output, for labels drawn from the model, N target tokens.
    """
    trained, sums, number = ladder.trained, dict[Attention, Tensor](), 0
    model, generator = trained.model, torch.Generator().manual_seed(seed)
    means = {site.reader: h.mean(0) for site, (h, _) in zip(ladder.sites, ladder.seen, strict=True)}
    every = attentions(model)
    for batch in ladder.batches:
        calls = dict[Attention, tuple[Tensor, Tensor]]()
        with torch.enable_grad(), in_evaluation(model), _noted(every, calls):
            loss = summed_loss(model, batch, generator)
            gradients = torch.autograd.grad(loss, [calls[a][1] for a in every])
        for a, gradient in zip(every, gradients, strict=True):  # 0 at padding
            read = gradient.double() @ a.module.out_proj.weight.double()
            parts = (calls[a][0].double() - means[a.module]) * read
            of_heads = parts.unflatten(-1, (a.module.num_heads, -1)).sum(-1).flatten(0, 1)
            sums[a] = sums.get(a, 0.0) + of_heads.T @ of_heads
        number += int(predicted(model.decoder, batch).sum())
    return {a: cheapest_first(products.detach() / number) for a, products in sums.items()}


@contextmanager
def _noted(every: Sequence[Attention], calls: dict[Attention, tuple[Tensor, Tensor]]) -> Any:
    """Within it, what the output projection of each attention reads and writes is kept."""
    with ExitStack() as hooks:
        for attention in every:

            def see(_: Any, args: Any, output: Tensor, attention: Attention = attention) -> None:
                calls[attention] = args[0], output

            hooks.enter_context(attention.module.out_proj.register_forward_hook(see))
        yield


def cheapest_first(products: Tensor) -> list[tuple[float, int]]:
    """Heads in the order in which they raise ``1/2 1_R^T M 1_R / ln 2`` least."""
    order: list[tuple[float, int]] = []
    gone: list[int] = []
    while len(gone) < len(products):
        rises = products.diagonal() / 2 + products[:, gone].sum(1)
        rises[gone] = math.inf
        head = int(rises.argmin())
        order.append((float(rises[head]) / math.log(2), head))
        gone.append(head)
    return order


def without(trained: Trained, orders: Orders, number: int) -> Retained:
    """The heads that stay when a number of them goes, always the cheapest next one."""
    retained, queues = all_heads(trained), {a: [*of] for a, of in orders.items()}
    for _ in range(number):
        attention = min((a for a, of in queues.items() if of), key=lambda a: queues[a][0][0])
        _, head = queues[attention].pop(0)
        retained[attention.type][attention.layer].remove(head)
    return retained
