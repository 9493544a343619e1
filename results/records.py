"""Files of rows, and where a row comes from.

A row replaces that of the same names.  It has its command, commit, seed, machine and date, and a
hash of its code and inputs, by which :mod:`.measure` knows whether it has to be measured again.
Older rows keep what they have.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from collab_common.files import read_json, sha256, updated, write_atomic
from collab_common.provenance import circumstances, hash_of_code

Content = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
#: Modules of results that measure nothing here; of rows.py, each row counts by itself.
NOT_CODE = (
    "data",
    "distil",
    "figures",
    "heads",
    "pages",
    "pretrained",
    "rows",
    "runs",
    "tables",
    "values",
)


def write(path: Path, content: Content) -> None:
    """Write a file of data atomically, in the form that stored ones have."""
    write_atomic(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


class File:
    """A file of data: lists of rows, by part."""

    def __init__(self, path: Path):
        self.path = path
        self.content: Content = read_json(path) if path.exists() else {}

    def find(self, part: str, keys: Mapping[str, Any]) -> Content | None:
        """The row that has these keys; one may lack a key that only newer rows have."""
        return next(self._found(part, keys), None)

    def _found(self, part: str, keys: Mapping[str, Any]) -> Iterator[Content]:
        return (row for row in self.content.get(part, []) if is_same(row, keys))

    def is_made(self, part: str, keys: Mapping[str, Any], made_from: str) -> bool:
        """Whether a row is there that this code made of these inputs: see :func:`digest`."""
        return any(row.get("made_from") == made_from for row in self._found(part, keys))

    def put(self, part: str, *rows: tuple[Mapping[str, Any], Content]) -> None:
        """Write rows in place of the former ones; the file is replaced whole.

        Args:
            rows: keys, and the row that has them.
        """
        with updated(self.path, {}, write) as self.content:
            every = self.content.setdefault(part, [])
            for keys, row in rows:
                former = self.find(part, keys)
                if former is None:
                    every.append(row)
                else:
                    every[every.index(former)] = row

    def add(self, part: str, row: Content) -> None:
        """Write one more row."""
        with updated(self.path, {}, write) as self.content:
            self.content.setdefault(part, []).append(row)


def is_same(row: Mapping[str, Any], keys: Mapping[str, Any]) -> bool:
    """Whether a row has these keys; shares may be rounded."""
    return all(_equal(row.get(name, value), value) for name, value in keys.items())


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, abs_tol=1e-6)
    return bool(one == other)


def origin(program: str, argv: Sequence[str]) -> Content:
    """Where a row comes from that is measured now: command, commit, machine and date."""
    now = circumstances(cpu=True)
    command = shlex.join(["python", f"results/{program}", *argv])
    return {"command": command, **{key: now[key] for key in ("commit", "hardware", "date")}}


def digest(*inputs: Any) -> str:
    """A hash of this project's code, as it is in the files, and of a measure's inputs.

    A commit would not do: a copy may have none, and changed files none of their own.

    Args:
        inputs: checkpoints, data folders (their dictionaries and binarised sets), and options.
    """
    of = hashlib.sha256(_code().encode())
    for one in inputs:
        of.update(_content(one).encode())
    return of.hexdigest()[:16]


def _content(one: Any) -> str:
    """An input: hashes of a checkpoint or of a data folder's files, else the option itself."""
    if not isinstance(one, Path):
        return repr(one)
    folders = [Path(folder) for folder in str(one).split(os.pathsep)]
    text = ("dict.*", "*.idx", "*.bin", "raw/*")
    files = (sorted(file for name in text for file in of.glob(name)) if of.is_dir() else [of]
             for of in folders)  # fmt: skip
    stats = ((file, file.stat()) for of_one in files for file in of_one)
    return "".join(_hash(file, stat.st_mtime_ns, stat.st_size) for file, stat in stats)


@functools.cache
def _hash(file: Path, changed: int, size: int) -> str:
    """Of a file that was changed at this time: rows of one model have the same inputs."""
    return sha256(file)


@functools.cache
def _code() -> str:
    """A hash of the files of all packages of this project, and of programs that measure."""
    results = ROOT / "results"
    not_code = {results / f"{name}.py" for name in NOT_CODE}
    return hash_of_code(ROOT, {*results.glob("**/*.py")} - not_code)
