"""Heads with narrower values: a truncated SVD of each head's value times output projection.

    B = Wv_i Wo_i^T,   B' = Wv'_i Wo'_i^T of rank r,   at the least tr((B - B')^T M (B - B') G)

Keys stay as they are, so that the cache has ``r`` numbers per head in place of ``h_v``.  ``M`` is
the covariance of what a head reads, and ``G`` the second moment of the gradients of its output.

This is also a plug-in: the result is read with ``--user-dir`` and the folder of this file.
"""

from dataclasses import dataclass
from typing import Any

import torch
from fairseq.models.transformer import TransformerConfig

from collab_lab.mathematics.new_heads import PricedWeights
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.mathematics.shared_projection import WeightedMaps
from collab_lab.shrinking.cut import NewHeads
from collab_lab.shrinking.shape import Blueprint, Kind, key_value_sizes
from fairseq_collab.attention import SeparateAttention
from fairseq_collab.models.base import Variant, register
from fairseq_collab.models.families import LANGUAGE_MODEL, TRANSLATION
from fairseq_collab.models.options import Site, at_layer, in_types, option
from fairseq_collab.models.separate_heads import SeparateOptions, head_options


@in_types("value_size", "size of a head's value", "0: --v-head-size")
@dataclass
class NarrowOptions(SeparateOptions):
    value_size: int = option(0, "size of a head's value; 0: --v-head-size")


def attention(cfg: TransformerConfig, site: Site) -> SeparateAttention:
    heads, options = head_options(cfg, site)
    if size := at_layer(cfg, "value_size", site, 0, 0):
        options["v_head_size"] = size
    return SeparateAttention(site.embed_dim, heads, **options)


NARROW = Variant("narrow_values", attention, NarrowOptions, (TRANSLATION, LANGUAGE_MODEL))
register(NARROW)


def blueprint(module: Any, heads: int, size: int) -> Blueprint:
    keys = {"qk_head_size": key_value_sizes(module)[0], "kdim": module.kdim}
    sizes = {"embed_dim": module.embed_dim, "num_heads": heads, "v_head_size": size}
    return Blueprint.of(SeparateAttention, **sizes, **keys)


class NarrowValues(NewHeads):
    name = "narrow-values"
    kind = Kind(
        name,
        NARROW,
        heads_name="narrow values",
        size_name="value size",
        size_option="value_size",
        blueprint=blueprint,
        exact=lambda module, heads: key_value_sizes(module)[1],
        inherited=("head_size", "qk_head_size", "v_head_size", "key_dim", "attention_scale"),
    )

    def convert(self, attention: PricedAttention, size: int, steps: int = 0) -> PricedWeights:
        maps, moments, gradients = WeightedMaps.values(attention.maps, attention.statistics)
        ridge = 1e-9 * gradients.diagonal(dim1=1, dim2=2).mean(1, keepdim=True)  # (H, 1)
        ridges = torch.diag_embed(ridge.expand(gradients.shape[:2]))  # invertible with few tokens
        root = torch.linalg.cholesky(gradients + ridges)
        weighted = maps @ root  # (H, d_y, h_v)
        _, vectors = torch.linalg.eigh(weighted.mT @ moments @ weighted)
        kept = vectors[..., -size:]  # (H, h_v, r)
        values = weighted @ kept  # (H, d_y, r)
        out = attention.maps.out @ torch.linalg.solve_triangular(root.mT, kept, upper=True)
        value = values.mT.flatten(0, 1)
        new = {
            "v_proj.weight": value,
            "v_proj.bias": value.new_zeros(len(value)),
            "out_proj.weight": out.transpose(0, 1).flatten(1),
            "out_proj.bias": attention.out_bias(values, out),
        }
        weights = attention.copied("q_proj", "k_proj") | attention.state(new)
        return weights, attention.value_price(values, out)
