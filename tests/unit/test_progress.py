"""Progress: a bar on standard error, items unchanged."""

from __future__ import annotations

import pytest

from collab_common import progress


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: terminal)
    assert list(progress.bar("heads", iter("ab"))) == ["a", "b"]
    assert "heads: 0it" in capsys.readouterr().err
