"""Text of any script comes back from its subwords: a perfect translation scores 100."""

from __future__ import annotations

import io
import random
import shutil
import unicodedata
from pathlib import Path

import pytest
import sentencepiece
from fairseq.data import Dictionary, indexed_dataset
from refusals import refusing
from text_tools import manifest, numbers_said, prepare_text

from collab_common.encodings import is_misread
from collab_lab.metrics.translation_scores import score
from data_prep import subwords
from data_prep.check import SetReport, check_set, report_lines
from data_prep.parallel_text import write_lines

#: Letters and marks of twelve scripts, with what sentencepiece's own rule would rewrite.
SCRIPTS = {
    "Latin": "aäeéiïoöuüsßzžxæœﬁﬂ",
    "Vietnamese, NFD": unicodedata.normalize("NFD", "aăâbcdđeêghiknoôơ\u1ec7\u1ed9"),
    "Greek": "αάβγδεέζηήθιίκλμνξ\u0387",
    "Cyrillic": "абвгдеёжзийклмнопёѣ№",
    "Hebrew": "אבגדהוזחטיכלמנסע\u05b0\u05b7\u200f",
    "Persian": "ابپتثجچحخدذرز\u200c\u200f،؛؟۱۲۳",
    "Hindi": "अआइईउऊएऐकखगघ\u094d\u200d\u093c।",
    "Thai": "กขคงจฉชซญฎฏฐ\u0e33\u0e34\u0e48",
    "Khmer": "កខគឃងចឆជ\u17d2\u200b\u17b6\u17c6",
    "Chinese": "中文翻译学习\uff0c\uff1f\uff01\uff1a\uff1b\uff08\uff09\u3002\uff11\u3000",
    "Japanese": "あいうえおアイウｶﾞｷﾞ㌔日本語「」",
    "Korean": "가나다라마바사\u1112\u1161\u11ab\u3131",
    "chemistry": "H₂Om²½µ№℃Å™ªº\u00a0\u2009\u202f±",
}  # fmt: skip


def words_of(letters: str, seed: int, number: int = 60) -> list[str]:
    """Random lines of random words."""
    chosen = random.Random(seed)
    return [
        " ".join(
            "".join(chosen.choices(letters, k=chosen.randint(1, 6)))
            for _ in range(chosen.randint(1, 8))
        )
        + f" {line}"
        for line in range(number)
    ]


def translated(folder: Path, split: str, lang: str) -> list[str]:
    """A perfect translation: the references in subwords, joined as fairseq does."""
    words = Dictionary.load(str(folder / f"dict.{lang}.txt"))
    data = indexed_dataset.make_dataset(str(folder / f"{split}.en-de.{lang}"), "mmap")
    return [words.string(line, "sentencepiece") for line in data]


