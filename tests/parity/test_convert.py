"""Conversion in closed form: exact at full size, and optimal below it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from toy_reparametrize import converted, inputs, target_of, trained

from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention
from fairseq_collab.convert import low_rank
from fairseq_collab.convert.base import Part
from fairseq_collab.convert.calibrate import Sums, moments
from fairseq_collab.convert.kinds import grouped_values, shared_keys
from fairseq_collab.convert.low_rank import (
    SHARED,
    Roots,
    Shared,
    latents,
    own,
    relative_error,
    separate,
)
from fairseq_collab.export.attention import plain_weights
from fairseq_collab.trained.attentions import attentions

pytestmark = pytest.mark.usefixtures("float64")

D, H, h = 16, 4, 4
MODELS: list[tuple[str, dict[str, Any]]] = [
    ("transformer", {}),
    ("transformer", {"encoder_normalize_before": True, "decoder_normalize_before": True}),
    ("transformer", {"encoder_attention_heads": 2}),
    ("transformer", {"share_all_embeddings": True}),
    ("transformer_headsize_n", {}),
    ("transformer_headsize_n", {"attention_scale": "embed", "heads_in_encoder": "8"}),
    ("transformer_lm", {}),
    ("transformer_lm", {"scale_fc": True}),  # which it ignores
    ("transformer_lm_headsize_n", {}),
]
NARROW = [
    ("transformer_headsize_n", {"qk_head_size": 6}),
    ("transformer_headsize_n", {"qk_head_size": 3, "attention_scale": "embed"}),
    ("transformer_lm_headsize_n", {"qk_head_size": 6}),
]
SHARING = [
    ("transformer_collab", {"key_dim": 6, "attention_scale": "key"}),
    ("transformer_collab", {"key_dim": 6, "value_heads": 2, "query_mixing": "diagonal"}),
    ("transformer_collab", {"key_dim": 6, "key_dim_in_decoder": "0"}),
    ("transformer_lm_collab", {"key_dim": 6, "query_mixing": "own"}),
]


@pytest.mark.parametrize(
    ("options", "size", "models"),
    [
        (["--query-mixing=own"], "keys", [*MODELS, *NARROW, *SHARING]),
        (["--query-mixing=full"], "keys", [*MODELS, *NARROW]),
        (["--query-mixing=diagonal"], "keys", [*MODELS, *NARROW]),
        (["--to=headsize"], "keys", [*MODELS, *NARROW]),
        (["--to=grouped-query"], "heads", MODELS),
        (["--to=latent"], "inputs", [*MODELS, *NARROW]),
        (["--to=collab", "--value-heads={heads}"], "keys", MODELS[:2]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) and isinstance(value[0], str) else "",
)
@pytest.mark.parametrize("seen", [False, True], ids=["weights", "scores"])
def test_full_size_is_exact(options: list[str], size: str, models: list, seen: bool) -> None:
    """Logits of the whole model, with padding and causal masks."""
    for arch, given in models:
        found = trained(arch, **given)
        places = attentions(found.model)
        heads = places[0].module.num_heads
        target = target_of(*(one.format(heads=heads) for one in options))
        sizes = {place: target.largest(place.module) for place in places}
        model, fits = converted(found, sizes, *(o.format(heads=heads) for o in options), seen=seen)
        expected, logits = found.model(**inputs(found))[0], model(**inputs(found))[0]
        real = expected.isfinite()
        assert (logits - expected)[real].abs().max() < 1e-8, (arch, given)
        assert max(fit["error"] for fit in fits) < 1e-6


def attention(seed: int = 1) -> Part:
    """Trained heads, and inputs that are correlated and have a mean."""
    torch.manual_seed(seed)
    module = toy.randomised(ConcatenatedAttention(D, H))
    sums = Sums(), Sums()
    for one in sums:
        one.add(torch.randn(400, D) @ torch.randn(D, D) + torch.randn(D))
    part = Part(module, None)
    part.roots = Roots.of(sums[0].with_constant(), sums[1].covariance())
    return part


def error(part: Part, shared: Shared) -> float:
    return part.score_error(shared.queries(), shared.key.unsqueeze(0))


@pytest.mark.parametrize("mixing", SHARED)
def test_errors_fall_with_the_width(mixing: str) -> None:
    part = attention()
    errors = [error(part, SHARED[mixing](part.heads, part.roots, size)) for size in range(1, 17)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-6 < errors[-2]


@pytest.mark.parametrize("size", [1, 3, 8, 15])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_freer_query_never_loses_more(seed: int, size: int) -> None:
    part = attention(seed)
    errors = {
        name: error(part, make(part.heads, part.roots, size)) for name, make in SHARED.items()
    }
    assert errors["own"] <= errors["full"] + 1e-12
    assert errors["full"] <= errors["diagonal"] + 1e-4  # both iterate
    if size % H == 0:
        of_each = part.score_error(*separate(part.heads, part.roots, size // H))
        assert errors["diagonal"] <= of_each + 1e-12


@pytest.mark.parametrize("size", [3, 9])
def test_no_sweep_of_the_diagonal_loses(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    part, errors = attention(), []
    for sweeps in range(1, 25):
        monkeypatch.setattr(low_rank, "DIAGONAL_SWEEPS", sweeps)
        errors.append(error(part, SHARED["diagonal"](part.heads, part.roots, size)))
    assert errors == sorted(errors, reverse=True)


def test_heads_that_are_equal_have_a_diagonal() -> None:
    """Their directions are equal, so that no system of equations has one solution."""
    part = attention()
    first = (maps[:1].expand(H, -1, -1) for maps in (part.heads.queries, part.heads.keys))
    part.heads = part.heads._replace(**dict(zip(("queries", "keys"), first, strict=True)))
    assert error(part, SHARED["diagonal"](part.heads, part.roots, D - 1)) < 1e-6


@pytest.mark.parametrize("size", [2, 7])
def test_no_other_shared_key_beats_own_queries(size: int) -> None:
    """Random subspaces, and the best ones disturbed, with the best queries for each."""
    part = attention()
    best = own(part.heads, part.roots, size)
    least = error(part, best)
    generator = torch.Generator().manual_seed(3)
    for noise in (0.01, 0.1, 100.0):
        key = best.key + noise * torch.randn(best.key.shape, generator=generator)
        basis = torch.linalg.qr(part.roots.key @ key)[0]  # (d_y, K)
        queries = part.heads.queries @ (part.heads.keys.mT @ part.roots.key @ basis)
        other = Shared(queries, None, part.roots.key_inverse @ basis)
        assert error(part, other) > least


def test_no_other_narrow_head_beats_its_singular_directions() -> None:
    part = attention()
    queries, keys = separate(part.heads, part.roots, 2)
    least = part.score_error(queries, keys)
    generator = torch.Generator().manual_seed(3)
    for _ in range(5):
        other = keys + 0.05 * torch.randn(keys.shape, generator=generator)
        # The best queries for these keys, by least squares.
        target = (part.roots.key @ part.heads.keys) @ part.heads.queries.mT  # (H, d_y, d + 1)
        fitted = torch.linalg.lstsq(part.roots.key @ other, target).solution.mT
        assert part.score_error(fitted, other) > least


def test_the_error_is_that_of_the_centred_scores() -> None:
    """Root mean square over random queries and keys, the keys' mean taken out."""
    part = attention()
    x = torch.randn(20_000, D) @ torch.randn(D, D) + 1
    y = torch.randn(20_000, D) @ torch.randn(D, D) - 1
    sums = Sums(), Sums()
    sums[0].add(x)
    sums[1].add(y)
    part.roots = Roots.of(sums[0].with_constant(), sums[1].covariance())
    shared = own(part.heads, part.roots, 5)
    one = torch.cat([x, torch.ones(len(x), 1)], 1)
    y = y - y.mean(0)

    def scores(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return torch.einsum("nd,hde,hfe,nf->hn", one, queries, keys, y)

    exact = scores(part.heads.queries, part.heads.keys)
    lost = exact - scores(shared.queries(), shared.key.expand(H, -1, -1))
    expected = (lost.square().mean() / exact.square().mean()).sqrt()
    assert error(part, shared) == pytest.approx(float(expected), rel=0.1)


def test_the_key_bias_cancels_and_nothing_else_does() -> None:
    """Weights of fairseq's attention with a large key bias, against the converted attention."""
    found = trained("transformer")
    with torch.no_grad():
        for place in attentions(found.model):
            place.module.k_proj.bias.mul_(50)
    model, _ = converted(found, dict.fromkeys(attentions(found.model), D))
    x = torch.randn(5, 2, D, generator=torch.Generator().manual_seed(2))
    for place in attentions(found.model):
        place.module._set_skip_embed_dim_check()  # fairseq's path with weights per head
        _, expected = place.module(x, x, x, need_head_weights=True)
        _, weights = model.get_submodule(place.name)(x, x, x, need_head_weights=True)
        assert (weights - expected).abs().max() < 1e-8


def test_no_other_value_of_a_group_beats_its_directions() -> None:
    """Means of neighbours (Ainslie et al. 2023), random ones, and the best ones disturbed."""
    part = attention()
    metric, heads = part.roots.key, part.heads
    part.value_roots = metric, part.roots.key_inverse
    target = metric @ heads.values[:, :-1] @ heads.out.mT  # (H, d_y, d)

    def lost(values: torch.Tensor) -> float:
        """With the best outputs for the values of two groups ``(2, d_y, h)``."""
        each = values.repeat_interleave(H // 2, 0)
        return part.value_error(each, torch.linalg.lstsq(metric @ each, target).solution.mT)

    weights, least = grouped_values(part, 2)
    best = weights["v_proj.weight"].unflatten(0, (2, -1)).mT  # (2, d_y, h)
    assert lost(best) == pytest.approx(least)
    generator = torch.Generator().manual_seed(3)
    for noise in (0.01, 0.1, 100.0):
        assert lost(best + noise * torch.randn(best.shape, generator=generator)) > least
    assert lost(heads.values[:, :-1].unflatten(0, (2, -1)).mean(1)) > least


def test_the_mean_of_all_inputs_loses_nothing() -> None:
    part = attention()
    heads, part.value_mean = part.heads, torch.randn(D)
    values, out, read = 0.7 * heads.values[:, :-1], 1.2 * heads.out, "n,hnv,hdv->d"
    one = torch.cat([part.value_mean, torch.ones(1)])
    exact = heads.out_bias + torch.einsum(read, one, heads.values, heads.out)
    toy.close(part.out_bias(values, out) + torch.einsum(read, one[:-1], values, out), exact)


def test_fewer_groups_lose_more() -> None:
    found = trained("transformer", target_of("--to=grouped-query"))
    places = attentions(found.model)
    work = [converted(found, dict.fromkeys(places, g), "--to=grouped-query") for g in (4, 2, 1)]
    exact, two, one = (fits[0]["error"] for _, fits in work)
    assert exact < 1e-6 < two < one < 1


def test_no_narrow_key_and_value_beats_a_latent_of_both() -> None:
    """At the same cache: the latent of K + V numbers contains them."""
    part = attention()
    heads, metric, inverse = part.heads, *part.value_roots
    part.roots = part.roots._replace(key=metric, key_inverse=inverse)
    down, key_up, value_up = latents(heads, part.roots, part.value_roots, 9)
    lost = part.score_error(heads.queries, down @ key_up) ** 2
    lost += part.value_error(down @ value_up, heads.out) ** 2
    read = heads.out.mT @ heads.out
    values = heads.values[:, :-1]
    for width in range(1, 9):
        key = own(heads, part.roots, width)
        gram = (values @ read @ values.mT).sum(0)
        v = torch.linalg.eigh(gram)[1][:, width - 9 :]
        alone = error(part, key) ** 2 + part.value_error(v @ (v.T @ values), heads.out) ** 2
        assert lost <= alone + 1e-9


def test_moments_are_those_of_the_inputs_without_padding() -> None:
    """Each sentence alone, unpadded, gives the same sums as a batch with padding."""
    found = trained("transformer")
    batch = toy.batch(found.task)
    pad = found.task.source_dictionary.pad()
    alone = []
    for i in range(3):
        source, previous = (batch[name][i] for name in ("src_tokens", "prev_output_tokens"))
        source, previous = source[source.ne(pad)], previous[previous.ne(pad)]
        one = {"src_tokens": source[None], "prev_output_tokens": previous[None]}
        alone.append({**one, "src_lengths": torch.tensor([len(source)])})
    places = attentions(found.model)
    together, apart = moments(found, [batch], places), moments(found, alone, places)
    for place in places:
        for name in ("query", "key", "value", "value_mean"):
            a, b = getattr(together[place], name), getattr(apart[place], name)
            assert (a - b).abs().max() < 1e-5, (place, name)  # fairseq's softmax is single


def test_keys_are_centred_in_their_sentence() -> None:
    """Keys that are constant in each sentence have no covariance: the softmax ignores them."""
    found = trained("transformer")
    place = found.attentions["cross"][0]
    x = torch.randn(2, 2, D)
    y = torch.stack([torch.ones(D), 5 * torch.ones(D)]).expand(4, 2, D)

    class Only(torch.nn.Module):
        """A model that makes this one call."""

        def __init__(self) -> None:
            super().__init__()
            self.module = place.module

        def forward(self, **_: Any) -> None:
            self.module(x, y, y)

    batch = {"src_tokens": torch.full((2, 4), 5), "prev_output_tokens": torch.full((2, 2), 5)}
    found_moments = moments(found.with_model(Only()), [batch], [place])[place]
    assert found_moments.key.abs().max() < 1e-12
    assert found_moments.value.abs().max() > 1


def test_heads_of_zeros_have_no_error() -> None:
    part = attention()
    heads = part.heads._replace(queries=torch.zeros_like(part.heads.queries))
    roots = Roots.ones(heads)
    for make in SHARED.values():
        shared = make(heads, roots, 3)
        assert relative_error(heads, roots, shared.queries(), shared.key[None]) == 0


def test_a_diagonal_of_full_width_is_standard_heads_again() -> None:
    """Its mixing stays blocks, so that it exports to fairseq's own heads."""
    part = attention()
    weights, _ = shared_keys(part, D, "diagonal")
    ours = CollaborativeAttention(D, H, D, query_mixing="diagonal")
    kept = part.kept("v_proj", "out_proj")
    ours.load_state_dict({**weights, **kept, "signature": ours.signature})
    again = ConcatenatedAttention(D, H)
    again.load_state_dict({**plain_weights(ours, D // H), "signature": again.signature})
    x = torch.randn(5, 2, D)
    assert (again(x, x, x)[0] - part.module(x, x, x)[0]).abs().max() < 1e-8
