"""Byte-pair encoding: the bytes that subword-nmt itself writes."""

from __future__ import annotations

import argparse
import gzip
import io
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import refusing
from subword_nmt.apply_bpe import BPE, read_vocabulary
from subword_nmt.learn_bpe import learn_bpe
from subword_nmt.learn_joint_bpe_and_vocab import learn_joint_bpe_and_vocab

from collab_common.errors import UserError
from data_prep import apply_bpe, bpe
from data_prep.apply_bpe import BpeOptions


def theirs(text: str, merges: int) -> str:
    out = io.StringIO()
    learn_bpe(io.StringIO(text), out, merges)
    return out.getvalue()


def segmented(codes: str, text: str, **options: Any) -> str:
    program = BPE(io.StringIO(codes), **options)
    return "".join(
        program.process_line(line + "\n") for line in text.removesuffix("\n").split("\n")
    )


def invented(folder: Path, lines: int = 400) -> list[Path]:
    """Two texts of invented words; the second has other letters."""
    rng = random.Random(7)
    paths = []
    for name, syllables in (("a", "ba be bu la le lu nana"), ("b", "ka ke ku na öl ölöl")):
        words = (
            " ".join("".join(rng.choices(syllables.split(), k=rng.randint(1, 4))) for _ in range(7))
            for _ in range(lines)
        )
        paths.append(folder / name)
        paths[-1].write_text("".join(line + "\n" for line in words))
    return paths


@pytest.fixture
def texts(tmp_path: Path) -> list[Path]:
    return invented(tmp_path)


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
        counts = apply_bpe.apply(codes, path, out, jobs=jobs)
        assert out.read_text() == segmented(codes.read_text(), path.read_text())
        assert counts == {"lines": 400, "tokens": len(out.read_text().split())}
    assert "@@ " in out.read_text()


def test_forgetting_words_changes_nothing(texts: list[Path], tmp_path: Path) -> None:
    codes = tmp_path / "codes"
    bpe.learn(texts, 60, codes)
    apply_bpe.apply(codes, texts[0], tmp_path / "all")
    segmenter = apply_bpe.Segmenter(codes, remembered=3)
    lines = texts[0].read_text().splitlines()
    forgetful = [segment for line in lines for segment in segmenter([line])]
    assert forgetful == (tmp_path / "all").read_text().splitlines()


