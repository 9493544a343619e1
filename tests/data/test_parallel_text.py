"""Texts line by line: only LF ends a line, and what is wrong names a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import refusing

from data_prep.parallel_text import lines_of, write_lines


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", b""),
        (b"a", b"a\n"),
        (b"\n\na\n\n", b"\n\na\n\n"),
        ("a\u2028b\x85c\rd\x0b\n".encode(), "a\u2028b\x85c\rd\x0b\n".encode()),
    ],
)
def test_a_line_ends_at_lf_only(content: bytes, expected: bytes, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(content)
    lines = write_lines(tmp_path / "out", lines_of(tmp_path / "text"))
    assert (tmp_path / "out").read_bytes() == expected
    assert lines == expected.count(b"\n")


def test_invalid_utf8(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"fine\n\xe9\n")
    with refusing(f"{tmp_path}/text:2"):
        list(lines_of(tmp_path / "text"))
