"""Groups of heads that share a value, and keep a key each: shared keys whose mixing is blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from collab_lab.mathematics.new_heads import PricedWeights
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.mathematics.shared_projection import STEPS, WeightedMaps, grouped
from collab_lab.shrinking.cuts.shared_key import SharedKey
from collab_lab.shrinking.shape import Blueprint, Shape, Site, shared_keys_kind


class _ValueGroups(SharedKey):
    groups: int

    def __init__(self) -> None:
        super().__init__("diagonal")
        keys = shared_keys_kind("diagonal")

        def blueprint(module: Any, number: int, size: int) -> Blueprint:
            attention, arguments = keys.blueprint(module, number, size)
            return Blueprint.of(attention, **dict(arguments), value_heads=self.groups)

        options = {**keys.options, "value_heads": self.groups}
        self.kind = replace(keys, name=self.name, blueprint=blueprint, options=options)

    def grid(self, module: Any) -> list[int]:
        return [self.exact_size(module)] if module.num_heads % self.groups == 0 else []

    def fits(self, site: Site, shape: Shape) -> bool:
        return len(shape.heads) == site.module.num_heads > self.groups

    def convert(self, attention: PricedAttention, size: int, steps: int = STEPS) -> PricedWeights:
        maps = attention.maps
        heads = len(maps.out)
        parts = WeightedMaps.values(maps, attention.statistics)
        out, values = grouped(parts, maps.out, self.groups, steps)
        of_heads = values.repeat_interleave(heads // self.groups, 0)
        value = values.transpose(1, 2).flatten(0, 1)
        new = {
            "mixing": torch.eye(heads).repeat_interleave(size // heads, 1).to(value),
            "v_proj.weight": value,
            "v_proj.bias": value.new_zeros(len(value)),
            "out_proj.weight": out.transpose(0, 1).flatten(1),
            "out_proj.bias": attention.out_bias(of_heads, out),
        }
        weights = attention.copied("q_proj", "k_proj") | attention.state(new)
        return weights, attention.value_price(of_heads, out)


class HalfOfValues(_ValueGroups):
    name, groups = "values-of-2", 2


class OneValue(_ValueGroups):
    name, groups = "values-of-1", 1
