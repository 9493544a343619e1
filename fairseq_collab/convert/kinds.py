"""The kinds of heads that ``reparametrize`` makes: shared keys, narrower heads, groups, latents.

Scales are exact: the factor between the scale of the trained heads and that of the new ones goes
into the queries.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention
from fairseq_collab.attention.building import scaling
from fairseq_collab.attention.collaborative import widest_key
from fairseq_collab.convert.base import Converted, Part, Target
from fairseq_collab.convert.low_rank import (
    SHARED,
    blocks,
    equalising,
    largest,
    latents,
    own,
    separate,
)
from fairseq_collab.models.variants import COLLABORATIVE, CONCATENATED, GROUPED_QUERY, LATENT
from fairseq_collab.trained.attentions import Attention


def embed_scale(part: Part) -> float:
    """``(d/H)^-0.5``, the scale of the results."""
    return scaling("embed", part.module.embed_dim, part.module.num_heads, 1)


class Collaborative(Target):
    """Shared keys, with the query mixing that ``--query-mixing`` names."""

    variant = COLLABORATIVE
    heads = "shared keys"
    size, what = "key_dim", "key width"
    even = ("values",)

    def __init__(self, args: Namespace):
        super().__init__(args)
        self.options = {"attention_scale": "embed", "query_mixing": args.query_mixing}
        if args.value_heads is None:
            names = [f"value_heads_in_{type_}" for type_ in ATTENTION_TYPES]
            self.inherited = ("value_heads", *names, "v_head_size")
        else:
            self.options["value_heads"] = args.value_heads

    def check(self, place: Attention, path: Path) -> None:
        groups, module = self.args.value_heads, place.module
        if self.args.query_mixing != "own" and self.converts(module):
            what = f"{place}: its heads share keys already; only own queries narrow them exactly"
            raise UserError(what, path, "give --query-mixing own")
        if groups is None:
            return
        if todo := uneven(module.num_heads, groups):
            what = f"{place}: number of value heads {groups} is out of range"
            raise UserError(what, path, todo)
        if getattr(module, "value_heads", module.num_heads) < module.num_heads:
            what = f"{place}: its heads share {module.value_heads} values already"
            raise UserError(what, path, "leave --value-heads out: they stay")

    def largest(self, module: Any) -> int:
        most = widest_key(self.args.query_mixing, module.embed_dim, module.kdim)
        return int(min(super().largest(module), most))

    def kept(self, module: Any) -> int:
        return self.largest(module) if self.converts(module) else 0

    @staticmethod
    def converts(module: Any) -> bool:
        # Scale and query mixing are those of all attentions of a model.
        return isinstance(module, CollaborativeAttention)

    def convert(self, part: Part, size: int) -> Converted:
        weights, fit = shared_keys(part, size, self.args.query_mixing)
        if self.args.value_heads is None:
            return weights | part.kept("v_proj", "out_proj"), fit
        values, fit["value_error"] = grouped_values(part, self.args.value_heads)
        return weights | part.state(values), fit


class Narrower(Target):
    """Separate keys of a smaller size: the best of each head by itself."""

    variant = CONCATENATED
    heads = "separate keys"
    size, what = "key_dim", "key width"
    even = ("values",)
    options = {"attention_scale": "embed"}  # noqa: RUF012 (read only)
    inherited = ("v_head_size",)

    def out_of_range(self, module: Any, size: int) -> str | None:
        if size % module.num_heads:
            return f"give a multiple of its {module.num_heads} heads"
        return super().out_of_range(module, size)

    def convert(self, part: Part, size: int) -> Converted:
        queries, keys = separate(part.heads, part.roots, size // part.module.num_heads)
        weight, bias = stacked(queries / embed_scale(part))
        weights = {"q_proj.weight": weight, "q_proj.bias": bias}
        weights["k_proj.weight"] = keys.transpose(1, 2).flatten(0, 1)
        weights["k_proj.bias"] = weight.new_zeros(size)
        fit = {"error": part.score_error(queries, keys)}
        return part.state(weights) | part.kept("v_proj", "out_proj"), fit


class GroupedQuery(Target):
    """Grouped-query heads: neighbours share the key and the value that lose least."""

    variant = GROUPED_QUERY
    heads = "grouped-query heads"
    size, what = "key_value_heads", "number of key/value heads"
    even = ("keys", "values")

    def largest(self, module: Any) -> int:
        return int(module.num_heads)

    def out_of_range(self, module: Any, size: int) -> str | None:
        return uneven(module.num_heads, size)

    def convert(self, part: Part, size: int) -> Converted:
        heads, width = part.heads, part.heads.keys.size(2)
        groups = zip(heads.queries.chunk(size), heads.keys.chunk(size), strict=True)
        found = [own(heads._replace(queries=q, keys=k), part.roots, width) for q, k in groups]
        queries = torch.cat([one.query for one in found])  # (H, d + 1, h)
        keys = torch.stack([one.key for one in found])  # (G, d_y, h)
        weight, bias = stacked(queries / embed_scale(part))
        weights = {"q_proj.weight": weight, "q_proj.bias": bias}
        weights["k_proj.weight"] = keys.transpose(1, 2).flatten(0, 1)
        weights["k_proj.bias"] = weight.new_zeros(size * width)
        values, value_error = grouped_values(part, size)
        error = part.score_error(queries, keys.repeat_interleave(len(queries) // size, 0))
        return part.state(weights | values), {"error": error, "value_error": value_error}


class Latent(Target):
    """Latent heads.  An attention that is left as it is has its inputs as latents."""

    variant = LATENT
    heads = "latent heads"
    size, what = "latent_dim", "latent width"
    inherited = ("head_size", "qk_head_size", "v_head_size", "key_dim", "attention_scale")

    def largest(self, module: Any) -> int:
        return int(module.k_proj.in_features)

    @staticmethod
    def converts(module: Any) -> bool:
        return True

    def convert(self, part: Part, size: int) -> Converted:
        heads = part.heads
        down, key_up, value_up = latents(heads, part.roots, part.value_roots, size)
        keys, values = down @ key_up, down @ value_up  # (H, d_y, e), (H, d_y, h_v)
        weights = {
            "latent_proj.weight": down.T,
            "latent_proj.bias": down.new_zeros(size),
            "k_proj.weight": key_up.transpose(1, 2).flatten(0, 1),
            "v_proj.weight": value_up.transpose(1, 2).flatten(0, 1),
            "out_proj.bias": part.out_bias(values, heads.out),
        }
        kept = part.kept("q_proj", "out_proj.weight")
        fit = {
            "error": part.score_error(heads.queries, keys),
            "value_error": part.value_error(values, heads.out),
        }
        return kept | part.state(weights), fit


def shared_keys(part: Part, size: int, mixing: str) -> Converted:
    """Queries and keys of :class:`.CollaborativeAttention` with a shared key of width ``size``.

    ``mixing`` is a query mixing, or ``separate``: see :func:`.blocks`.
    """
    make = blocks if mixing == "separate" else SHARED[mixing]
    shared = make(part.heads, part.roots, size)
    queries, scale = shared.queries(), embed_scale(part)
    if shared.mixing is None:
        weight, bias = stacked(shared.query / scale)
        weights = {}
    else:
        weight, bias = stacked(shared.query.unsqueeze(0))
        weights = {"mixing": shared.mixing / scale}
    weights |= {
        "q_proj.weight": weight,
        "q_proj.bias": bias,
        "k_proj.weight": shared.key.T,
        "k_proj.bias": weight.new_zeros(size),
    }
    return part.state(weights), {"error": part.score_error(queries, shared.key.unsqueeze(0))}


def grouped_values(part: Part, groups: int) -> tuple[dict[str, Tensor], float]:
    """Values shared by groups of neighbouring heads, and their relative error.

    The value of a group, of width h_v, has the largest eigenvectors of ``sum_i T_i T_i^T`` over its
    heads, with ``T_i = Z^1/2 V_i Wo_i^T``; each head has its output projection.
    """
    heads, (metric, inverse) = part.heads, part.value_roots
    maps, read = metric @ heads.values[:, :-1], heads.out.mT @ heads.out  # (H, d_y, h_v)
    gram = (maps @ read @ maps.mT).unflatten(0, (groups, -1)).sum(1)  # (G, d_y, d_y)
    each = largest(gram, maps.size(2)).repeat_interleave(len(maps) // groups, 0)  # (H, d_y, h_v)
    values, out = inverse @ each, heads.out @ (maps.mT @ each)  # (H, d_y, h_v), (H, d, h_v)
    of_group = out.square().mean(1).unflatten(0, (groups, -1)).mean(1)  # (G, h_v)
    scale = equalising(of_group.repeat_interleave(len(maps) // groups, 0), values.square().mean(1))
    values, out = values * scale.unsqueeze(1), out / scale.unsqueeze(1)
    shared = values[:: len(maps) // groups].transpose(1, 2).flatten(0, 1)  # (G h_v, d_y)
    weights = {
        "v_proj.weight": shared,
        "v_proj.bias": shared.new_zeros(len(shared)),
        "out_proj.weight": out.transpose(0, 1).flatten(1),
        "out_proj.bias": part.out_bias(values, out),
    }
    return weights, part.value_error(values, out)


def stacked(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Maps ``(G, n + 1, e)`` as one projection: weight ``(G e, n)`` and bias ``(G e)``."""
    rows = maps.transpose(1, 2).flatten(0, 1)  # (G e, n + 1)
    return rows[:, :-1].contiguous(), rows[:, -1].contiguous()


def uneven(heads: int, groups: int) -> str | None:
    """The advice of an error, where ``groups`` do not divide ``heads``; else None."""
    if groups >= 1 and heads % groups == 0:
        return None
    good = [str(number) for number in range(1, heads + 1) if heads % number == 0]
    return f"give one that divides its {heads} heads: {', '.join(good)}"


#: By the values of ``--to``.
TARGETS: dict[str, type[Target]] = {
    "collab": Collaborative,
    "headsize": Narrower,
    "grouped-query": GroupedQuery,
    "latent": Latent,
}
