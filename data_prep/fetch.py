"""Downloads, by pooch: a file gets its name when it is complete and has the published hash."""

from __future__ import annotations

from pathlib import Path

import pooch
import requests

from collab_common.errors import UserError

TRIES = 3
TIMEOUT = 30.0  # seconds without a byte


def fetch(url: str, path: Path, known_hash: str | None = None) -> Path:
    """Downloads `url` to `path`, unless it is there.

    Args:
        known_hash: ALGORITHM:HEX, such as md5:88ba...; None accepts whatever is served

    Raises UserError if it cannot be had, or is not the published file.
    """
    source = pooch.create(
        path=path.parent,
        base_url="",
        registry={path.name: known_hash},
        urls={path.name: url},
        retry_if_failed=TRIES - 1,
    )
    loader = pooch.HTTPDownloader(progressbar=True, timeout=TIMEOUT)
    try:
        source.fetch(path.name, downloader=loader)
    except requests.RequestException as error:
        todo = "try again later, or give --from DIR with the file in it"
        raise UserError(f"cannot be downloaded ({error})", url, todo) from None
    except ValueError as error:
        raise UserError(f"is not the published file ({error})", url) from None
    return path


def check_hash(path: Path, known_hash: str | None) -> None:
    """Raises UserError unless the file exists and has the hash, where one is known."""
    if not path.is_file():
        raise UserError("no such file", path)
    if known_hash is None:
        return
    algorithm, _, expected = known_hash.partition(":")
    if (found := pooch.file_hash(str(path), alg=algorithm)) != expected:
        raise UserError(f"{algorithm} {found} is not the published {expected}", path)
