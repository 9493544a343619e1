"""A re-parametrised model is the model that it was made from: exactly at K = H h, in double
precision, with padding and causal masks; and below, its attention is what the factors say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from refusals import refusing
from toy_reparametrize import converted, full, inputs, shared, trained

from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention
from fairseq_collab.convert.collaborative import own_factors
from fairseq_collab.convert.convert import collaborative_weights
from fairseq_collab.convert.factorise import (
    RIDGE,
    Problem,
    factorise,
    within_keys,
)
from fairseq_collab.convert.heads import Heads
from fairseq_collab.export.attention import NotExactError, plain_weights
from fairseq_collab.trained.attentions import attentions

pytestmark = pytest.mark.usefixtures("float64")

MODELS: list[tuple[str, dict[str, Any]]] = [
    ("transformer", {}),
    ("transformer", {"encoder_normalize_before": True, "decoder_normalize_before": True}),
    ("transformer", {"encoder_attention_heads": 2}),
    ("transformer", {"share_all_embeddings": True}),
    ("transformer_headsize_n", {}),
    ("transformer_headsize_n", {"qk_head_size": 6}),
    ("transformer_headsize_n", {"qk_head_size": 3, "attention_scale": "embed"}),
    ("transformer_headsize_n", {"heads_in_encoder": "8", "heads_in_cross": "4,4"}),
    ("transformer_lm", {}),
    ("transformer_lm", {"scale_fc": True}),  # which it ignores
    ("transformer_lm_headsize_n", {"qk_head_size": 6}),
    ("roberta", {}),
    ("roberta_headsize_n", {"qk_head_size": 6}),
    ("transformer_collab", {"key_dim": 6}),
    ("transformer_collab", {"key_dim": 20, "attention_bias": "content"}),
    ("transformer_collab", {"key_dim": 6, "attention_bias": "none", "attention_scale": "key"}),
    ("transformer_collab", {"key_dim": 6, "mixing_speed": 3, "learn_attention_scale": True}),
    ("transformer_collab", {"key_dim": 6, "attention_scale": "variance", "value_heads": 2}),
    ("transformer_collab", {"key_dim": 6, "collaborative_sites": "encoder,cross"}),
    ("transformer_lm_collab", {"key_dim": 6, "attention_bias": "content", "mixing_speed": 2}),
]


@pytest.mark.parametrize(("arch", "options"), MODELS)
def test_full_dimension_reproduces_the_logits(arch: str, options: dict[str, Any]) -> None:
    found = trained(arch, **options)
    model, _ = converted(found, full(found))
    modules = [m for m in model.modules() if isinstance(m, CollaborativeAttention)]
    assert len(modules) == len(attentions(found.model))
    expected, *_ = found.model(**inputs(found))
    logits, *_ = model(**inputs(found))
    assert logits.dtype == torch.float64
    real = expected.isfinite()
    assert (logits - expected)[real].abs().max() < 1e-10


@pytest.mark.parametrize("bias", ["projection", "content"])
def test_shared_heads_may_share_less(bias: str) -> None:
    """Of one site; the others, whose scale and bias change their form, compute what they did."""
    found = trained("transformer_collab", key_dim=6, attention_scale="key", attention_bias=bias)
    places = found.attentions
    for one in places["cross"]:
        with torch.no_grad():
            one.module.mixing[:, [1, 4]] = 0  # nothing is scored by these
    model, fits = shared(found, dict.fromkeys(places["cross"], 4))
    assert [fit["key_dim"] for fit in fits] == [4, 4]
    assert max(fit["error"] for fit in fits) < 1e-6
    modules = [one.module for one in attentions(model)]
    assert [module.key_dim for module in modules].count(4) == 2
    expected, *_ = found.model(**inputs(found))
    assert (model(**inputs(found))[0] - expected).abs().max() < 1e-5
    _, fits = shared(found, dict.fromkeys(places["encoder"], 3), "--steps=0", seen=True)
    assert all(0 < fit["logit_error"] < 1 for fit in fits)


def test_dimensions_that_are_shared_already_are_a_start() -> None:
    """One that scores a thousandth goes; no head's own directions would do as well."""
    found = trained("transformer_collab", key_dim=6)
    (first, *_), problems = attentions(found.model), []
    with torch.no_grad():
        first.module.mixing[:, 2] *= 1e-3
    heads, own = Heads.of(first.module), own_factors(first.module)
    for given in (own, None):
        problems.append(factorise(Problem(heads.wq, heads.wk, own=given), 5, max_steps=0).error)
    assert problems[0] < 2e-3 < 0.1 < problems[1]


@pytest.mark.parametrize(
    ("options", "sizes", "message"),
    [
        ({}, ["--to=grouped-query"], "its heads are collaborative already; they can share a small"),
        ({}, ["--to=latent"], "its heads are collaborative already"),
        ({"value_heads": 2}, ["--value-heads=1"], "encoder 0: its heads share 2 values already"),
    ],
)
def test_shared_heads_that_cannot_become_others(
    options: dict[str, Any], sizes: list[str], message: str
) -> None:
    found = trained("transformer_collab", key_dim=6, **options)
    with refusing(message):
        shared(found, dict.fromkeys(attentions(found.model), 2), *sizes)


