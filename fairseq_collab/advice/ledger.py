"""What an advice has measured so far: ``advice.json``, written again, whole, after each number.

    {"version": 1, "settings": {...}, "seconds": 312.4,
     "found": {"loss 128 collab encoder=32": 1.62, ...},
     "quality": 38.2, "finals": [{"name": "collab encoder=32", "drop": 0.11, ...}], "answer": ...}

The last line is there once the advice is.

A command that was killed and is given again finds its numbers here, does the rest, and comes to
the same answer: what is done next depends on them alone.  Another wish for the same model finds
there what does not depend on the wish: what each place loses alone, and the model's own numbers.
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
#: Settings that no number of a single place, or of the given model, depends on.
ASKED = ("wishes", "max_loss", "tune")
T = TypeVar("T")


class Ledger:
    """Numbers by name, on the disk as soon as they are there.

    Args:
        settings: what they depend on; a file of other settings is refused.
        circumstances: under which the file was last written.
        after: the folder of another wish for the same model, for a first start.

    Raises:
        UserError: the file is damaged, or of other settings.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        circumstances: Mapping[str, Any],
        after: Path | None = None,
    ):
        self.path = folder / NAME
        self.settings, self.circumstances = settings, circumstances
        self.found: dict[str, Any] = {}
        self._before, self._start = 0.0, time.monotonic()
        if self.path.exists():
            self.found, self._before = self._read(self.path, settings, "give another --out")
        elif after is not None:
            same = {name: value for name, value in settings.items() if name not in ASKED}
            found, _ = self._read(after / NAME, same, "give another --after")
            self.found = {
                name: value
                for name, value in found.items()
                if name.startswith("alone ") or name.endswith(" whole")
            }

    @staticmethod
    def _read(path: Path, settings: Mapping[str, Any], todo: str) -> tuple[dict[str, Any], float]:
        """What was found, and the seconds that it took."""
        content = read_versioned(path, VERSION, "advice", todo)
        try:
            there, found = content["settings"], dict(content["found"])
            seconds = float(content["seconds"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError("its numbers are damaged", path, todo) from error
        for name, value in settings.items():
            if there.get(name) != value:
                what = f"holds an advice with {name} {there.get(name)}, not {value}"
                raise UserError(what, path, todo)
        return found, seconds

    @property
    def seconds(self) -> float:
        """Time spent so far, that before interruptions included."""
        return self._before + time.monotonic() - self._start

    def get(self, name: str, measure: Callable[[], T]) -> T:
        """The number of this name: ``measure()`` if it is not there yet."""
        if name not in self.found:
            self.found[name] = measure()
            self.write()
        return self.found[name]

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
