"""Votes for heads: of a model whose typical heads are known, how they are counted, the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from parity.test_prune_parity import ADAPTIVE, LM_GROUPED, inputs, trained
from refusals import refusing

from collab_common import ATTENTION_TYPES
from collab_lab.heads import votes as votes_file
from collab_lab.heads.votes import Count, cast, count_votes, elected
from collab_lab.shrinking.retained import pruned
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.identity import hash_of
from fairseq_collab.attention.head_groups import head_group_attentions

GROUPED = "transformer_grouped_heads"


def known(arch: str = GROUPED, **options: Any) -> Trained:
    """Heads 0, 1 and 3 have 0.9, 1 and 1.2 times the same values; head 2 has other values."""
    source = trained(arch, **{"head_groups": 2, **options})
    for attention in head_group_attentions(source.model):
        for weight in attention.v_proj.parameters():
            heads = weight.data.unflatten(0, (4, -1))
            heads[0], heads[3] = 0.9 * heads[1], 1.2 * heads[1]
            heads[2] *= -1
    return source


def votes(source: Trained, batches: int = 3) -> Count:
    source.model.double()
    return count_votes(source, [{"net_input": inputs(source)}] * batches)


@pytest.mark.parametrize(
    ("arch", "options"), [(GROUPED, {}), (LM_GROUPED, {}), (LM_GROUPED, ADAPTIVE)]
)
def test_the_typical_head_of_each_group_is_elected(arch: str, options: dict[str, Any]) -> None:
    """Heads 0, 1 and 3 have the same cosine with their centre: of equals the longest, head 3."""
    source = known(arch, **options)
    count = votes(source)
    assert count.batches == 3
    assert {type_: len(layers) for type_, layers in count.votes.items()} == {
        type_: len(layers) for type_, layers in source.heads.items()
    }
    for layers in count.votes.values():
        for layer in layers:
            assert sorted(layer) == [[0, 0, 0, 3], [0, 0, 3, 0]]
            assert elected(layer) == [2, 3]


def test_groups_that_a_batch_numbers_otherwise_vote_for_the_trained_ones() -> None:
    """Most heads of each group change to the other, which keeps the number of their old group."""
    places = torch.tensor([0.0, 10, 10, 0, 0, 21])
    reference = torch.eye(2)[torch.tensor([0, 0, 0, 1, 1, 1])]
    found = cast(torch.outer(places, places)[None], reference[None])
    assert found.votes.tolist() == [[[0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0]]]


def test_a_model_without_groups_is_rejected() -> None:
    with refusing():
        votes(trained("transformer"))


def test_a_layer_without_heads_has_no_votes(tmp_path: Path) -> None:
    source = trained(GROUPED, heads_in_encoder="0,4", head_groups=2)
    path = tmp_path / "votes.json"
    count = votes(source)
    assert [len(layer) for layer in count.votes["encoder"]] == [0, 2]
    votes_file.write(path, {"model": hash_of(source.model), "votes": count.votes})
    kept = votes_file.read(path, source)
    assert pruned(source, kept).heads == {"encoder": [0, 2], "decoder": [2, 2], "cross": [2, 2]}


def test_a_head_that_two_groups_elect_is_kept_once() -> None:
    assert elected([[3, 0, 2, 0], [0, 9, 0, 8]]) == [0, 1]
    assert elected([[0, 5, 1], [0, 7, 2]]) == [1, 2]
    assert elected([[0, 7, 1], [0, 5, 0]]) == [0, 1]  # of equals the first


# ---- the file ------------------------------------------------------------------------------------

VOTES = {type_: [[[3, 0, 2, 0], [0, 9, 0, 8]]] * 2 for type_ in ATTENTION_TYPES}
UNEVEN = {type_: [[[1], [1, 2]]] for type_ in ATTENTION_TYPES}


def test_votes_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "votes.json"
    source = trained(GROUPED)
    votes_file.write(path, {"model": hash_of(source.model), "votes": VOTES})
    assert votes_file.read(path, source) == {type_: [[0, 1], [0, 1]] for type_ in ATTENTION_TYPES}
    with refusing(str(path)):
        votes_file.read(path, trained(GROUPED, heads_in_cross="4,2", head_groups=2, head_size=4))


@pytest.mark.parametrize(
    "content",
    [
        "no",
        "[]",
        json.dumps({"votes": VOTES, "version": 2}),
        json.dumps({"version": 1, "votes": {"encoder": []}}),
        json.dumps({"version": 1, "votes": UNEVEN}),
    ],
)
def test_files_that_hold_no_votes(content: str, tmp_path: Path) -> None:
    path = tmp_path / "votes.json"
    path.write_text(content)
    with refusing(str(path)):
        votes_file.read(path, trained(GROUPED))
