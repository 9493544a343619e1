"""Texts line by line: each fault is found where it is; pairs that go for their length."""

from __future__ import annotations

import gzip
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
from refusals import refusing
from text_tools import (
    VOCAB_SIZE,
    error_line,
    manifest,
    options,
    prepare_text,
    replace_line,
    run,
    write_corpus,
)

from data_prep.check import (
    HeldOut,
    SetReport,
    check_set,
    inspect,
    report_lines,
)
from data_prep.clean_pairs import LONGEST_WORD, clean_pairs, is_kept
from data_prep.parallel_text import lines_of, write_lines
from data_prep.subwords import pieces_of, train_pieces, write_subwords

Pair = Callable[[bytes, bytes], tuple[Path, Path]]
GOOD = b"one\ntwo\nthree\n"
#: The target, line of the fault, its reason and detail.
FAULTS = {
    "cr": (b"eins\nzw\rei\ndrei\n", 2, "carriage return", "U+000D at character 3"),
    "crlf": (b"eins\r\nzwei\r\ndrei\r\n", 1, "carriage return", "U+000D at character 5"),
    "nul": (b"eins\nzwei\ndr\0ei\n", 3, "NUL", "U+0000 at character 3"),
    "u+2028": ("eins\nzw\u2028ei\ndrei\n".encode(), 2, "line separator", "U+2028"),
    "windows-1252": (b"eins\nzwei\nd\xe4ei\n", 3, "invalid UTF-8", "byte 0xE4 at byte 2"),
    "bom": (b"\xef\xbb\xbfeins\nzwei\ndrei\n", 1, "byte order mark", ""),
    "joined": (b"eins\n\xef\xbb\xbfzwei\ndrei\n", 2, "byte order mark", ""),  # of two files
    "empty": (b"eins\n\ndrei\n", 2, "empty", ""),
    "words": (b"eins\nzwei\n" + b"d " * 1001 + b"\n", 3, "too long", "1,001 words"),
    "characters": (b"eins\n" + b"z" * 20_001 + b"\ndrei\n", 2, "too long", "20,001 characters"),
}


def checked(pair: tuple[Path, Path], split: str = "train") -> SetReport:
    with tempfile.TemporaryDirectory() as folder:
        return check_set(split, pair, (Path(folder, "s"), Path(folder, "t")), {})


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str, pair: Pair) -> None:
    target, line, reason, detail = FAULTS[name]
    paths = pair(GOOD, target)
    report = checked(paths)
    lost = 3 if name == "crlf" else 1
    assert (report.read, report.kept, sum(report.dropped.values())) == (3, 3 - lost, lost)
    where = report.first[reason]
    assert where.startswith(f"{paths[1]}:{line}")
    assert detail in where
    with refusing(f"{paths[1]}:{line}: {reason}", detail):
        checked(paths, "test")


def followed(line: str, path: Path) -> bytes:
    """The text after the advised command; its FILE is ``path``, and NEW replaces that."""
    command = line.partition(" it: ")[2].replace("FILE", str(path)).replace("NEW", f"{path}.new")
    subprocess.run(["bash", "-c", command], check=True)
    new = path.with_name(f"{path.name}.new")
    return (new if new.exists() else path).read_bytes()


@pytest.mark.parametrize("name", ["cr", "crlf", "nul", "windows-1252", "bom", "joined"])
def test_advice_removes_the_fault(name: str, pair: Pair) -> None:
    paths = pair(GOOD, FAULTS[name][0])
    with refusing(" it: ") as refusal:
        checked(paths, "test")
    lines = followed(str(refusal.value), paths[1]).splitlines(keepends=True)
    assert [inspect(line)[0] for line in lines] == ["", "", ""]


@pytest.mark.parametrize("side", [0, 1])
def test_published_text_keeps_what_fairseq_can_read(side: int, pair: Pair) -> None:
    texts = [GOOD, b"eins\nzwei\ndrei\n"]
    texts[side] = "\u2028\n\nx\n".encode()
    texts[1 - side] = b"a\nb\nc\n"
    report = check_set("train", pair(*texts), None, {})
    assert (report.read, report.kept) == (3, 3)
    texts = [b"a\n\nc\n", b"a\n\nd\n"]
    texts[side] = b"a\nb\rb\nc\n"
    paths = pair(*texts)
    with refusing(f"{paths[side]}:2"):
        check_set("train", paths, None, {})


@pytest.mark.parametrize("longer", [0, 1])
@pytest.mark.parametrize("split", ["train", "test"])
def test_unequal_line_counts(longer: int, split: str, pair: Pair) -> None:
    texts = [b"one\ntwo\n", b"eins\nzwei\n"]
    texts[longer] += b"3\n"
    paths = pair(*texts)
    with refusing(*map(str, paths)):
        checked(paths, split)


def test_the_last_newline_may_be_missing(pair: Pair) -> None:
    assert checked(pair(GOOD, GOOD.upper()[:-1]), "test").kept == 3


