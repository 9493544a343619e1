"""Measures of heads: on attention that is right by design, and on models of every kind."""

from __future__ import annotations

import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary
from torch import Tensor, nn
from toy import close
from toy_heads import MODELS, build, sample

from collab_common.errors import UserError
from fairseq_collab.analysis.heads import content, source
from fairseq_collab.analysis.heads.analysis import chosen_lines, rounded
from fairseq_collab.analysis.heads.measures import (
    OFFSETS,
    SELF_SITES,
    Measure,
    RareTokens,
    best_shares,
    confidence,
    cosines,
    distance,
    distances,
    neighbours,
    positions,
    projection_cosines,
    width,
)
from fairseq_collab.analysis.heads.weights import AttentionBatch, Means, attend, shown_weights
from fairseq_collab.analysis.scores import factors, watched
from fairseq_collab.analysis.scores import logits as scored
from fairseq_collab.attention.scores import mask_scores, over_keys
from fairseq_collab.models.layers import SITES
from fairseq_collab.trained.attentions import attentions
from fairseq_collab.trained.opener import Trained

PAD, EOS = 1, 2
#: Sources of three and two words, padded left; references of two and one, padded right.
SOURCE = torch.tensor([[10, 11, 12, EOS], [PAD, 13, 14, EOS]])
TARGET = torch.tensor([[20, 21, EOS], [22, EOS, PAD]])
PREVIOUS = torch.tensor([[EOS, 20, 21], [EOS, 22, PAD]])


def batch(**weights: Tensor) -> AttentionBatch:
    """One layer at each site given, ``(B, H, T, S)``."""
    sample = {"net_input": {"src_tokens": SOURCE, "prev_output_tokens": PREVIOUS}, "target": TARGET}
    layers: dict[Any, list[Tensor]] = {site: [found] for site, found in weights.items()}
    return AttentionBatch(sample, layers, PAD, EOS)


def pointing(*heads: list[list[int]], keys: int, weight: float = 0.7) -> Tensor:
    """Each query of each sentence gives ``weight`` to one key, the others share the rest.

    Shapes: heads of ``B x T`` positions -> ``(B, H, T, S)``.
    """
    chosen = nn.functional.one_hot(torch.tensor(heads), keys).double()  # (H, B, T, S)
    rest = (1 - weight) / (keys - 1)
    return (chosen * (weight - rest) + rest).transpose(0, 1)


# ---- words ---------------------------------------------------------------------------------------


def test_words_are_neither_padding_nor_the_end_of_sentence() -> None:
    found = batch()
    source_words = [[True, True, True, False], [False, True, True, False]]
    assert found.key_words("encoder").tolist() == found.query_words("encoder").tolist()
    assert found.key_words("encoder").tolist() == found.key_words("cross").tolist() == source_words
    read = [[False, True, True], [False, True, False]]
    assert found.query_words("decoder").tolist() == found.key_words("decoder").tolist() == read
    # A row of cross-attention counts for the word that it predicts.
    assert found.query_words("cross").tolist() == [[True, True, False], [True, False, False]]


# ---- confidence and entropy ----------------------------------------------------------------------


def mean(of: Any, sites: Any = SITES, **weights: Tensor) -> dict[Any, Any]:
    """What a measure makes of one batch."""
    measure = Measure(of, sites)
    measure.see(batch(**weights))
    return measure.result()


def test_confidence_is_the_mean_largest_weight_of_words() -> None:
    weights = torch.zeros(2, 2, 4, 4)
    weights[0, 0, :3, 0] = torch.tensor([1.0, 0.5, 0.3])
    weights[1, 0, 1:3, 2] = torch.tensor([0.9, 0.3])
    weights[:, 0, :, 3] = 0.95  # the end of sentence: as a key ...
    weights[:, 0, 3, 0] = 1.0  # ... and as a query
    weights[1, 0, 0, 1] = 1.0  # a padding query
    assert mean(confidence, encoder=weights)["encoder"][0] == pytest.approx([3.0 / 5, 0])


