"""Prices: by how many bits per target token a change of an attention is to increase the loss.

    1/2 sum_i [ tr(D_i^T X D_i Gamma_i) + tr(F_i^T Z_i F_i Delta) ] / ln 2     of D_i, F_i
    1/2 mean_s n_s Psi n_s^T / ln 2                            with errors n of keys and values

``D_i`` is the change of ``A_i B_i^T``, ``F_i`` that of ``V_i Wo_i^T`` (without its constant row).
The mean of what a change loses goes into the bias of the output.  ``n_s`` is what the rounding of a
cache really changes at tokens ``s``, the inputs that the statistics keep: so the noise of a
quantiser is not assumed, at a width that no model has, either.  These are second-order
approximations; the statistics are those of :mod:`.statistics`, with the independence that K-FAC
assumes (Martens and Grosse 2015).  Changes ``D_i``, ``F_i`` of several heads are taken as
independent, too; removed heads are not.  Prices of several attentions add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from collab_lab.statistics.moments import Statistics
from collab_lab.trained.attentions import HeadMaps, own_bits
from fairseq_collab.attention.rounding import rounded
from fairseq_collab.attention.scores import for_each_head


class PricedAttention:
    """A trained attention, its maps, and the statistics that price changes of them.

    Args:
        statistics: without them all directions of the weights count equally.
    """

    def __init__(self, module: Any, statistics: Statistics | None):
        self.module, self.maps = module, HeadMaps.of(module)
        self.statistics = (statistics or Statistics.unweighted(self.maps)).ridged()
        #: ``(d/H)^-0.5``, the scale of converted heads.
        self.scale = float((module.embed_dim / module.num_heads) ** -0.5)

    def state(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights in the precision of the trained attention."""
        dtype = self.module.k_proj.weight.dtype
        return {name: value.detach().to(dtype).contiguous() for name, value in weights.items()}

    def copied(self, *names: str) -> dict[str, Tensor]:
        """Weights and biases of projections that stay as they are."""
        weights = self.module.state_dict()
        return {name: weight for name, weight in weights.items() if name.startswith(names)}

    def key_price(self, queries: Tensor, keys: Tensor) -> float:
        """Price of other queries ``(H, d + 1, k)`` and keys ``(H or 1, d_y, k)``, in bits."""
        maps, found = self.maps, self.statistics
        left, right = change_of(maps.queries, maps.keys, queries, keys)  # D: (H, d + 1, d_y)
        return _price(found.query_moment, left, right, found.key_fisher)

    def value_price(self, values: Tensor, out: Tensor) -> float:
        """Price of other values ``(H, d_y, v)`` and outputs ``(H, d, v)``, in bits."""
        maps, found = self.maps, self.statistics
        right, left = change_of(maps.out, maps.values[:, :-1], out, values)  # F: (H, d_y, d)
        return _price(found.value_covariance, left, right, found.output_fisher)

    def out_bias(self, values: Tensor, out: Tensor) -> Tensor:
        """The output's bias ``(d)`` for other values, which have no bias, and outputs.

        Attention weights sum to one.  So it contains the biases of the trained values exactly, and
        what the mean of the inputs that a head reads loses.
        """
        maps = self.maps
        mean = self.statistics.value_mean.unsqueeze(1)  # (H, 1, d_y)
        lost = mean @ maps.values[:, :-1] @ maps.out.mT - mean @ values @ out.mT
        constant = torch.einsum("hdk,hk->d", maps.out, maps.values[:, -1])
        return maps.out_bias + constant + lost.sum((0, 1))

    def rounding_price(
        self, weights: Mapping[str, Tensor] | None, bits: int, scale: float | None = None
    ) -> float:
        """Price of rounding what a new attention with these weights caches to ``bits``."""
        return self.rounding_prices(weights, [bits], scale)[0]

    def rounding_prices(
        self,
        weights: Mapping[str, Tensor] | None,
        numbers: Sequence[int],
        scale: float | None = None,
    ) -> list[float]:
        """Prices of rounding what a new attention with these weights caches to numbers of bits.

        What it would cache of the statistics' inputs is rounded.  0 bits are no rounding.

        Args:
            weights: None for the trained attention itself.  The rounding that it has already is
                part of its model's loss, that of new weights to as many bits is not.
            scale: of the scores of new weights; default: ``(d/H)^-0.5``.
        """
        own = own_bits(self.module) if weights is None else 0
        free = {0, own}
        if not {*numbers} - free:
            return [0.0] * len(numbers)
        price = self._price_of_errors(weights, scale)
        return [0.0 if bits in free else price(partial(rounded, bits=bits)) for bits in numbers]

    def error_price(self, change: Callable[[Tensor], Tensor]) -> float:
        """Price of a change of what is cached, ``(n, numbers)``: of keys, and of values."""
        return self._price_of_errors(None, None)(change)

    def _price_of_errors(
        self, weights: Mapping[str, Tensor] | None, scale: float | None
    ) -> Callable[[Callable[[Tensor], Tensor]], float]:
        """The price of a change of what an attention with these weights caches.

        An error of a shared key (value) is one of the keys of all heads that read it.
        """
        maps, found = self.maps, self.statistics
        scale = self.module.scaling if weights is None else scale or self.scale
        is_latent = weights is None and getattr(self.module, "has_latent", False)
        weights = self.module.state_dict() if weights is None else weights
        new = {name: weight.double() for name, weight in weights.items()}

        products: dict[str, Tensor | None] = {"latent_proj": None}
        if is_latent or "latent_proj.weight" in new:
            up = torch.cat([new["k_proj.weight"], new["v_proj.weight"]])  # (H (e + h_v), r)
            fisher = up.T @ found.cache_fisher @ up
        else:
            queries = queries_of(new, len(maps.queries)) * scale
            out = new["out_proj.weight"].unflatten(1, (len(maps.out), -1)).transpose(0, 1)
            products = {
                "k_proj": products_of(maps.queries, queries, found.query_moment),
                "v_proj": products_of(maps.out, out, found.output_fisher),
            }
            fisher = found.cache_fisher
        cached = {
            name: functional.linear(found.inputs, new[f"{name}.weight"], new.get(f"{name}.bias"))
            if f"{name}.weight" in new
            else found.inputs  # a latent that is the inputs themselves
            for name in products
        }  # (n, numbers)

        def price(change: Callable[[Tensor], Tensor]) -> float:
            errors = []
            for name, made in cached.items():
                error, of_heads = change(made) - made, products[name]
                errors.append(error if of_heads is None else at_trained_heads(error, of_heads))
            both = torch.cat(errors, 1)  # (n, r) or (n, H (e + h_v))
            return _bits(both @ fisher, both) / len(both)

        return price


