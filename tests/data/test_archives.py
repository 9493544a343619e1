"""Archives: downloaded whole or not at all; only the needed files are extracted."""

from __future__ import annotations

import hashlib
import io
import tarfile
from argparse import Namespace
from pathlib import Path

import pooch
import pytest
from corpus_archives import tgz
from loopback import Server
from refusals import refusing
from text_tools import error_line, names, run

from data_prep import multi30k
from data_prep.archives import Archive, check_hash, extract, fetch

CONTENT = bytes(range(256)) * 1000
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
TEXT = b"one\ntwo\n" * 5000
A = {"a.en": "sub/a.en"}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library waits some seconds before it tries again."""
    monkeypatch.setattr(pooch.core, "time", Namespace(sleep=lambda _: None))


def write(folder: Path, content: bytes, name: str = "x.tgz") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def taken(
    folder: Path, archive: Path, members: dict[str, str], optional: frozenset[str] = frozenset()
) -> dict[str, bytes]:
    out = folder / "out"
    out.mkdir(exist_ok=True)
    extract(archive, Archive("x", "", members, optional=optional), out)
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.mark.parametrize("prefix", ["sub/", "./sub/", "deeper/sub/"])
def test_only_what_is_needed(prefix: str, tmp_path: Path) -> None:
    archive = write(tmp_path, tgz({f"{prefix}b.en": b"no", f"{prefix}a.en": TEXT}))
    assert taken(tmp_path, archive, A) == {"a.en": TEXT}


def test_members_that_are_missing(tmp_path: Path) -> None:
    archive = write(tmp_path, tgz({"sub/b.en": TEXT}))
    with refusing(f"{archive}", "sub/a.en"):
        taken(tmp_path, archive, A)
    assert taken(tmp_path, archive, A, frozenset(A)) == {}


@pytest.mark.parametrize("kind", ["link", "outside", "device"])
def test_unsafe_members(kind: str, tmp_path: Path) -> None:
    info = tarfile.TarInfo("../sub/a.en" if kind == "outside" else "sub/a.en")
    info.type = {"link": tarfile.SYMTYPE, "device": tarfile.CHRTYPE}.get(kind, tarfile.REGTYPE)
    info.linkname = "/etc/passwd"
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.addfile(info)
    archive = write(tmp_path, content.getvalue(), "x.tar")
    with refusing(str(archive)):
        taken(tmp_path, archive, A)
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    "content",
    [
        tgz({"sub/a.en": TEXT})[:-30],
        tgz({"sub/a.en": TEXT})[:40],
        b"<!DOCTYPE html><title>Are you sure?</title>" * 30,
        b"",
    ],
    ids=["cut", "cut early", "page", "empty"],
)
def test_damaged_archives(content: bytes, tmp_path: Path) -> None:
    archive = write(tmp_path, content)
    with refusing(str(archive)):
        taken(tmp_path, archive, {**A, "z": "z"})


# ---- downloads -----------------------------------------------------------------------------------


def get(server: Server, folder: Path, known_hash: str | None = None) -> Path:
    return fetch(f"{server.url}/f", folder / "f", known_hash)


@pytest.mark.parametrize("known_hash", [None, SHA256])
def test_a_cut_connection_is_tried_again(
    known_hash: str | None, server: Server, tmp_path: Path
) -> None:
    server.files["/f"] = CONTENT
    server.cut_after = [1000, 500]
    assert get(server, tmp_path, known_hash).read_bytes() == CONTENT
    get(server, tmp_path, known_hash)
    assert server.asked == ["/f"] * 3, "the second call needs no network"
    assert names(tmp_path) == {"f"}


def test_another_file_is_refused(server: Server, tmp_path: Path) -> None:
    server.files["/f"] = b"<html>"
    with refusing(f"{server.url}/f"):
        get(server, tmp_path, SHA256)
    assert not names(tmp_path)


def test_nothing_is_served(server: Server, tmp_path: Path) -> None:
    with refusing(f"{server.url}/f", "404"):
        get(server, tmp_path)
    server.files["/f"] = CONTENT
    server.cut_after = [10] * 9
    with refusing(f"{server.url}/f"):
        get(server, tmp_path)
    assert not names(tmp_path)


def test_hash_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with refusing(str(path)):
        check_hash(path, None)
    path.write_bytes(b"abc")
    check_hash(path, "md5:900150983cd24fb0d6963f7d28e17f72")
    with refusing(str(path), "md5"):
        check_hash(path, "md5:0")


def test_multi30k_that_is_another(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multi30k, "URL", server.url)
    with refusing(f"{server.url}/train.en.gz"):
        multi30k.fetch_text(tmp_path)
    for name in ("train", "val", "test_2016_flickr", "test_2017_flickr"):
        for lang in ("en", "de"):
            (tmp_path / f"{name}.{lang}").write_text("One.\n" * 29_000)
    error = error_line(run("multi30k", "--from", tmp_path, "--out", tmp_path / "o"), "multi30k")
    assert "train.en: " in error
