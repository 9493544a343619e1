"""Relevance propagation: by hand, by loops, and conserved in every kind of model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from toy_heads import build, double, sample

from collab_common.errors import UserError
from fairseq_collab.analysis.heads import parts, ratio, released
from fairseq_collab.analysis.heads.ratio import SharedProduct, ignored, per_unit
from fairseq_collab.analysis.heads.relevance import RULES, Relevance, computed_heads
from fairseq_collab.analysis.heads.weights import head_outputs
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
    with ratio.rules(model):
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
    with (
        ratio.rules(model),
        computed_heads(model, ratio.to_values, []),
        head_outputs(model) as caught,
    ):
        y = layer(x.unsqueeze(1), None)
    relevance = torch.randn(3, 8).double()
    (heads,) = caught.values()
    units = torch.autograd.grad(y, [x, heads], relevance.unsqueeze(1) / y)
    with torch.no_grad():
        at_input, at_heads = through_encoder_layer(layer, x, relevance)
    torch.testing.assert_close(x * units[0], at_input, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close((heads * units[1])[:, 0], at_heads, atol=1e-10, rtol=1e-10)


# ---- the paper's rule for products ---------------------------------------------------------------


def test_products_share_relevance_as_sums_do() -> None:
    """``R_u = u / (u + u') R`` of each product of a sum of products, one by one."""
    torch.manual_seed(1)
    a, b = (torch.randn(*shape).double().requires_grad_() for shape in ((3, 4), (4, 2)))
    relevance = torch.randn(3, 2).double()
    product = SharedProduct.apply(a, b)
    torch.testing.assert_close(product, a @ b)
    units = torch.autograd.grad(product, [a, b], relevance / product.detach())
    expected = [torch.zeros(3, 4).double(), torch.zeros(4, 2).double()]
    with torch.no_grad():
        for t, s, n in torch.cartesian_prod(*map(torch.arange, (3, 2, 4))).tolist():
            arriving = a[t, n] * b[n, s] / product[t, s] * relevance[t, s]
            expected[0][t, n] += a[t, n] / (a[t, n] + b[n, s]) * arriving
            expected[1][n, s] += b[n, s] / (a[t, n] + b[n, s]) * arriving
        torch.testing.assert_close(a * units[0], expected[0])
        torch.testing.assert_close(b * units[1], expected[1])


def test_steps_are_normalised_one_by_one() -> None:
    """A mean of steps, each of which has the size 1 in a layer: signs may cancel, sizes not."""
    relevance = Relevance(build("collaborative"))
    seen: list[Tensor] = []
    add = relevance.means.add
    relevance.means.add = lambda *args: (seen.append(args[2]), add(*args))  # type: ignore
    for i in range(3):
        relevance.add(sample(i))
    steps = [int(sample(i)["target"].ne(1).sum()) for i in range(3)]
    assert len(seen) == 3 * 6  # sentences and attentions
    for place, total in enumerate(seen):
        assert total.abs().sum() <= steps[place // 6] + 1e-9


# ---- the released code's rule --------------------------------------------------------------------


def as_released(
    function: Any, inputs: list[Tensor], relevance: Tensor, joint: bool = True
) -> list[Tensor]:
    """The released code's rule for any function of some inputs, from its full jacobian."""
    flat = torch.cat([x.flatten() for x in inputs])
    sizes = [x.numel() for x in inputs]

    def of_flat(z: Tensor) -> Tensor:
        parts = [part.view_as(x) for part, x in zip(z.split(sizes), inputs, strict=True)]
        return function(*parts).flatten()

    jacobian = torch.autograd.functional.jacobian(of_flat, flat)  # (o, i)
    z = of_flat(torch.zeros_like(flat))[:, None] / len(flat) + jacobian * flat
    up, down = z.clamp_min(0), z.clamp_max(0)
    shares = 0.5 * up / (up.sum(1, keepdim=True) + 1e-5)
    shares = shares + 0.5 * down / (down.sum(1, keepdim=True) - 1e-5)
    found = relevance.flatten() @ shares
    found = found * relevance.sum() / (found.sum() + 1e-5)
    return [part.view_as(x) for part, x in zip(found.split(sizes), inputs, strict=True)]


def test_heads_hand_relevance_on_as_the_released_code_does() -> None:
    """Head by head, from its outputs to its queries, keys and values."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(*shape).double() for shape in ((2, 3, 4), (2, 5, 4), (2, 5, 2)))
    weights = (q @ k.transpose(1, 2)).softmax(-1)  # (H, T, S)
    relevance = torch.rand(2, 2, 3, 2).double()  # two rows
    found = released.through_heads(q, k, v, weights, relevance)
    for row, head in ((0, 0), (0, 1), (1, 0), (1, 1)):
        expected = as_released(
            lambda q, k, v: (q @ k.T).softmax(-1) @ v,
            [q[head], k[head], v[head]],
            relevance[row, head],
        )
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one[row, head], other)


def test_heads_that_share_keys_add_up_their_relevance() -> None:
    torch.manual_seed(1)
    q, k, v = (torch.randn(*shape).double() for shape in ((2, 3, 4), (1, 5, 4), (2, 5, 2)))
    weights = (q @ k.transpose(1, 2)).softmax(-1)
    relevance = torch.rand(1, 2, 3, 2).double()
    shared = released.through_heads(q, k, v, weights, relevance)
    apart = released.through_heads(q, k.expand(2, -1, -1), v, weights, relevance)
    torch.testing.assert_close(shared[1], apart[1].sum(1, keepdim=True))
    torch.testing.assert_close(shared[2], apart[2])


def test_linear_maps_norms_and_sums_as_in_the_released_code() -> None:
    """Position by position, for each row; a bias is dealt out to the inputs."""
    torch.manual_seed(1)
    linear, norm = nn.Linear(4, 3).double(), nn.LayerNorm(4, eps=0).double()
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.add_(torch.randn(4))
    x = torch.randn(3, 1, 4).double().expand(3, 2, 4).clone().requires_grad_()
    y = torch.randn(3, 1, 4).double().expand(3, 2, 4).clone().requires_grad_()

    def handed(output: Tensor, inputs: list[Tensor], function: Any) -> None:
        relevance = torch.rand_like(output)
        found = torch.autograd.grad(output, inputs, relevance)
        for t, row in ((0, 0), (1, 1), (2, 0)):
            given = [one[t, row].detach() for one in inputs]
            expected = as_released(function, given, relevance[t, row])
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one[t, row], other)

    handed(released.through_linear(linear, (x,), linear(x)), [x], linear)
    handed(released.added(x, y), [x, y], lambda x, y: x + y)
    # A norm of zeros is its bias, as in the released code; its derivatives there are of no account.
    found = torch.autograd.grad(released.through_norm(norm, (x,), norm(x)), x, torch.ones_like(x))
    jacobian = torch.autograd.functional.jacobian(norm, x[0, 0].detach())
    z = jacobian * x[0, 0].detach() + norm.bias.detach()[:, None] / 4
    expected = released.shares_of(z).sum(0)
    torch.testing.assert_close(found[0][0, 0], expected * 4 / (expected.sum() + 1e-5))


# ---- whole models --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["stock", "collaborative", "grouped", "gated", "sizes", "latent"])
@pytest.mark.parametrize("variant", ["plain", "pre-norm", "gelu", "embeddings"])
@pytest.mark.parametrize("rule", ["paper", "ours"])
def test_relevance_is_conserved(kind: str, variant: str, rule: str) -> None:
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
    relevance = Relevance(build(kind, **options), rule)
    relevance.add(sample())
    assert relevance.deviation < 1e-9
    for site in SITES:
        for layer in relevance.result()[site]:
            size = sum(map(abs, layer))  # of a mean of steps, whose signs may differ
            assert size == pytest.approx(1) if rule == "ours" else 0 < size < 1 + 1e-9


@pytest.mark.parametrize(
    "kind", ["stock", "collaborative", "content", "gated", "sizes", "shared values", "latent"]
)
def test_the_released_rule_gives_each_layer_all_relevance(kind: str) -> None:
    relevance = Relevance(build(kind), "released")
    relevance.add(sample())
    for site in SITES:
        for layer in relevance.result()[site]:
            assert min(layer) > 0
            assert sum(layer) == pytest.approx(1)


@pytest.mark.parametrize("rule", RULES)
def test_relevance_is_of_the_most_likely_words(rule: str) -> None:
    """What other words' logits are computed from has no part in it."""
    model = build("collaborative")
    features = model(**toy.batch(), features_only=True)[0]
    logits = model.decoder.output_layer(features)
    tops = logits.argmax(-1).unique()
    assert logits.amax(-1).min() > 0
    found = []
    for _ in range(2):
        relevance = Relevance(model, rule)
        relevance.add(sample())
        found.append(relevance.result())
        others = torch.ones(len(model.decoder.output_projection.weight)).bool()
        others[tops] = False
        with torch.no_grad():
            model.decoder.output_projection.weight[others] = 0
    for site in SITES:
        torch.testing.assert_close(double(found[0][site]), double(found[1][site]))


# ---- in parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_in_parts_as_in_one_piece(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step at a time, and of it one query or position; our rule has nothing that large."""
    rows: list[int] = []
    propagate = Relevance._propagate

    def counted(self: Relevance, net_input: Any, steps: Tensor) -> None:
        rows.append(len(steps))
        propagate(self, net_input, steps)

    monkeypatch.setattr(Relevance, "_propagate", counted)
    found = []
    for largest in (parts.LARGEST, 1):
        monkeypatch.setattr(parts, "LARGEST", largest)
        relevance = Relevance(build("shared keys"), rule)
        relevance.add(sample())
        found.append(sums(relevance))
    for site in SITES:
        torch.testing.assert_close(
            double(found[0][site]), double(found[1][site]), atol=1e-10, rtol=1e-10
        )
    assert rows == ([3, 3] if rule == "ours" else [4, 2, 3] + [1] * 9)


class Sizes(TorchDispatchMode):
    """Keeps the bytes of the largest tensor that is made."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for one in tree_iter(found):
            if isinstance(one, Tensor) and not one._is_view():
                self.largest = max(self.largest, one.numel() * one.element_size())
        return found


@pytest.mark.parametrize("rule", ["paper", "released"])
def test_no_tensor_is_too_large(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long sentence, whose steps together, and even one alone, would need more."""
    monkeypatch.setattr(parts, "LARGEST", 140_000)
    relevance = Relevance(build("stock"), rule)
    long = torch.arange(5, 10).repeat(1, 10)  # (1, S)
    with Sizes() as sizes:
        relevance.add({"net_input": {"src_tokens": long, "prev_output_tokens": long[:, :6]}})
    assert sizes.largest <= 140_000


def sums(relevance: Relevance) -> dict[Site, list[list[float]]]:
    """The relevance of each head, of the 1 that every step has started with."""
    return relevance.means.result()


def test_shares_are_those_of_a_layer() -> None:
    relevance = Relevance(build("sizes"), "ours")
    relevance.add(sample())
    whole, shares = sums(relevance)["cross"][1], relevance.result()["cross"][1]
    assert shares == pytest.approx([one / sum(map(abs, whole)) for one in whole])


def test_stock_models_have_the_relevance_of_their_twins() -> None:
    stock = build("stock")
    twin: Any = toy.model("transformer_headsize_n").double().eval()
    twin.load_state_dict(twin.state_dict() | shared_weights(stock, twin))
    found = []
    for model in (stock, twin):
        relevance = Relevance(model, "ours")
        relevance.add(sample())
        found.append(sums(relevance))
    for site in SITES:
        torch.testing.assert_close(double(found[0][site]), double(found[1][site]))


def shared_weights(stock: Any, twin: Any) -> dict[str, Tensor]:
    return {name: x for name, x in stock.state_dict().items() if name in twin.state_dict()}


@pytest.mark.parametrize("rule", RULES)
def test_batches_add_up(rule: str) -> None:
    """Sentences of a batch, and the same one after the other without the targets' padding."""
    model = build("collaborative")
    together, apart = Relevance(model, rule), Relevance(model, rule)
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
    with ratio.rules(model):
        torch.testing.assert_close(model(**toy.batch())[0], before, atol=1e-10, rtol=1e-10)
    Relevance(model, "ours").add(sample())
    assert torch.equal(model(**toy.batch())[0], before)
    assert [parameter.requires_grad for parameter in model.parameters()] == state
    assert model.encoder.layers[0].activation_fn is activation
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    assert not any(getattr(module, name) for module in model.modules() for name in hooks)


def test_what_the_rules_do_not_know_is_refused() -> None:
    model = build("sizes")
    model.decoder.layers[1].fc2.register_forward_hook(lambda module, inputs, output: output**2)
    with pytest.raises(UserError, match="relevance propagation has no rule for"):
        Relevance(model, "ours").add(sample())


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
