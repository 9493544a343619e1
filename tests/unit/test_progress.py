"""Progress on standard error: a bar in a terminal, whole lines elsewhere, items unchanged."""

from __future__ import annotations

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
