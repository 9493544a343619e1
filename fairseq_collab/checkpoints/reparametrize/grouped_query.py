"""The target ``grouped-query``: ``G`` heads of keys and values (Ainslie et al. 2023)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fairseq_collab.checkpoints.reparametrize.grouped import grouped, matched, uneven
from fairseq_collab.checkpoints.reparametrize.heads import Weighed
from fairseq_collab.checkpoints.reparametrize.target import Target
from fairseq_collab.models.variants import GROUPED_QUERY


class GroupedQuery(Target):
    """Grouped-query heads."""

    variant = GROUPED_QUERY
    heads = "grouped-query heads"
    size, what = "key_value_heads", "number of key/value heads"

    @staticmethod
    def largest(module: Any) -> int:
        return int(module.num_heads)

    @staticmethod
    def unfit(module: Any) -> str | None:
        sizes = {"keys": module.qk_head_size, "values": module.v_head_size}
        for name, size in sizes.items():
            if size * module.num_heads != module.embed_dim:
                return f"{module.num_heads} heads have {name} of size {size}"
        return None

    @classmethod
    def out_of_range(cls, module: Any, size: int) -> str | None:
        return uneven(module.num_heads, size)

    def convert(
        self, module: Any, part: Weighed, size: int
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Errors are those of :meth:`.Weighed.errors`."""
        if self.args.match_heads:
            part = part.in_order(matched(part.keys, part.values, size, self.args.pooling))
        heads, keys, values = grouped(part, size, self.args.pooling)
        return heads.state(module.q_proj.weight), part.errors(keys, values)
