"""Progress of long commands on standard error: standard output is for results."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # imported when needed: without packages, commands say what to install
    from tqdm import tqdm

Item = TypeVar("Item")
#: Seconds between lines outside a terminal.
EVERY = 30


class Lines(io.StringIO):
    """What a bar draws, as lines on standard error: one for each count."""

    count = ""

    def write(self, text: str) -> int:
        line = text.strip()
        count, self.count = self.count, line.partition("[")[0] or self.count
        if count != self.count:
            print(line, file=sys.stderr, flush=True)
        return len(text)


def say(line: str) -> None:
    """Print a line that does not break a progress bar."""
    from tqdm import tqdm

    tqdm.write(line, file=sys.stderr)


def bar(description: str, items: Iterable[Item] | None = None, **options: Any) -> tqdm[Item]:
    """Iterate with a progress bar; outside a terminal, a line every :data:`EVERY` seconds."""
    from tqdm import tqdm

    if not sys.stderr.isatty():
        # Bars within bars have a line each, and no code that moves a cursor; the last line is 100%.
        options |= {"file": Lines(), "mininterval": EVERY, "delay": EVERY, "position": 0}
    return tqdm(items, desc=description, **{"leave": not sys.stderr.isatty(), **options})
