"""Trained heads that share keys and values: exactly where nothing is lost, in double precision,
with padding and causal masks; and below that, as well as the reported errors say."""

from __future__ import annotations

from argparse import Namespace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from toy_heads import ordinary
from toy_reparametrize import inputs, shared, trained

from fairseq_collab.attention.grouped_query import GroupedQueryAttention
from fairseq_collab.attention.latent import LatentAttention
from fairseq_collab.convert import calibrate
from fairseq_collab.convert.collaborative import Collaborative
from fairseq_collab.convert.grouped import GroupedQuery
from fairseq_collab.convert.heads import Heads, Weighed
from fairseq_collab.convert.latent import Latent, latents
from fairseq_collab.convert.target import Target
from fairseq_collab.trained.attentions import Attention, attentions
from fairseq_collab.trained.opener import Trained

pytestmark = pytest.mark.usefixtures("float64")

MODELS: list[tuple[str, dict[str, Any]]] = [
    ("transformer", {"encoder_attention_heads": 2}),
    ("transformer_headsize_n", {"attention_scale": "embed"}),
    ("transformer_lm", {}),
    ("roberta", {}),
]


def everywhere(found: Trained, size: int) -> dict[Attention, int]:
    return dict.fromkeys(attentions(found.model), size)


def difference(found: Trained, model: Any) -> float:
    """The largest between the logits of two models."""
    expected, *_ = found.model(**inputs(found))
    logits, *_ = model(**inputs(found))
    assert logits.dtype == torch.float64
    real = expected.isfinite()
    return float((logits - expected)[real].abs().max())


def set_heads(found: Trained, change: Any) -> None:
    """Give every attention the heads that ``change`` makes of its own."""
    for place in attentions(found.model):
        place.module.load_state_dict(
            place.module.state_dict()
            | change(Heads.of(place.module)).state(torch.zeros(()).double())
        )


def turned(heads: Heads) -> Heads:
    """Pairs of heads with the same keys and values but for a turn (not orthogonal) of each; all
    biases stay as they are."""
    generator = torch.Generator().manual_seed(5)

    def pairs(weights: Tensor, turns: bool) -> Tensor:
        each = weights.unflatten(0, (-1, 2))[:, :1].expand(-1, 2, -1, -1).flatten(0, 1)
        turn = torch.randn(*each.shape[:2], each.size(1), generator=generator).double()
        return turn @ each if turns else each

    return heads._replace(wk=pairs(heads.wk, True), wv=pairs(heads.wv, True))


def paired(heads: Heads) -> Heads:
    """Pairs of heads with the same keys and values, not biases."""
    first = torch.arange(len(heads.wk)) // 2 * 2
    return heads._replace(wk=heads.wk[first], wv=heads.wv[first])


def narrow(heads: Heads, rank: int) -> Heads:
    """Keys and values of all heads from the same ``rank`` numbers of an input."""
    generator = torch.Generator().manual_seed(6)
    few = torch.linalg.qr(torch.randn(16, rank, generator=generator).double()).Q
    return heads._replace(wk=heads.wk @ few @ few.T, wv=heads.wv @ few @ few.T)


# ---- grouped-query -------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["mean", "fit"])
@pytest.mark.parametrize(("arch", "options"), MODELS)
def test_as_many_key_value_heads_as_heads_are_exact(
    arch: str, options: dict[str, Any], pooling: str
) -> None:
    found = trained(arch, GroupedQuery, **options)
    sizes = {place: place.module.num_heads for place in attentions(found.model)}
    model, fits = shared(found, sizes, "--to=grouped-query", f"--pooling={pooling}")
    assert sum(isinstance(one, GroupedQueryAttention) for one in model.modules()) == len(sizes)
    assert difference(found, model) < 1e-13
    assert {fit["error"] for fit in fits} | {fit["value_error"] for fit in fits} == {0}


