"""Texts through several processes: in order, in bounded memory, with errors that name a line.

A text is read in blocks of whole lines. Blocks go to worker processes a few at a time, and results
are written in the order of the text: the output does not depend on the number of processes.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from collab_common.errors import UserError
from collab_common.files import create, open_bytes

BLOCK_LINES = 2048  # some 200 KB: large beside the cost of handing them over
LINE_BYTES = 1 << 20  # a longer "line" is not text, and would not fit in bounded memory
WORDS_REMEMBERED = 1 << 20  # by all workers together, which takes some 300 MB
_BLOCKS_AHEAD = 4  # per worker
_PR_SET_PDEATHSIG = 1

Lines = list[str]


@dataclass(frozen=True)
class Block:
    """Some whole lines of a file, each with its newline, unless the file lacks its last one."""

    path: Path
    line: int  # lines before this block
    rows: list[bytes]

    def decode(self) -> Lines:
        """The lines without their newlines; only LF ends a line.

        Raises UserError with the line that is not UTF-8.
        """
        data = b"".join(self.rows)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = self.line + data.count(b"\n", 0, error.start) + 1
            what = f"invalid UTF-8: byte 0x{data[error.start]:02X}"
            raise UserError(what, f"{self.path}:{line}", "convert the text to UTF-8") from None
        return text.removesuffix("\n").split("\n") if text else []


def read_blocks(path: Path, lines: int = BLOCK_LINES) -> Iterator[Block]:
    """The file in blocks of `lines` lines. Raises UserError for a line above LINE_BYTES."""
    with open_bytes(path) as stream:
        readline = partial(stream.readline, LINE_BYTES)
        line = 0
        while rows := list(islice(iter(readline, b""), lines)):
            for number, row in enumerate(rows, line + 1):
                if len(row) == LINE_BYTES and not row.endswith(b"\n"):
                    what = f"a line of more than {LINE_BYTES:,} bytes"
                    raise UserError(what, f"{path}:{number}", "give one sentence per line")
            yield Block(path, line, rows)
            line += len(rows)


def parallel_lines(
    source: Path, target: Path, function: Callable[[Lines], Lines], jobs: int = 1
) -> Counter[str]:
    """Writes `function` of every block of lines of `source` to `target`.

    Args:
        function: returns one line for each line given, in order, without newlines; a line's result
            must depend on that line alone
        jobs: worker processes; 1 works in this process

    Returns "lines" and "tokens" (of the output, between blanks).
    """
    counts = Counter[str](lines=0, tokens=0)
    with create(target) as output:
        for data, found in ordered(partial(_convert, function), read_blocks(source), jobs):
            output.write(data)
            counts.update(found)
    return counts


def words_to_remember(jobs: int) -> int:
    """How many words each of `jobs` workers may keep results for."""
    return min(1 << 17, WORDS_REMEMBERED // max(1, jobs))


def _convert(function: Callable[[Lines], Lines], block: Block) -> tuple[bytes, Counter[str]]:
    """A worker's part: bytes in, bytes out, so that little is passed between processes."""
    after = function(block.decode())
    text = "".join(line + "\n" for line in after)
    if text.count("\n") != len(block.rows):
        raise ValueError(f"{len(block.rows)} lines went in, {text.count(chr(10))} came out")
    return text.encode("utf-8"), Counter(lines=len(after), tokens=len(text.split()))


def ordered(function: Callable[[Block], Any], blocks: Iterable[Block], jobs: int) -> Iterator[Any]:
    """`function` of every block, in order. Raises UserError if a worker is killed."""
    if jobs == 1:
        yield from map(function, blocks)
        return
    # forked workers have the function as it stands, however large, at no cost
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    blocks = iter(blocks)
    with ProcessPoolExecutor(jobs, context, _start, (function,)) as pool:
        while some := list(islice(blocks, jobs * _BLOCKS_AHEAD)):
            try:
                yield from pool.map(_call, some)
            except BrokenProcessPool:
                where = f"{some[0].path}:{some[0].line + 1}"
                todo = "if memory ran out, give fewer --jobs"
                raise UserError("a worker process was killed", where, todo) from None


_function: Callable[[Block], Any]  # of this worker


def _start(function: Callable[[Block], Any]) -> None:
    """In a new worker: Ctrl-C is the parent's to report, and the worker dies with its parent."""
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _call(block: Block) -> Any:
    return _function(block)
