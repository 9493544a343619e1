"""Votes for heads: of a model whose typical heads are known, and how they are counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from parity.test_prune_parity import ADAPTIVE, LM, LM_GROUPED, inputs, trained
from refusals import refusing

from collab_common.errors import UserError
from fairseq_collab.attention.head_groups import FEATURES, head_group_attentions
from fairseq_collab.models.layers import SITES
from fairseq_collab.prune import votes as votes_file
from fairseq_collab.prune.choices import named_heads, random_heads
from fairseq_collab.prune.surgery import pruned
from fairseq_collab.prune.votes import (
    Count,
    cast,
    count_votes,
    elected,
    grouped_model,
)
from fairseq_collab.trained.attentions import attentions
from fairseq_collab.trained.opener import Trained

HEADS: Any = {"encoder": [4, 4], "decoder": [4, 4], "cross": [4, 4]}


def known(arch: str = "transformer", **options: Any) -> Trained:
    """Heads 0, 1 and 3 have values 0.9, 1 and 1.2 times the same; head 2 has others."""
    source = trained(arch, **options)
    for attention in attentions(source.model):
        for weight in attention.module.v_proj.parameters():
            heads = weight.data.unflatten(0, (4, -1))
            heads[0], heads[3] = 0.9 * heads[1], 1.2 * heads[1]
            heads[2] *= -1
    return source


def with_membership(rows: list[list[float]]) -> Trained:
    """A model that was trained with two groups of heads, in all attentions these."""
    source = known("transformer_grouped_heads")
    for attention in head_group_attentions(source.model):
        attention.groups, attention.membership = 2, torch.tensor(rows)
    source.cfg.model.head_groups = "2"
    return source


def votes(
    source: Trained,
    batches: int = 3,
    groups: str | None = "2",
    features: Sequence[str] = ("value",),
    election: str = "released",
) -> Count:
    model = grouped_model(source, groups).to(next(source.model.parameters()))
    samples = [{"net_input": inputs(source)}] * batches
    return count_votes(model, samples, features, election)


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("transformer", {}),
        ("transformer_headsize_n", {}),
        *((arch, options) for arch in (LM, LM_GROUPED) for options in ({}, ADAPTIVE)),
    ],
)
def test_the_typical_head_of_each_group_is_voted_for(arch: str, options: dict[str, Any]) -> None:
    """The centre of 0.9, 1 and 1.2 is 1.03: head 1 is nearest."""
    source = known(arch, **options)
    count = votes(source)
    assert count.batches == 3
    assert (count.changed, count.shift) == (0, pytest.approx(0, abs=1e-3))
    assert {site: len(layers) for site, layers in count.votes.items()} == {
        site: len(layers) for site, layers in source.heads.items()
    }
    for layers in count.votes.values():
        for layer in layers:
            assert sorted(layer) == [[0, 0, 3, 0], [0, 3, 0, 0]]
            assert elected(layer, "group", 2) == elected(layer, "top", 2) == [1, 2]


def test_of_heads_in_one_direction_the_longest_is_voted_for() -> None:
    """By cosine 0.9, 1 and 1.2 times the same are equally like their centre."""
    for layers in votes(known(), election="cosine").votes.values():
        for layer in layers:
            assert sorted(layer) == [[0, 0, 0, 3], [0, 0, 3, 0]]


def test_scores_are_added_in_place_of_votes() -> None:
    """Three heads of one group, all in one direction: a cosine of 1 each in each of 3 batches."""
    model = grouped_model(known(), "2").double()
    samples = [{"net_input": inputs(known())}] * 3
    arguments = (model, samples, ("value",))
    for layers in count_votes(*arguments, count="scores").votes.values():
        for layer in layers:
            assert sorted(layer, key=sum) == [
                pytest.approx([0, 0, 3, 0]) if sum(row) < 4 else pytest.approx([3, 3, 0, 3])
                for row in sorted(layer, key=sum)
            ]
            assert elected(layer, "group", 2)[-1] in (2, 3)


def test_a_member_by_chance_is_the_same_in_every_batch() -> None:
    for layers in votes(known(), election="random").votes.values():
        for layer in layers:
            assert sorted(map(sorted, layer)) == [[0, 0, 0, 3]] * 2
            assert torch.tensor(layer)[:, 2].sum() == 3  # head 2 is alone in its group


def test_every_feature_votes() -> None:
    together = votes(trained("transformer"), features=FEATURES, groups="4")
    assert together.batches == 3
    for layers in together.votes.values():
        for layer in layers:
            assert torch.tensor(layer).sum(dim=0).tolist() == [9, 9, 9, 9]
            assert torch.tensor(layer).sum(dim=1).tolist() == [9, 9, 9, 9]


def test_groups_that_a_batch_numbers_otherwise_vote_for_the_trained_ones() -> None:
    """Most heads of each group go to the other, which then counts as the group they came from."""
    places = torch.tensor([0.0, 10, 10, 0, 0, 21])
    trained = torch.eye(2)[torch.tensor([0, 0, 0, 1, 1, 1])]
    found = cast(torch.outer(places, places)[None], trained[None], "released")
    assert found.votes.tolist() == [[[0, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]]]


@pytest.mark.parametrize("count", votes_file.COUNTS)
@pytest.mark.parametrize("trained_groups", [False, True])
def test_attentions_vote_at_once_as_one_by_one(
    count: str, trained_groups: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that have as many heads and groups; here there are two such kinds."""
    options = {"heads_in_encoder": "6,4", "head_size": 4, "head_groups": "2"}
    source = trained("transformer_grouped_heads", **options)
    if trained_groups:
        for attention in head_group_attentions(source.model):
            attention.membership[:, 0] = 1
            attention.membership[-1] = torch.tensor([0.0, 1.0])
    batches = [
        {"net_input": {name: x[start:] for name, x in inputs(source).items()}} for start in range(3)
    ]
    calls: list[Any] = []
    monkeypatch.setattr(votes_file, "cast", lambda *args: (calls.append(args), cast(*args))[1])

    def counted() -> Count:
        model = grouped_model(source, None).double()
        return count_votes(model, batches, ("value", "output"), "cosine", count)

    at_once = counted()
    assert len(calls) == 3 * 2 * 2
    monkeypatch.setattr(votes_file, "alike", lambda found: [[place] for place in range(len(found))])
    one_by_one = counted()
    assert len(calls) == 3 * 2 * (2 + 6)
    for site in SITES:
        for layer, other in zip(at_once.votes[site], one_by_one.votes[site], strict=True):
            assert layer == (other if count == "votes" else [pytest.approx(row) for row in other])
    assert at_once[1:] == pytest.approx(one_by_one[1:])


