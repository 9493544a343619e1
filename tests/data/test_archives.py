"""Archives: what is needed comes out whole, and nothing comes out of a bad one."""

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from corpus_archives import tgz
from refusals import refusing

from data_prep.archives import Member, extract

TEXT = b"one\ntwo\n" * 5000
A = Member("a.en", ("sub/a.en",))


def write(folder: Path, content: bytes, name: str = "x.tgz") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def taken(folder: Path, archive: Path, *members: Member) -> dict[str, bytes]:
    out = folder / "out"
    out.mkdir(exist_ok=True)
    extract(archive, members, out)
    return {path.name: path.read_bytes() for path in out.iterdir()}


def refused(message: str, folder: Path, archive: Path, *members: Member) -> None:
    with refusing(message, str(archive)):
        taken(folder, archive, *members)


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


def test_zip_and_single_gzip(tmp_path: Path) -> None:
    plain = io.BytesIO()
    with zipfile.ZipFile(plain, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("sub/a.en", TEXT)
    assert taken(tmp_path, write(tmp_path, plain.getvalue(), "x.zip"), A) == {"a.en": TEXT}
    single = write(tmp_path, gzip.compress(TEXT), "a.en.gz")
    assert taken(tmp_path, single, Member("a.en", ("a.en",))) == {"a.en": TEXT}


def test_the_best_of_several_names(tmp_path: Path) -> None:
    archive = write(tmp_path, tgz({"b": b"worse", "a": b"better", "c": b"worst"}))
    assert taken(tmp_path, archive, Member("x", ("a", "b", "c"))) == {"x": b"better"}
    assert taken(tmp_path, archive, Member("y", ("d",), optional=True)) == {"x": b"better"}


def test_missing_and_double(tmp_path: Path) -> None:
    archive = write(tmp_path, tgz({"other": b""}))
    refused("has no member sub/a.en (and 1 more)", tmp_path, archive, A, Member("b", "b"))
    archive = write(tmp_path, tgz({"sub/a.en": b"1", "x/sub/a.en": b"2"}))
    refused("has two members sub/a.en and x/sub/a.en", tmp_path, archive, A)


@pytest.mark.parametrize("name", ["/etc/a.en", "../../a.en", "sub/../../a.en", "..\\a.en"])
def test_unsafe_paths(name: str, tmp_path: Path) -> None:
    """Even of members that nobody wants, and before anything is written outside."""
    archive = write(tmp_path, tgz({name: b"evil", "sub/a.en": TEXT}))
    refused(f"unsafe path {name!r}", tmp_path, archive, A)
    assert {path.name for path in tmp_path.iterdir()} == {"x.tgz", "out"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_links_and_devices(kind: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.tgz"
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("sub/a.en")
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)
    refused("is no file but a link or a device", tmp_path, path, A)


@pytest.mark.parametrize("cut", [1, 9, 100, 0.5])
def test_cut_short(cut: float, tmp_path: Path) -> None:
    """Also where the member itself was still whole."""
    whole = tgz({"sub/a.en": bytes(range(256)) * 50, "z": b"z" * 3000})
    keep = len(whole) - cut if cut >= 1 else int(len(whole) * cut)
    refused("cut short", tmp_path, write(tmp_path, whole[: int(keep)]), A)


def test_cut_plain_tar(tmp_path: Path) -> None:
    whole = gzip.decompress(tgz({"sub/a.en": TEXT}))
    refused("cut short", tmp_path, write(tmp_path, whole[:20_000], "x.tar"), A)


@pytest.mark.parametrize("cut", [30, 3000])
def test_cut_zip(cut: int, tmp_path: Path) -> None:
    plain = io.BytesIO()
    with zipfile.ZipFile(plain, "w") as archive:
        archive.writestr("sub/a.en", TEXT)
    path = write(tmp_path, plain.getvalue()[:-cut], "x.zip")
    refused("cut short or damaged", tmp_path, path, A)


def test_damaged(tmp_path: Path) -> None:
    whole = bytearray(tgz({"sub/a.en": TEXT}))
    whole[-6] ^= 1  # the checksum
    refused("damaged", tmp_path, write(tmp_path, bytes(whole)), A)


def test_page_and_nonsense(tmp_path: Path) -> None:
    page = write(tmp_path, b"\n<!DOCTYPE html><title>Log in</title>")
    refused("HTML page instead of an archive", tmp_path, page, A)
    refused("no tar, zip or gzip", tmp_path, write(tmp_path, b"nonsense" * 99), A)
    refused("no such file", tmp_path, tmp_path / "absent.tgz", A)


def test_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_prep.archives._SMALL", 1 << 20)
    archive = write(tmp_path, tgz({"unwanted": bytes(4 << 20), "sub/a.en": b"x"}))
    refused("unpacks to more than 1,048,576 bytes", tmp_path, archive, A)


def test_bomb_of_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse file's zeros are not in the archive."""
    monkeypatch.setattr("data_prep.archives._SMALL", 1 << 20)
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(4 << 20)
    command = ["tar", "--sparse", "-czf", "bomb.tgz", "--transform=s,^,sub/,;s,hole,a.en,", "hole"]
    subprocess.run(command, cwd=tmp_path, check=True)
    refused("unpacks to more than 1,048,576 bytes", tmp_path, tmp_path / "bomb.tgz", A)


def test_write_that_fails_is_not_the_archives_fault(tmp_path: Path) -> None:
    archive = write(tmp_path, tgz({"sub/a.en": TEXT}))
    out = tmp_path / "out"
    out.mkdir()
    (out / ".a.en.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        extract(archive, [A], out)
