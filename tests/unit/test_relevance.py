"""Relevance propagation: by hand, by loops, and conserved in every kind of model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from torch import Tensor, nn
from toy_heads import build, double, sample

from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError
from collab_lab.analysis import relevance
from collab_lab.analysis.attention_weights import head_outputs
from collab_lab.analysis.relevance import Relevance, shared_relevance

# ---- an encoder layer, neuron by neuron ----------------------------------------------------------


def ratio_rule(weight: Tensor, x: Tensor, bias: Tensor, given: Tensor) -> Tensor:
    """The rule as it is printed: ``(m, n), (n), (m), (m) -> (n)``."""
    found = torch.zeros_like(x)
    for v in range(len(given)):
        total = sum(weight[v, u] * x[u] for u in range(len(x))) + bias[v]
        for u in range(len(x)):
            found[u] += weight[v, u] * x[u] / total * given[v]
    return found


def through_norm(norm: nn.LayerNorm, x: Tensor, given: Tensor) -> Tensor:
    """Of ``(T, d)``, row by row: a linear map for a constant deviation."""
    rows = []
    for row, arriving in zip(x, given, strict=True):
        centre = torch.eye(len(row)).double() - 1 / len(row)
        weight = norm.weight[:, None] * centre / (row.var(unbiased=False) + norm.eps).sqrt()
        rows.append(ratio_rule(weight, row, norm.bias, arriving))
    return torch.stack(rows)


def through_linear(linear: nn.Linear, x: Tensor, given: Tensor) -> Tensor:
    rows = zip(x, given, strict=True)
    return torch.stack([ratio_rule(linear.weight, row, linear.bias, r) for row, r in rows])


def through_products(a: Tensor, b: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """``R_u = u / (u + u') R`` of each product in ``a b``: ``(T, n), (n, S), (T, S)``."""
    of_a, of_b, product = torch.zeros_like(a), torch.zeros_like(b), a @ b
    for t, s, n in torch.cartesian_prod(*map(torch.arange, (*product.shape, len(b)))).tolist():
        arriving = a[t, n] * b[n, s] / product[t, s] * given[t, s]
        of_a[t, n] += a[t, n] / (a[t, n] + b[n, s]) * arriving
        of_b[n, s] += b[n, s] / (a[t, n] + b[n, s]) * arriving
    return of_a, of_b


def through_encoder_layer(layer: Any, x: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """Relevance at the input ``(T, d)`` and at the concatenated heads ``(T, H * h_v)``."""
    attention = layer.self_attn
    y = x.unsqueeze(1)  # (T, 1, d)
    q, k, v = (attention.project_query(y)[0], attention.project_key(y)[0],
               attention.project_value(y)[0])  # (H, T, e)  # fmt: skip
    weights = (q @ k.transpose(1, 2)).softmax(-1)
    heads = (weights @ v).transpose(0, 1).flatten(1)  # (T, H * h_v)
    attended = attention.out_proj(heads)
    middle = layer.self_attn_layer_norm(x + attended)
    hidden = torch.relu(layer.fc1(middle))
    fed = layer.fc2(hidden)

    given = through_norm(layer.final_layer_norm, middle + fed, given)
    of_hidden = through_linear(layer.fc2, hidden, fed / (middle + fed) * given)
    given = middle / (middle + fed) * given + through_linear(layer.fc1, middle, of_hidden)
    given = through_norm(layer.self_attn_layer_norm, x + attended, given)
    of_heads = through_linear(attention.out_proj, heads, attended / (x + attended) * given)
    found = x / (x + attended) * given
    scale = attention.scaling
    for h, part in enumerate(of_heads.unflatten(1, (len(q), -1)).unbind(1)):
        of_weights, of_v = through_products(weights[h], v[h], part)
        of_q, of_k = through_products(q[h], k[h].T, of_weights)
        for name, of, factor in (("q", of_q, scale), ("k", of_k.T, 1), ("v", of_v, 1)):
            project = getattr(attention, f"{name}_proj")
            size = of.size(1)
            rows = slice(h * size, (h + 1) * size)
            weight, bias = project.weight[rows] * factor, project.bias[rows] * factor
            found = found + torch.stack(
                [ratio_rule(weight, row, bias, r) for row, r in zip(x, of, strict=True)]
            )
    return found, of_heads


def test_an_encoder_layer_by_loops() -> None:
    model = build("sizes", encoder_embed_dim=8, decoder_embed_dim=8)
    layer = model.encoder.layers[0]
    x = torch.randn(3, 8).double().requires_grad_()
    with relevance.rules(model), shared_relevance(model, []), head_outputs(model) as caught:
        y = layer(x.unsqueeze(1), None)
    given = torch.randn(3, 8).double()
    (heads,) = caught.values()
    units = torch.autograd.grad(y, [x, heads], given.unsqueeze(1) / y)
    with torch.no_grad():
        at_input, at_heads = through_encoder_layer(layer, x, given)
    torch.testing.assert_close((heads * units[1])[:, 0], at_heads, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(x * units[0], at_input, atol=1e-10, rtol=1e-10)


# ---- whole models --------------------------------------------------------------------------------


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "pre-norm": {"encoder_normalize_before": True, "decoder_normalize_before": True},
    "gelu": {"activation_fn": "gelu"},
    "embeddings": {"layernorm_embedding": True, "encoder_learned_pos": True,
                   "share_all_embeddings": True},
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "variant"),
    [(kind, "plain") for kind in ("stock", "collaborative", "gated", "latent", "sizes")]
    + [("stock", variant) for variant in VARIANTS if variant != "plain"],
)
def test_relevance_is_conserved(kind: str, variant: str) -> None:
    model = build(kind, **VARIANTS[variant])
    before, found = model(**toy.batch())[0], Relevance(model)
    found.add(sample())
    assert torch.equal(model(**toy.batch())[0], before), "the model is left as it was"
    assert found.deviation < 1e-6
    for type_ in ATTENTION_TYPES:
        for layer in found.result()[type_]:
            # A mean of steps, each of which has the size 1 in a layer; signs may cancel.
            assert 0 < sum(map(abs, layer)) < 1 + 1e-9


def test_relevance_is_of_the_most_likely_words() -> None:
    """Weights of other words' logits have no part in it."""
    model = build("collaborative")
    logits = model.decoder.output_layer(model(**toy.batch(), features_only=True)[0])
    others = torch.ones(len(model.decoder.output_projection.weight)).bool()
    others[logits.argmax(-1).unique()] = False
    assert logits.amax(-1).min() > 0
    found = []
    for _ in range(2):
        one = Relevance(model)
        one.add(sample())
        found.append(one.result())
        with torch.no_grad():
            model.decoder.output_projection.weight[others] = 0
    for type_ in ATTENTION_TYPES:
        torch.testing.assert_close(double(found[0][type_]), double(found[1][type_]))


def test_batches_and_steps_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences one by one, without the targets' padding, and one step at a time."""
    model = build("shared keys")
    together, apart = Relevance(model), Relevance(model)
    together.add(sample())
    monkeypatch.setattr(relevance, "LARGEST", 1)
    for i in range(3):
        net_input = {name: x[i : i + 1] for name, x in toy.batch().items()}
        read = net_input["prev_output_tokens"]
        net_input["prev_output_tokens"] = read[read.ne(model.decoder.padding_idx)][None]
        apart.add({"net_input": net_input})
    for type_ in ATTENTION_TYPES:
        torch.testing.assert_close(double(together.result()[type_]), double(apart.result()[type_]))


def test_heads_without_effect_have_no_relevance() -> None:
    found = Relevance(build("stock", no_cross_attention=True))
    found.add(sample())
    assert found.result()["encoder"] == [[0.0] * 4] * 2


def test_models_that_the_rules_do_not_cover_are_rejected() -> None:
    model = build("sizes")
    model.decoder.layers[1].fc2.register_forward_hook(lambda module, inputs, output: output**2)
    with pytest.raises(UserError, match="relevance propagation has no rule for"):
        Relevance(model).add(sample())
    with pytest.raises(UserError, match=r"starts from logits, .*; give --relevance-sentences 0"):
        Relevance(build("sizes", adaptive_softmax_cutoff=[10]))