@pytest.mark.slow
def test_any_text_comes_back_from_its_subwords(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or the line is counted: one with sentencepiece's own sign, one with letters never seen."""
    text = tmp_path / "text"
    text.mkdir()
    by_script = [words_of(letters, seed) for seed, letters in enumerate(SCRIPTS.values())]
    lines = [line for script in by_script for line in script]
    sources = [f"{line} ." for line in reversed(lines)]
    odd = ["a\u2581e 1", "a \u2d30\u2d31 2"]
    for split in ("train", "valid", "test"):
        more = odd if split == "test" else []
        write_lines(text / f"{split}.en", sources + ["a e ."] * len(more))
        write_lines(text / f"{split}.de", lines + more)
    assert prepare_text(text, tmp_path / "bin", vocab_size=700) is not None
    said = capsys.readouterr().out
    for split, more in (("valid", []), ("test", odd)):
        found = translated(tmp_path / "bin", split, "de")
        assert [" ".join(line.split()) for line in lines] == found[: len(lines)]
        for start, script in zip(range(0, len(lines), 60), by_script, strict=True):
            assert score(found[start : start + 60], script).bleu == pytest.approx(100)
        assert not set(found[len(lines) :]) & set(more)
        report = manifest(tmp_path / "bin")["sets"][split]
        assert report["altered"] + report["unknown"] == len(more)
        assert numbers_said(said, split, "come back") == [len(more) - 1] * bool(more)
        assert numbers_said(said, split, "accents") == [report["decomposed"]]
    assert (report["first_altered"], report["first_unknown"]) == (odd[0], "\u2d30\u2d31")
    apart = sum(not unicodedata.is_normalized("NFC", line) for line in (*lines, *sources))
    assert report["decomposed"] == apart > 0


@pytest.mark.parametrize(
    ("line", "comes_back"), [("m\u00b2 \u00bd\u00a0\u00b5", True), ("a\u2581b", False)]
)
def test_lines_that_do_not_come_back_are_counted(
    line: str, comes_back: bool, tmp_path: Path
) -> None:
    """White space of other kinds is a blank in all scores; sentencepiece's own sign is lost."""
    texts, out = (tmp_path / "a", tmp_path / "b"), (tmp_path / "a.spm", tmp_path / "b.spm")
    for path in texts:
        write_lines(path, [line, "m2 1/2 the quick brown fox"] * 20)
    subwords.train_pieces(texts, 40, tmp_path / "model")
    report = SetReport(read=40, kept=40)
    segment = subwords.pieces_of(tmp_path / "model")
    subwords.write_subwords(segment, texts, out, report, drop=False)
    assert report.altered == (0 if comes_back else 40)


def test_a_model_with_another_rule_is_counted(tmp_path: Path) -> None:
    """Models of other programs rewrite text: NFKC makes m2 of m\u00b2."""
    texts, out = (tmp_path / "a", tmp_path / "b"), (tmp_path / "a.spm", tmp_path / "b.spm")
    for path in texts:
        write_lines(path, ["10 m\u00b2 of it", "10 m of it"])
    report = SetReport(read=2, kept=2)

    def segment(line: str) -> list[str]:
        return [subwords.BLANK + word for word in unicodedata.normalize("NFKC", line).split()]

    subwords.write_subwords(segment, texts, out, report, drop=False)
    assert (report.altered, report.first_altered) == (2, "10 m\u00b2 of it")


def test_a_model_that_writes_bytes_is_refused(tmp_path: Path) -> None:
    """fairseq would show them as text: <0xD0><0xB6>."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d"] * 10), model_writer=model, vocab_size=270,
        byte_fallback=True, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    (tmp_path / "model").write_bytes(model.getvalue())
    with refusing(str(tmp_path / "model"), "bytes"):
        subwords.pieces_of(tmp_path / "model")


@pytest.mark.parametrize(
    ("symbol", "is_cut"),
    [
        ("<2de>", True),
        ("__de__", True),
        (">>deu<<", True),
        ("[de_DE]", True),
        ("de_DE", True),
        ("<2en>", False),  # whole in text
        ("<break>", False),
        ("<unk>", False),
        ("<0xE4>", False),
        ("@-@", False),
        ("\u2581<b>", False),
        ("x_1", False),
    ],
)
def test_tags_that_subwords_cut_are_said(symbol: str, is_cut: bool) -> None:
    def segment(line: str) -> list[str]:
        return ["\u2581", line] if line == "<2en>" else ["\u2581", *line]

    said = subwords.cut_tags(["a", symbol], segment, "spm.model")
    assert (said is not None and symbol in said) == is_cut


@pytest.mark.usefixtures("no_fairseq")
def test_tags_of_another_folder_are_said(prepared: Path, corpus: Path, tmp_path: Path) -> None:
    like = shutil.copytree(prepared, tmp_path / "like")
    with (like / "dict.en.txt").open("a") as file:
        file.write("<2de> 1\n")
    for folder, number in ((like, 1), (prepared, 0)):
        out = prepare_text(corpus, tmp_path / f"out{number}", like=folder)
        assert sum("<2de>" in warning for warning in manifest(out)["warnings"]) == number


@pytest.mark.parametrize(
    "escape", ["&apos;", "&#39;", "&nbsp;", "&frac12;", "&#x2019;", "@-@", "-LRB-", "-rsb-"]
)
def test_escapes_are_said(escape: str, tmp_path: Path) -> None:
    texts, out = (tmp_path / "a", tmp_path / "b"), (tmp_path / "c", tmp_path / "d")
    write_lines(texts[0], [f"it {escape} s a dog", "two dogs & R&D; cats ."] * 10)
    write_lines(texts[1], ["ein Hund", "zwei Hunde"] * 10)
    report = check_set("train", texts, out, {})
    assert report.escaped == 10
    assert any("&apos;" in line for line in report_lines({"train": report}))
    assert not check_set("train", texts, None, {}).escaped  # as published, in Moses' tokens


def test_white_space_of_other_kinds_is_said(tmp_path: Path) -> None:
    """Translations have a blank in its place, which is another text, though no other score."""
    texts, out = (tmp_path / "a", tmp_path / "b"), (tmp_path / "c", tmp_path / "d")
    write_lines(texts[0], ["Well!", "two  cats"] * 10)
    write_lines(texts[1], ["Voil\u00e0\u00a0!", "deux chats"] * 10)
    report = check_set("train", texts, out, {})
    assert report.spaced == 10
    assert any(r"'\xa0'" in line for line in report_lines({"train": report}))


@pytest.mark.parametrize(
    ("line", "is_said"),
    [
        ("ein hund , der bellt .", True),
        ("\u72ac \u304c \u8d70 \u308b \u3002", True),
        ("Ein Hund, der bellt ...", False),
        ("didn 't he ask that ?", True),
        ("Vraiment ? Oui : un chien !", False),  # ordinary French
    ],
)
def test_tokens_are_said_where_ordinary_text_is_meant(
    line: str, is_said: bool, tmp_path: Path
) -> None:
    """Those of one side are enough; tokens without escapes look like any other text."""
    language = "fr" if line.startswith("Vraiment") else "de"
    texts, out = (
        (tmp_path / f"{part}.en", tmp_path / f"{part}.{language}") for part in ("text", "pieces")
    )
    write_lines(texts[0], ["A dog that barks."] * 20)
    write_lines(texts[1], [line] * 20)
    for mark in ("", subwords.SEPARATOR):
        report = SetReport(read=20, kept=20)
        subwords.write_subwords(str.split, texts, out, report, drop=False, mark=mark)
        said = [row for row in report_lines({"train": report}) if "apart from its word" in row]
        assert bool(said) == (is_said and not mark)


#: Words, and an encoding in which a program of Windows or its console reads them by mistake.
WINDOWS = [
    ("příliš", "cp1250"), ("łódź", "cp1250"), ("Привет, мир", "cp1251"), ("γειά", "cp1253"),
    ("سلام", "cp1256"), ("für", "cp850"), ("Straße", "cp437"), ("привет", "cp866"),
]  # fmt: skip


def read_in(text: str, encoding: str) -> str:
    """What a program makes of UTF-8 if it takes the text for another encoding."""
    found = (bytes([byte]).decode(encoding, "ignore") or chr(byte) for byte in text.encode())
    return "".join(found)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("für „dich“ … ja", None),  # as Windows-1252, and as Latin-1
        ("für dich", "für dich".encode().decode("latin-1")),
        ("привет «мир»", "привет «мир»".encode().decode("latin-1").replace("\x85", "…")),
        ("中文“学习”", "中文â€œ学习â€\x9d"),  # only marks
        *((word, read_in(word, encoding)) for word, encoding in WINDOWS),
        ("ein Café", "ein Caf\ufffd"),
    ],
)
def test_letters_of_another_encoding_are_said(
    right: str, wrong: str | None, tmp_path: Path
) -> None:
    wrong = wrong or right.encode().decode("cp1252")
    texts, out = (tmp_path / "a", tmp_path / "b"), (tmp_path / "c", tmp_path / "d")
    write_lines(texts[0], ["a dog", "two dogs"] * 10)
    write_lines(texts[1], [right, "zwei Hunde"] * 9 + [wrong, wrong])
    report = check_set("train", texts, out, {})
    assert report.misread + report.replaced == 2
    assert report.first_misread + report.first_replaced == f"{texts[1]}:19"
    assert any(f"{texts[1]}:19" in line for line in report_lines({"train": report}))
    assert check_set("train", texts, None, {}).misread == report.misread


@pytest.mark.parametrize(
    "line",
    [
        "«CAFÉ»", "IRMÃO", "à « tous »", "„Ü“ Öl…", "½ m ÷ 3²", "Đ Ż ł", "“Elle, il est allé…”",
        "„passé…“", "„CASĂ”", "Её ещё… «Б»", "ΌΛΑ «Έ»", "تکتک، سگ", "├── Öl", "│ ╔═╗", "√π",
    ],
)  # fmt: skip
def test_letters_that_only_look_like_another_encoding_are_not_said(line: str) -> None:
    assert not is_misread(line)


def test_long_lines_are_learnt_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Thai has no blanks, and documents are long; what is left out is said."""
    texts = tmp_path / "a", tmp_path / "b"
    for path in texts:
        write_lines(path, ["กขคงจฉช" * 400] * 5)  # 8,400 bytes each
    subwords.train_pieces(texts, 20, tmp_path / "model")
    assert not capsys.readouterr().out
    write_lines(texts[0], ["ก" * 30_000])
    subwords.train_pieces(texts, 20, tmp_path / "model")
    assert "1 of 6 lines" in capsys.readouterr().out
    write_lines(texts[1], ["ก" * 30_000])
    with refusing(str(texts[0]), "all 2 lines"):
        subwords.train_pieces(texts, 20, tmp_path / "model")


def test_ordinary_text_in_place_of_tokens_is_said(tmp_path: Path) -> None:
    """New text for a model of tokens, say: its words would end in marks."""
    texts, out = (tmp_path / "a", tmp_path / "b"), (tmp_path / "a.bpe", tmp_path / "b.bpe")
    for mark, end, is_said in (("@@", "", True), ("@@", " ", False), ("", "", False)):
        for path, line in zip(texts, ("a dog", "两只狗"), strict=True):
            write_lines(path, [f"{line}{end}{'。' if line > 'z' else '.'}"] * 10)
        report = SetReport(read=10, kept=10)
        subwords.write_subwords(str.split, texts, out, report, drop=False, mark=mark)
        said = [line for line in report_lines({"test": report}) if "not tokenised" in line]
        assert bool(said) == is_said
