"""Measures of heads: on attention that is right by design, on models of every kind; the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary
from torch import Tensor, nn
from toy import close
from toy_heads import MODELS, build, sample

from collab_common import ATTENTION_TYPES
from collab_lab.heads.attention_weights import AttentionBatch, attend, shown_weights
from collab_lab.heads.measures import (
    OFFSETS,
    SELF_TYPES,
    Measure,
    RareTokens,
    best_shares,
    confidence,
    positions,
    roles,
)
from collab_lab.results import heads_page as page
from collab_lab.trained.attentions import attentions, inputs_of, projections
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.attention.scores import head_scores, mask_scores, over_keys

PAD, EOS = 1, 2
#: Sources of three and two words, padded left; references of two and one, padded right.
SOURCE = torch.tensor([[10, 11, 12, EOS], [PAD, 13, 14, EOS]])
TARGET = torch.tensor([[20, 21, EOS], [22, EOS, PAD]])
PREVIOUS = torch.tensor([[EOS, 20, 21], [EOS, 22, PAD]])


def batch(**weights: Tensor) -> AttentionBatch:
    """One layer of each attention type given, ``(B, H, T, S)``."""
    sample = {"net_input": {"src_tokens": SOURCE, "prev_output_tokens": PREVIOUS}, "target": TARGET}
    layers: dict[Any, list[Tensor]] = {type_: [found] for type_, found in weights.items()}
    return AttentionBatch(sample, layers, PAD, EOS)


def pointing(*heads: list[list[int]], keys: int, weight: float = 0.7) -> Tensor:
    """Each query of each sentence gives ``weight`` to one key, the others share the rest.

    Shapes: heads of ``B x T`` positions -> ``(B, H, T, S)``.
    """
    chosen = nn.functional.one_hot(torch.tensor(heads), keys).double()  # (H, B, T, S)
    rest = (1 - weight) / (keys - 1)
    return (chosen * (weight - rest) + rest).transpose(0, 1)


def mean(of: Any, types: Any = ATTENTION_TYPES, **weights: Tensor) -> dict[Any, Any]:
    """The measure of one batch."""
    measure = Measure(of, types)
    measure.see(batch(**weights))
    return measure.result()


def test_words_are_neither_padding_nor_the_end_of_sentence() -> None:
    found = batch()
    source_words = [[True, True, True, False], [False, True, True, False]]
    assert found.key_words("encoder").tolist() == found.query_words("encoder").tolist()
    assert found.key_words("encoder").tolist() == found.key_words("cross").tolist() == source_words
    read = [[False, True, True], [False, True, False]]
    assert found.query_words("decoder").tolist() == found.key_words("decoder").tolist() == read
    # A row of cross-attention counts for the word that it predicts.
    assert found.query_words("cross").tolist() == [[True, True, False], [True, False, False]]


# ---- confidence ----------------------------------------------------------------------------------


def test_confidence_is_the_mean_largest_weight_of_words() -> None:
    weights = torch.zeros(2, 2, 4, 4)
    weights[0, 0, :3, 0] = torch.tensor([1.0, 0.5, 0.3])
    weights[1, 0, 1:3, 2] = torch.tensor([0.9, 0.3])
    weights[:, 0, :, 3] = 0.95  # the end of sentence: as a key ...
    weights[:, 0, 3, 0] = 1.0  # ... and as a query
    weights[1, 0, 0, 1] = 1.0  # a padding query
    assert mean(confidence, encoder=weights)["encoder"][0] == pytest.approx([3.0 / 5, 0])


def test_positional_heads_are_found() -> None:
    previous, following = [[0, 0, 1, 2], [1, 1, 1, 2]], [[1, 2, 2, 3]] * 2
    weights = pointing(previous, following, [[0] * 4, [1] * 4], keys=4)
    found = mean(positions, SELF_TYPES, encoder=weights)
    shares = [dict(zip(OFFSETS, head, strict=True)) for head in found["encoder"][0]]
    # Each word that has a neighbour counts: the first has none before it, the last none behind it,
    # for the end of sentence is no word.
    assert [head[-1] for head in shares] == [1, 0, pytest.approx(2 / 3)]
    assert [head[1] for head in shares] == [0, 1, 0]
    assert {head[3] for head in shares} == {None}  # no sentence is that long
    assert best_shares(found) == {"encoder": [[1, 1, 1]], "decoder": [], "cross": None}


# ---- rare tokens ---------------------------------------------------------------------------------


def vocabulary(**counts: int) -> Dictionary:
    """Symbols with these counts, from number 4 on."""
    symbols = Dictionary()
    for word, count in counts.items():
        symbols.add_symbol(word, n=count)
    return symbols


def rare_tokens(
    rows: list[list[int]], symbols: Dictionary, weights: Tensor, frequent: int
) -> RareTokens:
    sample = {"net_input": {"src_tokens": torch.tensor(rows)}}
    found = RareTokens(symbols, frequent)
    found.see(AttentionBatch(sample, {"encoder": [weights]}, PAD, EOS))
    return found


def test_heads_that_point_to_the_rarest_token_are_found() -> None:
    symbols = vocabulary(the=90, of=80, owl=3, auk=2)  # 4, 5, 6, 7
    rows = [[4, 7, 6, EOS], [PAD, 6, 5, EOS], [PAD, 4, 5, EOS]]  # nothing in the last is rare
    weights = pointing([[1] * 4] * 3, [[0, 0, 2, 2], [2] * 4, [1] * 4], keys=4)
    weights[0, 1, 2, 2] = 0.1  # two queries together point to the first word
    weights[..., 3] = 5  # to the end of sentence: no word
    weights[:, :, 3, 0] = 9  # from it, either
    weights[1, :, 0, 2] = 9  # from padding
    found = rare_tokens(rows, symbols, weights, frequent=2)
    assert found.pointed.result()["encoder"][0] == [1, 0.5]
    assert found.about() == {"sentences": 2, "chance": pytest.approx((2 / 3 + 1) / 2)}


def test_tokens_as_frequent_as_the_frequent_ones_are_not_rare() -> None:
    symbols, weights = vocabulary(the=90, a=90, owl=3), pointing([[0] * 2], keys=2)
    assert rare_tokens([[5, EOS]], symbols, weights, frequent=1).sentences == 0
    assert rare_tokens([[6, EOS]], symbols, weights, frequent=1).sentences == 1
    few = rare_tokens([[6, EOS]], symbols, weights, frequent=3)  # no more symbols than that
    assert (few.sentences, few.pointed.result()["encoder"]) == (0, [[None]])
    assert few.about() == {"sentences": 0, "chance": None}


# ---- roles --------------------------------------------------------------------------------------

NSUBJ = "syntactic nsubj dependent->head"


def roles_found(**changed: Any) -> list[str]:
    """The roles of the one encoder head of an analysis in which it has all three."""
    given = {"shares": [0.0, 0.9], "accuracy": 0.551, "pairs": 100, "rare": 0.51, "chance": 0.25}
    values: dict[str, Any] = {**given, **changed}
    accuracies = {
        "pairs": values["pairs"],
        "baseline": {"offset": -1, "accuracy": 0.5},
        "encoder": [[values["accuracy"]]],
    }
    content = {
        "measures": {"rare": {"encoder": [[values["rare"]]], "decoder": None, "cross": None}},
        "offsets": {"offsets": [-1, 0], "encoder": [[values["shares"]]], "decoder": []},
        "rare": {"chance": values["chance"]},
        "syntax": {"relations": {"nsubj": {"dependent->head": accuracies}}},
    }
    of_heads = roles(content, {"encoder": [1], "decoder": [], "cross": [1]})
    assert of_heads["decoder"] == []
    assert of_heads["cross"] == [[[]]]
    del content["syntax"]
    without = roles(content, {"encoder": [1], "decoder": [], "cross": [1]})["encoder"][0][0]
    assert without == [name for name in of_heads["encoder"][0][0] if name != NSUBJ]
    return of_heads["encoder"][0][0]


@pytest.mark.parametrize(
    ("changed", "lost"),
    [
        ({}, None),
        ({"shares": [0.1, 0.89]}, "positional 0"),
        ({"shares": [None, None]}, "positional 0"),
        ({"accuracy": 0.549}, NSUBJ),  # 10% of the baseline, not 10 points
        ({"accuracy": None}, NSUBJ),
        ({"pairs": 99}, NSUBJ),
        ({"rare": 0.5}, "rare tokens"),
        ({"rare": 0.7, "chance": 0.35}, "rare tokens"),  # no more than twice by chance
        ({"rare": None, "chance": None}, "rare tokens"),
    ],
)
def test_each_threshold(changed: dict[str, Any], lost: str | None) -> None:
    assert roles_found(**changed) == [
        n for n in ("positional 0", NSUBJ, "rare tokens") if n != lost
    ]


# ---- models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.usefixtures("float64")
def test_weights_are_the_softmax_of_the_scores_in_every_kind_of_model(kind: str) -> None:
    model, expected = build(kind), {}
    net_input = sample()["net_input"]

    def keep(module: nn.Module, args: Any, kwargs: Any) -> None:
        x, y = inputs_of(module, args, kwargs)
        query, key, _ = projections(module)
        scores = mask_scores(
            head_scores(query(x), key(y)),
            kwargs.get("attn_mask"),
            over_keys(kwargs.get("key_padding_mask")),
        )
        expected[module] = scores.softmax(-1)

    hooks = [
        one.module.register_forward_pre_hook(keep, with_kwargs=True) for one in attentions(model)
    ]
    with torch.no_grad():
        plain = model(**net_input)[0]
    for hook in hooks:
        hook.remove()
    seen = attend(model, sample())
    for found in attentions(model):
        close(seen.weights[found.type][found.layer], expected[found.module])
    with torch.no_grad(), shown_weights(model):
        close(model(**net_input)[0], plain)
    heads = Trained(Path("x.pt"), {}, model, None).heads
    for measure in (Measure(confidence), Measure(positions, SELF_TYPES)):
        measure.see(seen)
        for type_, layers in measure.result().items():
            assert layers is None or [len(layer) for layer in layers] == heads[type_]
    hooked = ("_forward_hooks", "_forward_pre_hooks")
    assert not any(getattr(module, name) for module in model.modules() for name in hooked)


# ---- the page ------------------------------------------------------------------------------------

PAIRS = {"pairs": 1234, "baseline": {"offset": 1, "accuracy": 0.4}}
NONE = {"pairs": 0, "baseline": None, "encoder": [[None, None], [None]]}
FULL: dict[str, Any] = {
    "checkpoint": "average.pt", "arch": "transformer", "data": "toy", "subset": "valid",
    "sentences": 1014,
    "heads": {"encoder": [2, 1], "decoder": [1], "cross": [2]},
    "measures": {
        "confidence": {"encoder": [[0.5, 0.125], [None]], "decoder": [[1]], "cross": None},
        "price": {"encoder": [[0.0125, 0.5], [1.5]], "decoder": [[1]], "cross": [[0.5, 0.5]]},
    },
    "rare": {"sentences": 976, "chance": 0.15},
    "syntax": {
        "trees": "trees.conllu", "sentences": 50, "too_long": 2,
        "relations": {
            "nsubj": {"dependent->head": {**PAIRS, "encoder": [[0.3, 0.5], [0.2]]}},
            "obj": {"dependent->head": NONE},
        },
    },
    "roles": {
        "encoder": [[["positional -1"], ["syntactic nsubj dependent->head"]], [["rare tokens"]]],
        "decoder": [[[]]], "cross": [[[], []]],
    },
}  # fmt: skip


def test_the_page_has_a_row_for_each_head_and_one_figure() -> None:
    """By price; a head does its role, or what its highest measure says, or nothing."""
    text = page.page(FULL)
    rows = [row.split() for row in re.findall(r"^\| ((?:encoder|decoder|cross) .*)", text, re.M)]
    assert [row[:2] for row in rows][:2] == [["encoder", "0.0"], ["encoder", "0.1"]]
    assert (len(rows), rows[0][3], rows[0][-3:-1]) == (6, "0.0125", ["positional", "-1"])
    assert re.search(r"\| nsubj dependent->head +\| +1,234", text)
    assert "obj" not in text  # it has no pairs
    title = page.figure(FULL).get_suptitle()
    assert all(words in title for words in ("bits per target token", "average.pt", "toy"))
    places = (("encoder", 0, 1), ("encoder", 1, 0), ("decoder", 0, 0), ("cross", 0, 0))
    found = [page.does(FULL, *place) for place in places]
    assert found == ["nsubj", "rare tokens", "confidence 1.00", ""]