def test_gzip_and_a_cut_one(tmp_path: Path) -> None:
    texts = [b"".join(b"%s %d\n" % (word, n) for n in range(9999)) for word in (b"a", b"b")]
    pair = tmp_path / "a.en.gz", tmp_path / "a.de.gz"
    for path, text in zip(pair, texts, strict=True):
        path.write_bytes(gzip.compress(text))
    assert checked(pair).kept == 9999
    pair[1].write_bytes(gzip.compress(texts[1])[:-20])
    with refusing(str(pair[1])):
        checked(pair)


def test_copies(pair: Pair) -> None:
    assert checked(pair(b"Berlin\nyes\n", b"Berlin\nja\n")).copies == 1
    paths = pair(GOOD, GOOD)
    with refusing(str(paths[1]), str(paths[0])):
        checked(paths)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_empty_sets(split: str, pair: Pair) -> None:
    with refusing(split):
        checked(pair(b"", b""), split)


def test_pairs_of_the_training_text(pair: Pair, tmp_path: Path) -> None:
    """Both sides must be equal; each pair of the set counts; nothing is dropped."""
    out: tuple[Path, Path] = (tmp_path / "s", tmp_path / "t")
    held_out: HeldOut = {}
    texts = pair(b"a\nb\nc\nc\n", b"A\nB\nC\nC\n")
    report = check_set("test", texts, out, held_out)
    texts[0].write_bytes(b"a\na\n c \nd\n")
    texts[1].write_bytes(b"A\nA\nC\nother\n")
    assert check_set("train", texts, out, held_out).kept == report.kept == 4
    warning = [*report_lines({"test": report})][-1]
    assert warning.startswith("warning: 3 of 4 pairs of the set test")


def test_prepare_reports_every_set(tmp_path: Path, no_fairseq: None) -> None:
    """On standard output and in the manifest; too much lost is an error unless allowed."""
    text, out = write_corpus(tmp_path / "text"), tmp_path / "bin"
    replace_line(text / "train.de", 3, b"d\xe4 .")
    replace_line(text / "train.en", 9, "\u200b".encode())  # nothing to see
    prepare_text(text, out)
    found = manifest(out)["sets"]
    assert (found["train"]["read"], found["train"]["kept"]) == (300, 298)
    assert found["train"]["dropped"] == {"invalid UTF-8": 1, "empty": 1}
    of_subwords = {"tokens": 0, "detached": 0}
    assert found["test1"] | of_subwords == asdict(SetReport(read=10, kept=10, longest=9))
    for number in range(20, 40):
        replace_line(text / "train.de", number, b"d\xe4 .")
    done = run("prepare", *options(text, out), "--force")
    assert re.search(r"^train +300 ", done.stdout, re.M)
    error = error_line(done, "prepare")
    assert f"{text}/train.de:3 (byte 0xE4" in error
    assert "set train: 22 of 300" in error
    prepare_text(text, out, force=True, allowed_loss=0.08)
    with refusing("set train: 22 of 300"):  # what sentencepiece leaves nothing of counts, too
        prepare_text(text, out, force=True, allowed_loss=0.07)


def test_pairs_stay_aligned(pair: Pair, tmp_path: Path) -> None:
    """Both sides of a pair go, whichever has a fault."""
    paths, out = pair(b"a\nb\rb\nc\nd\n", b"A\nB\n\xff\nD\n"), (tmp_path / "s", tmp_path / "t")
    assert check_set("train", paths, out, {}).kept == 2
    assert [path.read_bytes() for path in out] == [b"a\nd\n", b"A\nD\n"]


# ---- pairs that go for their length --------------------------------------------------------------


def outputs(folder: Path) -> tuple[Path, Path]:
    return folder / "clean.en", folder / "clean.de"


#: Words of each side, for 2 to 9 words and a ratio of 1.5.
KEPT = [(4, 4), (4, 6), (6, 4), (9, 9), (2, 2)]  # exactly the ratio, too
DROPPED = [
    *((4, 7), (7, 4)),
    *((10, 9), (9, 10), (10, 1)),
    *((1, 1), (1, 2), (2, 1), (1, 9)),
    *((0, 2), (2, 0), (0, 0)),
]


def test_rules() -> None:
    for source, target in KEPT + DROPPED:
        found = is_kept(["x"] * source, ["x"] * target, ratio=1.5, shortest=2, longest=9)
        assert found is ((source, target) in KEPT), (source, target)


def test_long_words() -> None:
    rule = partial(is_kept, ratio=9, shortest=1, longest=9)
    assert rule(["x" * LONGEST_WORD], ["y"])
    assert not rule(["x" * (LONGEST_WORD + 1)], ["y"])
    assert not rule(["y"], ["é" * (LONGEST_WORD + 1)])


