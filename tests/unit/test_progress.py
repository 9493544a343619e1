"""Progress: a bar in a terminal, otherwise a line every 30 seconds."""

from __future__ import annotations

import itertools

import pytest

from collab_common import progress


def test_a_line_every_30_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = itertools.count(0, 20)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    assert list(progress.bar("heads", "abcde")) == list("abcde")
    assert capsys.readouterr().err.splitlines() == ["heads: 2/5 [00:40<01:00]",
                                                    "heads: 4/5 [01:20<00:20]"]  # fmt: skip


def test_a_bar_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True)
    assert list(progress.bar("heads", iter("ab"))) == ["a", "b"]
    assert "heads: 0it" in capsys.readouterr().err
