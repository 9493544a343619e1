"""Which heads ``prune`` keeps: by name, at random, by importance, by gates."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import REPOSITORY
from parity.test_prune_parity import trained
from refusals import refusing

from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError
from fairseq_collab.analysis import stages
from fairseq_collab.commands import prune as command_prune
from fairseq_collab.prune.choices import (
    MEASURE,
    importance_kept,
    most_important,
    named_heads,
    open_heads,
    random_heads,
    without_gates,
    without_least,
)
from fairseq_collab.prune.surgery import pruned

HEADS: Any = {"encoder": [4, 3], "decoder": [4], "cross": [2]}
#: Divided by the norm of each layer: .1 .3 .5 .8 and .27 .53 .80; .5 .5 .5 .5; .6 .8
IMPORTANCE: Any = {
    "encoder": [[1.0, 3.0, 5.0, 8.0], [0.01, 0.02, 0.03]],
    "decoder": [[7.0, 7.0, 7.0, 7.0]],
    "cross": [[3.0, 4.0]],
}


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
    heads: Any = {type_: [8, 8] for type_ in ATTENTION_TYPES}
    kept = random_heads(heads, 3, 1)
    assert kept == random_heads(heads, 3, 1) != random_heads(heads, 3, 2)
    assert {len(set(layer)) for layers in kept.values() for layer in layers} == {3}


# ---- by importance -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "kept"),
    [
        (13, {"encoder": [[0, 1, 2, 3], [0, 1, 2]], "decoder": [[0, 1, 2, 3]], "cross": [[0, 1]]}),
        (10, {"encoder": [[2, 3], [1, 2]], "decoder": [[0, 1, 2, 3]], "cross": [[0, 1]]}),
        (7, {"encoder": [[2, 3], [1, 2]], "decoder": [[0]], "cross": [[0, 1]]}),
        (4, {"encoder": [[3], [2]], "decoder": [[0]], "cross": [[1]]}),
    ],
)
def test_the_least_important_heads_of_all_layers_go(number: int, kept: Any) -> None:
    """13 heads; of equals the last goes, and every layer keeps one."""
    assert importance_kept(IMPORTANCE, HEADS, number) == kept
    zeros = {**IMPORTANCE, "cross": [[0.0, 0.0]]}
    assert importance_kept(zeros, HEADS, 12)["cross"] == [[0]]


@pytest.mark.parametrize("number", [3, 14])
def test_numbers_of_heads_that_are_impossible(number: int) -> None:
    with refusing(f"--importance: cannot keep {number} of 13 heads: each of 4 layers keeps 1"):
        importance_kept(IMPORTANCE, HEADS, number)


def test_the_most_important_heads_of_each_attention() -> None:
    expected: Any = {"encoder": [[2, 3], [1, 2]], "decoder": [[0, 1]], "cross": [[0, 1]]}
    assert most_important(IMPORTANCE, HEADS, 2) == expected
    with refusing("cannot keep 4 heads of encoder attention, which has 3"):
        most_important(IMPORTANCE, HEADS, 4)


def test_importances_of_a_file(tmp_path: Path) -> None:
    """A number per attention, a share of all heads, as many as another model has."""
    path, stored = tmp_path / "heads.json", REPOSITORY / "tests" / "stored"
    values = {type_: [[4.0, 3.0, 2.0, 1.0]] * 2 for type_ in ATTENTION_TYPES}
    path.write_text(json.dumps({"version": 1, "measures": {MEASURE: values}}))

    def kept(**options: Any) -> Any:
        names = ("votes", "keep_heads", "random", "keep", "as_many_as", "remove_share")
        args = {**dict.fromkeys(names), "importance": path, "data": stored / "copy", **options}
        return command_prune.choose(Namespace(**args), trained("transformer"))

    assert kept(keep=2) == {type_: [[0, 1]] * 2 for type_ in ATTENTION_TYPES}
    assert kept(remove_share=0.25) == {type_: [[0, 1, 2]] * 2 for type_ in ATTENTION_TYPES}
    other = stored / "checkpoints" / "transformer_headsize_n.pt"  # 6 heads, 3 and 6
    assert sum(len(layer) for layers in kept(as_many_as=other).values() for layer in layers) == 15


def test_a_further_step_starts_from_what_is_left() -> None:
    kept: Any = {"encoder": [[1], []], "decoder": [[0, 1]], "cross": [[1]]}
    measure = {"encoder": [[5.0], []], "decoder": [[4.0, 3.0]], "cross": [[1.0]]}
    assert without_least(kept, measure, ATTENTION_TYPES, 1)["decoder"] == [[0]]


def test_a_layer_without_heads_is_not_analysed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: Any = {"encoder": [[0], [1]], "decoder": [[0], [0, 1]], "cross": [[2], []]}
    smaller = pruned(trained("transformer"), kept)
    monkeypatch.setattr(stages.opener, "load", lambda *_: smaller)
    with pytest.raises(UserError, match="attention cross 1 has no heads left to be analysed; give"):
        stages.load(Path("pruned.pt"), Path("data"))


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
