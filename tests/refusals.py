"""What is refused, and in which words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from collab_common.errors import UserError


@contextlib.contextmanager
def refusing(*parts: str) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """What is done inside is refused, in one line that has these parts."""
    with pytest.raises(UserError) as refusal:
        yield refusal
    line = str(refusal.value)
    assert "\n" not in line, line
    for part in parts:
        assert part in line, f"{part!r} is not in {line!r}"


@contextlib.contextmanager
def wrong_usage(capsys: pytest.CaptureFixture[str], message: str = "") -> Iterator[None]:
    """What is done inside ends as argparse ends it: with status 2, and this in what it says."""
    with pytest.raises(SystemExit) as end:
        yield
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert message in said, f"{message!r} is not in {said!r}"
    assert "there is no option" not in said, "the option of the test is gone"
