"""fairseq's log of a training, with ``common.log_format=json``: ``... | INFO | train | {...}``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

from collab_common.errors import UserError

#: No entry has braces inside: of a line in which a cut one and the next have run together, the
#: next is found.
_ENTRY = re.compile(r"\| (train|valid) \| (\{[^{}]*\})$", re.MULTILINE)


def entries(log: Path, kind: Literal["train", "valid"]) -> list[dict[str, Any]]:
    """What the log tells of every epoch, or of every validation; [] where there is no log.

    Entries that a kill has cut are left out.

    Raises:
        UserError: the log cannot be read.
    """
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=log) from error
    found = []
    for name, entry in _ENTRY.findall(text):
        if name == kind:
            try:
                found.append(json.loads(entry))
            except ValueError:  # cut, with a brace behind it
                continue
    return found
