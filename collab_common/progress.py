"""Progress of long commands on standard error: standard output is for results."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")


def say(line: str) -> None:
    """Print a line that does not break a progress bar."""
    tqdm.write(line, file=sys.stderr)


def bar(what: str, items: Iterable[Item]) -> Iterable[Item]:
    """Iterate over ``items`` with a progress bar; outside a terminal it moves every 30 seconds."""
    terminal = sys.stderr.isatty()
    return tqdm(items, desc=what, leave=False, mininterval=0.1 if terminal else 30)
