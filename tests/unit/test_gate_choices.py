"""Which heads stay by a measure and by their gates, and what is refused."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import REPOSITORY
from parity.test_prune_parity import trained
from refusals import refusing, wrong_usage

from collab_common.errors import UserError
from fairseq_collab.attention.gates import gated_attentions
from fairseq_collab.commands import prune as command_prune
from fairseq_collab.models.layers import SITES
from fairseq_collab.prune.choices import (
    decided_gates,
    gates_of,
    importance_kept,
    most_important,
    open_heads,
    without_gates,
)

HEADS: Any = {"encoder": [4, 3], "decoder": [4], "cross": [2]}
#: Of length 1 in each layer: .1 .3 .5 .8 and .27 .53 .80; .5 .5 .5 .5; .6 .8
MEASURE: Any = {
    "encoder": [[1.0, 3.0, 5.0, 8.0], [0.01, 0.02, 0.03]],
    "decoder": [[7.0, 7.0, 7.0, 7.0]],
    "cross": [[3.0, 4.0]],
}


# ---- by a measure --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "kept"),
    [
        (0, {"encoder": [[0, 1, 2, 3], [0, 1, 2]], "decoder": [[0, 1, 2, 3]], "cross": [[0, 1]]}),
        (0.2, {"encoder": [[2, 3], [1, 2]], "decoder": [[0, 1, 2, 3]], "cross": [[0, 1]]}),
        (0.5, {"encoder": [[2, 3], [1, 2]], "decoder": [[0]], "cross": [[0, 1]]}),
        (0.6, {"encoder": [[3], [2]], "decoder": [[0]], "cross": [[0, 1]]}),
        (0.69, {"encoder": [[3], [2]], "decoder": [[0]], "cross": [[1]]}),
    ],
)
def test_the_least_important_heads_of_all_layers_go(share: float, kept: Any) -> None:
    """13 heads; of equals the last goes, and every layer keeps one."""
    assert importance_kept(MEASURE, HEADS, share) == kept


def test_heads_of_other_sites_stay() -> None:
    """Half of the six heads of decoder and cross attention."""
    kept = importance_kept(MEASURE, HEADS, 0.5, ["decoder", "cross"])
    assert kept == {"encoder": [[0, 1, 2, 3], [0, 1, 2]], "decoder": [[0]], "cross": [[0, 1]]}


def test_a_layer_without_importance_goes_first() -> None:
    zeros = {**MEASURE, "cross": [[0.0, 0.0]]}
    assert importance_kept(zeros, HEADS, 1 / 13)["cross"] == [[0]]


@pytest.mark.parametrize(
    ("share", "message"),
    [
        (
            0.8,
            "--remove-share: 3 of 13 heads cannot stay: each of 4 layers keeps one; give 0.69 at",
        ),
        (1.0, "--remove-share: is 1.0; it must be from 0 up and below 1"),
        (-0.1, "--remove-share: is -0.1; it must be from 0 up and below 1"),
        (float("nan"), "--remove-share: is nan; it must be from 0 up"),
    ],
)
def test_shares_that_cannot_go(share: float, message: str) -> None:
    with refusing(message):
        importance_kept(MEASURE, HEADS, share)


def test_no_share_of_no_heads() -> None:
    """A language model has no encoder."""
    assert importance_kept({"encoder": []}, {"encoder": []}, 0.3, ["encoder"]) == {"encoder": []}


def test_the_most_important_heads_of_each_attention() -> None:
    keep: Any = {"encoder": 2, "decoder": 1, "cross": 2}
    expected: Any = {"encoder": [[2, 3], [1, 2]], "decoder": [[0]], "cross": [[0, 1]]}
    assert most_important(MEASURE, HEADS, keep) == expected
    assert most_important(MEASURE, HEADS, keep, ["decoder"])["encoder"] == [[0, 1, 2, 3], [0, 1, 2]]


def test_more_heads_than_there_are() -> None:
    keep: Any = {"encoder": 4, "decoder": 1, "cross": 1}
    with pytest.raises(UserError, match="4 heads cannot stay in encoder attention, which has 3"):
        most_important(MEASURE, HEADS, keep)


# ---- by a file -----------------------------------------------------------------------------------


@pytest.fixture
def analysis(tmp_path: Path) -> Path:
    """Importances of three layers of four heads: the first head most, the last least."""
    path = tmp_path / "heads.json"
    values = {site: [[4.0, 3.0, 2.0, 1.0]] * 2 for site in SITES}
    reverse = {site: [[1.0, 2.0, 3.0, 4.0]] * 2 for site in SITES}
    measures = {"importance_token_normalised": values, "confidence": reverse}
    path.write_text(json.dumps({"version": 1, "measures": measures}))
    return path


def by_importance(analysis: Path, **options: Any) -> Any:
    args = dict.fromkeys(("by", "sites", "remove_share", "keep", "as_many_as", "votes"))
    source = trained("transformer")
    args |= {"importance": analysis, **options}
    return command_prune.choose(Namespace(**args), source, gates_of(source))


def test_importances_of_a_file(analysis: Path) -> None:
    assert by_importance(analysis, keep="2,1,3") == {
        "encoder": [[0, 1]] * 2, "decoder": [[0]] * 2, "cross": [[0, 1, 2]] * 2,
    }  # fmt: skip
    kept = by_importance(analysis, remove_share=0.25, by="confidence", sites="cross,encoder")
    assert kept == {
        "encoder": [[1, 2, 3]] * 2, "decoder": [[0, 1, 2, 3]] * 2, "cross": [[1, 2, 3]] * 2,
    }  # fmt: skip


def test_as_many_as_another_model_has(analysis: Path) -> None:
    """Of all layers together, or of those of some sites, wherever they are there."""
    stored = REPOSITORY / "tests" / "stored"  # 6 heads, 3 and 6
    other = {"as_many_as": stored / "checkpoints" / "transformer_headsize_n.pt"}
    kept = by_importance(analysis, data=stored / "copy", **other)
    assert sum(len(layer) for layers in kept.values() for layer in layers) == 15
    assert all(layer[0] == 0 for layers in kept.values() for layer in layers)  # the best of each
    kept = by_importance(analysis, data=stored / "copy", sites="encoder,decoder", **other)
    assert kept["cross"] == [[0, 1, 2, 3]] * 2
    assert sum(len(layer) for site in ("encoder", "decoder") for layer in kept[site]) == 9


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (3, "3 of 13 heads cannot stay: each of 4 layers keeps one"),
        (14, "14 of 13 heads cannot stay: each of 4 layers keeps one"),
    ],
)
def test_as_many_as_cannot_be(count: int, message: str) -> None:
    with pytest.raises(
        UserError, match=f"--as-many-as: {message}; give a checkpoint with 4 to 13 heads there$"
    ):
        importance_kept(MEASURE, HEADS, 0, stay=count)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "--importance: say how many heads stay; give one of --keep, --remove-share and --as"),
        ({"keep": "2", "remove_share": 0.5}, "give one of --keep, --remove-share and --as-many-as"),
        ({"keep": "2", "as_many_as": "x"}, "give one of --keep, --remove-share and --as-many-as"),
        ({"keep": "2", "by": "luck"}, "heads.json: has no measure 'luck'; it has confidence, impo"),
        ({"keep": "2", "sites": "self"}, "--sites is 'self'; it must name some of encoder, decod"),
    ],
)
def test_what_a_file_cannot_say(analysis: Path, options: dict[str, Any], message: str) -> None:
    with refusing(message):
        by_importance(analysis, **options)


# ---- by gates ------------------------------------------------------------------------------------

GATED = "transformer_gated_heads"


def gated(**options: Any) -> Any:
    """A trained model: gates of the first encoder layer 1, 0.7, 0.3 and 0, all others 1."""
    source = trained(GATED, **options)
    wanted = torch.tensor([0.7, 0.3])
    first = source.model.encoder.layers[0].self_attn
    with torch.no_grad():
        first.theta[1:3] = torch.logit((wanted + 0.1) / 1.2)
        first.theta[3] = -9
    return source


def test_gates_of_a_model() -> None:
    gates = gates_of(gated(gated_sites="encoder", gate_evaluation="mean"))
    assert gates["encoder"][0] == pytest.approx([1, 0.7, 0.3, 0])
    assert gates_of(gated(gated_sites="encoder"))["encoder"][0] == [1, 1, 0, 0]
    assert gates["encoder"][1:] + gates["decoder"] + gates["cross"] == [[1] * 4] * 5


def test_gates_between_are_refused_or_rounded() -> None:
    told = "gates are neither 0 nor 1: encoder layer 0 head 1 (0.7), encoder layer 0 head 2 (0.3)"
    todo = "train on, or give --round (the model then computes something else)"
    with refusing(f"checkpoint.pt: {told}; {todo}"):
        decided_gates(gated(gate_evaluation="mean"), rounding=False)
    assert decided_gates(gated(), rounding=False)["encoder"][0] == [1, 1, 0, 0]
    gates = decided_gates(gated(gate_evaluation="mean"), rounding=True)
    assert gates["encoder"][0] == [1, 1, 0, 0]
    assert open_heads(gates)["encoder"] == [[0, 1], [0, 1, 2, 3]]


def test_many_gates_between_are_counted() -> None:
    source = gated(gate_evaluation="mean")
    for attention in gated_attentions(source.model):
        attention.theta.data.zero_()
    with pytest.raises(UserError, match=r"encoder layer 1 head 0 \(0\.5\) and 19 more; train on"):
        decided_gates(source, rounding=False)


def test_models_without_gates() -> None:
    source = trained("transformer")
    with pytest.raises(UserError, match=r"checkpoint\.pt: its heads have no gates; give a transf"):
        decided_gates(source, rounding=True)
    assert without_gates(source, gates_of(source)) is source


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "one of --votes, --gates, --importance, --keep-heads, --random, --ffn-dim says what"),
        (["--random=1", "--round"], "--round is for --gates"),
        (["--gates", "--remove-share=0.5"], "--remove-share is for --importance"),
        (["--gates", "--as-many-as=x.pt"], "--as-many-as is for --importance"),
        (["--random=1", "--by=confidence"], "--by is for --importance"),
        (["--gates", "--sites=cross"], "--sites is for --importance"),
        (["--gates", "--random=1"], "not allowed with argument"),
    ],
)
def test_usage(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with wrong_usage(capsys, message):
        command_prune.main(["c.pt", "--output=o", *options])
