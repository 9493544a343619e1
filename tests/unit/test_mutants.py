"""The list of ``tests/mutants.py``, which is run by hand, does not fall behind the code."""

from __future__ import annotations

import pytest
from commands import REPOSITORY
from mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.guards)
def test_its_line_stands_once_and_its_tests_are_there(mutant: Mutant) -> None:
    assert (REPOSITORY / mutant.file).read_text().count(mutant.old) == 1
    assert mutant.old != mutant.new
    assert (REPOSITORY / mutant.tests[0]).exists()
