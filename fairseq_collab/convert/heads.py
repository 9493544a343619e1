"""The weights of an attention's heads, one by one, and what they make of calibration sentences.

    head_i = softmax(s (x Wq_i^T + bq_i)(y Wk_i^T + bk_i)^T)(y Wv_i^T + bv_i),
    output = sum_i head_i Wo_i^T + bo

Shapes: ``Wq_i (h, d)``, ``Wk_i (h, d_y)``, ``Wv_i (h_v, d_y)``, ``Wo_i (d, h_v)``, ``bo (d)``.

Collaborative heads are such heads, too, exactly: ``Wq_i = diag(m_i) Wq~``, ``Wk_i = Wk~``.  A
content score ``y c_i`` is one more dimension, whose query is the bias 1 and whose key is ``c_i``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_collab.attention import CollaborativeAttention
from fairseq_collab.convert.calibrate import Moments
from fairseq_collab.convert.low_rank import Projections


class Heads(NamedTuple):
    """All heads' weights in double precision; a head is an index of the first dimension.

    ``wq (H, h, d)``, ``bq (H, h)``, ``wk (H, h, d_y)``, ``bk (H, h)``, ``wv (H, h_v, d_y)``,
    ``bv (H, h_v)``, ``wo (H, d, h_v)``, ``bo (d)``.
    """

    wq: Tensor
    bq: Tensor
    wk: Tensor
    bk: Tensor
    wv: Tensor
    bv: Tensor
    wo: Tensor
    bo: Tensor

    @classmethod
    def of(cls, module: Any) -> Heads:
        """Those of fairseq's attention, of our concatenated heads, or of collaborative ones.

        ``s`` is ``module.scaling``.
        """
        heads = values = module.num_heads
        if isinstance(module, CollaborativeAttention):
            values = module.value_heads
            (wq, bq), (wk, bk) = _collaborative(module)
        else:
            (wq, bq), (wk, bk) = (_of_each(part, heads) for part in (module.q_proj, module.k_proj))
        wv, bv = (x.repeat_interleave(heads // values, 0) for x in _of_each(module.v_proj, values))
        out = module.out_proj.weight.detach().double()  # (d, H h_v)
        each = out.unflatten(1, (heads, -1)).transpose(0, 1)  # (H, d, h_v)
        bo = module.out_proj.bias
        bo = out.new_zeros(len(out)) if bo is None else bo.detach().double()
        return cls(wq, bq, wk, bk, wv, bv, each, bo)

    def state(self, like: Tensor) -> dict[str, Tensor]:
        """The state dict of concatenated or shared heads, of the type of ``like``."""
        weights = {
            "q_proj.weight": self.wq.flatten(0, 1),
            "q_proj.bias": self.bq.flatten(),
            "k_proj.weight": self.wk.flatten(0, 1),
            "k_proj.bias": self.bk.flatten(),
            "v_proj.weight": self.wv.flatten(0, 1),
            "v_proj.bias": self.bv.flatten(),
            "out_proj.weight": self.wo.transpose(0, 1).flatten(1),
            "out_proj.bias": self.bo,
        }
        return {name: weight.to(like.dtype).contiguous() for name, weight in weights.items()}

    def in_order(self, order: list[int]) -> Heads:
        """The same function, its heads in another order."""
        return Heads._make([*(part[order] for part in self[:-1]), self.bo])

    def content(self) -> Tensor:
        """``Wk_i^T bq_i (H, d_y)``: what a key scores whatever the query is."""
        return torch.einsum("hk,hke->he", self.bq, self.wk)

    def outputs(self, values: Tensor) -> Tensor:
        """``sum_i Wo_i v_i (d)`` of ``v (H, h_v)``."""
        return torch.einsum("hdk,hk->d", self.wo, values)

    def projections(self, seen: Moments | None, weighting: str) -> tuple[Projections, Projections]:
        """The keys, read by the queries, and the values, read by the output projection.

        Errors are weighted as :data:`.calibrate.WEIGHTINGS` says.
        """
        query, key, value = (None,) * 3 if seen is None else seen.with_biases(weighting)
        queries = torch.cat([self.wq, self.bq.unsqueeze(2)], 2)  # (H, h, d + 1)
        read = queries if query is None else queries @ query
        return (
            Projections.read_with(self.wk, read @ queries.mT, key),
            Projections.read_with(self.wv, self.wo.mT @ self.wo, value),
        )


def _of_each(projection: Any, heads: int) -> tuple[Tensor, Tensor]:
    """Weights ``(H, h, d)`` and biases ``(H, h)``, zeros where it has none."""
    weight = projection.weight.detach().double().unflatten(0, (heads, -1))
    if projection.bias is None:
        return weight, weight.new_zeros(weight.shape[:2])
    return weight, projection.bias.detach().double().unflatten(0, (heads, -1))


def mixing_of(module: CollaborativeAttention) -> Tensor:
    """``M (H, K)``, with what scales of single heads are more than ``module.scaling``."""
    return (module.scaled_mixing() / module.scaling).detach().double()


def _collaborative(module: CollaborativeAttention) -> tuple[tuple[Tensor, Tensor], ...]:
    """``Wq (H, h, d)``, ``bq (H, h)``, and those of the keys; h is K, or with content biases K+1.

    The keys' bias, which cancels in the softmax, is zero.
    """
    mixing, heads = mixing_of(module), module.num_heads  # (H, K)
    (query, bias), (key, _) = (_of_each(part, 1) for part in (module.q_proj, module.k_proj))
    wq, bq = mixing.unsqueeze(2) * query, mixing * bias
    wk = key.expand(heads, -1, -1)
    if module.bias == "content":
        scales = torch.as_tensor(module.scales() / module.scaling).detach().double()  # (H, 1) or ()
        content = (scales * module.content_bias.detach().double()).unsqueeze(1)  # (H, 1, d_y)
        wq = torch.cat([wq, wq.new_zeros(heads, 1, wq.size(2))], 1)
        bq, wk = torch.cat([bq, bq.new_ones(heads, 1)], 1), torch.cat([wk, content], 1)
    return (wq, bq), (wk, wk.new_zeros(wk.shape[:2]))


class Weighed(NamedTuple):
    """Heads, and what errors in their keys and values cost on calibration sentences.

    ``keys`` and ``values`` are in the metric that is minimised, ``scores`` are the keys in that of
    the logits; ``scores`` and ``input_mean (d_y)``, of keys and values, are None without sentences.
    """

    heads: Heads
    keys: Projections
    values: Projections
    scores: Projections | None = None
    input_mean: Tensor | None = None

    @classmethod
    def of(cls, module: Any, seen: Moments | None, weighting: str) -> Weighed:
        """Those of one attention, with one of :data:`.calibrate.WEIGHTINGS`."""
        heads = Heads.of(module)
        keys, values = heads.projections(seen, weighting)
        if seen is None:
            return cls(heads, keys, values)
        scores, _ = heads.projections(seen, "scores")
        return cls(heads, keys, values, scores, seen.value_mean)

    def in_order(self, order: list[int]) -> Weighed:
        """The same function, its heads in another order."""
        heads, keys, values = self.heads.in_order(order), self.keys[order], self.values[order]
        scores = None if self.scores is None else self.scores[order]
        return Weighed(heads, keys, values, scores, self.input_mean)

    def errors(self, keys: Tensor, values: Tensor) -> dict[str, float | None]:
        """Relative errors of other keys and values ``(H, h, d_y)``: of the scores, of the outputs,
        and of the logits on the calibration sentences, if there are any."""
        return {
            "error": self.keys.relative_error(keys),
            "value_error": self.values.relative_error(values),
            "logit_error": None if self.scores is None else self.scores.relative_error(keys),
        }
