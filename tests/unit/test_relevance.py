"""Relevance propagation: by hand, by loops, and conserved in every kind of model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from torch import Tensor, nn
from toy_heads import build, double, sample

from collab_common.errors import UserError
from fairseq_collab.analysis.heads.relevance import (
    Relevance,
    ignored,
    per_unit,
    relevance_rules,
)
from fairseq_collab.models.layers import SITES, Site


class TwoLayers(nn.Module):
    """``w2 a(W1 x + b1) + b2``, with the parts of a transformer that the rules look for."""

    def __init__(self, activation: Any):
        super().__init__()
        self.activation_fn = activation
        self.fc1, self.fc2 = nn.Linear(2, 2).double(), nn.Linear(2, 1).double()
        with torch.no_grad():
            self.fc1.weight.copy_(torch.tensor([[1.0, 1.0], [2.0, -1.0]]))
            self.fc1.bias.copy_(torch.tensor([1.0, 0.5]))
            self.fc2.weight.copy_(torch.tensor([[0.5, 2.0]]))
            self.fc2.bias.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.activation_fn(self.fc1(x)))


def test_two_layers_by_hand() -> None:
    """Hidden units are 4 and 0.5, the logit is 0.5 * 4 + 2 * 0.5 + 1 = 4.

    Of relevance 1 they get 2/4 and 1/4, and the bias 1/4.  The first hands on 1/4 to each of x1 and
    the bias and 2/4 to x2; the second 2/0.5 to x1, -2/0.5 to x2 and 0.5/0.5 to the bias.
    """
    model, x = TwoLayers(torch.relu), torch.tensor([1.0, 2.0]).double().requires_grad_()
    with relevance_rules(model):
        logit = model(x)
        units = torch.autograd.grad(logit, [x, model.fc1.bias, model.fc2.bias], per_unit(logit))
    found = [activation * unit for activation, unit in zip((x, *biases(model)), units, strict=True)]
    by_hand = [[0.5 / 4 + 1, 0.5 / 2 - 1], [0.5 / 4, 0.25], [0.25]]
    for relevance, expected in zip(found, by_hand, strict=True):
        torch.testing.assert_close(relevance, torch.tensor(expected).double())
    assert sum(float(relevance.detach().sum()) for relevance in found) == pytest.approx(1)


def biases(model: TwoLayers) -> tuple[Tensor, Tensor]:
    return model.fc1.bias, model.fc2.bias


@pytest.mark.parametrize("activation", [torch.relu, torch.tanh, nn.functional.gelu])
def test_activations_are_passed_unchanged(activation: Any) -> None:
    x = torch.tensor([-2.0, -0.5, 0.0, 0.5, 3.0]).double().requires_grad_()
    y = ignored(activation)(x)
    torch.testing.assert_close(y, activation(x))
    relevance = torch.tensor([1.0, 2.0, 0.0, 4.0, 5.0]).double()
    (unit,) = torch.autograd.grad(y, x, torch.where(y == 0, 0, relevance / y))
    torch.testing.assert_close(x * unit, torch.where(y == 0, 0, relevance))


# ---- an encoder layer, neuron by neuron ----------------------------------------------------------


def ratio_rule(weight: Tensor, x: Tensor, bias: Tensor, relevance: Tensor) -> Tensor:
    """The rule as it is printed: ``(m, n), (n), (m), (m) -> (n)``."""
    found = torch.zeros_like(x)
    for v in range(len(relevance)):
        total = sum(weight[v, u] * x[u] for u in range(len(x))) + bias[v]
        for u in range(len(x)):
            found[u] += weight[v, u] * x[u] / total * relevance[v]
    return found


def shared(parts: list[Tensor], relevance: Tensor) -> list[Tensor]:
    """The ratio rule of a sum."""
    return [part / sum(parts) * relevance for part in parts]


def through_norm(norm: nn.LayerNorm, x: Tensor, relevance: Tensor) -> Tensor:
    """Of ``(T, d)``, row by row: a linear map for a constant deviation."""
    d = x.size(1)
    rows = []
    for row, arriving in zip(x, relevance, strict=True):
        deviation = (row.var(unbiased=False) + norm.eps).sqrt()
        centre = torch.eye(d).double() - 1 / d
        rows.append(ratio_rule(norm.weight[:, None] * centre / deviation, row, norm.bias, arriving))
    return torch.stack(rows)


def through_linear(linear: nn.Linear, x: Tensor, relevance: Tensor) -> Tensor:
    rows = zip(x, relevance, strict=True)
    return torch.stack([ratio_rule(linear.weight, row, linear.bias, r) for row, r in rows])


def through_encoder_layer(layer: Any, x: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """Relevance at the input ``(T, d)`` and at the concatenated heads ``(T, H * h_v)``."""
    attention = layer.self_attn
    one = x.unsqueeze(1)  # (T, 1, d)
    _, weights = attention(one, one, one, need_head_weights=True)
    weights = weights[:, 0]  # (H, T, S)
    values = attention.v_proj(x).unflatten(1, (attention.num_heads, -1))  # (S, H, h_v)
    heads = torch.einsum("hts,shv->thv", weights, values)
    attended = attention.out_proj(heads.flatten(1))
    middle = layer.self_attn_layer_norm(x + attended)
    hidden = torch.relu(layer.fc1(middle))
    fed = layer.fc2(hidden)

    relevance = through_norm(layer.final_layer_norm, middle + fed, relevance)
    kept, of_fed = shared([middle, fed], relevance)
    of_hidden = through_linear(layer.fc2, hidden, of_fed)
    relevance = kept + through_linear(layer.fc1, middle, of_hidden)
    relevance = through_norm(layer.self_attn_layer_norm, x + attended, relevance)
    kept, of_attended = shared([x, attended], relevance)
    of_heads = through_linear(attention.out_proj, heads.flatten(1), of_attended)
    of_values = torch.zeros_like(values)
    for t, h, v in torch.cartesian_prod(*map(torch.arange, heads.shape)).tolist():
        arriving = of_heads.unflatten(1, heads.shape[1:])[t, h, v]
        of_values[:, h, v] += weights[h, t] * values[:, h, v] / heads[t, h, v] * arriving
    return kept + through_linear(attention.v_proj, x, of_values.flatten(1)), of_heads


def test_an_encoder_layer_by_loops() -> None:
    model = build("sizes", encoder_embed_dim=8, decoder_embed_dim=8)
    layer = model.encoder.layers[0]
    x = torch.randn(3, 8).double().requires_grad_()
    caught: list[Tensor] = []
    handle = layer.self_attn.out_proj.register_forward_pre_hook(
        lambda module, inputs: caught.append(inputs[0])
    )
    with relevance_rules(model):
        y = layer(x.unsqueeze(1), None)
    handle.remove()
    relevance = torch.randn(3, 8).double()
    (heads,) = caught
    units = torch.autograd.grad(y, [x, heads], relevance.unsqueeze(1) / y)
    with torch.no_grad():
        at_input, at_heads = through_encoder_layer(layer, x, relevance)
    torch.testing.assert_close(x * units[0], at_input, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close((heads * units[1])[:, 0], at_heads, atol=1e-10, rtol=1e-10)


# ---- whole models --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["stock", "collaborative", "grouped", "gated", "sizes"])
@pytest.mark.parametrize("variant", ["plain", "pre-norm", "gelu", "embeddings"])
def test_relevance_is_conserved(kind: str, variant: str) -> None:
    options: dict[str, Any] = {
        "plain": {},
        "pre-norm": {"encoder_normalize_before": True, "decoder_normalize_before": True},
        "gelu": {"activation_fn": "gelu"},
        "embeddings": {
            "layernorm_embedding": True,
            "encoder_learned_pos": True,
            "share_all_embeddings": True,
        },
    }[variant]
    relevance = Relevance(build(kind, **options))
    relevance.add(sample())
    assert relevance.deviation < 1e-9
    for site in SITES:
        for layer in relevance.result()[site]:
            assert sum(map(abs, layer)) == pytest.approx(1)


def sums(relevance: Relevance) -> dict[Site, list[list[float]]]:
    """The relevance of each head, of the 1 that every step has started with."""
    return relevance.means.result()


def test_shares_are_those_of_a_layer() -> None:
    relevance = Relevance(build("sizes"))
    relevance.add(sample())
    whole, shares = sums(relevance)["cross"][1], relevance.result()["cross"][1]
    assert shares == pytest.approx([one / sum(map(abs, whole)) for one in whole])


def test_stock_models_have_the_relevance_of_their_twins() -> None:
    stock = build("stock")
    twin: Any = toy.model("transformer_headsize_n").double().eval()
    twin.load_state_dict(twin.state_dict() | shared_weights(stock, twin))
    found = []
    for model in (stock, twin):
        relevance = Relevance(model)
        relevance.add(sample())
        found.append(sums(relevance))
    for site in SITES:
        torch.testing.assert_close(double(found[0][site]), double(found[1][site]))


def shared_weights(stock: Any, twin: Any) -> dict[str, Tensor]:
    return {name: x for name, x in stock.state_dict().items() if name in twin.state_dict()}


def test_batches_add_up() -> None:
    """Sentences of a batch, and the same one after the other without the targets' padding."""
    model = build("collaborative")
    together, apart = Relevance(model), Relevance(model)
    together.add(sample())
    for i in range(3):
        net_input = {name: x[i : i + 1] for name, x in toy.batch().items()}
        read = net_input["prev_output_tokens"]
        net_input["prev_output_tokens"] = read[read.ne(model.decoder.padding_idx)][None]
        apart.add({"net_input": net_input})
    for site in SITES:
        torch.testing.assert_close(double(sums(together)[site]), double(sums(apart)[site]))


