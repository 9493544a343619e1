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
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from collab_common.errors import UserError
from collab_common.files import create, open_bytes
from data_prep.child import die_with

BLOCK_LINES = 2048  # some 200 KB: large beside the cost of handing them over
LINE_BYTES = 1 << 20  # a longer "line" is not text; it would defeat reading in constant memory
WORDS_REMEMBERED = 1 << 20  # by all workers together, which takes some 300 MB
_BLOCKS_AHEAD = 2  # per worker, beside the block that it works on

Lines = list[str]
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Block:
    """Some whole lines of a file, each with its newline, unless the file lacks its last one."""

    path: Path
    line: int  # lines before this block
    byte: int  # bytes before this block
    rows: list[bytes]

    @property
    def end(self) -> int:
        """Bytes up to the end of this block."""
        return self.byte + sum(map(len, self.rows))

    def decode(self) -> Lines:
        """The lines without their newlines; a line ends at LF and nowhere else."""
        data = b"".join(self.rows)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = self.line + data.count(b"\n", 0, error.start) + 1
            raise UserError(
                f"invalid UTF-8: byte 0x{data[error.start]:02X} "
                f"at byte {self.byte + error.start:,} of the file",
                f"{self.path}:{line}",
                "get it anew, or mend a copy; data_prep.validate --on-utf8 drop leaves pairs out",
            ) from None
        return text.removesuffix("\n").split("\n") if text else []

    def __str__(self) -> str:
        return f"{self.path}:{self.line + 1}-{self.line + len(self.rows)}"


def read_blocks(path: Path, lines: int = BLOCK_LINES) -> Iterator[Block]:
    """The file in blocks of so many lines. Raises UserError for a line that is no text."""
    with open_bytes(path) as stream:
        readline = partial(stream.readline, LINE_BYTES)
        line = byte = 0
        while rows := list(islice(iter(readline, b""), lines)):
            for number, row in enumerate(rows, line + 1):
                if len(row) == LINE_BYTES and not row.endswith(b"\n"):
                    what = f"a line of more than {LINE_BYTES:,} bytes"
                    todo = "this is no text with one sentence a line"
                    raise UserError(what, f"{path}:{number}", todo)
            block = Block(path, line, byte, rows)
            yield block
            line, byte = line + len(rows), block.end


def parallel_lines(
    source: Path,
    target: Path,
    function: Callable[[Lines], Lines],
    jobs: int = 1,
    *,
    block_lines: int = BLOCK_LINES,
) -> Counter[str]:
    """Writes `function` of every block of lines of `source` to `target`.

    Args:
        function: gives one line for each line that it is given, in order, without newlines;
            what it gives for a line must depend on that line alone
        jobs: worker processes; with 1, the work is done in this process

    Returns "lines", "tokens" (in the output, between blanks) and "emptied" (lines of which nothing
    but white space came out, though there was something in them).

    Raises UserError for what cannot be read (with file, line and byte), for a worker that was
    killed, and for an exception of `function` (with file and range of lines).
    """
    refuse_overwriting([source], [target])
    counts = Counter[str](lines=0, tokens=0, emptied=0)
    with create(target) as output:
        blocks = read_blocks(source, block_lines)
        for data, found in ordered(partial(_convert, function), blocks, jobs):
            output.write(data)
            counts.update(found)
    return counts


def refuse_overwriting(sources: Sequence[Path], targets: Sequence[Path]) -> None:
    """Raises UserError where a file would be emptied before it is read, or written twice."""
    seen = {path.resolve() for path in sources}
    for target in targets:
        if target.resolve() in seen:
            raise UserError("is read and written, or written twice", target, "name another file")
        seen.add(target.resolve())


def words_to_remember(jobs: int) -> int:
    """How many words each of so many workers may keep results for."""
    return min(1 << 17, WORDS_REMEMBERED // max(1, jobs))


def _convert(function: Callable[[Lines], Lines], block: Block) -> tuple[bytes, Counter[str]]:
    """A worker's part: bytes in, bytes out, so that little is passed between processes."""
    before = block.decode()
    after = function(before)
    text = "".join(line + "\n" for line in after)
    if len(after) != len(before) or text.count("\n") != len(before):
        raise ValueError(f"{len(before)} lines went in, {text.count(chr(10))} came out")
    pairs = zip(before, after, strict=True)
    emptied = sum(1 for old, new in pairs if not new.strip() and old.strip())
    found = Counter(lines=len(after), emptied=emptied, tokens=len(text.split()))
    return text.encode("utf-8"), found


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
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    pool = ProcessPoolExecutor(jobs, context, _start, (function, os.getpid()))
    waiting: deque[tuple[Item, Future[Result]]] = deque()

    def oldest() -> Result:
        item, future = waiting[0]
        with _located(item):
            result = future.result()
        waiting.popleft()
        return result

    try:
        for item in items:
            waiting.append((item, pool.submit(_call, item)))
            if len(waiting) > jobs * (1 + _BLOCKS_AHEAD):
                yield oldest()
        while waiting:
            yield oldest()
    except BrokenProcessPool:
        among = f" (or one of the {len(waiting) - 1} blocks after it)" if len(waiting) > 1 else ""
        raise UserError(
            f"a worker process was killed at these lines{among}",
            str(waiting[0][0]),
            "if memory ran out, give fewer --jobs; then start again",
        ) from None
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


_function: Callable[[Any], Any]  # of this worker


def _start(function: Callable[[Any], Any], parent: int) -> None:
    """In a new worker."""
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to report
    die_with(parent)


def _call(item: Any) -> Any:
    return _function(item)
