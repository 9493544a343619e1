"""A folder that is made by a program: either finished and described, or not there.

`whole_folder` fills a temporary sibling and renames it, so nobody ever sees half of it, and what
was there before stays until then. `build_folder` describes it, too: its manifest.json, written
last, names the identity (inputs and options) that it was made from and the hash of every file in
it. The same request again is a no-op; another request is refused.
"""

from __future__ import annotations

import contextlib
import glob
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn

from collab_common import atomic
from collab_common.errors import UserError
from collab_common.files import fingerprint_tree, locked, read_json, write_json

MANIFEST = "manifest.json"
FORMAT = 1

Json = dict[str, Any]


def build_folder(
    out: Path,
    identity: Json,
    build: Callable[[Path], Json],
    *,
    force: bool = False,
    unfinished: Path | None = None,
) -> bool:
    """Makes the folder `out` with `build(temporary_folder)`; False if it was already there.

    `build` fills the folder and returns what else the manifest should tell; it makes the folder
    `unfinished`, if given, which then stands for the temporary one and stays if anything fails.
    Raises UserError if `out` holds something else, or if another process is making it.
    """
    out.resolve().parent.mkdir(parents=True, exist_ok=True)
    with _alone(out) as out:
        if _is_finished(out, identity, force=force):
            return False
        try:
            with _replacing(out, unfinished) as folder:
                _write_manifest(folder, identity, build(folder))
        except OSError as error:
            # a full disk says nothing about the file
            raise UserError(f"cannot be made: {error.strerror or error}", out) from error
    return True


@contextlib.contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """A new folder to fill; it takes the name `out` once it is full, and goes if that fails.

    A former `out` stays until then. There is no manifest: for programs that read all that is there.
    Raises UserError if another process is making `out`.
    """
    with _alone(out) as out, _replacing(out) as folder:
        yield folder


def read_finished(folder: Path) -> Json:
    """The manifest of a finished folder. Raises UserError if it is not there, or was changed."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise UserError("is not there yet", folder, "do the stage that makes it first")
    found: Json = read_json(manifest)
    if what := _damage(folder, found.get("outputs", {})):
        _refuse(folder, "no longer what its manifest says", what)
    return found


def differences(there: Any, asked: Any, name: str = "") -> list[str]:
    """Where two nested mappings differ: 'options.vocab_size: 6000 there, 8000 asked for'."""
    if isinstance(there, Mapping) and isinstance(asked, Mapping):
        keys = list(dict.fromkeys([*asked, *there]))
        return [
            line
            for key in keys
            for line in differences(
                there.get(key), asked.get(key), f"{name}.{key}" if name else str(key)
            )
        ]
    if there == asked:
        return []
    if name.endswith(".sha256"):
        return [f"{name.removesuffix('.sha256')}: changed"]
    return [f"{name}: {there!r} there, {asked!r} asked for"]


def _is_finished(out: Path, identity: Json, *, force: bool) -> bool:
    """True if `out` is what is asked for, False if it is to be made; else UserError."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    manifest = out / MANIFEST
    if not manifest.is_file():
        # --force does not help here on purpose: we delete only what we made ourselves
        raise UserError(
            f"holds no {MANIFEST}, so it was not made here", out, "choose another --out"
        )
    found = read_json(manifest)
    if not isinstance(found, dict) or not {"format", "outputs"} <= found.keys():
        raise UserError(f"holds a {MANIFEST} of something else", out, "choose another --out")
    if force:
        return False
    asked = {"format": FORMAT, **identity}
    there = {key: found.get(key) for key in asked}
    if what := differences(there, asked):
        _refuse(out, "made from something else", what)
    if what := _damage(out, found.get("outputs", {})):
        _refuse(out, "no longer what its manifest says", what)
    return True


def _refuse(out: Path, why: str, what: list[str], most: int = 4) -> NoReturn:
    more = [f"and {len(what) - most} more"] if len(what) > most else []
    listed = ", ".join([*what[:most], *more])
    raise UserError(f"{why} ({listed})", out, "give --force to rebuild it, or choose another --out")


def _damage(out: Path, recorded: Json) -> list[str]:
    """Which files of a finished folder are no longer what its manifest says."""
    now = fingerprint_tree(out)
    now.pop(MANIFEST, None)
    return [
        f"{name}: {'changed' if name in now else 'missing'}"
        for name, fingerprint in recorded.items()
        if now.get(name) != fingerprint
    ]


def _write_manifest(folder: Path, identity: Json, described: Json) -> None:
    (folder / MANIFEST).unlink(missing_ok=True)  # of a killed call that made all but the name
    write_json(
        folder / MANIFEST,
        {
            "format": FORMAT,
            "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            **identity,
            **described,
            "outputs": fingerprint_tree(folder),
        },
    )


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[Path]:
    """Under its lock, `out` without what a killed process left; a folder that it set aside is back.

    Resolved, so that "." and links have a parent and a name.
    """
    out = out.resolve()
    with locked(out.with_name(f".{out.name}.lock")):
        former = _restored(out)
        for left in (former, *out.parent.glob(f".{glob.escape(out.name)}.new-*")):
            _remove(left)
        yield out


@contextlib.contextmanager
def _replacing(out: Path, unfinished: Path | None = None) -> Iterator[Path]:
    """A new folder that becomes `out` once it is filled; `unfinished` is made by who fills it.

    Nobody else has its name: what a killed process has started may still write into its own.
    """
    new = unfinished or out.with_name(f".{out.name}.new-{uuid.uuid4().hex[:8]}")
    if unfinished is None:
        new.mkdir()
    try:
        yield new
        for path in (new, *new.rglob("*")):
            if path.is_file() or path.is_dir():
                atomic.sync(path)
        if out.exists():
            out.rename(_aside(out))  # a folder cannot be replaced at once
        new.rename(out)
        atomic.sync(out.parent)
    finally:
        former = _restored(out)
        if unfinished is None:
            _remove(new)
    _remove(former)


def _aside(out: Path) -> Path:
    return out.with_name(f".{out.name}.former")


def _restored(out: Path) -> Path:
    """Puts the former `out` back, if nothing has taken its place; returns where it stood aside."""
    former = _aside(out)
    if former.exists() and not out.exists():
        former.rename(out)
    return former


def _remove(path: Path) -> None:
    """Removes a folder, in which a child of a killed process may still be writing a moment."""
    for _ in range(20):
        if path.is_file():
            path.unlink()
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(0.1)
    raise UserError("cannot be removed", path, "remove it by hand, then start again")