def test_batches_add_up_and_count_by_their_words() -> None:
    """A head's mean is over words, whatever batches they came in."""
    measure, together = Measure(confidence), []
    for weight in (0.4, 0.7):
        measure.see(batch(cross=pointing([[0] * 3, [1] * 3], keys=4, weight=weight)))
        together += [weight] * 3
    assert measure.result()["cross"] == [[pytest.approx(sum(together) / 6)]]
    assert measure.result()["encoder"] == []  # no layers


def test_means_of_nothing_and_of_what_is_not_measured_are_none() -> None:
    means = Means(["encoder"])
    means.add("encoder", 0, torch.tensor([[0, 3], [0, 6]]), torch.tensor([0, 2]))
    means.add("encoder", 0, torch.tensor([[0, 1], [0, 2]]), torch.tensor([0, 2]))
    means.add("encoder", 1, torch.tensor([1.0]), 4)
    expected = [[[None, 1.0], [None, 2.0]], [0.25]]
    assert means.result() == {"encoder": expected, "decoder": None, "cross": None}


def test_entropy_is_of_whole_rows_in_nats() -> None:
    weights = torch.zeros(2, 2, 4, 4)
    weights[:, 0] = 0.25
    weights[:, 1, :, 3] = 1.0  # all on the end of sentence
    assert mean(width, encoder=weights)["encoder"][0] == pytest.approx([math.log(4), 0])


# ---- positions -----------------------------------------------------------------------------------


def offsets(**weights: Tensor) -> dict[Any, Any]:
    return mean(positions, SELF_SITES, **weights)


def test_positional_heads_are_found() -> None:
    previous, following = [[0, 0, 1, 2], [1, 1, 1, 2]], [[1, 2, 2, 3]] * 2
    weights = pointing(previous, following, [[0] * 4, [1] * 4], keys=4)
    found = offsets(encoder=weights)
    shares = [dict(zip(OFFSETS, head, strict=True)) for head in found["encoder"][0]]
    # Each word that has a neighbour counts: the first has none before it, the last none behind it,
    # for the end of sentence is no word.
    assert [head[-1] for head in shares] == [1, 0, pytest.approx(2 / 3)]
    assert [head[1] for head in shares] == [0, 1, 0]
    assert shares[2][-2] == 1  # of one word that has one two places before it
    assert shares[0][0] == shares[1][0] == pytest.approx(2 / 5)  # at the ends, for want of others
    assert {head[3] for head in shares} == {None}  # no sentence is that long
    assert best_shares(found) == {"encoder": [[1, 1, 1]], "decoder": [], "cross": None}


def test_weight_on_the_end_of_sentence_is_left_out_of_account() -> None:
    weights = pointing([[0, 0, 1, 2]] * 2, keys=4, weight=0.3)
    weights[..., 3] = 0.6
    assert offsets(encoder=weights)["encoder"][0][0][OFFSETS.index(-1)] == 1


def test_the_decoder_has_positions_of_what_it_reads() -> None:
    found = offsets(decoder=pointing([[0, 0, 1]] * 2, [[0, 1, 2]] * 2, keys=3))
    first, second = found["decoder"][0]
    assert first[OFFSETS.index(-1)] == 1  # of the second word alone: the first follows the start
    assert second[OFFSETS.index(0)] == 1
    assert second[OFFSETS.index(1)] == 0


@pytest.mark.parametrize("length", [1, 2, 5])
def test_neighbours(length: int) -> None:
    words = torch.tensor([True, False, True, True, True])[:length]
    expected = [
        [0 <= i + offset < length and bool(words[i + offset]) for offset in OFFSETS]
        for i in range(length)
    ]
    assert neighbours(words[None]).tolist() == [expected]


# ---- rare tokens ---------------------------------------------------------------------------------


def vocabulary(**counts: int) -> Dictionary:
    """Symbols that are as frequent as given, from number 4 on."""
    symbols = Dictionary()
    for word, count in counts.items():
        symbols.add_symbol(word, n=count)
    return symbols


def rare_tokens(
    rows: list[list[int]], symbols: Dictionary, weights: Tensor, frequent: int
) -> RareTokens:
    tokens = torch.tensor(rows)
    sample = {"net_input": {"src_tokens": tokens}}
    found = RareTokens(symbols, frequent)
    found.see(AttentionBatch(sample, {"encoder": [weights]}, PAD, EOS))
    return found