@pytest.mark.parametrize("pooling", ["mean", "first", "fit"])
def test_heads_with_equal_keys_and_values_share_them_exactly(pooling: str) -> None:
    """Whatever their biases are: those of keys cancel, those of values go into the output's."""
    found = trained("transformer", GroupedQuery)
    set_heads(found, paired)
    model, fits = shared(found, everywhere(found, 2), "--to=grouped-query", f"--pooling={pooling}")
    assert difference(found, model) < 1e-10
    assert all(fit["error"] + fit["value_error"] < 1e-7 for fit in fits)
    model, _ = shared(found, everywhere(found, 1), "--to=grouped-query", f"--pooling={pooling}")
    assert difference(found, model) > 1e-3


def test_fit_finds_what_heads_share_in_other_coordinates() -> None:
    """Queries and outputs make up for any turn of a head's keys and values; means do not."""
    found = trained("transformer", GroupedQuery)
    set_heads(found, turned)
    sizes = everywhere(found, 2)
    for seen in (False, True):
        model, fits = shared(found, sizes, "--to=grouped-query", "--pooling=fit", seen=seen)
        assert difference(found, model) < 1e-9
        assert all(fit["error"] + fit["value_error"] < 1e-7 for fit in fits)
    model, _ = shared(found, sizes, "--to=grouped-query")
    assert difference(found, model) > 1e-3


def test_matched_heads_share_wherever_they_stand() -> None:
    found = trained("transformer", GroupedQuery)
    set_heads(found, paired)
    set_heads(found, lambda heads: heads.in_order([0, 2, 1, 3]))
    options = ("--to=grouped-query", "--match-heads")
    model, _ = shared(found, everywhere(found, 2), *options)
    assert difference(found, model) < 1e-10
    model, _ = shared(found, everywhere(found, 2), *options[:1])
    assert difference(found, model) > 1e-3


def test_mean_is_that_of_the_projection_matrices() -> None:
    """Ainslie et al., section 2.1; queries and outputs stay, and chance fills only ``random``."""
    found = trained("transformer", GroupedQuery)
    sizes = everywhere(found, 2)
    means, _ = shared(found, sizes, "--to=grouped-query")
    fresh, _ = shared(found, sizes, "--to=grouped-query", "--pooling=random")
    for place in sizes:
        own, mean = Heads.of(place.module), means.get_submodule(place.name)
        for projection, weights in ((mean.k_proj, own.wk), (mean.v_proj, own.wv)):
            expected = weights.unflatten(0, (2, 2)).mean(1).flatten(0, 1)
            assert torch.equal(projection.weight, expected)
        assert torch.equal(mean.q_proj.weight, place.module.q_proj.weight)
        assert torch.equal(mean.out_proj.weight, place.module.out_proj.weight)
        other = fresh.get_submodule(place.name)
        assert not torch.isclose(other.k_proj.weight, mean.k_proj.weight).any()
        assert torch.equal(other.q_proj.weight, mean.q_proj.weight)


def test_fit_is_the_best_of_all_and_more_is_better() -> None:
    found = trained("transformer", GroupedQuery)
    place = found.attentions["cross"][0]
    seen = calibrate.moments(found, [inputs(found)], [place])[place]
    fits = {}
    for pooling in ("mean", "first", "fit"):
        target = GroupedQuery(Namespace(weighting="root", pooling=pooling, match_heads=False))
        part = target.part(place.module, seen)
        for groups in (1, 2, 4):
            _, fits[pooling, groups] = target.convert(place.module, part, groups)
    for name in ("error", "value_error"):
        fit, mean, first = (
            [fits[pooling, groups][name] for groups in (1, 2, 4)]
            for pooling in ("fit", "mean", "first")
        )
        assert fit[0] > fit[1] > fit[2] == 0
        assert fit[0] < min(mean[0], first[0])
        assert fit[1] < min(mean[1], first[1])


def test_sites_and_layers_have_numbers_of_their_own() -> None:
    """Attentions without a number keep heads, weights and outputs."""
    found = trained("transformer", GroupedQuery)
    sizes = {place: 1 + place.layer for place in found.attentions["cross"]}
    sizes[found.attentions["decoder"][1]] = 2
    model, fits = shared(found, sizes, "--to=grouped-query")
    assert [fit["key_value_heads"] for fit in fits] == [1, 2, 2]
    for place in attentions(found.model):
        one = model.get_submodule(place.name)
        assert one.key_value_heads == sizes.get(place, 4)
        if place not in sizes:
            assert torch.equal(one.k_proj.weight, place.module.k_proj.weight)
            assert torch.equal(one.out_proj.bias, place.module.out_proj.bias)
    source = {name: inputs(found)[name] for name in ("src_tokens", "src_lengths")}
    one, other = (each.encoder(**source)["encoder_out"][0] for each in (found.model, model))
    assert (one - other).abs().max() < 1e-12