def test_trained_groups_keep_their_numbers() -> None:
    count = votes(with_membership([[0.0, 1], [0, 1], [1, 0], [0, 1]]), groups=None)
    for layers in count.votes.values():
        assert layers == [[[0, 0, 3, 0], [0, 3, 0, 0]]] * 2


def test_an_average_of_groups_votes_by_majority() -> None:
    """Also when one checkpoint of five had a head elsewhere."""
    model = grouped_model(with_membership([[0.2, 0.8], [0, 1], [1, 0], [0, 1]]), None)
    for attention in head_group_attentions(model):
        assert attention.membership.tolist() == [[0, 1], [0, 1], [1, 0], [0, 1]]


@pytest.mark.parametrize("centred", [False, True])
def test_heads_are_compared_as_they_were_trained(centred: bool) -> None:
    source = known("transformer_grouped_heads", group_centred=centred)
    for groups in (None, "2"):
        model = grouped_model(source, groups)
        assert {one.centred for one in head_group_attentions(model)} == {centred}


def test_the_model_stays_as_it_is() -> None:
    """Voting trains nothing: the same votes, however often."""
    source = known()
    before = {name: value.clone() for name, value in source.model.state_dict().items()}
    assert votes(source).votes == votes(source).votes
    for name, value in source.model.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_model_without_groups_must_be_told() -> None:
    with pytest.raises(UserError, match=r"has no groups of heads; say how many with --groups"):
        grouped_model(known(), None)


def test_a_layer_without_heads_has_no_votes(tmp_path: Path) -> None:
    source = trained("transformer_grouped_heads", heads_in_encoder="0,4", head_groups="2")
    path = tmp_path / "votes.json"
    count = votes(source, groups=None)
    assert [len(layer) for layer in count.votes["encoder"]] == [0, 2]
    votes_file.write(path, {"rule": "group", "votes": count.votes})
    kept = votes_file.read(path).kept(source.heads, None)
    assert pruned(source, kept).heads == {"encoder": [0, 2], "decoder": [2, 2], "cross": [2, 2]}
    assert votes_file.read(path).kept(source.heads, dict.fromkeys(SITES, 2)) == kept
    none = dict.fromkeys((f"heads_in_{site}" for site in SITES), "0")
    with refusing("has no heads that could vote"):
        votes(trained("transformer_headsize_n", **none), groups="2")


