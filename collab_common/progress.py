"""What long commands tell meanwhile, on standard error: standard output is for the report."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm


def say(line: str) -> None:
    """A line that leaves the progress bars whole."""
    tqdm.write(line, file=sys.stderr)


def bar(what: str, items: Iterable[Any]) -> Any:
    """A progress bar where somebody can see it."""
    return tqdm(items, desc=what, disable=None, leave=False)
