"""Attentions of every variant at random sizes, in double precision, and the equation of each."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import reference
import toy
from fairseq import utils
from hypothesis import strategies as st
from torch import Tensor

from fairseq_collab.attention import CollaborativeAttention, HeadAttention, SeparateAttention
from fairseq_collab.attention.building import SCALES
from fairseq_collab.attention.collaborative import QUERY_MIXINGS
from fairseq_collab.attention.gates import GatedAttention
from fairseq_collab.attention.grouped_query import GroupedQueryAttention
from fairseq_collab.attention.head_groups import FEATURES, HeadGroupAttention
from fairseq_collab.attention.latent import LatentAttention

utils.import_user_module(Namespace(user_dir=str(Path(__file__).parent / "examples" / "tied_heads")))

Draw = Callable[[st.SearchStrategy[Any]], Any]
Weights = dict[str, Tensor]
#: ``(x (T, d), y (S, d_y), weights, mask (T, S))`` to ``(T, d)``, one sentence.
Equation = Callable[[Tensor, Tensor, Weights, Tensor], Tensor]
Case = tuple[HeadAttention, Equation]

SIZE = st.integers(1, 7)


def heads_of(num_heads: int, scale: float) -> Equation:
    return lambda x, y, weights, mask: reference.heads(x, y, weights, num_heads, scale, mask)


def shared_key_of(num_heads: int, scale: float) -> Equation:
    return lambda x, y, weights, mask: reference.shared_key(x, y, weights, num_heads, scale, mask)


def divisor(number: int) -> st.SearchStrategy[int]:
    return st.sampled_from([n for n in range(1, number + 1) if number % n == 0])


def scale_of(name: str, d: int, h: int, scored_size: float) -> float:
    return (scored_size if name == "key" else d / h) ** -0.5


def separate(draw: Draw, d: int, h: int, kind: Any = SeparateAttention, **options: Any) -> Case:
    qk, scale = draw(SIZE), draw(st.sampled_from(SCALES))
    attention = kind(d, h, qk_head_size=qk, v_head_size=draw(SIZE), scale=scale, **options)
    return attention, heads_of(h, scale_of(scale, d, h, qk))


def grouped(draw: Draw, d: int, h: int, **options: Any) -> Case:
    options |= {"groups": draw(st.integers(1, h)), "feature": draw(st.sampled_from(FEATURES))}
    return separate(draw, d, h, HeadGroupAttention, **options)


def gated(draw: Draw, d: int, h: int, **options: Any) -> Case:
    """Each gate multiplies the output of its head, which ``out_proj`` reads."""
    attention, without = separate(draw, d, h, GatedAttention, **options)

    def equation(x: Tensor, y: Tensor, weights: Weights, mask: Tensor) -> Tensor:
        columns = attention.gates().repeat_interleave(attention.v_head_size)
        weights = {**weights, "out_proj.weight": weights["out_proj.weight"] * columns}
        return without(x, y, weights, mask)

    return attention, equation


def shared(draw: Draw, d: int, h: int, **options: Any) -> Case:
    key_dim, scale = draw(SIZE), draw(st.sampled_from(SCALES))
    options |= {"query_mixing": draw(st.sampled_from(QUERY_MIXINGS)), "scale": scale}
    options |= {"value_heads": draw(divisor(h)), "v_head_size": draw(SIZE)}
    attention = CollaborativeAttention(d, h, key_dim, mixing_init="xavier", **options)
    return attention, shared_key_of(h, scale_of(scale, d, h, key_dim / h))


def grouped_query(draw: Draw, d: int, h: int, **options: Any) -> Case:
    qk = draw(SIZE)
    options |= {"qk_head_size": qk, "v_head_size": draw(SIZE)}
    return GroupedQueryAttention(d, h, draw(divisor(h)), **options), heads_of(h, qk**-0.5)


def latent(draw: Draw, d: int, h: int, **options: Any) -> Case:
    qk, scale = draw(SIZE), draw(st.sampled_from(SCALES))
    options |= {"qk_head_size": qk, "v_head_size": draw(SIZE), "scale": scale}
    options |= {"normalise": draw(st.booleans())}
    factor = scale_of(scale, d, h, qk)
    return (
        LatentAttention(d, h, draw(SIZE), **options),
        lambda x, y, weights, mask: reference.latent(x, y, weights, h, factor, mask),
    )


def tied(draw: Draw, d: int, h: int, **options: Any) -> Case:
    """The documentation's example: standard heads with equal keys and values."""
    import tied_heads

    def equation(x: Tensor, y: Tensor, weights: Weights, mask: Tensor) -> Tensor:
        values = {f"v_proj.{part}": weights[f"k_proj.{part}"] for part in ("weight", "bias")}
        return heads_of(h, (d / h) ** -0.5)(x, y, weights | values, mask)

    return tied_heads.TiedAttention(d, h, **options), equation


VARIANTS = {
    draw.__name__: draw for draw in (separate, grouped, gated, shared, grouped_query, latent, tied)
}


def draw_case(draw: Draw, variant: str, **options: Any) -> Case:
    """An attention in evaluation with random weights, and its equation."""
    h = draw(st.integers(1, 4))
    d = h * draw(st.integers(1, 4))
    attention, equation = VARIANTS[variant](draw, d, h, **options)
    return toy.randomised(attention.double()).eval(), equation