@pytest.mark.parametrize("arch", ["transformer", "transformer_headsize_n"])
def test_reduced_dimensions_score_as_the_factors_say(arch: str) -> None:
    """Each attention against ``scale (x A~_i y^T + x bq ...)``, written out with the factors."""
    found = trained(arch, **({"qk_head_size": 6} if "headsize" in arch else {}))
    dims = dict.fromkeys(attentions(found.model), 7)
    model, factors = converted(found, dims)
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(5, 2, 16, generator=generator).double()
    y = torch.randn(6, 2, 16, generator=generator).double()
    for place in dims:
        trained_attention, attention = place.module, model.get_submodule(place.name)
        maps = torch.einsum(
            "kd,hk,ke->hde", factors[place].query, factors[place].mixing, factors[place].key
        )
        heads = trained_attention.num_heads
        wk = trained_attention.k_proj.weight.unflatten(0, (heads, -1))
        bq = trained_attention.q_proj.bias.unflatten(0, (heads, -1))
        source = x if place.site != "cross" else y
        expected = torch.einsum("tbd,hde,sbe->bhts", x, maps, source)
        expected = expected + torch.einsum("hk,hke,sbe->bhs", bq, wk, source).unsqueeze(2)
        expected = expected * trained_attention.scaling
        q, k = attention.project_query(x), attention.project_key(source)
        assert (q @ k.transpose(2, 3) - expected).abs().max() < 1e-10


@pytest.mark.parametrize("key_dim", [3, 4])
def test_there_and_back_at_the_size_of_a_head(key_dim: int) -> None:
    """d/H = 4: with a content bias, K = 4 has room for what keys can express only."""
    found = trained("transformer")
    for module in (place.module for place in attentions(found.model)):
        problem = Problem(Heads.of(module).wq, Heads.of(module).wk)
        factors = factorise(problem, key_dim, max_steps=2)
        ours = CollaborativeAttention(16, 4, key_dim, bias="content").double().eval()
        weights = collaborative_weights(module, factors)
        ours.load_state_dict({"signature": ours.signature, **weights})
        if key_dim == 4:
            with pytest.raises(NotExactError, match="scores by 4 dimensions and by content"):
                plain_weights(ours, 4)
            content = within_keys(problem, factors, Heads.of(module).content())
            weights = collaborative_weights(module, factors, content)
            ours.load_state_dict({"signature": ours.signature, **weights})
        back = ConcatenatedAttention(16, 4).double().eval()
        back.load_state_dict({"signature": back.signature, **plain_weights(ours, 4)})
        x = torch.randn(6, 2, 16)
        assert (ours(x, x, x)[0] - back(x, x, x)[0]).abs().max() < 1e-10


def test_exportable_biases_are_the_nearest_ones() -> None:
    """In the metric of the keys: no other combination of shared keys is nearer."""
    torch.manual_seed(1)
    root = torch.randn(8, 8)
    problem = Problem(torch.randn(2, 4, 8), torch.randn(2, 4, 8), None, root @ root.T)
    factors = factorise(problem, 3, max_steps=2)
    content = torch.randn(2, 8)
    found = within_keys(problem, factors, content)
    metric = root @ root.T
    metric = metric + RIDGE * torch.linalg.eigvalsh(metric).mean() * torch.eye(8)
    residual = (content - found) @ metric @ factors.key.T
    assert residual.abs().max() < 1e-8, "what is left has no part along any key"


def test_the_key_bias_cancels_and_nothing_else_does() -> None:
    """Weights of fairseq's attention with a large key bias, against the converted attention."""
    found = trained("transformer")
    with torch.no_grad():
        for place in attentions(found.model):
            place.module.k_proj.bias.mul_(50)
    model, _ = converted(found, full(found))
    x = torch.randn(5, 2, 16, generator=torch.Generator().manual_seed(2)).double()
    for place in attentions(found.model):
        _, expected = place.module(x, x, x, need_head_weights=True)
        _, weights = model.get_submodule(place.name)(x, x, x, need_head_weights=True)
        assert (weights - expected).abs().max() < 1e-10


def test_mean_correction_moves_lost_scores_into_the_content_bias() -> None:
    """A query at the mean of the inputs attends exactly as before, at any key dimension."""
    found = trained("transformer")
    mean = torch.randn(16, generator=torch.Generator().manual_seed(3)).double()
    dims = dict.fromkeys(attentions(found.model), 5)
    model, _ = converted(found, dims, mean)
    y = torch.randn(6, 1, 16, generator=torch.Generator().manual_seed(4)).double()
    for place in found.attentions["cross"]:
        module = place.module
        x = mean.view(1, 1, -1)
        _, expected = module(x, y, y, need_head_weights=True)
        _, weights = model.get_submodule(place.name)(x, y, y, need_head_weights=True)
        assert (weights - expected).abs().max() < 1e-10
        other = 2 * x
        _, expected = module(other, y, y, need_head_weights=True)
        _, weights = model.get_submodule(place.name)(other, y, y, need_head_weights=True)
        assert (weights - expected).abs().max() > 1e-4


def test_layers_that_are_left_alone_stay_as_they_are() -> None:
    found = trained("transformer")
    dims = {p: 16 for p in attentions(found.model) if p.site == "cross" or p.layer == 1}
    model, _ = converted(found, dims)
    for place in attentions(found.model):
        kind = CollaborativeAttention if place in dims else ConcatenatedAttention
        assert isinstance(model.get_submodule(place.name), kind)
    expected, _ = found.model(**toy.batch())
    logits, _ = model(**toy.batch())
    assert (logits - expected).abs().max() < 1e-10
