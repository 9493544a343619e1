"""Byte-pair encoding: the bytes that subword-nmt itself writes."""

from __future__ import annotations

import gzip
import io
import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from collab_common.errors import UserError
from data_prep import bpe


def theirs(text: str, merges: int) -> str:
    out = io.StringIO()
    learn_bpe(io.StringIO(text), out, merges)
    return out.getvalue()


def segmented(codes: str, text: str) -> str:
    program = BPE(io.StringIO(codes))
    return "".join(
        program.process_line(line + "\n") for line in text.removesuffix("\n").split("\n")
    )


@pytest.fixture
def texts(tmp_path: Path) -> list[Path]:
    """Two texts of invented words; the second has other letters."""
    rng = random.Random(7)
    paths = []
    for name, syllables in (("a", "ba be bu la le lu nana"), ("b", "ka ke ku na öl ölöl")):
        lines = (
            " ".join("".join(rng.choices(syllables.split(), k=rng.randint(1, 4))) for _ in range(7))
            for _ in range(400)
        )
        paths.append(tmp_path / name)
        paths[-1].write_text("".join(line + "\n" for line in lines))
    return paths


@pytest.mark.parametrize("jobs", [1, 2])
def test_learns_what_subword_nmt_learns(
    jobs: int, texts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bpe, "COUNTED_LINES", 30)  # several blocks a text
    text = "".join(path.read_text() for path in texts)
    counts = bpe.learn(texts, 300, tmp_path / "codes", jobs=jobs)
    assert (tmp_path / "codes").read_text() == theirs(text, 300)
    types = len(set(text.split()))
    assert counts == {"lines": 800, "tokens": 5600, "types": types, "merges": 300}


# few letters: the same symbol comes about in several ways, and pairs overlap themselves
WORDS = st.lists(st.text("ab", min_size=1, max_size=12), min_size=1, max_size=12)


@given(WORDS, st.integers(1, 40))
@example(["aaaaaaa", "aaaaa", "aaaa", "aaaaaaaa"], 30)
@example(["ababab", "abab", "bababa", "bab"], 30)
@settings(max_examples=200, deadline=None)
def test_merges_on_awkward_words(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], merges: int
) -> None:
    text = " ".join(words) + "\n"
    folder = tmp_path_factory.mktemp("awkward")
    (folder / "text").write_text(text)
    if not any(len(word) > 1 for word in words):
        return  # subword-nmt fails where there is no pair at all
    counts = bpe.learn([folder / "text"], merges, folder / "codes")
    expected = theirs(text, merges)
    assert (folder / "codes").read_text() == expected
    assert counts["merges"] == expected.count("\n") - 1


@pytest.mark.parametrize("jobs", [1, 2])
def test_segments_as_subword_nmt(jobs: int, texts: list[Path], tmp_path: Path) -> None:
    codes, out = tmp_path / "codes", tmp_path / "out"
    bpe.learn(texts[:1], 40, codes)
    for path in texts:  # the second has letters that the codes do not know
        counts = bpe.apply(codes, path, out, jobs=jobs)
        assert out.read_text() == segmented(codes.read_text(), path.read_text())
        assert counts == {"lines": 400, "tokens": len(out.read_text().split())}
    assert "@@ " in out.read_text()


def test_segmented_text_comes_back(texts: list[Path], tmp_path: Path) -> None:
    codes, out = tmp_path / "codes", tmp_path / "out"
    bpe.learn(texts, 60, codes)
    bpe.apply(codes, texts[1], out)
    assert out.read_text().replace("@@ ", "") == texts[1].read_text()


def test_forgetting_words_changes_nothing(texts: list[Path], tmp_path: Path) -> None:
    codes = tmp_path / "codes"
    bpe.learn(texts, 60, codes)
    bpe.apply(codes, texts[0], tmp_path / "all")
    segmenter = bpe.Segmenter(codes, remembered=3)
    lines = texts[0].read_text().splitlines()
    forgetful = [segment for line in lines for segment in segmenter([line])]
    assert forgetful == (tmp_path / "all").read_text().splitlines()


def test_odd_lines(texts: list[Path], tmp_path: Path) -> None:
    """Empty lines stay, blanks are one, and other white space is a letter like others."""
    codes = tmp_path / "codes"
    bpe.learn(texts, 10, codes)
    (tmp_path / "odd").write_text("\n  \n q  x \nq\u2028q\n")
    bpe.apply(codes, tmp_path / "odd", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "\n\nq x\nq@@ \u2028@@ q\n"


def test_real_text(shared_data: Path, tmp_path: Path) -> None:
    with gzip.open(shared_data / "tatoeba_en_de/train.de.gz", "rt", encoding="utf-8") as stream:
        text = "".join(line for line, _ in zip(stream, range(2000), strict=False))
    (tmp_path / "text").write_text(text)
    bpe.learn([tmp_path / "text"], 1500, tmp_path / "codes")
    codes = (tmp_path / "codes").read_text()
    assert codes == theirs(text, 1500)
    bpe.apply(tmp_path / "codes", tmp_path / "text", tmp_path / "out")
    assert (tmp_path / "out").read_text() == segmented(codes, text)


@pytest.mark.parametrize("merges", [0, -5])
def test_merges_that_are_none(merges: int, texts: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{merges} merges: there must be at least one"):
        bpe.learn(texts, merges, tmp_path / "codes")
    assert not (tmp_path / "codes").exists()


def test_what_could_not_be_segmented_is_not_learnt_from(tmp_path: Path) -> None:
    """A line as long as this is no text; it used to be found when the codes were there."""
    (tmp_path / "text").write_text("a b\n" + "ab " * 400_000 + "\n")
    with pytest.raises(UserError, match=r"text:2: a line of more than 1,048,576 bytes"):
        bpe.learn([tmp_path / "text"], 10, tmp_path / "codes")


def test_nothing_to_learn_from(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(" \n\n")
    with pytest.raises(UserError, match=r"text: no words to learn from"):
        bpe.learn([tmp_path / "text"], 10, tmp_path / "codes")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "codes: does not start with '#version: 0.2'"),
        (b"#version: 0.1\na b\n", "codes: does not start with '#version: 0.2'"),
        (b"#version: 0.2\n", "codes: no merges"),
        (b"#version: 0.2\na b\nab\n", "codes:3: not two symbols with a blank between them"),
        (b"#version: 0.2\na \xff\n", "codes:2: invalid UTF-8: byte 0xFF"),
    ],
)
def test_codes_that_are_none(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "codes").write_bytes(content)
    (tmp_path / "text").write_text("a\n")
    with pytest.raises(UserError, match=message):
        bpe.apply(tmp_path / "codes", tmp_path / "text", tmp_path / "out")


def test_missing_codes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"codes: no such file"):
        bpe.apply(tmp_path / "codes", tmp_path / "text", tmp_path / "out")
