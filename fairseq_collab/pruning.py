"""The former name of modules that moved, for ``python -m`` and one release longer."""

from pathlib import Path

_HERE = Path(__file__).parent
__path__ = [str(_HERE / room) for room in ("prune",)]
