"""Folders that a program builds: a folder gets its name only when it is complete.

``whole_folder`` fills a temporary sibling and renames it; the old folder is untouched until then.
``build_folder`` also writes ``manifest.json``: the identity (inputs and options) of the folder and
the hash of every file in it.  The same request again does nothing; a different one is rejected.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collab_common import atomic
from collab_common.command import check_splittable
from collab_common.errors import UserError
from collab_common.files import fingerprint_tree, locked, read_json, write_json

MANIFEST = "manifest.json"

Json = dict[str, Any]


def build_folder(
    out: Path, identity: Json, build: Callable[[Path], Json], *, force: bool = False
) -> bool:
    """Build the folder ``out`` with ``build(temporary_folder)``; return False if it exists already.

    Args:
        build: fills the folder and returns further content of the manifest.

    Raises:
        UserError: ``out`` holds something else, or another process is building it.
    """
    check_splittable(out)
    with _alone(out) as out:
        if _is_finished(out, identity, force=force):
            return False
        try:
            with _replacing(out) as folder:
                described = build(folder)
                made = datetime.now(UTC).isoformat(timespec="seconds")
                content = {"made": made, **identity, **described}
                content["outputs"] = fingerprint_tree(folder)
                write_json(folder / MANIFEST, content)
        except OSError as error:
            # The error of a full disk names no file; that of a text that cannot be read does.
            file = f": {error.filename}" if error.filename else ""
            problem = f"cannot be built: {error.strerror or error}{file}"
            raise UserError(problem, out) from error
    return True


@contextlib.contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """Yield a new folder; it is renamed to ``out`` at the end, or removed if an error is raised.

    Raises:
        UserError: another process is building ``out``, or the disk is full.
    """
    with _alone(out) as out:
        try:
            with _replacing(out) as folder:
                yield folder
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise UserError(error.strerror or str(error), out, "free some space") from error


def read_finished(folder: Path) -> Json:
    """Return the manifest of a finished folder.

    Raises:
        UserError: the manifest is missing, or files differ from it.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise UserError(
            "is not a finished data folder: it has no manifest.json", folder, "build it first"
        )
    content: Json = read_json(path)
    todo = "build the folder again, or put the file back"
    _reject(folder, "files differ from the manifest", _damage(folder, content), todo)
    return content


def manifest(data: Path) -> Json:
    """The manifest of a data folder; empty if there is none."""
    try:
        content: Json = read_json(data / MANIFEST)
    except FileNotFoundError:
        return {}
    return content


def _is_finished(out: Path, identity: Json, *, force: bool) -> bool:
    """Return whether ``out`` is finished as asked for; False if it has to be built.

    Raises:
        UserError: ``out`` is another folder, or was built from something else.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    path = out / MANIFEST
    content = read_json(path) if path.is_file() else None
    if not isinstance(content, dict) or not {"made", "outputs"} <= content.keys():
        # Even with --force: only folders made here are removed.
        missing = f"has no {MANIFEST}" if content is None else f"has another program's {MANIFEST}"
        problem = f"was not built by this command: it {missing}"
        raise UserError(problem, out, "choose another --out")
    if force:
        return False
    _reject(out, "was built from other inputs or options", _differences(content, identity))
    _reject(out, "files differ from the manifest", _damage(out, content))
    return True


def _reject(
    out: Path,
    problem: str,
    differences: list[str],
    todo: str = "give --force to rebuild it, or choose another --out",
) -> None:
    """Raise UserError if there is a difference; the error names the first one."""
    if differences:
        raise UserError(f"{problem} ({differences[0]})", out, todo)


def _differences(saved: Any, asked: Any, name: str = "") -> list[str]:
    """List where two nested mappings differ: 'options.vocab_size: 6000 there, 8000 asked for'."""
    if isinstance(saved, Mapping) and isinstance(asked, Mapping):
        keys = dict.fromkeys([*asked, *(saved if name else ())])
        return [
            line
            for key in keys
            for line in _differences(
                saved.get(key), asked.get(key), f"{name}.{key}" if name else str(key)
            )
        ]
    if saved == asked:
        return []
    if name.endswith(".sha256"):
        return [f"{name.removesuffix('.sha256')}: changed"]
    return [f"{name}: {saved!r} there, {asked!r} asked for"]


def _damage(out: Path, content: Json) -> list[str]:
    """List the files of a finished folder that differ from its manifest, or are missing."""
    outputs = fingerprint_tree(out)
    return [
        f"{name}: {'changed' if name in outputs else 'missing'}"
        for name, fingerprint in content.get("outputs", {}).items()
        if outputs.get(name) != fingerprint
    ]


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[Path]:
    """Yield ``out``, resolved and locked, after removing what a killed process left behind."""
    out = out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    with locked(out.with_name(f".{out.name}.lock")):
        _restore(out)
        for leftover in out.parent.glob(f".{glob.escape(out.name)}.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield out


@contextlib.contextmanager
def _replacing(out: Path) -> Iterator[Path]:
    """Yield a new folder that becomes ``out`` when it is filled.

    Its name is unique: a child of a killed process may still write into the folder of that one.
    """
    new = out.with_name(f".{out.name}.new-{uuid.uuid4().hex[:8]}")
    new.mkdir()
    try:
        yield new
        for path in (new, *new.rglob("*")):
            if path.is_file() or path.is_dir():
                atomic.sync(path)
        if out.exists():
            out.rename(_former(out))  # a folder cannot be replaced at once
        new.rename(out)
        atomic.sync(out.parent)
    finally:
        _restore(out)
        shutil.rmtree(new, ignore_errors=True)


def _former(out: Path) -> Path:
    return out.with_name(f".{out.name}.former")


def _restore(out: Path) -> None:
    """Put the replaced ``out`` back if nothing has taken its place, and remove it otherwise."""
    former = _former(out)
    if former.exists() and not out.exists():
        former.rename(out)
    shutil.rmtree(former, ignore_errors=True)
