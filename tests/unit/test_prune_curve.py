"""Which heads go on the way down a pruning curve, and what is kept of the results."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest
import torch
import toy_language_models
from parity.test_prune_parity import trained
from toy_heads import sample

from collab_common.errors import UserError
from fairseq_collab.analysis.heads import source
from fairseq_collab.commands.prune_curve import check_some_go
from fairseq_collab.metrics.model_bleu import check_translation
from fairseq_collab.models.layers import SITES
from fairseq_collab.prune import curve
from fairseq_collab.prune.choices import without_least
from fairseq_collab.prune.curve import CURVES, counts, free_heads, heads_in, sites_of
from fairseq_collab.prune.surgery import Kept, pruned
from fairseq_collab.results.prune_curve import NAME, Point, Results, table, write_report

WHOLE: Kept = {"encoder": [[0, 1], [0, 1]], "decoder": [[0, 1]], "cross": [[0, 1]]}
#: In each layer of length 1: .6 .8, .8 .6, .28 .96, .96 .28.
MEASURE = {"encoder": [[3.0, 4.0], [40.0, 30.0]], "decoder": [[0.28, 0.96]], "cross": [[9.6, 2.8]]}
SETTINGS = {
    "subset": "test", "beam": 5, "by": "importance_token", "importance": "valid",
    "iterative": False,
}  # fmt: skip


def test_counts_of_heads() -> None:
    assert counts(12, 0.1, 0.9) == [0, 1, 2, 4, 5, 6, 7, 8, 10, 11]
    assert counts(36, 0.1, 0.9)[-1] == 32
    assert counts(2, 0.1, 0.9) == [0, 1, 2]  # each once
    assert counts(12, 0.25, 0.5) == [0, 3, 6]


def test_sites_and_their_heads() -> None:
    heads = {"encoder": [4, 4], "decoder": [2], "cross": [1]}
    assert sites_of("all") == SITES
    assert sites_of("cross") == ("cross",)
    assert [heads_in(curve, heads) for curve in ("encoder", "cross", "all")] == [8, 1, 11]


def test_the_least_important_go_across_layers() -> None:
    """A layer's scale is none of its importance; of equals the last goes first."""
    assert without_least(WHOLE, MEASURE, ["encoder"], 1)["encoder"] == [[0, 1], [0]]
    assert without_least(WHOLE, MEASURE, ["encoder"], 2)["encoder"] == [[1], [0]]
    assert without_least(WHOLE, MEASURE, ["encoder"], 4)["encoder"] == [[], []]
    assert without_least(WHOLE, MEASURE, ["encoder"], 1)["decoder"] == [[0, 1]]


def test_all_sites_compete() -> None:
    kept = without_least(WHOLE, MEASURE, SITES, 3)
    assert kept == {"encoder": [[0, 1], [0]], "decoder": [[1]], "cross": [[0]]}


def test_a_further_step_starts_from_what_is_left() -> None:
    kept: Kept = {"encoder": [[1], []], "decoder": [[0, 1]], "cross": [[1]]}
    measure = {"encoder": [[5.0], []], "decoder": [[4.0, 3.0]], "cross": [[1.0]]}
    assert without_least(kept, measure, SITES, 1)["decoder"] == [[0]]


# ---- models --------------------------------------------------------------------------------------


def test_a_layer_without_heads_is_not_analysed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: Kept = {"encoder": [[0], [1]], "decoder": [[0], [0, 1]], "cross": [[2], []]}
    smaller = pruned(trained("transformer"), kept)
    monkeypatch.setattr(source.opener, "load", lambda *_: smaller)
    with pytest.raises(UserError, match="attention cross 1 has no heads left to be analysed; give"):
        source.load(Path("pruned.pt"), Path("data"))


