"""Spectra and ranks of heads: the maths against brute force, the logits against the models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import toy
from torch import Tensor
from toy_heads import MODELS, build

from fairseq_collab.analysis.rank import spectra
from fairseq_collab.analysis.rank.measure import Row, logit_rows, weight_rows
from fairseq_collab.analysis.scores import factors, logits, watched
from fairseq_collab.attention import CollaborativeAttention
from fairseq_collab.results.rank import rank_figure
from fairseq_collab.trained.attentions import attentions

pytestmark = pytest.mark.usefixtures("float64")

every_model = pytest.mark.parametrize("kind", MODELS)


def low_rank(rows: int, columns: int, rank: int) -> Tensor:
    return torch.randn(rows, rank) @ torch.randn(rank, columns)


# ---- the maths -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "rank"), [((7, 5), 3), ((5, 9), 5), ((6, 6), 0), ((300, 200), 7)]
)
def test_numerical_rank_is_numpys(shape: tuple[int, int], rank: int) -> None:
    matrix = low_rank(*shape, rank) if rank else torch.zeros(shape)
    found = spectra.numerical_rank(torch.linalg.svdvals(matrix), shape)
    assert found == rank == np.linalg.matrix_rank(matrix.numpy())


def test_numerical_rank_with_a_tolerance() -> None:
    s = torch.tensor([[8.0, 4.0, 1.0, 0.5], [1.0, 1.0, 0.0, 0.0]])
    assert spectra.numerical_rank(s, (4, 4), 0.1).tolist() == [3, 2]
    assert spectra.numerical_rank(s, (4, 4), 0.5).tolist() == [1, 2]  # above it, not at it


def test_energy_rank() -> None:
    s = torch.tensor([[3.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    assert spectra.energy_rank(s, 0.75).tolist() == [1, 3, 0]  # 9 of 12; 3 of 4
    assert spectra.energy_rank(s, 0.76).tolist() == [2, 4, 0]
    assert spectra.energy_rank(s, 1).tolist() == [4, 4, 0]
    ten = torch.full((10,), 0.1)
    assert [int(spectra.energy_rank(ten, k / 10)) for k in range(1, 11)] == list(range(1, 11))


def test_effective_rank() -> None:
    s = torch.tensor([[2.0, 2.0, 2.0], [5.0, 0.0, 0.0], [0.0, 0.0, 0.0], [2.0, 1.0, 0.0]])
    entropy = np.log(3) - 2 / 3 * np.log(2)
    torch.testing.assert_close(
        spectra.effective_rank(s), torch.tensor([3.0, 1.0, 0.0, np.exp(entropy)])
    )


@pytest.mark.parametrize("width", [2, 9])  # less, and more, than the dimensions of the input
def test_spectra_of_factors_are_those_of_the_products(width: int) -> None:
    a, b = torch.randn(3, 6, width), torch.randn(3, 8, width)
    maps = a @ b.transpose(1, 2)  # (3, 6, 8)

    def same(found: Tensor, matrix: Tensor) -> None:
        expected = torch.linalg.svdvals(matrix)
        torch.testing.assert_close(found, expected[..., : found.size(-1)])
        assert (expected[..., found.size(-1) :] < 1e-12).all()

    same(spectra.map_spectrum(a, b), maps)
    same(spectra.sum_spectrum(a, b), maps.sum(0))
    same(spectra.stacked_spectrum(a, b), torch.cat(list(maps), dim=0))
    same(spectra.stacked_spectrum(b, a), torch.cat(list(maps), dim=1))


def test_centred_rows_have_the_same_softmax() -> None:
    scores = torch.randn(4, 5)
    centred = spectra.centre_rows(scores)
    assert centred.sum(-1).abs().max() < 1e-12
    torch.testing.assert_close(centred.softmax(-1), scores.softmax(-1))


def test_used_width_counts_what_both_sides_use() -> None:
    a, b = torch.ones(2, 3, 4), torch.ones(2, 3, 4)
    a[0, :, 1], b[0, :, 2], a[1, :2, 0] = 0, 0, 0
    assert spectra.used_width(a, b).tolist() == [2, 4]


# ---- the logits ----------------------------------------------------------------------------------


@every_model
def test_factors_reproduce_the_logits(kind: str) -> None:
    """``[x 1] A_i B_i^T [y 1]^T``, with the same biases and scale."""
    for site, _, module, _ in attentions(build(kind)):
        x = torch.randn(5, 1, 16)
        y = torch.randn(7, 1, 16) if site == "cross" else x
        a, b = factors(module)
        x1, y1 = (torch.cat([inputs[:, 0], torch.ones(len(inputs), 1)], -1) for inputs in (x, y))
        found = (x1 @ a) @ (y1 @ b).transpose(1, 2)
        torch.testing.assert_close(found, logits(module, x, y)[0], rtol=0, atol=1e-10)


# ---- rows ----------------------------------------------------------------------------------------


def chosen(rows: list[Row], **fields: Any) -> list[Row]:
    return [row for row in rows if all(getattr(row, k) == v for k, v in fields.items())]


def test_rows_of_weights_are_the_papers_matrices() -> None:
    """Collaborative heads, written out: ``W_i = scale Wq^T diag(m_i) Wk``."""
    model = build("collaborative")
    module = model.decoder.layers[1].encoder_attn
    assert isinstance(module, CollaborativeAttention)
    maps = [
        module.scaling * module.q_proj.weight.T @ torch.diag(m) @ module.k_proj.weight
        for m in module.mixing
    ]
    matrices = {
        "sum": sum(maps),
        "stacked_queries": torch.cat(maps, dim=1),
        "stacked_keys": torch.cat(maps, dim=0),
    }
    rows = chosen(weight_rows(model), site="cross", layer=1)
    assert [row.kind for row in rows] == ["map"] * 4 + list(matrices)
    for row, matrix in zip(rows, [*maps, *matrices.values()], strict=True):
        s = torch.linalg.svdvals(matrix)
        assert (row.rows, row.columns) == matrix.shape
        assert row.bound == row.rank == 6
        assert row.norm == pytest.approx(torch.linalg.norm(matrix).item())
        spectrum = torch.tensor(row.spectrum)
        torch.testing.assert_close(spectrum, (s / s.norm())[: len(spectrum)], rtol=0, atol=1e-10)
        assert row.dims95 == spectra.energy_rank(s, 0.95)
        assert row.sentences is row.length is row.longer is None


@every_model
def test_bounds_of_weights_hold(kind: str) -> None:
    """Random heads use all that their width and their number allow, and no more."""
    rows = weight_rows(build(kind))
    assert rows
    for row in rows:
        assert row.rank == row.bound, row
    if kind == "sizes":
        encoder = chosen(rows, site="encoder", kind="map")
        assert [row.layer for row in encoder] == [0] * 2 + [1] * 5  # head counts of each layer
        assert {row.bound for row in encoder} == {3}
        stacks = chosen(rows, site="encoder", kind="stacked_keys")
        assert [row.bound for row in stacks] == [6, 15]
    for shared, bounds in (("shared keys", (8, 8)), ("latent", (6, 3))):
        if kind == shared:  # two keys of size 4; the latents of encoder and cross-attention
            for site, bound in zip(("encoder", "cross"), bounds, strict=True):
                stacks = chosen(rows, site=site, kind="stacked_keys")
                assert {row.bound for row in stacks} == {bound}


def test_heads_of_their_own_blocks_are_as_wide_as_a_block() -> None:
    model = toy.model("transformer_collab", key_dim=8, mixing_init="block")
    rows = weight_rows(model, weights="untrained")
    assert {row.bound for row in chosen(rows, kind="map")} == {2}
    assert {row.bound for row in chosen(rows, kind="sum")} == {8}
    assert {row.weights for row in rows} == {"untrained"}


def sentence(length: int) -> dict[str, Tensor]:
    """One source of ``length`` words and a target of one more."""
    words = torch.randint(4, 24, (2 * length + 1,))
    source, previous = words[None, :length], words[None, length:]
    return {
        "src_tokens": source,
        "src_lengths": torch.tensor([length]),
        "prev_output_tokens": previous,
    }


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        ("stock", 4),
        ("collaborative", 6),
        ("content", 3 + 1),
        ("no bias", 5),
        ("sizes", 3),
        ("shared keys", 4),
    ],
)
def test_logits_have_the_rank_that_heads_and_lengths_allow(kind: str, width: int) -> None:
    """Biases of projections add no rank; a content score adds one."""
    rows = logit_rows(build(kind), map(sentence, (2, 9)), bin_width=1)
    for row in rows:
        n, is_long = row.length, row.length > width
        centred = row.kind == "logits_centred"
        assert row.bound == min(row.rows, row.columns - centred, width)
        assert row.rank == row.bound, row
        assert all(value < 1e-9 for value in row.spectrum[int(row.bound) :])
        assert (row.length_from, row.length_to, row.sentences) == (n, n, 1)
        assert row.longer == is_long
    assert any(row.longer for row in rows)


def test_rows_of_logits_are_means_over_sentences_of_similar_length() -> None:
    model, inputs, kept = build("collaborative"), [sentence(n) for n in (3, 4, 5, 6)], []
    found = logit_rows(model, inputs, bin_width=5)
    for net_input in inputs:
        with torch.no_grad(), watched(model, lambda where, seen: kept.append((where, seen))):
            model(**net_input)
    rows = chosen(found, site="encoder", layer=1, head="2", kind="logits")
    assert [(row.length_from, row.length_to, row.sentences) for row in rows] == [
        (1, 5, 3),
        (6, 10, 1),
    ]
    where = attentions(model)[1]
    spectra_seen = [torch.linalg.svdvals(s[0, 2]) for place, s in kept if place == where][:3]
    first = rows[0]
    assert first.length == first.rows == 4
    assert first.norm == pytest.approx(np.mean([s.norm().item() for s in spectra_seen]))
    for share, dims in ((0.9, first.dims90), (0.95, first.dims95), (0.99, first.dims99)):
        expected = [spectra.energy_rank(s, share).item() for s in spectra_seen]
        assert dims == pytest.approx(np.mean(expected))
    squares = [
        torch.nn.functional.pad((s / s.norm()).square(), (0, 5 - len(s))) for s in spectra_seen
    ]
    torch.testing.assert_close(torch.tensor(first.spectrum), torch.stack(squares).mean(0).sqrt())
    assert sum(value**2 for value in first.spectrum) == pytest.approx(1)


def test_a_sentence_of_one_word_has_nothing_to_choose() -> None:
    centred = chosen(
        logit_rows(build("stock"), [sentence(1)]), site="encoder", kind="logits_centred"
    )
    assert centred
    for row in centred:
        assert row.bound == row.rank == row.dims99 == row.effective_rank == row.norm == 0


def test_the_figure_has_a_column_for_each_site_and_names_its_lines() -> None:
    model = build("sizes")
    rows = weight_rows(model) + logit_rows(model, map(sentence, (1, 4, 9)))
    panels = rank_figure(rows, "a model").axes
    assert len(panels) == 9
    assert panels[3].get_xlabel() == "dimensions (the heads together have 6 to 15)"
    for panel in (panels[2], panels[5], panels[8]):
        assert len(panel.get_legend().get_texts()) >= 1
    assert len(rank_figure([row for row in rows if row.site != "cross"], "less").axes) == 6
