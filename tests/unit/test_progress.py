"""Progress on standard error: a bar in a terminal, whole lines elsewhere, items unchanged."""

from __future__ import annotations

import time

import pytest

from collab_common import progress


@pytest.mark.parametrize(
    ("terminal", "every", "lines"), [(True, 30, 0), (False, 0, 3), (False, 30, 0)]
)
def test_a_bar(
    terminal: bool,
    every: int,
    lines: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setattr(progress, "EVERY", every)
    assert list(progress.bar("heads", ["a", "b"])) == ["a", "b"]
    said = capsys.readouterr().err
    assert ("heads: " in said) == (terminal or every == 0)
    assert said.count("\n") == lines
    assert terminal or "\r" not in said


def test_bars_within_bars_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plain lines, of which the last has every item, however seldom a line is drawn."""
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: False)
    monkeypatch.setattr(progress, "EVERY", 0.03)
    for _ in progress.bar("runs", range(3)):
        for _ in progress.bar("batches", range(7)):
            time.sleep(0.02)
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith(("runs: ", "batches: ")) for line in lines)
    assert sum("7/7" in line for line in lines) == 3
    assert "3/3" in lines[-1]
    assert not [line for line in lines if "\x1b" in line or "[A" in line]
