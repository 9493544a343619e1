"""Pages of results: the data, the programs that write them, and what makes pages of them.

``NAME.json`` has the data of a page, and README.md the command of the program that writes it.
:mod:`.tables`, :mod:`.figures` and :mod:`.sentences` read them; :mod:`.pages` puts tables and
figures into pages, and checks the numbers of sentences.  It needs the clone, and is in no wheel.
"""

from __future__ import annotations

import sys
from pathlib import Path

_HERE, _PROGRAM = Path(__file__).resolve().parent, getattr(sys.modules["__main__"], "__file__", "")
_FOLDER = Path(_PROGRAM or "").resolve().parent
# An editable installation of another copy would be measured, and its files written.
if _FOLDER.name == _HERE.name and _FOLDER != _HERE:
    sys.exit(
        f"error: {_PROGRAM}: the packages that it imports are those of another copy, "
        f"{_HERE.parent}: give PYTHONPATH={_FOLDER.parent}, or pip install -e {_FOLDER.parent}"
    )
