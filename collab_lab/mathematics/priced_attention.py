"""Prices: the predicted rise of the loss, in bits per target token, if an attention changes.

    1/2 sum_i [ tr(D_i^T X D_i Gamma_i) + tr(F_i^T Z_i F_i Delta) ] / ln 2     of D_i, F_i
    1/2 mean_s n_s Psi n_s^T / ln 2                            with errors n of keys and values

``D_i`` is the change of ``A_i B_i^T``, ``F_i`` that of ``V_i Wo_i^T`` (without its constant row).
The output's bias absorbs the mean of what a change loses.  ``n_s`` is the actual change from
rounding the cache at tokens ``s``, the inputs that the statistics keep, so that no model of the
quantiser's noise is assumed, at any width.  These are second-order approximations; the statistics
are those of :mod:`collab_lab.statistics.moments`, with the independence that K-FAC assumes (Martens
and Grosse 2015).  Changes ``D_i``, ``F_i`` of several heads are also assumed to be independent;
removed heads are not.  Prices of several attentions add up.
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
        statistics: if None, all directions of the weights count equally.
    """

    def __init__(self, module: Any, statistics: Statistics | None):
        self.module, self.maps = module, HeadMaps.of(module)
        self.statistics = (statistics or Statistics.unweighted(self.maps)).ridged()
        #: ``(d/H)^-0.5``, the scale of heads that become shared or separate keys.
        self.scale = float((module.embed_dim / module.num_heads) ** -0.5)

    def state(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """These weights in the data type of the trained attention."""
        dtype = self.module.k_proj.weight.dtype
        return {name: value.detach().to(dtype).contiguous() for name, value in weights.items()}

    def copied(self, *names: str) -> dict[str, Tensor]:
        """The weights and biases of projections that do not change, as they are in the module."""
        weights = self.module.state_dict()
        return {name: weight for name, weight in weights.items() if name.startswith(names)}

    def key_price(self, queries: Tensor, keys: Tensor) -> float:
        """The price, in bits, of new queries ``(H, d + 1, k)`` and keys ``(H or 1, d_y, k)``."""
        maps, found = self.maps, self.statistics
        left, right = change_of(maps.queries, maps.keys, queries, keys)  # D: (H, d + 1, d_y)
        return _price(found.query_moment, left, right, found.key_fisher)

    def value_price(self, values: Tensor, out: Tensor) -> float:
        """The price, in bits, of new values ``(H, d_y, v)`` and outputs ``(H, d, v)``."""
        maps, found = self.maps, self.statistics
        right, left = change_of(maps.out, maps.values[:, :-1], out, values)  # F: (H, d_y, d)
        return _price(found.value_covariance, left, right, found.output_fisher)

    def out_bias(self, values: Tensor, out: Tensor) -> Tensor:
        """The output's bias ``(d)`` for new outputs and new values, which have no bias.

        Attention weights sum to one, so the output's bias can contain the biases of the trained
        values exactly.  It also contains the loss at the mean of the inputs that a head reads.
        """
        maps = self.maps
        mean = self.statistics.value_mean.unsqueeze(1)  # (H, 1, d_y)
        lost = mean @ maps.values[:, :-1] @ maps.out.mT - mean @ values @ out.mT
        constant = torch.einsum("hdk,hk->d", maps.out, maps.values[:, -1])
        return maps.out_bias + constant + lost.sum((0, 1))

    def rounding_price(
        self, weights: Mapping[str, Tensor] | None, bits: int, scale: float | None = None
    ) -> float:
        """The price of rounding the cache of a new attention with these weights to ``bits``."""
        return self.rounding_prices(weights, [bits], scale)[0]

    def rounding_prices(
        self,
        weights: Mapping[str, Tensor] | None,
        numbers: Sequence[int],
        scale: float | None = None,
    ) -> list[float]:
        """The prices of rounding the cache of a new attention with these weights.

        The keys and values of the inputs in the statistics are really rounded.

        Args:
            weights: weights of the new attention; None: the trained attention itself, whose
                present rounding is free because it is part of the model's loss already.
            numbers: numbers of bits to price; 0: no rounding.
            scale: scale of the scores of the new attention; default: ``(d/H)^-0.5``.
        """
        own = own_bits(self.module) if weights is None else 0
        free = {0, own}
        if not {*numbers} - free:
            return [0.0] * len(numbers)
        price = self._price_of_errors(weights, scale)
        return [0.0 if bits in free else price(partial(rounded, bits=bits)) for bits in numbers]

    def error_price(self, change: Callable[[Tensor], Tensor]) -> float:
        """The price of a change of the cached keys and values, ``(n, numbers)``."""
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
    """Factors ``(H, n, k)``, ``(H, m, k)`` of ``left right^T - new_left new_right^T``.

    Their rank is low: the difference itself ``(H, n, m)`` would be large.
    """
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
    """Convert errors of shared keys (or values) to errors of the trained heads' own: ``(n, H e)``.

    Args:
        errors: ``(n, G e')``.
        products: see :func:`products_of`.
    """
    of_groups = errors.unflatten(1, (-1, products.size(2)))  # (n, G, e')
    of_heads = for_each_head(of_groups.transpose(0, 1).unsqueeze(0), len(products))[0]
    return (of_heads @ products.mT).transpose(0, 1).flatten(1)  # of (H, n, e')
