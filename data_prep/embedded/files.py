"""The corpus on disk: written beside its place and renamed when complete.

A finished folder carries a manifest with the request that made it and the checksums of its files;
only such a folder is ever skipped or replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from data_prep.embedded.conllu import conllu, pharaoh
from data_prep.embedded.corpus import splits
from data_prep.embedded.pairs import Pair

MANIFEST = "manifest.json"
FORMAT = "embedded-corpus-1"


class OutputError(ValueError):
    """The output folder cannot be written; the message is one line for the user."""


@dataclass(frozen=True)
class Request:
    train: int = 20000
    valid: int = 500
    test: int = 500
    seed: int = 1


def write(out: Path, request: Request) -> bool:
    """Write the corpus; False if it stands there already, finished and unchanged."""
    out = out.absolute()
    if _finished(out, request):
        return False
    _refuse_foreign(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.partial-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)  # left by a killed run of the same number
    temporary.mkdir()
    try:
        _write_all(temporary, request)
        _replace(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return True


def _replace(temporary: Path, out: Path) -> None:
    """A folder can be renamed only onto nothing, so an older output is moved aside first."""
    old = out.with_name(f".{out.name}.old-{os.getpid()}")
    if out.exists():
        out.rename(old)
    temporary.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def _refuse_foreign(out: Path) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise OutputError(f"{out} exists and is not a folder")
    if any(out.iterdir()) and _manifest(out) is None:
        raise OutputError(f"{out} exists and is not an embedded corpus: not overwritten")


def _manifest(out: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and manifest.get("format") == FORMAT else None


def _finished(out: Path, request: Request) -> bool:
    manifest = _manifest(out)
    if manifest is None or manifest.get("request") != asdict(request):
        return False
    if manifest.get("grammar") != grammar_digest():
        return False
    files = manifest.get("files", {})
    return all((out / name).is_file() and _sha256(out / name) == sha for name, sha in files.items())


def grammar_digest() -> str:
    """Checksum of this package's sources: another grammar makes another corpus."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.txt")]):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _write_all(folder: Path, request: Request) -> None:
    for name, pairs in splits(request.train, request.valid, request.test, request.seed).items():
        for suffix, text in _texts(name, pairs).items():
            (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8", newline="\n")
    manifest = {
        "format": FORMAT,
        "request": asdict(request),
        "grammar": grammar_digest(),
        "files": {path.name: _sha256(path) for path in sorted(folder.iterdir())},
    }
    text = json.dumps(manifest, indent=2) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8", newline="\n")


def _texts(split: str, pairs: list[Pair]) -> dict[str, str]:
    return {
        "en": "".join(p.english + "\n" for p in pairs),
        "de": "".join(p.german + "\n" for p in pairs),
        "tok.de": "".join(" ".join(p.german_tokens) + "\n" for p in pairs),
        "align": "".join(pharaoh(p) + "\n" for p in pairs),
        "conllu": "".join(conllu(p, f"{split}-{i}") for i, p in enumerate(pairs, start=1)),
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
