"""Which heads are the least important."""

from __future__ import annotations

from pathlib import Path

import pytest
import toy_language_models
from parity.test_prune_parity import trained

from collab_common.errors import UserError
from fairseq_collab.analysis import stages
from fairseq_collab.metrics.translate import check_translation
from fairseq_collab.models.layers import ATTENTION_TYPES
from fairseq_collab.prune.choices import without_least
from fairseq_collab.prune.surgery import Kept, pruned

WHOLE: Kept = {"encoder": [[0, 1], [0, 1]], "decoder": [[0, 1]], "cross": [[0, 1]]}
#: In each layer of length 1: .6 .8, .8 .6, .28 .96, .96 .28.
MEASURE = {"encoder": [[3.0, 4.0], [40.0, 30.0]], "decoder": [[0.28, 0.96]], "cross": [[9.6, 2.8]]}


def test_the_least_important_go_across_layers() -> None:
    """A layer's scale is none of its importance; of equals the last goes first."""
    assert without_least(WHOLE, MEASURE, ["encoder"], 1)["encoder"] == [[0, 1], [0]]
    assert without_least(WHOLE, MEASURE, ["encoder"], 2)["encoder"] == [[1], [0]]
    assert without_least(WHOLE, MEASURE, ["encoder"], 4)["encoder"] == [[], []]
    assert without_least(WHOLE, MEASURE, ["encoder"], 1)["decoder"] == [[0, 1]]


def test_all_types_compete() -> None:
    kept = without_least(WHOLE, MEASURE, ATTENTION_TYPES, 3)
    assert kept == {"encoder": [[0, 1], [0]], "decoder": [[1]], "cross": [[0]]}


def test_a_further_step_starts_from_what_is_left() -> None:
    kept: Kept = {"encoder": [[1], []], "decoder": [[0, 1]], "cross": [[1]]}
    measure = {"encoder": [[5.0], []], "decoder": [[4.0, 3.0]], "cross": [[1.0]]}
    assert without_least(kept, measure, ATTENTION_TYPES, 1)["decoder"] == [[0]]


# ---- models --------------------------------------------------------------------------------------


def test_a_layer_without_heads_is_not_analysed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: Kept = {"encoder": [[0], [1]], "decoder": [[0], [0, 1]], "cross": [[2], []]}
    smaller = pruned(trained("transformer"), kept)
    monkeypatch.setattr(stages.opener, "load", lambda *_: smaller)
    with pytest.raises(UserError, match="attention cross 1 has no heads left to be analysed; give"):
        stages.load(Path("pruned.pt"), Path("data"))


def test_language_models_have_no_bleu() -> None:
    with pytest.raises(UserError, match=r"x\.pt: .* does not translate, so that it has no BLEU; y"):
        check_translation(toy_language_models.task(), Path("x.pt"), "y")
