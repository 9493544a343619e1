"""Statistics of what attentions read, and the distillation that uses the same sentences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from toy_reparametrize import converted, inputs, shared, trained

from fairseq_collab.convert.calibrate import Moments, Sums, moments
from fairseq_collab.convert.distil import changed_parameters, distil, divergence
from fairseq_collab.convert.grouped import GroupedQuery
from fairseq_collab.trained.attentions import attentions


def test_sums_give_the_covariance() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(50, 4, generator=generator) + 3
    sums = Sums()
    for part in x.split(7):
        sums.add(part)
    assert (sums.mean() - x.double().mean(0)).abs().max() < 1e-12
    assert (sums.covariance() - torch.cov(x.double().T, correction=0)).abs().max() < 1e-10


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
        for name in ("query_mean", "query_covariance", "key_covariance"):
            a, b = getattr(together[place], name), getattr(apart[place], name)
            assert (a - b).abs().max() < 1e-5, (place, name)  # fairseq's softmax is single


def test_keys_are_centred_in_their_sentence() -> None:
    """Keys of two sentences, each constant, have no covariance: no softmax can tell them apart."""
    found = trained("transformer")
    place = found.attentions["cross"][0]
    x = torch.randn(2, 2, 16).double()
    y = torch.stack([torch.ones(16), 5 * torch.ones(16)]).expand(4, 2, 16).double()
    module = place.module

    class Only(torch.nn.Module):
        """A model that makes this one call."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, **_: Any) -> None:
            self.module(x, y, y)

    net_input = {
        "src_tokens": torch.full((2, 4), 5), "prev_output_tokens": torch.full((2, 2), 5)
    }  # fmt: skip
    covariance = moments(found.with_model(Only()), [net_input], [place])[place].key_covariance
    assert covariance.abs().max() < 1e-12


def test_weightings() -> None:
    root = torch.randn(4, 4, generator=torch.Generator().manual_seed(1)).double()
    seen = Moments(torch.zeros(4), root @ root.T, root.T @ root, torch.zeros(4), root.T @ root)
    assert seen.metrics("weights") == (None, None)
    assert seen.metrics("scores")[0] is seen.query_covariance
    query, _ = seen.metrics("root")
    assert query is not None
    assert (query @ query - seen.query_covariance).abs().max() < 1e-10


def test_distillation_brings_the_result_closer_and_leaves_the_rest_alone() -> None:
    found = trained("transformer")
    model, _ = converted(found, dict.fromkeys(attentions(found.model), 4))
    batch = toy.batch(found.task)
    pad = found.task.source_dictionary.pad()
    real = batch["prev_output_tokens"].ne(pad)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    first = float(divergence(found.model, model, batch, real))
    losses = distil(found.model, model, [batch], pad, 8, learning_rate=1e-2)
    assert losses[0] == pytest.approx(first, rel=1e-5)
    assert float(divergence(found.model, model, batch, real)) < 0.7 * first
    changed = {name for name, w in model.state_dict().items() if not torch.equal(w, before[name])}
    endings = ("q_proj.weight", "k_proj.weight", "mixing", "content_bias")
    assert changed
    assert all(name.endswith(endings) for name in changed)
    assert len(changed_parameters(model)) == 4 * len(attentions(found.model))
    assert all(p.grad is None for p in model.parameters())


def test_distillation_trains_what_is_computed_again() -> None:
    """``--checkpoint-activations`` makes no difference to what is learnt."""
    learnt = []
    for again in (False, True):
        found = trained("transformer", checkpoint_activations=again)
        model, _ = converted(found, dict.fromkeys(attentions(found.model), 4))
        pad = found.task.source_dictionary.pad()
        losses = distil(found.model, model, [toy.batch(found.task)], pad, 3, learning_rate=1e-2)
        learnt.append([*losses, *(one.sum().item() for one in changed_parameters(model))])
    assert learnt[0] == pytest.approx(learnt[1])
    assert learnt[0][2] < learnt[0][0]


def test_distillation_compares_words_of_an_adaptive_softmax() -> None:
    found = trained("transformer_lm_headsize_n", adaptive_softmax_cutoff="8,16")
    model, _ = converted(found, dict.fromkeys(attentions(found.model), 4))
    batch = inputs(found)
    real = batch["src_tokens"].ne(found.task.source_dictionary.pad())
    with torch.no_grad():
        wanted, other = (
            one.get_normalized_probs(one(**batch), log_probs=True)[real]  # of all words
            for one in (found.model, model)
        )
    expected = (wanted.exp() * (wanted - other)).sum() / real.sum()
    loss = divergence(found.model, model, batch, real)
    assert loss.item() == pytest.approx(float(expected), rel=1e-4)
    loss.backward()
    assert all(one.grad is not None for one in changed_parameters(model))


@pytest.mark.parametrize("to", ["grouped-query", "latent"])
def test_distillation_trains_attentions_that_share_and_no_others(to: str) -> None:
    found = trained("transformer", GroupedQuery)
    cross = found.attentions["cross"]
    model, _ = shared(found, dict.fromkeys(cross, 2), f"--to={to}")
    expected = {id(one) for place in cross for one in model.get_submodule(place.name).parameters()}
    assert {id(one) for one in changed_parameters(model)} == expected
    assert len(changed_parameters(model)) == len(expected)
