"""Progress of long commands, on standard error because standard output is for results."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # imported when needed: without packages, commands say what to install
    from tqdm import tqdm

Item = TypeVar("Item")
#: Seconds between updates outside a terminal.
EVERY = 30


def say(line: str) -> None:
    """Print a line that does not break a progress bar."""
    from tqdm import tqdm

    tqdm.write(line, file=sys.stderr)


def bar(description: str, items: Iterable[Item] | None = None, **options: Any) -> tqdm[Item]:
    """Iterate with a progress bar, which outside a terminal moves every :data:`EVERY` seconds."""
    from tqdm import tqdm

    in_a_log = not sys.stderr.isatty()
    if in_a_log:  # bars within bars share a line: there is no cursor to move
        options |= {"mininterval": EVERY, "delay": EVERY, "position": 0}
    return tqdm(items, desc=description, leave=in_a_log, **options)
