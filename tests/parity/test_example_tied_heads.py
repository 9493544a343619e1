"""The README's variant of one's own: keys that are values, which takes one file.

Its equation: test_attention_parity.py; step by step under beam search, and what the cache holds:
test_incremental.py.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
import toy
from fairseq import utils

from collab_common.errors import UserError
from collab_lab.metrics.cost import cost

utils.import_user_module(
    Namespace(user_dir=str(Path(__file__).parent.parent / "examples" / "tied_heads"))
)

pytestmark = pytest.mark.usefixtures("float64")

D, H = 24, 4


def test_counted_costs_are_the_variants_own() -> None:
    """d = 16, 2 + 2 layers: the decoder's two caches hold 16 numbers of 4 bytes."""
    ours = cost(toy.model("transformer_tied_heads"))
    ordinary = cost(toy.model("transformer_headsize_n"))
    assert ours.key_bytes_per_target_token == ours.key_bytes_per_source_token == 2 * 16 * 4
    assert ours.value_bytes_per_target_token == ours.value_bytes_per_source_token == 0
    assert ordinary.parameters - ours.parameters == 6 * (16 + 1) * 16


@pytest.mark.parametrize(
    ("other", "kind"),
    [("transformer_headsize_n", "separate keys"), ("transformer_collab", "shared keys")],
)
def test_another_variants_checkpoint_is_refused(other: str, kind: str) -> None:
    ours, others = toy.model("transformer_tied_heads"), toy.model(other)
    with pytest.raises(UserError, match=f"kind of heads is {kind} in the checkpoint, kind 100 in"):
        ours.load_state_dict(others.state_dict())
    with pytest.raises(UserError, match=f"kind of heads is kind 100 in the checkpoint, {kind} in"):
        others.load_state_dict(ours.state_dict())
