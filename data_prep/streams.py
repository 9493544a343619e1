"""Texts through several processes: in order, in bounded memory, with faults that name a line.

A text is read in blocks of whole lines, and blocks go to a pool of worker processes. No more than
a few blocks a worker are under way at any moment, so memory does not grow with the text; results
are written in the order of the text, so the output does not depend on the number of processes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from collab_common.errors import UserError
from collab_common.files import open_bytes
from data_prep.child import die_with

BLOCK_BYTES = 1 << 18  # a few thousand sentences: large beside the cost of handing them over
LINE_BYTES = 1 << 20  # a longer "line" is not text; it would defeat reading in constant memory
WORDS_REMEMBERED = 1 << 20  # by all workers together, which takes some 300 MB
_BLOCKS_AHEAD = 2  # per worker, beside the block that it works on

Lines = list[str]
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Block:
    """Some whole lines of a file. The last line has its newline, unless the file lacks it."""

    path: Path
    line: int  # lines before this block
    byte: int  # bytes before this block
    data: bytes

    @property
    def lines(self) -> int:
        return self.data.count(b"\n") + (not self.data.endswith(b"\n") and bool(self.data))

    def decode(self) -> Lines:
        """The lines without their newlines; a line ends at LF and nowhere else."""
        try:
            text = self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = self.line + self.data.count(b"\n", 0, error.start) + 1
            raise UserError(
                f"invalid UTF-8: byte 0x{self.data[error.start]:02X} "
                f"at byte {self.byte + error.start:,} of the file",
                f"{self.path}:{line}",
                "mend the file, or drop the line with data_prep.validate --on-utf8 drop",
            ) from None
        return text.removesuffix("\n").split("\n") if text else []

    def __str__(self) -> str:
        return f"{self.path}:{self.line + 1}-{self.line + self.lines}"


def parallel_lines(
    source: Path,
    target: Path,
    function: Callable[[Lines], Lines],
    jobs: int = 1,
    *,
    counts: Counter[str] | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> int:
    """Writes `function` of every block of lines of `source` to `target`; the number of lines.

    Args:
        function: gives one line for each line that it is given, in order, without newlines;
            what it gives for a line must depend on that line alone
        jobs: worker processes; with 1, the work is done in this process
        counts: where "lines", "tokens" (in the output, between blanks) and "emptied" (lines of
            which nothing but white space came out, though there was something in them) are added

    Raises UserError for what cannot be read (with file, line and byte), for a worker that was
    killed, and for an exception of `function` (with file and range of lines).
    """
    counts = Counter[str]() if counts is None else counts
    lines = 0
    with target.open("wb") as output:
        for data, found in ordered(
            partial(_convert, function), read_blocks(source, block_bytes), jobs
        ):
            output.write(data)
            counts.update(found)
            lines += found["lines"]
    return lines


def words_to_remember(jobs: int) -> int:
    """How many words each of so many workers may keep results for; then it forgets them all."""
    return min(1 << 17, WORDS_REMEMBERED // max(1, jobs))


def _convert(function: Callable[[Lines], Lines], block: Block) -> tuple[bytes, Counter[str]]:
    """A worker's part: bytes in, bytes out, so that little is passed between processes."""
    before = block.decode()
    after = function(before)
    text = "".join(line + "\n" for line in after)
    if len(after) != len(before) or text.count("\n") != len(before):
        raise ValueError(f"{len(before)} lines went in, {text.count(chr(10))} came out")
    emptied = sum(
        1 for old, new in zip(before, after, strict=True) if not new.strip() and old.strip()
    )
    found = Counter(lines=len(after), emptied=emptied, tokens=len(text.split()))
    return text.encode("utf-8"), found


def read_blocks(path: Path, size: int = BLOCK_BYTES) -> Iterator[Block]:
    """The file in blocks of whole lines of about `size` bytes."""
    with open_bytes(path) as stream:
        line = byte = 0
        while data := _read_lines(stream, size):
            block = Block(path, line, byte, data)
            if not data.endswith(b"\n") and stream.peek(1):
                raise too_long(path, line + block.lines)
            yield block
            line += block.lines
            byte += len(data)