def change_of(
    left: Tensor, right: Tensor, new_left: Tensor, new_right: Tensor
) -> tuple[Tensor, Tensor]:
    """Factors ``(H, n, k)``, ``(H, m, k)`` of ``left right^T - new_left new_right^T``."""
    if new_left is left:
        return left, right - new_right
    new_right = new_right.expand(len(left), -1, -1)
    return torch.cat([left, new_left], 2), torch.cat([right, -new_right], 2)


def _price(x: Tensor, left: Tensor, right: Tensor, y: Tensor) -> float:
    """``tr(D^T x D y) / 2`` of ``D = left right^T``, summed over heads, from nats to bits."""
    if left.size(2) < min(left.size(1), right.size(1)):
        return _bits(left.mT @ x @ left, right.mT @ y @ right)
    change = left @ right.mT
    return _bits(x @ change, change @ y)


def _bits(left: Tensor, right: Tensor) -> float:
    """Half of the sum over heads of ``tr(left^T right)``, from nats to bits."""
    return max(0.0, float((left * right).sum())) / 2 / math.log(2)


def queries_of(weights: Mapping[str, Tensor], heads: int) -> Tensor:
    """Unscaled queries ``(H, d + 1, e)`` of an attention with these weights."""
    queries = torch.cat([weights["q_proj.weight"], weights["q_proj.bias"].unsqueeze(1)], 1).T
    mixing = weights.get("mixing")
    if mixing is None:
        return queries.unflatten(1, (heads, -1)).transpose(0, 1)
    return queries * mixing.unsqueeze(1) if mixing.dim() == 2 else queries @ mixing


def products_of(maps: Tensor, new_maps: Tensor, metric: Tensor) -> Tensor:
    """R ``(H, e, e')`` with which new queries (outputs) are ``A' = A R``, by least squares.

    Args:
        maps, new_maps: ``A (H, m, e)`` and ``A' (H, m, e')``.
        metric: of the products, ``(m, m)``.
    """
    weighted = maps.mT @ metric  # (H, e, m)
    return torch.linalg.pinv(weighted @ maps, hermitian=True) @ (weighted @ new_maps)


def at_trained_heads(errors: Tensor, products: Tensor) -> Tensor:
    """What errors of shared keys (values) are at the trained heads' own: ``(n, H e)``.

    Args:
        errors: ``(n, G e')``.
        products: see :func:`products_of`.
    """
    of_groups = errors.unflatten(1, (-1, products.size(2)))  # (n, G, e')
    of_heads = for_each_head(of_groups.transpose(0, 1).unsqueeze(0), len(products))[0]
    return (of_heads @ products.mT).transpose(0, 1).flatten(1)  # of (H, n, e')