# ---- counting ------------------------------------------------------------------------------------


def test_rules() -> None:
    """The second group has two strong heads, the first none: a head a group, or the two strong."""
    ballots = [[3, 0, 2, 0], [0, 9, 0, 8]]
    assert elected(ballots, "group", 2) == [0, 1]
    assert elected(ballots, "top", 2) == [1, 3]
    assert elected(ballots, "top", 3) == [0, 1, 3]


def test_a_head_that_two_groups_elect_stays_once() -> None:
    assert elected([[0, 5, 1], [0, 7, 2]], "group", 2) == [1, 2]
    assert elected([[0, 7, 1], [0, 5, 0]], "group", 2) == [0, 1]  # of equals the first


def test_chance_is_the_seed() -> None:
    keep: Any = {"encoder": 2, "decoder": 1, "cross": 3}
    kept = random_heads(HEADS, keep, 1)
    assert kept == random_heads(HEADS, keep, 1) != random_heads(HEADS, keep, 2)
    assert {site: [len(heads) for heads in layers] for site, layers in kept.items()} == {
        "encoder": [2, 2],
        "decoder": [1, 1],
        "cross": [3, 3],
    }


def test_named_heads() -> None:
    kept = named_heads(["encoder:0,3/1", "cross:2"], HEADS)
    assert kept == {"encoder": [[0, 3], [1]], "decoder": [[0, 1, 2, 3]] * 2, "cross": [[2], [2]]}


@pytest.mark.parametrize("part", ["encoder", "encoder:", "encoder:a", "side:1", "encoder:1//2"])
def test_named_heads_that_are_none(part: str) -> None:
    with pytest.raises(UserError, match=r"--keep-heads: .* is not understood; give each of"):
        named_heads([part], HEADS)


# ---- the file ------------------------------------------------------------------------------------

CONTENT: dict[str, Any] = {
    "rule": "group",
    "votes": {site: [[[3, 0, 2, 0], [0, 9, 0, 8]]] * 2 for site in HEADS},
}
UNEVEN = {site: [[[1], [1, 2]]] for site in HEADS}


def write(folder: Path, **changed: Any) -> Path:
    path = folder / "votes.json"
    votes_file.write(path, {**CONTENT, **changed})
    return path


def test_votes_are_read_back(tmp_path: Path) -> None:
    found = votes_file.read(write(tmp_path))
    assert found.kept(HEADS, None) == {site: [[0, 1], [0, 1]] for site in HEADS}
    top = votes_file.read(write(tmp_path, rule="top"))
    keep: Any = {"encoder": 1, "decoder": 2, "cross": 3}
    kept = top.kept(HEADS, keep)
    assert [kept[site][0] for site in HEADS] == [[1], [1, 3], [0, 1, 3]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no", "not JSON"),
        ("[]", "no votes of version 1; give a file that fairseq-collab vote has written"),
        (json.dumps({**CONTENT, "version": 2}), "no votes of version 1"),
        (json.dumps({**CONTENT, "version": 1, "rule": "all"}), "its votes are damaged"),
        (json.dumps({**CONTENT, "version": 1, "votes": {"encoder": []}}), "votes are damaged"),
        (json.dumps({"version": 1, "rule": "top", "votes": UNEVEN}), "its votes are damaged"),
    ],
)
def test_files_that_are_no_votes(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "votes.json"
    path.write_text(content)
    with refusing(message, str(path)):
        votes_file.read(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"votes\.json: cannot be read: No such file"):
        votes_file.read(tmp_path / "votes.json")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written: No such file"):
        votes_file.write(tmp_path / "no" / "votes.json", CONTENT)


@pytest.mark.parametrize(
    ("rule", "keep", "heads", "message"),
    [
        ("group", 3, HEADS, "3 heads of encoder attention cannot stay, one for each of its 2 gr"),
        ("top", None, HEADS, "--keep: say how many heads stay"),
        ("top", 5, HEADS, "--keep: 5 heads cannot stay in encoder attention, which has 4"),
        ("top", 2, {**HEADS, "cross": [4, 2]}, "in cross attention are [4, 4] in it, [4, 2] in"),
    ],
)
def test_votes_that_do_not_fit(
    rule: str, keep: int | None, heads: Any, message: str, tmp_path: Path
) -> None:
    found = votes_file.read(write(tmp_path, rule=rule))
    numbers: Any = None if keep is None else dict.fromkeys(HEADS, keep)
    with refusing(message):
        found.kept(heads, numbers)