def test_the_model_is_left_as_it_was() -> None:
    model = build("stock", activation_fn="gelu")
    model.encoder.embed_tokens.weight.requires_grad_(False)
    before = model(**toy.batch())[0]
    state = [parameter.requires_grad for parameter in model.parameters()]
    activation = model.encoder.layers[0].activation_fn
    with relevance_rules(model):
        torch.testing.assert_close(model(**toy.batch())[0], before, atol=1e-10, rtol=1e-10)
    Relevance(model).add(sample())
    assert torch.equal(model(**toy.batch())[0], before)
    assert [parameter.requires_grad for parameter in model.parameters()] == state
    assert model.encoder.layers[0].activation_fn is activation
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    assert not any(getattr(module, name) for module in model.modules() for name in hooks)


def test_what_the_rules_do_not_know_is_refused() -> None:
    model = build("sizes")
    model.decoder.layers[1].fc2.register_forward_hook(lambda module, inputs, output: output**2)
    with pytest.raises(UserError, match="relevance propagation has no rule for"):
        Relevance(model).add(sample())


def test_models_without_logits_are_refused() -> None:
    model = build("sizes", adaptive_softmax_cutoff=[10])
    with pytest.raises(UserError, match=r"starts from logits, .*; give --no-relevance"):
        Relevance(model)


def test_an_encoder_without_effect_has_no_relevance() -> None:
    relevance = Relevance(build("stock", no_cross_attention=True))
    relevance.add(sample())
    assert relevance.result()["encoder"] == [[0.0] * 4] * 2
    assert relevance.result()["cross"] == []
    assert relevance.deviation < 1e-9


def test_a_head_that_says_nothing_has_no_relevance() -> None:
    model = build("sizes", heads_in_encoder="1,1")
    with torch.no_grad():
        model.encoder.layers[0].self_attn.out_proj.weight.zero_()
    relevance = Relevance(model)
    relevance.add(sample())
    assert relevance.result()["encoder"][0] == [0.0]