def test_counts_and_texts(pair: Pair, tmp_path: Path) -> None:
    source = "a b c\n \u00a0\na\n" + "a " * 8 + "\na b c d\nä\u3000 ö"
    target = "x y z\nx\nx y\nx\nx\n u v\x0b w\n"
    sources, out = pair(source.encode(), target.encode()), outputs(tmp_path)
    counts = clean_pairs(sources, out, ratio=3, shortest=1, longest=7)
    assert counts == (3, 14)
    assert out[0].read_text() == "a b c\na\nä ö\n"
    assert out[1].read_text() == "x y z\nx y\nu v w\n"


# ---- lines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", b""),
        (b"a", b"a\n"),
        (b"\n\na\n\n", b"\n\na\n\n"),
        ("a\u2028b\x85c\rd\x0b\n".encode(), "a\u2028b\x85c\rd\x0b\n".encode()),
    ],
)
def test_a_line_ends_at_lf_only(content: bytes, expected: bytes, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(content)
    lines = write_lines(tmp_path / "out", lines_of(tmp_path / "text"))
    assert (tmp_path / "out").read_bytes() == expected
    assert lines == expected.count(b"\n")


def test_invalid_utf8(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"fine\n\xe9\n")
    with refusing(f"{tmp_path}/text:2"):
        list(lines_of(tmp_path / "text"))


# ---- symbols of fairseq's ------------------------------------------------------------------------

SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    """A text in which each of them is a frequent word, and a dropped line precedes the others."""
    text = write_corpus(tmp_path / "text")
    replace_line(text / "train.de", 2, b"")
    for number, symbol in enumerate(SYMBOLS * 5, 11):
        replace_line(text / "train.de", number, f"Ba {symbol} lo .".encode())
    return text


@pytest.mark.usefixtures("no_fairseq")
def test_symbols_of_fairseq_in_tokenised_text(marked: Path, tmp_path: Path) -> None:
    """Merges make them whole; then fairseq reads its own symbols."""
    out = tmp_path / "bin"
    how = {"subwords": "subword_nmt", "vocab_size": 400, "allowed_loss": 0.1}
    prepare_text(marked, out, **how)
    train = manifest(out)["sets"]["train"]
    for number, symbol in enumerate(SYMBOLS, 11):
        (reason,) = (reason for reason in train["dropped"] if symbol in reason)
        assert train["dropped"][reason] == 5
        assert train["first"][reason] == f"train.de:{number}"
    assert train["kept"] == 300 - 1 - 20
    replace_line(marked / "valid.de", 7, b"<unk> .")
    with refusing("valid.de:7", "<unk>"):
        prepare_text(marked, tmp_path / "other", **how)


@pytest.mark.usefixtures("no_fairseq")
def test_the_mark_of_subwords_in_tokenised_text(marked: Path, tmp_path: Path) -> None:
    """A word that ends with it would be joined to the next, and the mark alone vanish."""
    how = {"subwords": "subword_nmt", "vocab_size": 400, "allowed_loss": 0.1}
    replace_line(marked / "train.de", 40, b"foo@@ bar .")
    replace_line(marked / "train.en", 41, b"a @@ b .")
    prepare_text(marked, tmp_path / "bin", **how)
    train = manifest(tmp_path / "bin")["sets"]["train"]
    (reason,) = (reason for reason in train["dropped"] if "@@" in reason)
    assert (train["dropped"][reason], train["first"][reason]) == (2, "train.de:40")
    replace_line(marked / "valid.de", 7, b"ba@@ lo .")
    with refusing("valid.de:7", "@@"):
        prepare_text(marked, tmp_path / "other", **how)


def test_symbols_of_fairseq_in_ordinary_text(marked: Path, tmp_path: Path) -> None:
    """sentencepiece never makes them whole: brackets and letters are of different scripts."""
    for symbol in SYMBOLS:
        replace_line(marked / "train.de", 30, f"ba{symbol}ba {symbol}".encode())
    pair = marked / "train.en", marked / "train.de"
    train_pieces(pair, VOCAB_SIZE, tmp_path / "model")
    segment = pieces_of(tmp_path / "model")
    for symbol in SYMBOLS:
        assert "".join(segment(f"a{symbol}b {symbol}")) == f"\u2581a{symbol}b\u2581{symbol}"
        assert symbol not in segment(f"a{symbol}b {symbol}")


def test_symbols_of_fairseq_in_published_text(tmp_path: Path) -> None:
    """Nothing is dropped; the pairs are counted, and a warning says so."""
    texts, out = (tmp_path / "a", tmp_path / "b"), (tmp_path / "a.bpe", tmp_path / "b.bpe")
    write_lines(texts[0], ["one", "<unk> two", "", "</s>"])
    write_lines(texts[1], ["eins", "zwei", "drei", "<s> vier"])
    report = SetReport(read=4, kept=4)
    write_subwords(str.split, texts, out, report, drop=None)
    assert (report.kept, report.symbols) == (4, 2)
    assert out[1].read_text() == texts[1].read_text()
    assert "2 of 4" in [*report_lines({"train": report})][-1]