def test_heads_that_point_to_the_rarest_token_are_found() -> None:
    symbols = vocabulary(the=90, of=80, owl=3, auk=2)  # 4, 5, 6, 7
    rows = [[4, 7, 6, EOS], [PAD, 6, 5, EOS], [PAD, 4, 5, EOS]]  # nothing in the last is rare
    rarest, second = [[1] * 4, [1] * 4, [1] * 4], [[2] * 4, [1] * 4, [1] * 4]
    weights = pointing(rarest, second, [[0] * 4, [2] * 4, [1] * 4], keys=4)
    weights[..., 3] = 5  # to the end of sentence: no word
    weights[:, :, 3, 0] = 9  # from it, either
    weights[1, :, 0, 2] = 9  # from padding
    found = rare_tokens(rows, symbols, weights, frequent=2)
    assert found.pointed[1].result()["encoder"][0] == [1, 0.5, 0]
    assert found.pointed[2].result()["encoder"][0] == [1, 1, 0.5]
    assert found.about() == {
        "sentences": 2,
        "chance": pytest.approx((1 / 3 + 1 / 2) / 2),
        "chance_of_two": pytest.approx((2 / 3 + 1) / 2),
    }


def test_a_head_points_to_what_all_queries_together_weigh_most() -> None:
    symbols = vocabulary(the=90, owl=3)
    weights = torch.tensor([[0.9, 0.1, 0], [0.2, 0.8, 0], [0.0, 0.0, 1]])[None, None]
    assert rare_tokens([[4, 5, EOS]], symbols, weights, 1).pointed[1].result()["encoder"][0] == [0]
    weights = torch.tensor([[0.6, 0.4, 0], [0.2, 0.8, 0], [0.0, 0.0, 1]])[None, None]
    assert rare_tokens([[4, 5, EOS]], symbols, weights, 1).pointed[1].result()["encoder"][0] == [1]


def test_tokens_that_are_as_frequent_as_the_frequent_ones_are_not_rare() -> None:
    symbols, weights = vocabulary(the=90, a=90, owl=3), pointing([[0] * 2], keys=2)
    assert rare_tokens([[5, EOS]], symbols, weights, frequent=1).sentences == 0
    assert rare_tokens([[6, EOS]], symbols, weights, frequent=1).sentences == 1
    few = rare_tokens([[6, EOS]], symbols, weights, frequent=3)  # no more symbols than that
    assert (few.sentences, few.pointed[1].result()["encoder"]) == (0, [[None]])
    assert few.about() == {"sentences": 0, "chance": None, "chance_of_two": None}


def test_an_unknown_word_is_the_rarest() -> None:
    symbols = vocabulary(the=90, owl=1)
    weights = pointing([[1] * 3], keys=3)
    found = rare_tokens([[5, symbols.unk(), EOS]], symbols, weights, frequent=1)
    assert found.pointed[1].result()["encoder"] == [[1]]


# ---- similarity ----------------------------------------------------------------------------------


def test_distances_of_equal_disjoint_and_other_rows() -> None:
    p, q = [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]
    weights = torch.tensor([[p, p, [0.0, 0.0, 1.0], q]], dtype=torch.float64)  # (1, 4, 3)
    found = distances(weights)[0]
    assert found[0, 1] == 0
    assert found[0, 2].item() == pytest.approx(1)
    # JSD in bits: entropy of (1/4, 1/2, 1/4) less that of either, 1.5 - 1.
    assert found[0, 3].item() == pytest.approx(math.sqrt(0.5))
    assert torch.equal(found, found.T)
    assert torch.equal(found.diagonal(), torch.zeros(4, dtype=torch.float64))


def test_distance_is_a_mean_over_words() -> None:
    same, other = [[0, 1, 2, 3]] * 2, [[0, 2, 2, 0], [0, 1, 1, 0]]
    weights = pointing(same, other, keys=4, weight=1.0)
    (matrix,) = mean(distance, encoder=weights)["encoder"]
    assert matrix[0] == [0, pytest.approx(2 / 5)]  # of five words, two are told apart


