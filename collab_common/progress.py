"""Progress of long commands on standard error: standard output is for results."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")
#: Seconds between two lines where standard error is not a terminal.
EVERY = 30.0
LINE = "{desc}: {n_fmt}/{total_fmt} [{elapsed}<{remaining}]"


def say(line: str) -> None:
    """Print a line that does not break a progress bar."""
    tqdm.write(line, file=sys.stderr)


def bar(what: str, items: Iterable[Item]) -> Iterable[Item]:
    """Iterate over ``items`` with a progress bar; without a terminal, a line every 30 seconds."""
    if sys.stderr.isatty():
        return tqdm(items, desc=what, leave=False)
    return _lines(what, items)


def _lines(what: str, items: Iterable[Item]) -> Iterator[Item]:
    total = len(items) if isinstance(items, Sized) else None
    start = last = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        if (now := time.monotonic()) - last >= EVERY:
            last = now
            say(tqdm.format_meter(done, total, now - start, prefix=what, bar_format=LINE))
