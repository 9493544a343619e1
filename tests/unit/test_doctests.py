"""Examples in docstrings of the public API run, and print what they say."""

from __future__ import annotations

import doctest

import pytest

from fairseq_collab.attention import collaborative, heads
from fairseq_collab.models import base


@pytest.mark.parametrize("module", [heads, collaborative, base], ids=lambda module: module.__name__)
def test_examples(module: object) -> None:
    failed, attempted = doctest.testmod(module)
    assert attempted
    assert not failed