def test_heads_that_are_left_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that has lost all of its heads has no importances."""
    whole = trained("transformer")
    kept: Kept = {"encoder": [[], [1, 3]], "decoder": [[0], [0, 1, 2, 3]], "cross": [[2], []]}
    monkeypatch.setattr(curve, "epoch", lambda trained, subset: [sample()])
    found = curve.measured(whole, kept, "importance_token", "valid", torch.device("cpu"))
    for site, layers in kept.items():
        assert [len(heads) for heads in layers] == [len(values) for values in found[site]]


@pytest.mark.parametrize(("sites", "steps", "most"), [(["cross"], 0.1, 0.1), (CURVES, 0.5, 0.4)])
def test_some_heads_must_go(sites: list[str], steps: float, most: float) -> None:
    """Else there is nothing to draw."""
    args = Namespace(sites=sites, steps=steps, most=most)
    with pytest.raises(UserError, match=r"^--most: no head would go; give a larger --most, or"):
        check_some_go(args, {"encoder": [4], "decoder": [4], "cross": [4]})


def test_one_head_that_goes_is_enough() -> None:
    args = Namespace(sites=CURVES, steps=0.1, most=0.1)  # of 4 heads none, of all 12 one
    check_some_go(args, {"encoder": [4], "decoder": [4], "cross": [4]})


def test_language_models_have_no_bleu() -> None:
    with pytest.raises(UserError, match=r"x\.pt: .* does not translate, so that it has no BLEU; y"):
        check_translation(toy_language_models.task(), Path("x.pt"), "y")


# ---- results -------------------------------------------------------------------------------------


def test_heads_that_can_go() -> None:
    points = [(0, 40.0), (1, 40.2), (2, 39.8), (3, 39.7), (4, 39.9)]
    assert free_heads(points, 0.25) == 2  # the last is back, but on the other side of a loss
    assert free_heads(points, 1) == 4


def filled(folder: Path) -> Results:
    results = Results(folder, SETTINGS, {"command": "prune-curve"})
    for removed, bleu in ((0, 40.0), (2, 39.9), (4, 30.0)):
        results.add(Point("encoder", removed, 4, bleu, 1.5, WHOLE))
    results.add(Point("all", 4, 12, 20.0, 1.5, WHOLE))
    return results


def test_points_are_found_again(tmp_path: Path) -> None:
    results = filled(tmp_path)
    again = Results(tmp_path, SETTINGS, {})
    assert again.points == results.points
    assert again.find("encoder", 2) == results.points[1]
    assert again.find("cross", 0) == results.points[0]  # nothing removed is the same everywhere
    assert again.find("cross", 2) is None
    assert [point.removed for point in again.curves()["all"]] == [0, 4]
    assert list(again.curves()) == ["encoder", "all"]


def test_accuracies_stand_beside_bleu(tmp_path: Path) -> None:
    settings = {**SETTINGS, "pairs": "pairs:0123|score:sum"}
    results = Results(tmp_path, settings, {})
    for removed, bleu in ((0, 40.0), (2, 39.9)):
        accuracies = {"np_agreement-mt": 90.0 - removed}
        results.add(Point("encoder", removed, 4, bleu, 1.5, WHOLE, accuracies))
    assert Results(tmp_path, settings, {}).points == results.points
    text = write_report(results)
    assert "| heads removed | share | BLEU | difference | np agreement-mt |" in text
    assert "| 2 | 50% | 39.90 | -0.10 | 88.00 |" in text
    assert "`pairs:0123|score:sum`" in text
    with pytest.raises(UserError, match=r"holds a curve with pairs pairs:0123.*, not None"):
        Results(tmp_path, {**SETTINGS, "pairs": None}, {})


def test_other_settings_are_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(
        UserError, match=r"holds a curve with subset test, not valid.*another --out"
    ):
        Results(tmp_path, {**SETTINGS, "subset": "valid"}, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "no curve of version 1"),
        ('{"version": 2}', "no curve of version 1"),
        ('{"version": 1, "settings": {}, "importance": null}', "its points are damaged"),
        ('{"version": 1, "settings": {}, "importance": null, "points": [{}]}', "are damaged"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(UserError, match=message):
        Results(tmp_path, SETTINGS, {})


def test_table_and_figure(tmp_path: Path) -> None:
    results = filled(tmp_path)
    text = write_report(results)
    assert (tmp_path / "table.md").read_text() == text
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "**encoder self-attention**, 4 heads; 2 can go within 0.25 BLEU" in text
    assert "| 2 | 50% | 39.90 | -0.10 |" in text
    assert "| 4 | 33% | 20.00 | -20.00 |" in text
    assert "measured again" not in text
    assert "measured again at every step" in table(
        results.curves(), {**SETTINGS, "iterative": True}
    )
    assert json.loads((tmp_path / NAME).read_text())["command"] == "prune-curve"
