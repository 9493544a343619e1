"""Downloads that are resumed when cut, and checked before they get their name.

What is not yet known to be whole is called NAME.part. Where no hash is published, the hash of
the first download is written down in a lock file and enforced from then on.
"""

from __future__ import annotations

import http.client
import os
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from collab_common.errors import UserError
from collab_common.files import CHUNK, digest, read_json, sha256, write_json
from data_prep.archives import is_page, is_whole

LOCK_FILE = "downloads.lock.json"
TRIES = 5
PAUSE = 1.0  # seconds before the second try, doubled before each further one
TIMEOUT = 30.0  # seconds without a byte


@dataclass(frozen=True)
class Published:
    """What a trusted publisher says of a file; None where nothing is said."""

    size: int | None = None  # bytes
    sha256: str | None = None
    md5: str | None = None

    def check(self, path: Path) -> None:
        """Raises UserError unless `path` is that file."""
        size = path.stat().st_size
        if self.size not in (None, size):
            raise UserError(f"{size:,} bytes instead of the published {self.size:,}", path)
        for name, expected in (("sha256", self.sha256), ("md5", self.md5)):
            if expected is None:
                continue
            with path.open("rb") as stream:
                found = digest(stream, name)
            if found != expected:
                raise UserError(f"{name.upper()} {found} is not the published {expected}", path)


def take_over(source: Path, path: Path, *, check: Callable[[Path], None] | None = None) -> Path:
    """As `fetch`, from a file that is already on this machine; links it if possible.

    Raises UserError if it is not there, not what `check` or the lock file wants, or a page.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not source.is_file():
        raise UserError("no such file", source)
    if path.exists():
        if not _check_lock(path, path, str(source)):
            _inspect(path, b"", check)
            _check_lock(path, path, str(path), record=True)
        return path
    # not .part: a download would go on writing there, into the file that this is a link to
    part = path.with_name(path.name + ".link")
    part.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), part)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, part)
    return _accept(part, path, str(source), b"", check)


def fetch(
    url: str,
    path: Path,
    *,
    magic: bytes = b"",
    check: Callable[[Path], None] | None = None,
) -> Path:
    """Downloads `url` to `path`, unless it is there; in both cases its hash must fit the lock.

    Args:
        magic: the bytes that such a file starts with, such as files.GZIP
        check: raises UserError if the content of the file that it is given is wrong

    Raises UserError, and leaves nothing behind that could pass for the file. A download that
    was cut stays as a .part file, from which the next call goes on.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        if not _check_lock(path, path, url):
            what = f"is not in {LOCK_FILE}, so it was not fetched here"
            raise UserError(what, path, "remove it")
        return path
    part = path.with_name(path.name + ".part")
    _download(url, part)
    return _accept(part, path, url, magic, check)


def _accept(
    part: Path, path: Path, url: str, magic: bytes, check: Callable[[Path], None] | None
) -> Path:
    """Gives a whole file its name, or removes it if it is wrong: there is nothing to resume."""
    try:
        _inspect(part, magic, check)
        _check_lock(path, part, url, record=True)
    except UserError as error:
        part.unlink()
        raise UserError(error.what, url, error.todo) from None
    return part.replace(path)


def _inspect(content: Path, magic: bytes, check: Callable[[Path], None] | None) -> None:
    with content.open("rb") as stream:
        start = stream.read(512)
    if is_page(start):
        raise UserError(
            "an HTML page came instead of the file", content, "open it in a browser to see"
        )
    if not start.startswith(magic):
        raise UserError(f"the file starts with {start[:4]!r} instead of {magic!r}", content)
    if check is not None:
        check(content)


def _check_lock(path: Path, content: Path, url: str, *, record: bool = False) -> bool:
    """Compares `content` with what was recorded for `path`; where nothing was, may `record` it.

    Returns whether something was recorded.
    """
    lock = path.parent / LOCK_FILE
    known: dict[str, Any] = read_json(lock) if lock.exists() else {}
    found = {"sha256": sha256(content), "bytes": content.stat().st_size}
    if (entry := known.get(path.name)) is None:
        if record:
            write_json(lock, known | {path.name: {"url": url, **found}})
        return False
    if any(entry.get(key) != value for key, value in found.items()):
        raise UserError(
            f"SHA-256 {found['sha256']} is not {entry.get('sha256')}, recorded in {lock}",
            url if content != path else path,
            "if the change is wanted, remove the file and its entry there",
        )
    return True


class _Cut(Exception):
    """A failure that may pass: try again."""


def _download(url: str, part: Path) -> None:
    for attempt in range(1, TRIES + 1):
        try:
            return _request(url, part)
        except _Cut as cut:
            if attempt == TRIES:
                raise UserError(
                    f"{cut} (tried {attempt} times)", url, "run again to go on where it stopped"
                ) from None
            pause = PAUSE * 2 ** (attempt - 1)
            print(f"{url}: {cut}; next try in {pause:g} s", flush=True)
            time.sleep(pause)


def _request(url: str, part: Path) -> None:
    """One attempt, from where an earlier one stopped. Raises _Cut or UserError."""
    have = part.stat().st_size if part.exists() else 0
    version = part.with_name(part.name + ".etag")
    request = urllib.request.Request(url, headers={"User-Agent": "fairseq-collab"})
    if have and version.exists():
        # If-Range: the server sends the rest only if the file is still the one that we began
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", version.read_text(encoding="utf-8"))
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            start = response.headers.get("Content-Range", "")
            if response.status != 206 or not start.startswith(f"bytes {have}-"):
                have = 0
                _remember_version(version, response)
            _save(response, part, have)
    except urllib.error.HTTPError as error:
        what = f"HTTP status {error.code} ({error.reason})"
        if error.code == 416:  # what we have is longer than the file
            part.unlink()
            raise _Cut("the partial file did not fit") from None
        if error.code in (408, 429) or error.code >= 500:
            raise _Cut(what) from None
        raise UserError(what, url) from None
    except urllib.error.URLError as error:
        raise _Cut(f"no connection ({error.reason})") from None
    except (ConnectionError, TimeoutError, ssl.SSLError, http.client.HTTPException) as error:
        raise _Cut(f"connection lost ({error or type(error).__name__})") from None
    except OSError as error:  # ours: a full disk, no permission
        raise UserError(f"cannot be written: {error.strerror or error}", part) from error
    version.unlink(missing_ok=True)


def _remember_version(path: Path, response: http.client.HTTPResponse) -> None:
    """Keeps what identifies this version of the file, which resuming needs."""
    version = response.headers.get("ETag") or response.headers.get("Last-Modified")
    if version and not version.startswith("W/"):  # a weak tag vouches for no bytes
        path.write_text(version, encoding="utf-8")
    else:
        path.unlink(missing_ok=True)


def _save(response: http.client.HTTPResponse, part: Path, have: int) -> None:
    """Appends to the `have` bytes that are there what the server sends. Raises _Cut if cut."""
    length = response.headers.get("Content-Length")
    expected = None if length is None else have + int(length)
    with (
        part.open("ab" if have else "wb") as stream,
        tqdm(total=expected, initial=have, unit="B", unit_scale=True, desc=part.stem) as bar,
    ):
        while block := response.read(CHUNK):
            stream.write(block)
            bar.update(len(block))
        size = stream.tell()
    if expected not in (None, size):
        raise _Cut(f"{size:,} bytes came of {expected:,}")
    if expected is None and not response.chunked and not is_whole(part):
        raise _Cut(f"the answer ended after {size:,} bytes, of how many it did not say")