@pytest.mark.usefixtures("float64")
def test_cosines_are_those_of_the_maps() -> None:
    a, b = torch.randn(3, 6, 2), torch.randn(3, 5, 2)
    a[2], b[2] = -2 * a[1], b[1]  # the opposite map
    maps = (a @ b.transpose(1, 2)).flatten(1)  # (3, 30)
    expected = nn.functional.cosine_similarity(maps[:, None], maps[None], dim=-1)
    close(cosines(a, b), expected)
    assert cosines(a, b)[1, 2].item() == pytest.approx(-1)
    assert torch.equal(cosines(a * 0, b), torch.zeros(3, 3))


# ---- models --------------------------------------------------------------------------------------

every_model = pytest.mark.parametrize("kind", MODELS)


@every_model
@pytest.mark.usefixtures("float64")
def test_weights_are_the_softmax_of_the_models_scores(kind: str) -> None:
    model, scores, calls = build(kind), {}, {}
    net_input = sample()["net_input"]
    for found in attentions(model):
        found.module.register_forward_pre_hook(
            lambda module, args, kwargs, found=found: calls.update({found: kwargs}),
            with_kwargs=True,
        )
    with torch.no_grad(), watched(model, lambda where, seen: scores.update({where: seen})):
        plain = model(**net_input)[0]
    seen = attend(model, sample())
    for found, logits in scores.items():
        given = calls[found]
        masked = mask_scores(
            logits, given.get("attn_mask"), over_keys(given.get("key_padding_mask"))
        )
        close(seen.weights[found.site][found.layer], masked.softmax(-1))
    with torch.no_grad(), shown_weights(model):
        watched_output = model(**net_input)[0]
    close(watched_output, plain)


@every_model
def test_every_kind_of_model_is_measured(kind: str) -> None:
    """Whoever is measured has a number for each head; the heads of a layer are their own."""
    model = build(kind)
    heads = Trained(Path("x.pt"), {}, model, None).heads
    assert heads == {"encoder": [2, 5] if kind == "sizes" else [4, 4], "decoder": [4, 4],
                     "cross": [4, 4]}  # fmt: skip
    of_heads = [Measure(confidence), Measure(width), Measure(positions, SELF_SITES)]
    alike = Measure(distance)
    for measure in (*of_heads, alike):
        measure.see(attend(model, sample()))
    for found in (of_heads[0].result(), of_heads[1].result(), best_shares(of_heads[2].result())):
        for site, layers in found.items():
            assert layers is None or [len(layer) for layer in layers] == heads[site]
            assert all(value >= 0 for layer in layers or () for value in layer)
    for found in (alike.result(), projection_cosines(model)):
        for site in SITES:
            assert [len(matrix) for matrix in found[site]] == heads[site]
            assert [len(matrix[0]) for matrix in found[site]] == heads[site]
    a, b = factors(model.encoder.layers[0].self_attn)
    cosine = projection_cosines(model)["encoder"][0]
    expected = cosines(a[:, :-1].double(), b[:, :-1].double())
    torch.testing.assert_close(torch.tensor(cosine), expected.float())


def test_an_encoder_alone_has_weights_without_a_target() -> None:
    model, whole = build("stock"), sample()
    alone = {"net_input": {k: whole["net_input"][k] for k in ("src_tokens", "src_lengths")}}
    seen = attend(model, alone)
    assert set(seen.weights) == {"encoder"}
    both = attend(model, whole)
    torch.testing.assert_close(seen.weights["encoder"][1], both.weights["encoder"][1])


def test_nothing_is_left_behind_in_the_model() -> None:
    model = build("stock")
    attend(model, sample())
    seen: list[Any] = []
    with torch.no_grad(), shown_weights(model) as weights:
        with watched(model, lambda where, logits: seen.append(where)):
            model(**sample()["net_input"])
        model(**sample()["net_input"])
    assert len(seen) == 6
    assert set(seen) == set(attentions(model))
    assert set(weights) == set(attentions(model))
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


# ---- examples ------------------------------------------------------------------------------------


class Lengths:
    """A data set that knows how long its sentences are."""

    def __init__(self, *sizes: tuple[int, int]):
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def size(self, index: int) -> tuple[int, int]:
        return self.sizes[index]


