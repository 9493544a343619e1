"""Texts through several processes: order, bounds, and what happens when something dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import is_running, wait_for
from refusals import refusing

from collab_common.errors import UserError
from data_prep import streams
from data_prep.streams import Block, ordered, parallel_lines, read_blocks

LINES = [f"line {n} é" for n in range(5000)]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text("".join(line + "\n" for line in LINES))
    return path


def upper(lines: list[str]) -> list[str]:
    return [line.upper() for line in lines]


@pytest.mark.parametrize("jobs", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 100, 1 << 17])
def test_order(jobs: int, size: int, text: Path, tmp_path: Path) -> None:
    if size == 1:
        text.write_text("".join(line + "\n" for line in LINES[:50]))
    expected = text.read_text().upper()
    out = tmp_path / "out"
    counts = parallel_lines(text, out, upper, jobs, block_lines=size)
    assert out.read_text() == expected
    lines = expected.count("\n")
    assert counts == {"lines": lines, "tokens": 3 * lines, "emptied": 0}


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


def blank(lines: list[str]) -> list[str]:
    return [" " for _ in lines]


def test_emptied_lines_are_counted(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a\n\n  \nb\n")
    counts = parallel_lines(tmp_path / "text", tmp_path / "out", blank, 2)
    assert counts["emptied"] == 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_invalid_utf8(jobs: int, text: Path, tmp_path: Path) -> None:
    content = text.read_bytes().replace("line 3210 é".encode(), b"line 3210 \xe9")
    text.write_bytes(content)
    at = content.index(b"\xe9\n")
    what = f"{text}:3211: invalid UTF-8: byte 0xE9 at byte {at:,} of the file"
    with refusing(what, "; get it anew, or mend a copy;"):  # as files of a stage must stay
        parallel_lines(text, tmp_path / "out", upper, jobs, block_lines=75)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"text: no such file"):
        parallel_lines(tmp_path / "text", tmp_path / "out", upper, 2)


def test_the_input_is_not_overwritten(text: Path, tmp_path: Path) -> None:
    before = text.read_bytes()
    (tmp_path / "link").symlink_to(text)
    for target in (text, tmp_path / "link"):
        with pytest.raises(UserError, match="is read and written"):
            parallel_lines(text, target, upper)
    assert text.read_bytes() == before


def test_folder_of_the_output_is_missing(text: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent: there is no such folder; make it first"):
        parallel_lines(text, tmp_path / "absent" / "out", upper)


def test_endless_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"a\n" + b"x" * (streams.LINE_BYTES * 2))
    with pytest.raises(UserError, match=r"text:2: a line of more than 1,048,576 bytes"):
        list(read_blocks(tmp_path / "text"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_exception_names_the_lines(jobs: int, text: Path, tmp_path: Path) -> None:
    def fail(lines: list[str]) -> list[str]:
        return [f"{1 / (line != LINES[4321])}" for line in lines]

    with pytest.raises(UserError) as refused:
        parallel_lines(text, tmp_path / "out", fail, jobs, block_lines=75)
    where, what = str(refused.value).rsplit(": ", 2)[0], str(refused.value)
    assert what.endswith("ZeroDivisionError: division by zero")
    first, last = map(int, where.removeprefix(f"{text}:").split("-"))
    assert first <= 4322 <= last < first + 200


@pytest.mark.parametrize("wrong", [["a"], ["a\nb"] * 5000, ["a\n"] * 5000])
def test_shifted_lines_are_refused(wrong: list[str], text: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"text:1-2048: ValueError: 2048 lines went in"):
        parallel_lines(text, tmp_path / "out", lambda _: wrong)


def test_no_jobs(text: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="0 jobs"):
        parallel_lines(text, tmp_path / "out", upper, 0)


def test_little_is_read_ahead(text: Path) -> None:
    """However slowly results are taken, only a few blocks a worker are drawn."""
    drawn = 0

    def blocks() -> Iterator[Block]:
        nonlocal drawn
        for block in read_blocks(text, 40):
            drawn += 1
            yield block

    results = ordered(len_of, blocks(), 2)
    for taken in range(1, 31):
        next(results)
        assert drawn - taken <= 2 * 3
    results.close()


def len_of(block: Block) -> int:
    return len(block.rows)


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")
def test_killed_worker(text: Path, tmp_path: Path) -> None:
    def die(lines: list[str]) -> list[str]:
        if LINES[2500] in lines:
            os.kill(os.getpid(), signal.SIGKILL)
        return lines

    with pytest.raises(UserError) as refused:
        parallel_lines(text, tmp_path / "out", die, 2, block_lines=75)
    what = str(refused.value)
    assert "a worker process was killed at these lines" in what
    assert what.endswith("if memory ran out, give fewer --jobs; then start again")
    first, last = map(int, what.split(": ")[0].removeprefix(f"{text}:").split("-"))
    assert first <= 2501 <= last + 7 * (last - first + 1), "the block, or one of the next few"


PARENT = """
import os, sys, time
from pathlib import Path
from data_prep.streams import parallel_lines
def slow(lines):
    Path(sys.argv[2], str(os.getpid())).touch()
    time.sleep(60)
    return lines
parallel_lines(Path(sys.argv[1]), Path(os.devnull), slow, 2, block_lines=75)
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
    """The commands tell an OSError in one line, so it must come through as it is."""
    if not os.path.exists("/dev/full"):
        pytest.skip("only Linux has /dev/full, a disk that is always full")
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        parallel_lines(text, Path("/dev/full"), upper, 2)
