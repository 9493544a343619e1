"""Relevance and gradient importance: by loops, conserved, and by finite differences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from torch import Tensor, nn
from torch.nn import functional
from toy_heads import build, double, sample
from toy_language_models import language_model

from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError
from collab_lab.heads import relevance
from collab_lab.heads.attention_weights import head_outputs
from collab_lab.heads.importance import importance, mask_derivatives
from collab_lab.heads.relevance import Relevance, shared_relevance
from collab_lab.metrics.loss import cross_entropy, predicted, sampled_loss, summed_loss
from collab_lab.trained.attentions import Attention, attentions
from collab_lab.trained.sentences import IGNORED

# ---- an encoder layer, neuron by neuron ----------------------------------------------------------


def through_linear(weight: Tensor, bias: Tensor, x: Tensor, given: Tensor) -> Tensor:
    """``R_u = sum_v w_vu x_u / (sum_u w_vu x_u + b_v) R_v``: ``(m, n), (m), (T, n), (T, m)``."""
    return x * ((given / (x @ weight.T + bias)) @ weight)


def through_norm(norm: nn.LayerNorm, x: Tensor, given: Tensor) -> Tensor:
    """Of ``(T, d)``, row by row: a linear map for a constant deviation."""
    centre = norm.weight[:, None] * (torch.eye(x.size(1)).double() - 1 / x.size(1))
    deviations = (x.var(1, unbiased=False) + norm.eps).sqrt()
    rows = zip(x, given, deviations, strict=True)
    return torch.cat([through_linear(centre / s, norm.bias, y[None], r[None]) for y, r, s in rows])


def through_products(a: Tensor, b: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """``R_u = u / (u + u') R`` of each product in ``a b``: ``(T, n), (n, S), (T, S)``."""
    u, v = a[:, :, None], b[None]  # (T, n, S)
    arriving = u * v * (given / (a @ b))[:, None] / (u + v)
    return (u * arriving).sum(2), (v * arriving).sum(0)


def through_encoder_layer(layer: Any, x: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """Relevance at the input ``(T, d)`` and at the concatenated heads ``(T, H * h_v)``."""
    attention, y = layer.self_attn, x.unsqueeze(1)  # (T, 1, d)
    q, k, v = (getattr(attention, f"project_{one}")(y)[0] for one in ("query", "key", "value"))
    weights = (q @ k.transpose(1, 2)).softmax(-1)
    heads = (weights @ v).transpose(0, 1).flatten(1)  # (T, H * h_v)
    attended = attention.out_proj(heads)
    middle = layer.self_attn_layer_norm(x + attended)
    hidden = torch.relu(layer.fc1(middle))
    fed = layer.fc2(hidden)

    given = through_norm(layer.final_layer_norm, middle + fed, given)
    of_fed = fed / (middle + fed) * given
    of_hidden = through_linear(layer.fc2.weight, layer.fc2.bias, hidden, of_fed)
    given = given - of_fed + through_linear(layer.fc1.weight, layer.fc1.bias, middle, of_hidden)
    given = through_norm(layer.self_attn_layer_norm, x + attended, given)
    of_attended, out = attended / (x + attended) * given, attention.out_proj
    of_heads = through_linear(out.weight, out.bias, heads, of_attended)
    found = given - of_attended
    for h, part in enumerate(of_heads.unflatten(1, (len(q), -1)).unbind(1)):
        of_weights, of_v = through_products(weights[h], v[h], part)
        of_q, of_k = through_products(q[h], k[h].T, of_weights)
        parts = (("q", of_q, attention.scaling), ("k", of_k.T, 1), ("v", of_v, 1))
        for name, of, scale in parts:
            project = getattr(attention, f"{name}_proj")
            weight, bias = (one.chunk(len(q))[h] * scale for one in (project.weight, project.bias))
            found = found + through_linear(weight, bias, x, of)
    return found, of_heads


def test_an_encoder_layer_by_hand() -> None:
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
        for layer in found.means.result()[type_]:
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
        found.append(one.means.result())
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
        found, expected = (double(one.means.result()[type_]) for one in (together, apart))
        torch.testing.assert_close(found, expected)


def test_steps_that_were_not_learnt_do_not_count() -> None:
    """The first two of each sentence here, as --ignore-prefix-size leaves them out."""
    model = build("shared keys")
    every, first, others = Relevance(model), Relevance(model), Relevance(model)
    every.add(sample())
    others.add({**sample(), IGNORED: 2})
    cut = toy.batch()
    cut["prev_output_tokens"] = cut["prev_output_tokens"][:, :2]
    first.add({"net_input": cut})
    for type_ in ATTENTION_TYPES:
        means = [double(one.means.result()[type_]) for one in (every, first, others)]
        numbers = [len(toy.batch()["src_tokens"]) * 2]
        steps = int(toy.batch()["prev_output_tokens"].ne(model.decoder.padding_idx).sum())
        expected = (means[0] * steps - means[1] * numbers[0]) / (steps - numbers[0])
        torch.testing.assert_close(means[2], expected)


def test_models_that_the_rules_do_not_cover_are_rejected() -> None:
    model = build("sizes")
    model.decoder.layers[1].fc2.register_forward_hook(lambda module, inputs, output: output**2)
    with pytest.raises(UserError, match="relevance"):
        Relevance(model).add(sample())
    with pytest.raises(UserError, match="--relevance-sentences"):
        Relevance(build("sizes", adaptive_softmax_cutoff=[10]))


# ---- gradient importance -------------------------------------------------------------------------

#: fairseq's own attention has its softmax in single precision, too coarse for small differences.
STEPS = {"stock": 1e-2}
STEP = 1e-5


def test_the_loss_of_an_adaptive_softmax_is_that_of_its_probabilities() -> None:
    """Also where a cluster has no word, at padding, and of a cluster's second word."""
    options = {"adaptive_softmax_cutoff": "8,16", "dropout": 0.0}
    model = language_model("transformer_lm_headsize_n", **options).eval()
    tokens = torch.tensor([[2, 5, 6, 7], [2, 9, 1, 1]])
    for target in ([[5, 6, 19, 2], [9, 2, 1, 1]], [[5, 6, 7, 2], [6, 2, 1, 1]]):
        batch = {"net_input": {"src_tokens": tokens}, "target": torch.tensor(target)}
        with torch.inference_mode():
            output, found = model(tokens), cross_entropy(model, batch).sum(1)
        log_probabilities = model.get_normalized_probs(output, log_probs=True)  # of all words
        flat = log_probabilities.flatten(0, 1), batch["target"].flatten()
        expected = functional.nll_loss(*flat, ignore_index=1, reduction="none").view(2, 4).sum(1)
        torch.testing.assert_close(found, expected.detach())
        torch.testing.assert_close(summed_loss(model, batch).detach(), expected.sum().detach())


@pytest.mark.parametrize("options", [{}, {"adaptive_softmax_cutoff": "8,16"}])
def test_drawn_labels_come_with_the_loss_of_the_targets(options: dict[str, Any]) -> None:
    model = language_model("transformer_lm_headsize_n", dropout=0.0, **options).eval()
    net_input = {"src_tokens": torch.tensor([[2, 5, 6, 7], [2, 9, 1, 1]])}
    batch = {"net_input": net_input, "target": torch.tensor([[5, 6, 19, 2], [9, 2, 1, 1]])}
    expected = float(summed_loss(model, batch).detach())
    for seed in (1, 2):
        drawn, found = sampled_loss(model, batch, torch.Generator().manual_seed(seed))
        assert found == pytest.approx(expected)
        assert drawn.requires_grad
        assert float(drawn.detach()) != pytest.approx(found)


@pytest.mark.parametrize("options", [{}, {"adaptive_softmax_cutoff": "8,16"}])
def test_the_beginning_of_a_block_is_not_predicted(options: dict[str, Any]) -> None:
    """``--add-bos-token`` makes it a target; ``fairseq-eval-lm`` leaves it out."""
    model = language_model("transformer_lm_headsize_n", dropout=0.0, **options).eval()
    net_input = {"src_tokens": torch.tensor([[2, 0, 5, 6], [2, 0, 9, 1]])}
    target = torch.tensor([[0, 5, 6, 2], [0, 9, 2, 1]])
    assert predicted(model.decoder, {"target": target}).sum(1).tolist() == [3, 2]
    without = {"net_input": net_input, "target": target.masked_fill(target.eq(0), 1)}
    found, expected = (
        cross_entropy(model, batch)
        for batch in ({"net_input": net_input, "target": target}, without)
    )
    torch.testing.assert_close(found, expected)


def masked_loss(model: Any, batch: dict[str, Any], attention: Attention, mask: Tensor) -> float:
    """The loss with the heads of one attention multiplied by ``mask (H,)``."""
    with head_outputs(model), torch.no_grad():  # fairseq's own attention calls out_proj, too
        handle = attention.module.out_proj.register_forward_pre_hook(
            lambda module, inputs: (
                (inputs[0].unflatten(2, (len(mask), -1)) * mask[:, None]).flatten(2),
            )
        )
        logits = model(**batch["net_input"])[0].flatten(0, 1)
        handle.remove()
    # fairseq's log_softmax is in single precision, too coarse for differences.
    padding = toy.dictionary().pad()
    target = batch["target"].flatten()
    return float(functional.cross_entropy(logits, target, ignore_index=padding, reduction="sum"))


@pytest.mark.parametrize("kind", ["stock", "collaborative", "grouped", "gated", "sizes"])
def test_finite_differences(kind: str) -> None:
    model, batch, size = build(kind, noise=0), sample(1), STEPS.get(kind, STEP)
    derivatives = mask_derivatives(model, batch)
    for attention in attentions(model):
        heads = attention.module.num_heads
        for head in range(heads):
            losses = []
            for step in (size, -size):
                mask = torch.ones(heads).double()
                mask[head] += step
                losses.append(masked_loss(model, batch, attention, mask))
            expected = (losses[0] - losses[1]) / (2 * size)
            assert float(derivatives[attention][..., head].sum()) == pytest.approx(
                expected, rel=1e-5, abs=1e-7 + 2 * size**2
            )


def test_importance_is_a_mean_over_positions() -> None:
    """Of absolute values; a batch is the sum of its sentences."""
    model = build("sizes")
    of_heads = importance(model, [sample()])
    source_tokens, target_tokens = 12, 9
    apart = [mask_derivatives(model, sample(i)) for i in range(3)]
    for attention in attentions(model):
        tokens = source_tokens if attention.type == "encoder" else target_tokens
        expected = sum(found[attention][:, 0].abs().sum(0) for found in apart) / tokens
        found = of_heads[attention.type][attention.layer]
        torch.testing.assert_close(double(found), expected)
