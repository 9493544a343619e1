"""A folder that is made by a program: either finished and described, or not there.

`build_folder` fills a temporary sibling and renames it, so nobody ever sees half of it. Its
manifest.json, written last, names the identity (inputs and options) that it was made from and
the hash of every file in it. The same request again is a no-op; another request is refused.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn

from collab_common.errors import UserError
from collab_common.files import fingerprint_tree, locked, read_json, write_json

MANIFEST = "manifest.json"
FORMAT = 1

Json = dict[str, Any]


def build_folder(
    out: Path, identity: Json, build: Callable[[Path], Json], *, force: bool = False
) -> bool:
    """Makes the folder `out` with `build(temporary_folder)`; False if it was already there.

    `build` fills the folder and returns what else the manifest should tell. Raises UserError
    if `out` holds something else, or if another process is making it.
    """
    # resolved, so that "." and links have a parent and a name
    out = out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    with locked(out.with_name(f".{out.name}.lock")):
        _remove_leftovers(out)
        if _is_finished(out, identity, force=force):
            return False
        temporary = out.with_name(f".{out.name}.tmp-{os.getpid()}")
        temporary.mkdir()
        try:
            described = build(temporary)
            _write_manifest(temporary, identity, described)
            _put_in_place(temporary, out)
        except OSError as error:
            # a full disk says nothing about the file
            raise UserError(f"cannot be made: {error.strerror or error}", out) from error
        finally:
            if temporary.exists():
                _remove_tree(temporary)
    return True


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
    if not out.exists():
        return False
    if out.is_dir() and not any(out.iterdir()):
        return False
    manifest = out / MANIFEST
    if not manifest.is_file():
        # --force does not help here on purpose: we delete only what we made ourselves
        raise UserError(
            f"holds no {MANIFEST}, so it was not made here", out, "choose another --out"
        )
    if force:
        return False
    found = read_json(manifest)
    asked = {"format": FORMAT, **identity}
    there = {key: found.get(key) for key in asked} if isinstance(found, dict) else {}
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


def _put_in_place(temporary: Path, out: Path) -> None:
    """Renames; what was there before goes aside first, as a folder cannot be replaced at once."""
    old = out.with_name(f".{out.name}.old-{os.getpid()}")
    if out.exists():
        out.rename(old)
    temporary.rename(out)
    if old.exists():
        _remove_tree(old)


def _remove_leftovers(out: Path) -> None:
    """Under the lock, whatever temporary folder is there belongs to a process that died."""
    for pattern in (f".{out.name}.tmp-*", f".{out.name}.old-*"):
        for leftover in out.parent.glob(pattern):
            _remove_tree(leftover)


def _remove_tree(folder: Path) -> None:
    """Removes a folder, in which a child of a killed process may still be writing a moment."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
    raise UserError("cannot be removed", folder, "remove it by hand, then start again")