def test_short_sentences_are_chosen_evenly() -> None:
    dataset = Lengths(*[(5, 5), (5, 21), (20, 20), (30, 2), (4, 4), (6, 6)])
    assert chosen_lines(dataset, None, 2) == [0, 4]
    assert chosen_lines(dataset, None, 9) == [0, 2, 4, 5]
    assert chosen_lines(dataset, None, 0) == []
    assert chosen_lines(dataset, [6, 1], 9) == [5, 0]
    with pytest.raises(UserError, match="--example-lines: there are 6 sentences, no 7"):
        chosen_lines(dataset, [7], 9)


def test_weights_of_examples_have_three_decimals() -> None:
    assert rounded(torch.tensor([[1 / 3, 0.00049], [1.0, 0.0006]])) == [[0.333, 0], [1, 0.001]]


# ---- sentences -----------------------------------------------------------------------------------


def test_other_models_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(model: nn.Module) -> str:
        opened = Trained(Path("x.pt"), {}, model, None)
        monkeypatch.setattr(source.opener, "load", lambda *_: opened)
        with pytest.raises(UserError, match=r"^x\.pt: .*; give .* a translation model") as error:
            source.load(Path("x.pt"), Path("data"))
        return error.value.what

    assert fault(nn.GRU(1, 1)).startswith("neither an encoder-decoder transformer nor a transf")
    model: Any = build("stock")
    model.decoder.layers[0].self_attn = nn.Identity()
    assert fault(model) == "attention of an unknown kind: Identity"


# ---- the file ------------------------------------------------------------------------------------

HEADS: Any = {"encoder": [2], "decoder": [1], "cross": [1]}
FOUND = {
         "measures": {"rare": {"encoder": [[0.1, 0.2]], "decoder": None, "cross": None},
                      "entropy": {"encoder": [[1, 2.5]], "decoder": [[0]], "cross": [[3]]},
                      "holes": {"encoder": [[1, None]], "decoder": [[0]], "cross": [[3]]}},
}  # fmt: skip


def test_the_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / content.NAME
    content.write(path, FOUND)
    found = content.read(path)
    assert found == {"version": 1, **FOUND}
    assert content.measure(found, "entropy", HEADS, path) == FOUND["measures"]["entropy"]
    for name, what in (
        ("rank", "no measure 'rank'; it has entropy, holes, rare"),
        ("rare", "rare is not measured of decoder attention"),
        ("holes", "holes is damaged"),
    ):
        with pytest.raises(UserError, match=f"{path}: .*{what}"):
            content.measure(found, name, HEADS, path)
    other = {**HEADS, "cross": [1, 1]}
    with pytest.raises(UserError, match=r"by layer in cross attention are \[1\] in it, \[1, 1\]"):
        content.measure(found, "entropy", other, path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / content.NAME
    with pytest.raises(UserError, match="cannot be read: No such file"):
        content.read(path)
    for text, what in (
        ("{", "not JSON"),
        ("[]", "no analysis of heads of version 1"),
        ('{"version": 2}', "no analysis of heads of version 1"),
        ('{"version": 1}', "it has no measures"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=what):
            content.read(path)


def test_no_number_is_written_that_json_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        content.write(tmp_path / content.NAME, {"x": math.nan})
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match=r"cannot be written: .* give another folder with --out"):
        content.write(tmp_path / "no" / content.NAME, FOUND)


def test_the_architectures_name() -> None:
    for options, arch in ((Namespace(arch="old"), "old"), (Namespace(_name="new"), "new")):
        state = {"cfg": Namespace(model=options)}
        assert Trained(Path("x"), state, None, None).arch == arch


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", MODELS)
def test_factors_reproduce_the_logits(kind: str) -> None:
    """``[x 1] A_i B_i^T [y 1]^T``, with the same biases and scale."""
    for site, _, module, _ in attentions(build(kind)):
        x = torch.randn(5, 1, 16)
        y = torch.randn(7, 1, 16) if site == "cross" else x
        a, b = factors(module)
        x1, y1 = (torch.cat([inputs[:, 0], torch.ones(len(inputs), 1)], -1) for inputs in (x, y))
        found = (x1 @ a) @ (y1 @ b).transpose(1, 2)
        torch.testing.assert_close(found, scored(module, x, y)[0], rtol=0, atol=1e-10)
