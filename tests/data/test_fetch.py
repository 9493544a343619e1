"""Downloads from a loopback server that does everything wrong that servers do."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from loopback import Server
from text_tools import error_line, names, run

from collab_common.errors import UserError
from collab_common.files import GZIP
from data_prep.fetch import LOCK_FILE, fetch, take_over
from data_prep.multi30k import FOLDER, SHA256, SPLITS, check_text

CONTENT = bytes(range(256)) * 1000


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TRIES", 3), ("PAUSE", 0.0), ("TIMEOUT", 5.0)):
        monkeypatch.setattr(f"data_prep.fetch.{name}", value)


def get(server: Server, folder: Path, **more: Any) -> Path:
    return fetch(f"{server.url}/f", folder / "f", **more)


def test_whole(server: Server, tmp_path: Path) -> None:
    server.files["/f"] = CONTENT
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == {"f", LOCK_FILE}
    entry = json.loads((tmp_path / LOCK_FILE).read_text())["f"]
    assert entry["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    get(server, tmp_path)
    assert len(server.ranges) == 1, "the second call needs no network"


def test_cut_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    server.files["/f"] = CONTENT
    server.cut_after = [1000, 500]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=1000-", "bytes=1500-"]
    assert names(tmp_path) == {"f", LOCK_FILE}


def test_next_call_goes_on(server: Server, tmp_path: Path) -> None:
    server.files["/f"] = CONTENT
    server.cut_after = [1000, 0, 0]
    with pytest.raises(UserError, match=r"1,000 bytes came of 256,000 .*; run again to"):
        get(server, tmp_path)
    assert not (tmp_path / "f").exists()
    server.cut_after = []
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges[-1] == "bytes=1000-"


def test_file_changed_meanwhile_is_fetched_anew(server: Server, tmp_path: Path) -> None:
    """The halves of two versions must not be put together."""
    server.files["/f"] = CONTENT
    server.cut_after = [1000, 0, 0]
    with pytest.raises(UserError):
        get(server, tmp_path)
    server.cut_after = []
    server.etag = '"2"'
    server.files["/f"] = CONTENT[::-1]
    assert get(server, tmp_path).read_bytes() == CONTENT[::-1]


def test_weak_etag_does_not_resume(server: Server, tmp_path: Path) -> None:
    server.files["/f"] = CONTENT
    server.etag = 'W/"1"'
    server.cut_after = [1000]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, None]


def test_too_long_partial_file_starts_over(server: Server, tmp_path: Path) -> None:
    server.files["/f"] = CONTENT
    (tmp_path / "f.part").write_bytes(CONTENT + b"more")
    (tmp_path / "f.part.etag").write_text(server.etag)
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_busy_server_is_tried_again(server: Server, tmp_path: Path) -> None:
    server.files["/f"] = CONTENT
    server.statuses = [503, 429]
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_pauses_double(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("data_prep.fetch.time.sleep", pauses.append)
    monkeypatch.setattr("data_prep.fetch.TRIES", 4)
    monkeypatch.setattr("data_prep.fetch.PAUSE", 0.5)
    server.files["/f"] = CONTENT
    server.statuses = [500] * 4
    with pytest.raises(UserError, match=r"HTTP status 500 .*tried 4 times"):
        get(server, tmp_path)
    assert pauses == [0.5, 1.0, 2.0]


def test_absent_file_is_told_at_once(server: Server, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="HTTP status 404"):
        get(server, tmp_path)
    assert len(server.ranges) == 1


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no connection .*tried 3 times"):
        fetch("http://127.0.0.1:9/f", tmp_path / "f")


def test_wrong_size(server: Server, tmp_path: Path) -> None:
    server.files["/f"] = CONTENT
    server.content_length = len(CONTENT) + 1
    with pytest.raises(UserError, match="bytes came of"):
        get(server, tmp_path)
    assert not (tmp_path / "f").exists()


def test_end_that_nobody_tells(server: Server, tmp_path: Path) -> None:
    """Without Content-Length, a cut answer looks whole: the file itself must show its end."""
    server.files["/f"] = gzip.compress(CONTENT)
    server.content_length = -1
    server.cut_after = [1000, 0, 0]
    with pytest.raises(UserError, match=r"the answer ended after 1,000 bytes, .*tried 3 times"):
        get(server, tmp_path, magic=GZIP)
    assert not (tmp_path / "f").exists()
    assert LOCK_FILE not in names(tmp_path)
    server.etag = '"2"'
    assert get(server, tmp_path, magic=GZIP).read_bytes() == server.files["/f"]
    (tmp_path / "f").unlink()
    (tmp_path / LOCK_FILE).unlink()
    server.files["/f"] = CONTENT
    with pytest.raises(UserError, match="of how many it did not say"):
        get(server, tmp_path)


def test_full_disk(server: Server, tmp_path: Path) -> None:
    server.files["/f"] = CONTENT
    (tmp_path / "f.part").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"f\.part: cannot be written: No space left on device"):
        get(server, tmp_path)
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n<!DOCTYPE html><title>Log in</title>", "an HTML page came instead of the file"),
        (CONTENT, "the file starts with"),
    ],
    ids=["page", "other"],
)
def test_other_format(content: bytes, message: str, server: Server, tmp_path: Path) -> None:
    server.files["/f"] = content
    with pytest.raises(UserError, match=message):
        get(server, tmp_path, magic=GZIP)
    assert names(tmp_path) == set()


def test_lock_file_is_enforced(server: Server, tmp_path: Path) -> None:
    server.files["/f"] = CONTENT
    path = get(server, tmp_path)
    path.unlink()
    server.files["/f"] = CONTENT[::-1]
    with pytest.raises(UserError, match=r"SHA-256 \w+ is not \w+, recorded in"):
        get(server, tmp_path)
    assert names(tmp_path) == {LOCK_FILE}
    path.write_bytes(b"damaged later")
    with pytest.raises(UserError, match="recorded in"):
        get(server, tmp_path)


def test_file_that_was_not_fetched_is_not_trusted(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"from elsewhere")
    with pytest.raises(UserError, match="was not fetched here"):
        get(server, tmp_path)


def test_files_that_lie_in_place_are_checked_and_recorded(tmp_path: Path) -> None:
    """`fetch --from OUT/archives`: the user has put them where they would have been fetched to."""
    path, seen = tmp_path / "f", []
    path.write_bytes(CONTENT)
    take_over(path, path, check=seen.append)
    assert seen == [path]
    assert path.name in json.loads((tmp_path / LOCK_FILE).read_text())
    path.write_bytes(b"damaged later")
    with pytest.raises(UserError, match="recorded in"):
        take_over(path, path, check=seen.append)


def test_pages_that_lie_in_place(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"<html>")
    with pytest.raises(UserError, match="an HTML page came instead"):
        take_over(path, path)
    assert names(tmp_path) == {"f"}


def multi30k_urls(content: bytes) -> dict[str, bytes]:
    return {
        f"/{FOLDER}/{stem}.{lang}.gz": content for stem in SPLITS.values() for lang in ("en", "de")
    }


LINES = b"A man sits.\n" * 29_000
MULTI30K_FAULTS = {
    "wrong text": (gzip.compress(LINES), "not the text of Multi30k's train.en"),
    "too few lines": (gzip.compress(LINES[:-12]), "28,999 lines instead of 29,000"),
    "cut short": (gzip.compress(LINES)[:-30], "the gzip file is cut short"),
    "damaged": (gzip.compress(LINES, mtime=0)[:-8] + b"\0" * 8, "not an intact gzip file"),
    "page": (b"<html>rate limit</html>", "an HTML page came"),
}


@pytest.mark.parametrize("name", MULTI30K_FAULTS)
def test_multi30k_refuses(name: str, server: Server, tmp_path: Path) -> None:
    content, words = MULTI30K_FAULTS[name]
    server.files = multi30k_urls(content)
    out = tmp_path / "bin"
    done = run("multi30k", "--out", out, "--mirror", server.url)
    error = error_line(done, "multi30k")
    assert words in error
    assert f"{server.url}/{FOLDER}/train.en.gz: " in error
    assert not out.exists()
    assert names(tmp_path / "multi30k-text") == set()


def test_multi30k_usage(tmp_path: Path) -> None:
    same = ["--source-lang", "de", "--target-lang", "de"]
    done = run("multi30k", "--out", tmp_path / "bin", *same)
    assert "are both de" in error_line(done, "multi30k", status=2)
    done = run("multi30k", "--out", tmp_path / "bin", "--from", tmp_path / "absent")
    assert "train.en: no such file" in error_line(done, "multi30k")


def test_multi30k_french_has_no_published_hash(tmp_path: Path) -> None:
    """Its lines are counted; nothing is made up."""
    assert not any(name.endswith(".fr") for name in SHA256)
    path = tmp_path / "train.fr"
    path.write_bytes(LINES)
    check_text(path, "train.fr")
    path.write_bytes(LINES[12:])
    with pytest.raises(UserError, match="28,999 lines"):
        check_text(path, "train.fr")


def test_multi30k_real_text(shared_data: Path, server: Server, tmp_path: Path) -> None:
    """The true files pass, fetched as well as from a folder."""
    from data_prep.multi30k import check_folder, fetch_text

    folder = shared_data / "multi30k"
    for url in multi30k_urls(b""):
        server.files[url] = (folder / Path(url).name).read_bytes()
    fetch_text(tmp_path / "text", ("en", "de"), server.url)
    for where in (tmp_path / "text", folder):
        check_folder(where, ("en", "de"))