# ---- latent --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "options"),
    [*MODELS, ("transformer_headsize_n", {"qk_head_size": 6, "v_head_size": 3})],
)
def test_latents_of_the_size_of_the_inputs_are_exact(arch: str, options: dict[str, Any]) -> None:
    found = trained(arch, Latent, **options)
    model, fits = shared(found, everywhere(found, 16), "--to=latent")
    assert sum(isinstance(one, LatentAttention) for one in model.modules()) == len(fits)
    assert difference(found, model) < 1e-10
    assert {fit["error"] for fit in fits} | {fit["value_error"] for fit in fits} == {0}


@pytest.mark.parametrize("seen", [False, True])
def test_latents_of_the_joint_rank_are_exact(seen: bool) -> None:
    """Keys and values of all heads from 7 numbers; from 6 of them no more."""
    found = trained("transformer", Latent)
    set_heads(found, lambda heads: narrow(heads, 7))
    model, fits = shared(found, everywhere(found, 7), "--to=latent", seen=seen)
    assert difference(found, model) < 1e-8
    assert all(fit["error"] + fit["value_error"] < 1e-7 for fit in fits)
    model, _ = shared(found, everywhere(found, 6), "--to=latent", seen=seen)
    assert difference(found, model) > 1e-3


def test_larger_latents_are_better() -> None:
    """The errors of scores and outputs, of which the sum of squares is minimised."""
    place = trained("transformer", Latent).attentions["encoder"][0]
    target = Latent(Namespace(weighting="root"))
    part = target.part(place.module, None)
    fits = [target.convert(place.module, part, size)[1] for size in range(1, 17)]
    costs = [fit["error"] ** 2 + fit["value_error"] ** 2 for fit in fits]
    assert all(more < less for less, more in pairwise(costs))
    assert costs[-1] == 0


def test_no_other_latent_is_better() -> None:
    """Neighbours of the optimum, with the best up-projections for each, cost more."""
    found = trained("transformer", Latent)
    heads = Heads.of(found.attentions["encoder"][0].module)
    part = Weighed.of(found.attentions["encoder"][0].module, None, "root")
    best, *_ = latents(part.keys, part.values, 5)
    both = torch.cat([(part.keys.rows() / part.keys.rows().norm()),
                      (part.values.rows() / part.values.rows().norm())])  # fmt: skip

    def cost(down: Tensor) -> float:
        """What a projection onto the rows of ``down`` leaves of keys and values."""
        basis, _ = torch.linalg.qr(down.T)
        return float((both - both @ basis @ basis.T).norm())

    assert len(heads.wk) == 4
    generator = torch.Generator().manual_seed(3)
    for size in (1e-3, 1e-2, 1e-1):
        noise = torch.randn(best.shape, generator=generator).double()
        assert cost(best) < cost(best + size * best.norm() / noise.norm() * noise)


def test_latents_of_sites_and_layers() -> None:
    """Attentions without a number do as before; their latents are their inputs."""
    found = trained("transformer", Latent)
    sizes = {place: 5 + place.layer for place in found.attentions["cross"]}
    model, fits = shared(found, sizes, "--to=latent")
    assert [fit["latent_dim"] for fit in fits] == [5, 6]
    for place in attentions(found.model):
        assert model.get_submodule(place.name).latent_dim == sizes.get(place, 16)
    source = {name: inputs(found)[name] for name in ("src_tokens", "src_lengths")}
    one, other = (each.encoder(**source)["encoder_out"][0] for each in (found.model, model))
    assert (one - other).abs().max() < 1e-12


# ---- collaborative heads with shared values ------------------------------------------------------


