"""Documents: consecutive sentences only, none too long, and their text back from their subwords."""

from __future__ import annotations

from pathlib import Path

import pytest
import sentencepiece
from fairseq.data import Dictionary, indexed_dataset
from refusals import refusing
from text_tools import manifest, options, prepare_text, replace_line, run, write_corpus

from collab_common import BREAK
from data_prep import documents as documents_module
from data_prep.check import SetReport
from data_prep.corpus import SENTENCEPIECE, SUBWORD_NMT
from data_prep.documents import Sentence, documents, join_documents
from data_prep.subwords import by_sentence, units_of


def joined(
    lengths: list[int], sizes: tuple[int, ...], starts: frozenset[int] = frozenset()
) -> tuple[list[list[int]], SetReport]:
    """Numbers of the sentences, from 0, of each document; and the report.

    Args:
        lengths: subwords of each sentence
        starts: sentences, besides the first, with which a document starts
    """
    report = SetReport()
    sentences = [
        (number in {0, *starts}, Sentence((f"{number}" + " x" * (length - 1), "y"), None))
        for number, length in enumerate(lengths)
    ]
    made = documents(sentences, sizes, report)
    return [[int(s.subwords[0].split()[0]) for s in document] for document in made], report


def test_each_size_reads_the_text_once() -> None:
    made, report = joined([1] * 5, (1, 2, 4))
    assert made == [[0], [1], [0, 1], [2], [3], [2, 3], [0, 1, 2, 3], [4]]
    assert (report.documents, report.shortened) == (8, 0)


def test_a_document_ends_where_the_next_starts() -> None:
    made, report = joined([1] * 5, (4,), starts=frozenset({2, 3}))
    assert made == [[0, 1], [2], [3, 4]]
    assert report.shortened == 0


def test_one_that_would_be_too_long_ends_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_module, "MOST_SUBWORDS", 7)  # 3 + a break + 3
    made, report = joined([3, 3, 3, 9, 1], (3,))
    assert made == [[0, 1], [2], [3], [4]]
    assert (report.documents, report.shortened) == (4, 3)
    made, report = joined([3, 3, 3, 3], (3, 4))  # both sizes end where a third is too long
    assert made == [[0, 1], [2, 3]]
    assert (report.documents, report.shortened) == (2, 1)


def test_the_longest_fills_the_positions_of_fairseq() -> None:
    made, _ = joined([511, 511, 1], (4,))
    assert made == [[0, 1], [2]]  # 511 + 1 + 511 and the end of the sentence: 1,024


def test_subwords_of_both_sides_are_counted(tmp_path: Path) -> None:
    """With the breaks: those of a source of 3 + 1 + 2 are 6, of its target 4."""
    files = tmp_path / "train.en", tmp_path / "train.de"
    files[0].write_text("a b c\nd e\n")
    files[1].write_text("f\ng h\n")
    report = SetReport(kept=2)
    join_documents(files, None, report, (2,), " ")
    assert files[0].read_text() == f"a b c {BREAK} d e\n"
    assert report.tokens == 6 + 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SENTENCEPIECE, SUBWORD_NMT])
def test_folder(kind: str, tmp_path: Path) -> None:
    """Boundaries, and the same line from the text, from its subwords and from a user's encoder."""
    text, out = write_corpus(tmp_path / "text"), tmp_path / "bin"
    for lang in ("en", "de"):
        replace_line(text / f"valid.{lang}", 6, b"")  # ends a document
    replace_line(text / "train.en", 2, f"Ba {BREAK} de .".encode())
    replace_line(text / "train.de", 5, b"")  # a fault: the other side has text
    replace_line(text / "train.en", 9, "\u200b".encode())
    given = [*options(text, out), "--documents", "3,1"]
    for _ in range(2):  # the second does nothing
        done = run("prepare", *given, "--subwords", kind)
        assert done.returncode == 0, done.stderr
    report = manifest(out)["sets"]
    assert report["valid"]["read"] == 19
    assert report["train"]["kept"] == 300 - 3
    raw = {lang: (out / f"raw/valid.{lang}").read_text().splitlines() for lang in ("en", "de")}
    sentences = (text / "valid.de").read_text().split("\n")[:20]
    between = f"{BREAK} " if kind == SENTENCEPIECE else f" {BREAK} "
    assert raw["de"][:3] == [
        between.join(sentences[s]) for s in (slice(3), slice(3, 5), slice(6, 9))
    ]
    if kind == SENTENCEPIECE:
        encoder = sentencepiece.SentencePieceProcessor(model_file=str(out / "spm.model"))
        encode = lambda line: encoder.encode(line, out_type=str)  # noqa: E731
    else:
        encode = units_of(out / "code")  # as fairseq-interactive reads the codes
    words = Dictionary.load(str(out / "dict.de.txt"))
    binarised = indexed_dataset.make_dataset(str(out / "valid.en-de.de"), "mmap")
    assert len(binarised) == len(raw["de"]) == len(raw["en"]) == report["valid"]["documents"]
    mark = "sentencepiece" if kind == SENTENCEPIECE else "@@ "
    for line, ids in zip(raw["de"], binarised, strict=True):
        assert words.string(ids) == " ".join(encode(line))
        for other in (f" {BREAK} ", f"{BREAK} ", BREAK):  # as somebody may join them by hand
            assert by_sentence(encode)(line.replace(between, other)) == encode(line)
        assert words.string(ids, mark) == line


def test_break_in_a_text(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text")
    replace_line(text / "valid.de", 7, f"Ba{BREAK} de .".encode())
    with refusing("valid.de:7", BREAK):
        prepare_text(text, tmp_path / "bin", documents=(1, 2))


@pytest.mark.usefixtures("no_fairseq")
def test_like_a_folder_without_documents(corpus: Path, tmp_path: Path) -> None:
    """Its model has no symbol to join with; its sentences alone are possible."""
    text = write_corpus(tmp_path / "text", seed=2)
    like = tmp_path / "like"
    prepare_text(corpus, like)
    for lang in ("en", "de"):
        (like / f"dict.{lang}.txt").write_text("ba 1\n")
        replace_line(text / f"valid.{lang}", 6, b"")
    with refusing("dict.en.txt", "--documents"):
        prepare_text(text, tmp_path / "out", like=like, documents=(4,))
    prepare_text(text, tmp_path / "out", like=like, documents=(1,))
    assert manifest(tmp_path / "out")["sets"]["valid"]["documents"] == 19


@pytest.mark.parametrize("sizes", ["0", "2,", "a"])
def test_numbers_of_sentences(sizes: str, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        run("prepare", *options(corpus, tmp_path / "bin"), "--documents", sizes)
    assert not (tmp_path / "bin").exists()
