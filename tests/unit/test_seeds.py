"""Gains over seeds: intervals and corrected p."""

from __future__ import annotations

import pytest

from fairseq_collab.metrics.significance import Gain, gain_of, holm


def test_holm_by_its_definition() -> None:
    """Sorted .005, .01, .03, .04 times 4, 3, 2, 1: .02, .03, .06, .04, none below one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([0.2, None]) == [0.2, None]


def test_student() -> None:
    """t of two degrees of freedom is 4.302653; p of t = 2 sqrt(3) there is 0.0742."""
    found = gain_of([1.0, 2.0, 3.0])
    half = 4.302653 / 3**0.5
    assert found == pytest.approx((2, 2 - half, 2 + half, 0.0742), abs=1e-4)
    assert not found.significant
    assert gain_of([2.0, 2.1, 2.2]).significant


@pytest.mark.parametrize("gains", [[1.0], [0.1 + 0.2, 0.3], [0.0, 0.0]])
def test_gains_without_an_interval(gains: list[float]) -> None:
    """One seed, or seeds that are all alike, say nothing of other seeds."""
    assert gain_of(gains) == Gain(pytest.approx(gains[0]))
