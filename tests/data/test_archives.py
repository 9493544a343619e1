"""Archives: what is needed comes out whole, and nothing comes out of a bad one."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from corpus_archives import tgz
from refusals import refusing

from data_prep.archives import Member, extract

TEXT = b"one\ntwo\n" * 5000
A = Member("a.en", "sub/a.en")


def write(folder: Path, content: bytes, name: str = "x.tgz") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def taken(folder: Path, archive: Path, *members: Member) -> dict[str, bytes]:
    out = folder / "out"
    out.mkdir(exist_ok=True)
    extract(archive, members, out)
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.mark.parametrize("prefix", ["sub/", "./sub/", "deeper/sub/"])
def test_only_what_is_needed(prefix: str, tmp_path: Path) -> None:
    archive = write(tmp_path, tgz({f"{prefix}b.en": b"no", f"{prefix}a.en": TEXT}))
    assert taken(tmp_path, archive, A) == {"a.en": TEXT}


@pytest.mark.parametrize("mode", ["", "gz", "bz2", "xz"])
def test_kinds_of_tar(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    (tmp_path / "a.en").write_bytes(TEXT)
    with tarfile.open(path, f"w:{mode}") as tar:
        tar.add(tmp_path / "a.en", "sub/a.en")
    assert taken(tmp_path, path, A) == {"a.en": TEXT}


def test_members_that_are_missing(tmp_path: Path) -> None:
    archive = write(tmp_path, tgz({"sub/b.en": TEXT}))
    with refusing(f"{archive}: has no member sub/a.en; this is another archive"):
        taken(tmp_path, archive, A)
    assert taken(tmp_path, archive, Member("a.en", "sub/a.en", optional=True)) == {}


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
    with refusing(f"{archive}: is no intact tar archive", "fetch it again"):
        taken(tmp_path, archive, A, Member("z", "z"))
