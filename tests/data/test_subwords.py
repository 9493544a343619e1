"""Merges of subword-nmt: the bytes that its own commands write."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from fairseq.data.data_utils import post_process
from fairseq.tokenizer import tokenize_line
from refusals import refusing
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from data_prep.subwords import apply_merges, learn_merges, segmenter


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    """Two texts of invented words; the second has other letters."""
    rng = random.Random(7)
    paths = tmp_path / "a", tmp_path / "b"
    for path, syllables in zip(paths, ("ba be la le lu nana", "ka ke ku öl ölöl"), strict=True):
        words = ("".join(rng.choices(syllables.split(), k=rng.randint(1, 4))) for _ in range(2800))
        path.write_text("".join(f"{' '.join(next(words) for _ in range(7))}\n" for _ in range(400)))
    return paths


def test_as_subword_nmt(
    texts: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Codes of both texts together, as of a file in which they follow each other; then segments.

    Its progress bar does not reach a log file.
    """
    expected = io.StringIO()
    learn_bpe(io.StringIO("".join(path.read_text() for path in texts)), expected, 40)
    codes, out = tmp_path / "codes", (tmp_path / "a.bpe", tmp_path / "b.bpe")
    capsys.readouterr()
    assert learn_merges(texts, 40, codes) == 40
    assert capsys.readouterr().err == ""
    assert codes.read_text() == expected.getvalue()
    tokens = apply_merges(codes, texts, out)
    theirs = BPE(io.StringIO(expected.getvalue()))
    for path, segmented in zip(texts, out, strict=True):
        lines = [theirs.process_line(line) for line in path.read_text().splitlines(keepends=True)]
        assert segmented.read_text() == "".join(lines)
        tokens -= len(segmented.read_text().split())
    assert tokens == 0


@pytest.mark.parametrize("space", "\u00a0\u202f\u2009\u3000")
def test_white_space_is_kept(space: str, tmp_path: Path) -> None:
    """fairseq takes all of it for the end of a token: a space within a token would be lost."""
    texts, out = (tmp_path / "a", tmp_path / "b"), (tmp_path / "a.bpe", tmp_path / "b.bpe")
    for path in texts:
        path.write_text(f"10{space}000 Euro\n" * 9)
    learn_merges(texts, 3, tmp_path / "codes")
    apply_merges(tmp_path / "codes", texts, out)
    tokens = tokenize_line(out[0].read_text().splitlines()[0])
    assert post_process(" ".join(tokens), "subword_nmt") == "10 000 Euro"


def test_no_words(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(" \n\n")
    with refusing(str(tmp_path / "a")):
        learn_merges((tmp_path / "a", tmp_path / "b"), 10, tmp_path / "codes")


@pytest.mark.parametrize("content", [b"#version: 0.2\na b\nab\n", b"#version: 0.2\na \xff\n"])
def test_codes_that_are_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "codes").write_bytes(content)
    with refusing(str(tmp_path / "codes")):
        segmenter(tmp_path / "codes")
