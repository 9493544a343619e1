"""Downloads from a loopback server; files from a folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from loopback import Server
from refusals import refusing
from text_tools import error_line, names, run

from data_prep.fetch import check_hash, fetch

CONTENT = bytes(range(256)) * 1000
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


def get(server: Server, folder: Path, known_hash: str | None = None) -> Path:
    return fetch(f"{server.url}/f", folder / "f", known_hash)


@pytest.mark.parametrize("known_hash", [None, SHA256])
def test_whole(known_hash: str | None, server: Server, tmp_path: Path) -> None:
    server.files["/f"] = CONTENT
    assert get(server, tmp_path, known_hash).read_bytes() == CONTENT
    get(server, tmp_path, known_hash)
    assert server.asked == ["/f"], "the second call needs no network"
    assert names(tmp_path) == {"f"}


def test_a_cut_connection_is_tried_again(server: Server, tmp_path: Path) -> None:
    server.files["/f"] = CONTENT
    server.cut_after = [1000, 500]
    assert get(server, tmp_path, SHA256).read_bytes() == CONTENT
    assert len(server.asked) == 3


def test_another_file_is_refused(server: Server, tmp_path: Path) -> None:
    server.files["/f"] = b"<html>"
    with refusing(f"{server.url}/f: is not the published file"):
        get(server, tmp_path, SHA256)
    assert not names(tmp_path)


def test_nothing_is_served(server: Server, tmp_path: Path) -> None:
    with refusing(f"{server.url}/f: cannot be downloaded (404", "give --from DIR"):
        get(server, tmp_path)
    server.files["/f"] = CONTENT
    server.cut_after = [10] * 9
    with refusing(f"{server.url}/f: cannot be downloaded"):
        get(server, tmp_path)
    assert not names(tmp_path)


def test_hash_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with refusing(f"{path}: no such file"):
        check_hash(path, None)
    path.write_bytes(b"abc")
    check_hash(path, "md5:900150983cd24fb0d6963f7d28e17f72")
    with refusing(f"{path}: md5 900150983cd24fb0d6963f7d28e17f72 is not the published 0"):
        check_hash(path, "md5:0")


def test_multi30k_that_is_another(server: Server, tmp_path: Path) -> None:
    done = run("multi30k", "--mirror", server.url, "--out", tmp_path / "out")
    assert f"{server.url}/data/task1/raw/train.en.gz: cannot be" in error_line(done, "multi30k")
    for name in ("train", "val", "test_2016_flickr", "test_2017_flickr"):
        for lang in ("en", "de"):
            (tmp_path / f"{name}.{lang}").write_text("One.\n" * 29_000)
    done = run("multi30k", "--from", tmp_path, "--out", tmp_path / "out")
    assert "train.en: not the text of Multi30k's train.en (other SHA" in error_line(
        done, "multi30k"
    )