@pytest.mark.parametrize("pooling", ["mean", "fit"])
def test_collaborative_heads_share_values_exactly(pooling: str) -> None:
    """As many as heads, or pairs of heads with equal ones; keys are those of all dimensions."""
    options = ("--to=collab", f"--pooling={pooling}", "--value-heads")
    found = trained("transformer")
    whole, _ = shared(found, everywhere(found, 16))
    model, _ = shared(found, everywhere(found, 16), *options, "4")
    for name, weight in whole.named_parameters():
        assert torch.equal(model.get_parameter(name), weight), name
    set_heads(found, paired)
    model, fits = shared(found, everywhere(found, 16), *options, "2")
    assert difference(found, model) < 1e-10
    assert all(fit["error"] == 0 and fit["value_error"] < 1e-7 for fit in fits)
    assert {place.module.value_heads for place in attentions(model)} == {2}
    model, _ = shared(found, everywhere(found, 16), *options, "1")
    assert difference(found, model) > 1e-3


def test_keys_are_the_same_whether_values_are_shared_or_not() -> None:
    found = trained("transformer")
    sizes = {place: 5 for place in attentions(found.model) if place.site != "decoder"}
    alone, _ = shared(found, sizes, "--steps=2")
    model, _ = shared(found, sizes, "--steps=2", "--value-heads=2", "--pooling=fit")
    for place in attentions(found.model):
        one, other = (each.get_submodule(place.name).state_dict() for each in (alone, model))
        keys = ("q_proj.weight", "k_proj.weight", "mixing", "content_bias")
        for name in keys if place in sizes else one:
            assert torch.equal(one[name], other[name])


# ---- errors --------------------------------------------------------------------------------------

SHARED = ("--to=collab", "--value-heads=2", "--pooling=fit")
ways = pytest.mark.parametrize(
    ("target", "size", "options"),
    [
        (GroupedQuery, 2, ("--to=grouped-query", "--pooling=fit")),
        (Latent, 7, ("--to=latent",)),
        (Collaborative, 5, SHARED),
        (Collaborative, 5, (*SHARED, "--exportable")),
    ],
)


@ways
def test_errors_are_those_of_scores_and_outputs(
    target: type[Target], size: int, options: tuple[str, ...]
) -> None:
    """Root mean squares over all pairs of inputs, measured on heads of the result."""
    found = trained("transformer", target)
    place = found.attentions["encoder"][0]
    x = torch.randn(400, 16, generator=torch.Generator().manual_seed(2)).double() + 0.5
    read = x - x.mean(0)
    model, (fit,) = shared(found, {place: size}, *options, "--weighting=scores", read=x)
    before, after = place.module, model.get_submodule(place.name)
    after = ordinary(after)
    scores, outputs = [], []
    for module in (before, after):
        heads = Heads.of(module)
        queries = torch.einsum("nd,hkd->hnk", x, heads.wq) + heads.bq.unsqueeze(1)
        keys = torch.einsum("nd,hkd->hkn", read, heads.wk)
        scores.append(module.scaling * queries @ keys)
        outputs.append(torch.einsum("nd,hkd,hek->hne", read, heads.wv, heads.wo))
    for name, (one, other) in {"logit_error": scores, "value_error": outputs}.items():
        assert fit[name] == pytest.approx(float((one - other).norm() / one.norm()), rel=1e-2)
    if target is not Collaborative:  # what it minimises leaves out the content scores
        assert fit["error"] == fit["logit_error"]


@ways
def test_what_values_lose_of_the_mean_input_goes_into_the_bias(
    target: type[Target], size: int, options: tuple[str, ...]
) -> None:
    """An attention to nothing but the mean of the inputs puts out what it did before."""
    found = trained("transformer", target)
    place = found.attentions["encoder"][0]
    x = torch.randn(9, 1, 16, generator=torch.Generator().manual_seed(2)).double() + 0.5
    found.model.forward = lambda **_: place.module(x, x, x)
    model, _ = shared(found, {place: size}, *options, read=x.flatten(0, 1))
    mean = x.mean(0, keepdim=True)
    expected, _ = place.module(mean, mean, mean)
    output, _ = model.get_submodule(place.name)(mean, mean, mean)
    assert (output - expected).abs().max() < 1e-10
