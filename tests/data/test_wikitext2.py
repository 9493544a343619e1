"""WikiText-2: what is taken for it, how it is halved, and what becomes of it."""

from __future__ import annotations

import gzip
import hashlib
import io
import zipfile
from pathlib import Path

import pytest
from loopback import Server
from refusals import refusing
from text_tools import error_line, manifest, names, run

from collab_common.errors import UserError
from data_prep import wikitext2
from data_prep.fetch import Published
from data_prep.wikitext2 import fetch_text, find_texts, halves, make

pytestmark = pytest.mark.slow

SPLITS = ("train", "valid", "test")


def article(title: str, words: int) -> list[bytes]:
    """As in WikiText: a title, a section, and a paragraph of so many words."""
    body = " ".join(["word"] * words)
    return [
        f"{line}\n".encode() for line in (" ", f" = {title} = ", " ", " = = S = = ", f" {body} ")
    ]


def small() -> dict[str, bytes]:
    """Texts of a few articles."""
    return {
        "train": b"".join(article("A", 9) + article("B <unk>", 12)),
        "valid": b"".join(article("C", 8) + article("D", 9) + article("E", 10)),
        "test": b"".join(article("F", 5)),
    }


@pytest.fixture
def own_text(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Texts that are taken for WikiText-2's."""
    texts = small()
    take(texts, monkeypatch)
    return texts


def take(texts: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on these are taken for WikiText-2's."""
    monkeypatch.setattr(
        wikitext2, "LINES", {name: text.count(b"\n") for name, text in texts.items()}
    )
    digests = {name: hashlib.sha256(texts[name]).hexdigest() for name in ("train", "valid")}
    monkeypatch.setattr(wikitext2, "SHA256", digests)


def write(folder: Path, texts: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.txt.gz").write_bytes(gzip.compress(text))
    return folder


def test_halves_are_cut_between_articles_near_the_middle() -> None:
    """Of 50 words 17 are C's, 35 C's and D's: with their titles the middle is nearer to 35."""
    one, two, three = article("C", 8), article("D = E", 9), article("F", 10)
    assert halves(one + two + three) == (one + two, three)
    longer = article("F", 30)
    assert halves(one + two + longer) == (one + two, longer)
    first = article("C", 30)
    assert halves(first + two + three) == (first, two + three)


def test_a_folder_for_fairseq(own_text: dict[str, bytes], tmp_path: Path) -> None:
    text = write(tmp_path / "text", {name: own_text[name] for name in ("train", "valid")})
    out = tmp_path / "bin"
    assert make(find_texts(text), out)
    told = manifest(out)
    assert told["origin"]["valid"] == "valid.txt, first half"
    assert told["origin"]["test"] == "valid.txt, second half"
    assert [told["stages"][split]["lines"] for split in SPLITS] == [10, 10, 5]
    assert "<unk>" not in (out / "dict.txt").read_text(), "fairseq's own symbol is used"
    assert {f"{split}.bin" for split in SPLITS} <= names(out)
    assert "train.txt" not in names(out)
    assert not make(find_texts(text), out), "it is there"


def test_a_test_set_is_used_where_there_is_one(own_text: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "bin"
    texts = find_texts(write(tmp_path / "text", own_text))
    make(texts, out)
    assert manifest(out)["origin"]["test"] == "test.txt"
    assert [manifest(out)["stages"][split]["lines"] for split in SPLITS] == [10, 15, 5]
    del texts["test"]
    with pytest.raises(UserError, match=r"made from something else \(origin\.valid: 'valid\.txt'"):
        make(texts, out)


def test_lines_that_are_binarised_otherwise(
    own_text: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fairseq-preprocess ends a line at a carriage return, too."""
    own_text["train"] = own_text["train"].replace(b"word word", b"word\rword", 1)
    take(own_text, monkeypatch)
    with pytest.raises(UserError, match=r"^train: 11 lines binarised of 10 given$"):
        make(find_texts(write(tmp_path / "text", own_text)), tmp_path / "bin")
    assert not (tmp_path / "bin").exists()


def archive(texts: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name, text in texts.items():
            file.writestr(f"wikitext-2/wiki.{name}.tokens", text)
    return content.getvalue()


def test_download(
    own_text: dict[str, bytes], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = archive(own_text)
    monkeypatch.setattr(wikitext2, "PUBLISHED", Published(md5=hashlib.md5(content).hexdigest()))
    server.files[f"/{wikitext2.ARCHIVE}"] = content
    fetch_text(tmp_path, server.url)
    assert {name: (tmp_path / f"{name}.txt").read_bytes() for name in SPLITS} == own_text
    assert find_texts(tmp_path).keys() == own_text.keys()


def test_another_archive_is_refused(server: Server, tmp_path: Path) -> None:
    server.files[f"/{wikitext2.ARCHIVE}"] = archive(small())
    done = run("wikitext2", "--out", tmp_path / "bin", "--mirror", server.url)
    line = error_line(done, "wikitext2")
    assert "is not the published 542ccefacc6c27f945fb54453812b3cd" in line
    assert names(tmp_path / "wikitext2-text") == set()
    assert not (tmp_path / "bin").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"one line\n", "train.txt.gz: 1 lines instead of 10"),
        (b" other\n" * 10, "not the train text of WikiText-2 (other SHA-256); fetch it again"),
    ],
)
def test_other_text_is_refused(
    text: bytes, message: str, own_text: dict[str, bytes], tmp_path: Path
) -> None:
    folder = write(tmp_path / "text", {**own_text, "train": text})
    with refusing(message):
        find_texts(folder)


def test_folders_that_are_none(tmp_path: Path) -> None:
    done = run("wikitext2", "--out", tmp_path / "bin", "--from", tmp_path / "no")
    assert "no: there is no such folder; give one with train.txt" in error_line(done, "wikitext2")
    done = run("wikitext2", "--out", tmp_path / "bin", "--from", tmp_path)
    assert "train.txt: no such file (nor with .gz)" in error_line(done, "wikitext2")


def test_the_published_text(shared_data: Path) -> None:
    """The true files pass, and are halved into 33 and 27 articles."""
    texts = find_texts(shared_data / "wikitext2")
    with gzip.open(texts["valid"]) as stream:
        first, second = halves(stream.readlines())
    assert (len(first), len(second)) == (1976, 1784)
    assert second[:2] == [b" \n", b" = <unk> <unk> = \n"]
