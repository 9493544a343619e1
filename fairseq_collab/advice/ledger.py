"""What an advice has measured so far: ``advice.json``, written again, whole, after each number.

    {"version": 1, "settings": {...}, "seconds": 312.4,
     "found": {"loss 128 collab encoder=32": 1.62, ...}}

A command that was killed and is given again finds its numbers here, does the rest, and comes to
the same answer: what is done next depends on them alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from collab_common.errors import UserError
from collab_common.files import read_versioned, write_json

VERSION = 1
NAME = "advice.json"
T = TypeVar("T")


class Ledger:
    """Numbers by name, on the disk as soon as they are there.

    Args:
        settings: what they depend on; a file of other settings is refused.
        circumstances: under which the file was last written.

    Raises:
        UserError: the file is damaged, or of other settings.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], circumstances: Mapping[str, Any]):
        self.path = folder / NAME
        self.settings, self.circumstances = settings, circumstances
        self.found: dict[str, Any] = {}
        self._before, self._start = 0.0, time.monotonic()
        if self.path.exists():
            self._read()

    def _read(self) -> None:
        another = "give another --out"
        content = read_versioned(self.path, VERSION, "advice", another)
        try:
            settings, self.found = content["settings"], dict(content["found"])
            self._before = float(content["seconds"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError("its numbers are damaged", self.path, another) from error
        for name, value in self.settings.items():
            if settings.get(name) != value:
                what = f"holds an advice with {name} {settings.get(name)}, not {value}"
                raise UserError(what, self.path, another)

    @property
    def seconds(self) -> float:
        """Time spent so far, that before interruptions included."""
        return self._before + time.monotonic() - self._start

    def get(self, name: str, measure: Callable[[], T]) -> T:
        """The number of this name: ``measure()`` if it is not there yet."""
        if name not in self.found:
            self.found[name] = measure()
            self.write()
        value: T = self.found[name]
        return value

    def write(self, **more: Any) -> None:
        """Write the file as a whole or not at all, with ``more`` content."""
        content = {
            "version": VERSION,
            **self.circumstances,
            "settings": self.settings,
            "seconds": round(self.seconds, 1),
            "found": self.found,
            **more,
        }
        write_json(self.path, content)
