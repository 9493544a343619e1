"""A checkpoint of an earlier version, which must load and translate alike for ever.

``tests/stored/transformer_collab_1`` was made on 2026-11-21 from the copy task of
``commands.write_copy_task`` with the options of ``cli/conftest.py``, 12 epochs, the last two
averaged.  Should a change be meant to end this, raise ``SIGNATURE_VERSION`` and say so.
"""

from __future__ import annotations

import re

import pytest
from commands import REPOSITORY, USER_DIR, succeed

STORED = REPOSITORY / "tests" / "stored" / "transformer_collab_1"
EXPECTED = {
    0: (-0.17224626, "w3 w1 w4 w1 w5"),
    1: (-0.06405634, "w9 w2 w6"),
    2: (-0.55727029, "w0 w0 w0 w11"),
}


def test_stored_checkpoint_translates_as_it_did() -> None:
    output = succeed(
        "fairseq-interactive", STORED, *USER_DIR, "--path", STORED / "checkpoint.pt",
        "--source-lang=en", "--target-lang=de", "--cpu", "--beam=5",
        stdin=(STORED / "source.en").read_text(),
    )  # fmt: skip
    found = re.findall(r"^H-(\d+)\t([^\t]*)\t(.*)$", output, re.MULTILINE)
    assert len(found) == len(EXPECTED)
    for number, score, text in found:
        expected_score, expected_text = EXPECTED[int(number)]
        assert text == expected_text
        assert float(score) == pytest.approx(expected_score, abs=1e-5)