def test_odd_lines(texts: list[Path], tmp_path: Path) -> None:
    """Empty lines stay, blanks are one, and other white space is a letter like others."""
    codes = tmp_path / "codes"
    bpe.learn(texts, 10, codes)
    (tmp_path / "odd").write_text("\n  \n q  x \nq\u2028q\n")
    apply_bpe.apply(codes, tmp_path / "odd", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "\n\nq x\nq@@ \u2028@@ q\n"


def test_real_text(shared_data: Path, tmp_path: Path) -> None:
    with gzip.open(shared_data / "tatoeba_en_de/train.de.gz", "rt", encoding="utf-8") as stream:
        text = "".join(line for line, _ in zip(stream, range(2000), strict=False))
    (tmp_path / "text").write_text(text)
    bpe.learn([tmp_path / "text"], 1500, tmp_path / "codes")
    codes = (tmp_path / "codes").read_text()
    assert codes == theirs(text, 1500)
    apply_bpe.apply(tmp_path / "codes", tmp_path / "text", tmp_path / "out")
    assert (tmp_path / "out").read_text() == segmented(codes, text)


GLOSSARIES = ("nana", "b[ae]l", "öl|ku")


@pytest.fixture(scope="module")
def joint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two texts, and what subword-nmt learn-joint-bpe-and-vocab makes: code, vocab.a, vocab.b."""
    folder = tmp_path_factory.mktemp("joint")
    texts = invented(folder, lines=60)
    files = [folder / name for name in ("code", "vocab.a", "vocab.b")]
    for path in files:
        path.touch()
    inputs, (codes, *vocabularies) = (
        [argparse.Namespace(name=str(path)) for path in paths] for paths in (texts, files)
    )
    learn_joint_bpe_and_vocab(
        argparse.Namespace(
            input=inputs, output=codes, vocab=vocabularies, symbols=80, min_frequency=2,
            separator="@@", num_workers=1, total_symbols=False, verbose=False,
        )
    )  # fmt: skip
    return folder


def test_joint_codes_and_vocabularies_as_subword_nmt(joint: Path, tmp_path: Path) -> None:
    bpe = apply_bpe.JointBpe(tmp_path, ("a", "b"), BpeOptions(3), 1)
    counts = bpe.learn((joint / "a", joint / "b"), 80)
    for name in ("code", "vocab.a", "vocab.b"):
        assert (tmp_path / name).read_bytes() == (joint / name).read_bytes()
    assert counts["vocab.a"] == (joint / "vocab.a").read_bytes().count(b"\n")


@pytest.mark.parametrize("threshold", [None, 1, 10, 40])
@pytest.mark.parametrize("glossaries", [(), GLOSSARIES])
def test_threshold_and_glossaries_as_subword_nmt(
    threshold: int | None, glossaries: tuple[str, ...], joint: Path, tmp_path: Path
) -> None:
    """Each text by either vocabulary, so that some words have units that it never had."""
    codes = (joint / "code").read_text()
    differ = 0
    for lang in ("a", "b"):
        units = None
        if threshold is not None:
            with (joint / f"vocab.{lang}").open(encoding="utf-8") as stream:
                units = read_vocabulary(stream, threshold)
        for text in (joint / "a", joint / "b"):
            out, options = tmp_path / "out", BpeOptions(threshold, glossaries)
            apply_bpe.apply(joint / "code", text, out, lang, options)
            theirs = {"vocab": units, "glossaries": list(glossaries)}
            assert out.read_text() == segmented(codes, text.read_text(), **theirs)
            differ += out.read_text() != segmented(codes, text.read_text())
    assert bool(differ) == bool(threshold or glossaries), "neither is without effect here"


def test_a_threshold_above_all_units(joint: Path, tmp_path: Path) -> None:
    """subword-nmt takes no units for no vocabulary, and all of them would stay."""
    with pytest.raises(UserError, match=r"vocab\.a: no unit occurs 10,000 times; give a lower"):
        apply_bpe.apply(joint / "code", joint / "a", tmp_path / "o", "a", BpeOptions(10_000))


def test_a_rare_unit_is_taken_apart_on_its_side_only(tmp_path: Path) -> None:
    """By undoing the merges that made it, down to what is frequent enough."""
    english, german = tmp_path / "t.en", tmp_path / "t.de"
    english.write_text("lower\n" * 50)
    german.write_text("lower\n" + "low\n" * 9 + "er\n" * 9)
    options = BpeOptions(5)
    apply_bpe.JointBpe(tmp_path, ("en", "de"), options, 1).learn((english, german), 20)
    assert (tmp_path / "vocab.en").read_text() == "lower 50\n"
    found = {}
    for lang in ("en", "de"):
        path = tmp_path / f"out.{lang}"
        apply_bpe.apply(tmp_path / "code", german, path, lang, options)
        found[lang] = path.read_text().splitlines()[0]
    assert found["en"] == "lower"
    assert found["de"].replace("@@ ", "") == "lower" != found["de"]


@pytest.mark.parametrize(
    ("glossary", "message"),
    [
        ("a(b", "--glossaries 'a(b': no regular expression (missing ), unterminated subpattern"),
        ("x(?i)y", "--glossaries 'x(?i)y': no regular expression (global flags not at the start"),
        ("(USA|UK)", "a group would be written twice; write (?:...) instead of (...)"),
        ("x*", "--glossaries 'x*': matches where nothing stands; write + instead of *"),
    ],
)
def test_glossaries_that_are_none(glossary: str, message: str) -> None:
    with refusing(message):
        BpeOptions(glossaries=("fine", glossary))


def test_vocabulary_that_is_none(texts: list[Path], tmp_path: Path) -> None:
    bpe.learn(texts, 10, tmp_path / "code")
    out, options = tmp_path / "out", BpeOptions(2)
    with pytest.raises(UserError, match=r"vocab\.de: no such file"):
        apply_bpe.apply(tmp_path / "code", texts[0], out, "de", options)
    (tmp_path / "vocab.de").write_text("a 3\nb\n")
    with pytest.raises(UserError, match=r"vocab\.de: not a unit and its count on every line"):
        apply_bpe.apply(tmp_path / "code", texts[0], out, "de", options)


@pytest.mark.parametrize("merges", [0, -5])
def test_merges_that_are_none(merges: int, texts: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{merges} merges: there must be at least one"):
        bpe.learn(texts, merges, tmp_path / "codes")
    assert not (tmp_path / "codes").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b\n" + "ab " * 400_000 + "\n", "text:2: a line of more than 1,048,576 bytes"),
        (" \n\n", "text: no words to learn from"),
    ],
    ids=["no text", "no words"],
)
def test_texts_that_are_not_learnt_from(text: str, message: str, tmp_path: Path) -> None:
    """A line as long as this could not be segmented; it used to be found after the codes."""
    (tmp_path / "text").write_text(text)
    with pytest.raises(UserError, match=message):
        bpe.learn([tmp_path / "text"], 10, tmp_path / "codes")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "codes: no such file"),
        (b"", "codes: does not start with '#version: 0.2'"),
        (b"#version: 0.1\na b\n", "codes: does not start with '#version: 0.2'"),
        (b"#version: 0.2\n", "codes: no merges"),
        (b"#version: 0.2\na b\nab\n", "codes:3: not two symbols with a blank between them"),
        (b"#version: 0.2\na \xff\n", "codes:2: invalid UTF-8: byte 0xFF"),
    ],
)
def test_codes_that_are_none(content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "codes").write_bytes(content)
    (tmp_path / "text").write_text("a\n")
    with pytest.raises(UserError, match=message):
        apply_bpe.apply(tmp_path / "codes", tmp_path / "text", tmp_path / "out")
