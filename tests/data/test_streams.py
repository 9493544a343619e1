"""Texts through several processes: order, bounds, and what happens when something dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import is_running, wait_for
from refusals import refusing

from collab_common.errors import UserError
from data_prep import streams
from data_prep.streams import parallel_lines, read_blocks

LINES = [f"line {n} é" for n in range(5000)]


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "text"
    path.write_text("".join(line + "\n" for line in LINES))
    return path


def upper(lines: list[str]) -> list[str]:
    return [line.upper() for line in lines]


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_order(jobs: int, text: Path, tmp_path: Path) -> None:
    text.write_text(text.read_text() * 5)  # more blocks than are under way at once
    counts = parallel_lines(text, tmp_path / "out", upper, jobs)
    assert (tmp_path / "out").read_text() == text.read_text().upper()
    assert counts == {"lines": 25_000, "tokens": 75_000}


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
    lines = parallel_lines(tmp_path / "text", tmp_path / "out", list, 1)["lines"]
    assert (tmp_path / "out").read_bytes() == expected
    assert lines == expected.count(b"\n")


@pytest.mark.parametrize("jobs", [1, 2])
def test_invalid_utf8(jobs: int, text: Path, tmp_path: Path) -> None:
    text.write_bytes(text.read_bytes().replace("line 3210 é".encode(), b"line 3210 \xe9"))
    with refusing(f"{text}:3211: invalid UTF-8: byte 0xE9; convert the text to UTF-8"):
        parallel_lines(text, tmp_path / "out", upper, jobs)


def test_endless_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"a\n" + b"x" * (streams.LINE_BYTES * 2))
    with refusing("text:2: a line of more than 1,048,576 bytes"):
        list(read_blocks(tmp_path / "text"))


@pytest.mark.parametrize("wrong", [["a"], ["a\nb"] * 5000])
def test_shifted_lines(wrong: list[str], text: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2048 lines went in"):
        parallel_lines(text, tmp_path / "out", lambda _: wrong)


def test_killed_worker(text: Path, tmp_path: Path) -> None:
    def die(lines: list[str]) -> list[str]:
        if LINES[2500] in lines:
            os.kill(os.getpid(), signal.SIGKILL)
        return lines

    with pytest.raises(UserError, match=r"text:1: a worker process was killed; .* fewer --jobs"):
        parallel_lines(text, tmp_path / "out", die, 2)


PARENT = """
import os, sys, time
from pathlib import Path
from data_prep.streams import parallel_lines
def slow(lines):
    Path(sys.argv[2], str(os.getpid())).touch()
    time.sleep(60)
    return lines
parallel_lines(Path(sys.argv[1]), Path(os.devnull), slow, 2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere children outlive their parent")
def test_workers_die_with_the_parent(text: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    process = subprocess.Popen([sys.executable, "-c", PARENT, str(text), str(pids)])
    assert wait_for(lambda: len(list(pids.iterdir())) == 2)
    process.kill()
    process.wait()
    workers = [int(path.name) for path in pids.iterdir()]
    gone = wait_for(lambda: not any(map(is_running, workers)))
    for pid in filter(is_running, workers):
        os.kill(pid, signal.SIGKILL)
    assert gone, "workers outlive their parent"


def test_full_disk_is_not_blamed_on_the_text(text: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("only Linux has /dev/full, a disk that is always full")
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        parallel_lines(text, Path("/dev/full"), upper, 2)