def _read_lines(stream: BufferedReader, size: int) -> bytes:
    data = stream.read(size)
    return data if data.endswith(b"\n") else data + stream.readline(LINE_BYTES)


class Side:
    """One of the files of a parallel text, read in blocks of so many lines."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.path = path
        self.line = 0  # lines before the current block
        self.byte = 0  # bytes before the current block
        self._readline = partial(stream.readline, LINE_BYTES)

    def read_block(self, size: int) -> list[bytes]:
        lines = list(islice(iter(self._readline, b""), size))
        for index, line in enumerate(lines):
            if len(line) == LINE_BYTES and not line.endswith(b"\n"):
                raise too_long(self.path, self.line + index + 1)
        return lines

    def move_past(self, block: list[bytes]) -> None:
        self.line += len(block)
        self.byte += sum(map(len, block))

    def count_rest(self) -> int:
        """The number of lines in the file, reading on to its end."""
        while block := self.read_block(1024):
            self.move_past(block)
        return self.line


def too_long(path: Path, line: int) -> UserError:
    """The error for something that is no text."""
    return UserError(
        f"a line of more than {LINE_BYTES:,} bytes",
        f"{path}:{line}",
        "this is no text with one sentence a line",
    )


def ordered(
    function: Callable[[Item], Result], items: Iterable[Item], jobs: int
) -> Generator[Result, None, None]:
    """`function` of every item, in order, by `jobs` processes; items say where they are from.

    Items are drawn only as results are taken: at most a few a worker wait at any time. The
    workers end after the last result, or at close(). Where processes are not forked (anywhere
    but on Linux), `function` must be picklable.
    """
    if jobs < 1:
        raise UserError(f"{jobs} jobs: there must be at least one")
    if jobs == 1:
        for item in items:
            with _located(item):
                result = function(item)
            yield result
        return
    # forked workers have the function as it stands, however large, at no cost
    method = "fork" if sys.platform == "linux" else None
    pool = ProcessPoolExecutor(
        jobs, multiprocessing.get_context(method), _start, (function, os.getpid())
    )
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    try:
        for item in items:
            waiting.append((item, _submit(pool, item)))
            if len(waiting) > jobs * (1 + _BLOCKS_AHEAD):
                yield _take(waiting)
        while waiting:
            yield _take(waiting)
    finally:  # waits for the workers, but not for work whose results nobody takes
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _located(item: object) -> Iterator[None]:
    """An exception of the function becomes a UserError that names the lines."""
    try:
        yield
    except (UserError, OSError, BrokenProcessPool):
        raise
    except Exception as error:  # whatever a caller's function raises: the cause stays attached
        raise UserError(f"{type(error).__name__}: {error}", str(item)) from error


def _submit(pool: ProcessPoolExecutor, item: object) -> Future[Any]:
    try:
        return pool.submit(_call, item)
    except BrokenProcessPool as error:  # reported for the oldest item, by `_take`
        failed: Future[Any] = Future()
        failed.set_exception(error)
        return failed


def _take(waiting: deque[tuple[Item, Future[Result]]]) -> Result:
    """The result of the oldest item."""
    item, future = waiting.popleft()
    try:
        with _located(item):
            return future.result()
    except BrokenProcessPool:
        among = f" (or one of the {len(waiting)} blocks after it)" if waiting else ""
        raise UserError(
            f"a worker process was killed at these lines{among}",
            str(item),
            "if memory ran out, give fewer --jobs; then start again",
        ) from None


_function: Callable[[Any], Any] | None = None  # of this worker


def _start(function: Callable[[Any], Any], parent: int) -> None:
    """In a new worker."""
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to report
    die_with(parent)


def _call(item: Any) -> Any:
    assert _function is not None
    return _function(item)
