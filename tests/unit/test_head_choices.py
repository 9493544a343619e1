"""Which heads ``prune`` keeps: by name, at random, by price or importance, by gates."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import REPOSITORY
from parity.test_prune_parity import trained
from refusals import refusing
from torch import Tensor

from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError
from collab_lab import prune
from collab_lab.analysis import stages
from collab_lab.cli.prune import build_parser, choice
from collab_lab.pruning.choices import (
    MEASURE,
    cheapest,
    cheapest_of_each,
    check_enough,
    equal_on_each_side,
    named_heads,
    on_diagonals,
    open_heads,
    random_importances,
    removals,
    without_gates,
)
from collab_lab.pruning.surgery import Retained, pruned
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained

HEADS: Any = {"encoder": [4, 3], "decoder": [4], "cross": [2]}
STORED = REPOSITORY / "tests" / "stored"


def test_named_heads() -> None:
    kept = named_heads(["encoder:0,3/1", "cross:-"], HEADS)
    assert kept == {"encoder": [[0, 3], [1]], "decoder": [[0, 1, 2, 3]], "cross": [[]]}
    with refusing("--keep-heads: the model has no cross attention"):
        named_heads(["cross:0"], {**HEADS, "cross": []})


@pytest.mark.parametrize("part", ["encoder", "encoder:", "encoder:a", "side:1", "encoder:1//2"])
def test_named_heads_that_cannot_be_parsed(part: str) -> None:
    with refusing(f"--keep-heads: cannot parse '{part}'; give each of"):
        named_heads([part], HEADS)


def test_the_seed_determines_random_heads() -> None:
    source = trained("transformer")

    def kept(seed: int) -> Retained:
        pairs = on_diagonals(random_importances(source.heads, seed), source)
        return cheapest_of_each(source.heads, pairs, 3)[0]

    assert kept(1) == kept(1) != kept(2)
    assert {len(set(layer)) for layers in kept(1).values() for layer in layers} == {3}


# ---- by price, or importance ---------------------------------------------------------------------


def random_pairs(counts: Sequence[int], seed: int = 1) -> dict[Attention, Tensor]:
    """Pairs of heads, some of which cancel each other, of cross-attentions."""
    torch.manual_seed(seed)
    factors = [torch.randn(count, 3).double() for count in counts]
    return {Attention("cross", i, None, ""): one @ one.T for i, one in enumerate(factors)}


def price_of(pairs: dict[Attention, Tensor], removed: Iterable[tuple[Attention, int]]) -> float:
    """``1/2 1_R^T M 1_R / ln 2``, entry by entry."""
    removed = list(removed)
    return sum(
        float(pairs[one][i, j]) / 2 / math.log(2)
        for one, i in removed
        for other, j in removed
        if one is other
    )


def test_each_removal_raises_the_price_least() -> None:
    pairs = random_pairs([4, 0, 3, 1])
    heads = {(one, head) for one, of in pairs.items() for head in range(len(of))}
    removed: list[tuple[Attention, int]] = []
    for rise, *head in removals(pairs):
        prices = [price_of(pairs, [*removed, other]) for other in heads - {*removed}]
        removed.append((head[0], head[1]))
        assert price_of(pairs, removed) == pytest.approx(min(prices))
        assert rise == pytest.approx(min(prices) - price_of(pairs, removed[:-1]))
    assert {*removed} == heads


def test_the_price_of_removed_heads_counts_pairs_within_an_attention() -> None:
    pairs = random_pairs([4, 3])
    heads: Any = {"encoder": [], "decoder": [], "cross": [4, 3]}
    for number in range(8):
        kept, price = cheapest(heads, pairs, number)
        removed = [
            (one, head)
            for one in pairs
            for head in {*range(len(pairs[one]))} - {*kept["cross"][one.layer]}
        ]
        assert len(removed) == number
        assert price == pytest.approx(price_of(pairs, removed))
    assert kept["cross"] == [[], []]
    assert [*map(len, cheapest_of_each(heads, pairs, 2)[0]["cross"])] == [2, 2]
    with refusing("cannot keep 4 heads of cross attention, which has 3"):
        check_enough(heads, 4)


def test_heads_that_cancel_each_other_go_together() -> None:
    """Alone the pair is dear, the third head is cheap; together the pair is free."""
    pairs = {Attention("cross", 0, None, ""): torch.tensor([[4.0, -4, 0], [-4, 4, 0], [0, 0, 5]])}
    heads: Any = {"encoder": [], "decoder": [], "cross": [3]}
    assert cheapest(heads, pairs, 2) == (
        {"encoder": [], "decoder": [], "cross": [[2]]},
        pytest.approx(0),
    )


IMPORTANCE: Any = {type_: [[4.0, 3.0, 2.0, 1.0], [0.4, 0.3, 0.2, 0.1]] for type_ in ATTENTION_TYPES}


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"keep": 2}, [[0, 1], [0, 1]]),
        ({"remove_share": 0.5}, [[0, 1, 2, 3], []]),
        ({"remove_share": 0.5, "normalise": True}, [[0, 1], [0, 1]]),
    ],
)
def test_importances_of_a_file(options: dict[str, Any], kept: Any, tmp_path: Path) -> None:
    found = chosen(tmp_path, **options)
    assert found == dict.fromkeys(ATTENTION_TYPES, kept)


def test_as_many_heads_as_another_model_has(tmp_path: Path) -> None:
    other = STORED / "checkpoints" / "transformer_headsize_n.pt"  # 6 heads, 3 and 6
    kept = chosen(tmp_path, as_many_as=other)
    assert sum(len(layer) for layers in kept.values() for layer in layers) == 15
    smaller = pruned(trained("transformer"), {type_: [[0], [0]] for type_ in ATTENTION_TYPES})
    with refusing("headsize_n.pt: has more heads than checkpoint.pt"):
        chosen(tmp_path, smaller, as_many_as=other)


def chosen(folder: Path, source: Trained | None = None, **options: Any) -> Retained:
    """The heads that ``prune`` retains by a file of importances."""
    source = source or trained("transformer")
    path = folder / "heads.json"
    path.write_text(json.dumps({"version": 1, "measures": {MEASURE: IMPORTANCE}}))
    args = build_parser().parse_args(["c.pt", "--out=o.pt", f"--importance={path}"])
    vars(args).update({"data": STORED / "copy", **options})
    return prune(source, **choice(args, source)).retained


def test_a_layer_without_heads_is_not_analysed() -> None:
    kept: Any = {"encoder": [[0], [1]], "decoder": [[0], [0, 1]], "cross": [[2], []]}
    smaller = pruned(trained("transformer"), kept)
    with pytest.raises(UserError, match="attention cross 1 has no heads left to be analysed; give"):
        stages.check(smaller)


# ---- by gates ------------------------------------------------------------------------------------


def test_heads_with_open_gates_or_none_stay() -> None:
    source = trained("transformer_gated_heads", gated_types="encoder")
    source.model.encoder.layers[0].self_attn.theta.data[2:] = torch.tensor([-0.1, -9.0])
    assert open_heads(source) == {
        "encoder": [[0, 1], [0, 1, 2, 3]],
        **{type_: [[0, 1, 2, 3]] * 2 for type_ in ("decoder", "cross")},
    }


def test_models_without_gates() -> None:
    source = trained("transformer")
    with refusing("checkpoint.pt: its heads have no gates; give a transf"):
        open_heads(source)
    assert without_gates(source) is source


@pytest.mark.parametrize("arch", ["transformer", "transformer_lm"])
@pytest.mark.parametrize("number", [0, 1, 4, 7, 12])
def test_equal_numbers_on_each_side_are_the_cheapest(arch: str, number: int) -> None:
    """Of all pairs of numbers, with the cheapest heads of each attention."""
    source = trained(arch)
    number = number if arch == "transformer" else number // 2
    pairs = on_diagonals(random_importances(source.heads, 3), source)
    orders = {attention: removals({attention: m}) for attention, m in pairs.items()}
    retained, price = equal_on_each_side(source.heads, orders, number)
    numbers = {type_: {*map(len, layers)} for type_, layers in retained.items() if layers}
    kept = {len(numbers["decoder"] | numbers.get("cross", set())), len(numbers["decoder"])}
    assert kept == {1}
    values = {a: sorted(m.diagonal().tolist()) for a, m in pairs.items()}
    costs = []
    for encoder, decoder in itertools.product(range(1, 5), repeat=2):
        stay = {a: encoder if a.type == "encoder" else decoder for a in values}
        if sum(4 - heads for heads in stay.values()) >= number:
            costs.append(sum(sum(values[a][: 4 - heads]) for a, heads in stay.items()))
    assert price * 2 * math.log(2) == pytest.approx(min(costs), abs=1e-6)


def test_equal_numbers_that_are_impossible_or_have_no_effect() -> None:
    source = trained("transformer")
    ranked: Any = {"importances": random_importances(source.heads, 3), "same_on_each_side": True}
    with refusing("cannot remove 20 heads", "at most 18"):
        prune(source, 20, **ranked)
    for given in ({"keep": 2}, {"number": 4, "types": ["decoder"]}):
        with refusing("same-on-each-side"):
            prune(source, **given, **ranked)
    found = prune(source, 7, **ranked)
    assert {len({*numbers}) for numbers in found.model.heads.values()} == {1}
