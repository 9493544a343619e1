"""Examples in docstrings of the public API run, and print what they say."""

from __future__ import annotations

import doctest

import pytest

from collab_lab.hugging_face import swap
from fairseq_collab.attention import collaborative

MODULES = (collaborative, swap)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples(module: object) -> None:
    failed, attempted = doctest.testmod(module)
    assert attempted
    assert not failed
