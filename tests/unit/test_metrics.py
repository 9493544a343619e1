"""Scores, tests over sentences and seeds, and paired tests of two translations."""

from __future__ import annotations

import math
import tracemalloc
import unicodedata
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refusing
from run_folders import (
    REFERENCES,
    spoilt,
    start_run,
    write_generation,
    write_run,
    write_translations,
)
from sacrebleu.metrics import BLEU, CHRF

from collab_lab.cli.compare import main
from collab_lab.metrics import significance
from collab_lab.metrics.marks import check_no_bytes, check_ordinary, subword_marks
from collab_lab.metrics.significance import (
    Gain,
    bootstrap_p,
    gain_of,
    half_width,
    holm,
    paired,
    pooled,
    resampled,
    resamples,
)
from collab_lab.metrics.translation_scores import score, tokenised, tokenizer
from collab_lab.runs.translations import read_system

ALL = len(REFERENCES)


def test_a_clearly_better_system() -> None:
    results = significance.paired(spoilt(30), spoilt(2), REFERENCES)
    assert [result.metric for result in results] == ["BLEU", "chrF"]
    for result in results:
        assert result.p < 0.01
        assert result.difference == pytest.approx(result.system - result.baseline)
        assert result.difference > 5
        assert min(result.baseline_ci, result.system_ci) > 0
        assert "bs:1000|seed:12345" in result.signature


@pytest.mark.parametrize(("number", "least"), [(0, 1), (1, 1), (2, 0.5), (5, 0.0625)])
def test_few_different_sentences_are_no_evidence(number: int, least: float) -> None:
    """Of none sacreBLEU itself would say p = 1/(samples + 1)."""
    systems = REFERENCES, spoilt(number)
    assert significance.least_p(*systems) == least
    assert all(one.p >= least for one in significance.paired(*systems, REFERENCES))


def test_other_references_are_rejected(tmp_path: Path) -> None:
    one, other = (write_run(tmp_path, name, 64) for name in "ab")
    write_translations(one, REFERENCES, REFERENCES)
    write_translations(other, REFERENCES, spoilt(1))
    with refusing("references"):
        main([str(one), str(other)])
    write_translations(other, REFERENCES[1:], REFERENCES[1:])
    with refusing("a_64_1", "40 and 39"):
        main([str(one), str(other)])


def test_what_is_no_pair_is_rejected(tmp_path: Path) -> None:
    a = write_generation(tmp_path / "a.out", REFERENCES)
    b = write_generation(tmp_path / "b.out", REFERENCES[1:])
    reference = tmp_path / "reference.txt"
    reference.write_text("".join(f"{line}\n" for line in REFERENCES))
    with refusing("b.out", "39", "40"):
        main([str(a), str(b), "--reference", str(reference)])
    with refusing("a.out", "reference"):
        main([str(a), str(b)])
    lost = start_run(tmp_path, "lost", verdict="diverged", reason="loss is nan")
    with refusing("lost", "loss is nan"):
        read_system(lost)
    with refusing("a.out"):
        main([str(a), f"{tmp_path}/./a.out", "--reference", str(reference)])


# ---- scores --------------------------------------------------------------------------------------

CHINESE = ["我们 2020 年在北京见面。", "两个人在公园里踢足球,旁边有一只狗。"]
CLOSE = ["我们 2021 年在北京见面。", "两个人在公园里打足球,旁边有一只狗。"]


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        (["Zwei Männer.", "두 남자가 축구를 한다.", "Ελληνικά"], "13a"),
        (["The word 我 in an English sentence."], "13a"),
        (CHINESE, "zh"),
        (["二人の男性が公園でサッカーをしている。"], "char"),
        (["ชายสองคนกำลังเล่นฟุตบอล"], "char"),
    ],
)
def test_the_tokenizer_is_that_of_the_script(references: list[str], expected: str) -> None:
    assert tokenizer(references) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abcd" + "猫犬", "13a"),
        ("ab" + "猫犬", "13a"),  # most letters are more than half of them
        ("ab" + "猫犬鳥", "zh"),
        ("猫" * 18 + "の" * 2, "char"),
        ("猫" * 19 + "の" * 2, "zh"),  # a kana in a Chinese text
    ],
)
def test_a_script_is_that_of_most_letters(text: str, expected: str) -> None:
    assert tokenizer([*text]) == expected


@pytest.mark.parametrize(
    ("lines", "marked", "is_refused"),
    [(3, 1, False), (3, 2, True), (4, 2, False), (5, 3, True), (600, 6, False), (600, 7, True)],
)
def test_marks_of_subwords_in_ordinary_text(lines: int, marked: int, is_refused: bool) -> None:
    """Up to one in a hundred lines, or two in few lines, but not most of them."""
    text = ["a d@@ og"] * marked + ["a dog"] * (lines - marked)
    with refusing(f"{marked} of {lines}") if is_refused else nullcontext():
        check_ordinary(text, ["a dog"] * lines)


def test_tokens_may_have_marks_of_tokens() -> None:
    tokens = ["it &apos;s a dog"] * 4
    check_ordinary(tokens, ["its a dog"] * 4, of_tokens=True)
    assert paired(tokens, tokens, ["its a dog"] * 4, of_tokens=True)[0].difference == 0
    with refusing("Moses"):
        paired(tokens, tokens, ["its a dog"] * 4)
    with refusing("subwords"):
        check_ordinary(["a d@@ og"] * 4, ["its a dog"] * 4, of_tokens=True)


def test_lengths_and_numbers_of_lines() -> None:
    assert score(["a dog and a cat ."], ["a dog ."]).length_ratio == 2
    for ours, theirs in ((2, 3), (3, 2)):
        with refusing(f"{ours} hypotheses but {theirs}"):
            score(["a dog"] * ours, ["a dog"] * theirs)


def test_bytes_of_characters_are_named() -> None:
    check_no_bytes(["a", "<0xZZ>", "x<0x41>"], Path("dict.txt"))
    with refusing("<0xD0>", "dict.txt"):
        check_no_bytes(["a", "<0xD0>"], Path("dict.txt"))


def test_all_scores_count_chinese_alike() -> None:
    """By 13a a sentence without blanks is one word, and all models are equally bad."""
    found = score(CLOSE, CHINESE)
    assert "tok:zh" in found.bleu_signature
    assert 60 < found.bleu < 100
    tested, _ = paired(CHINESE, CLOSE, CHINESE)
    assert (tested.system, tested.baseline) == pytest.approx((found.bleu, 100))


@pytest.mark.parametrize(
    ("hypothesis", "message"),
    [
        ("a sm@@ all dog", "--remove-bpe"),
        ("▁a ▁small ▁dog", "subwords"),
        ("A Ġsmall Ġdog Ġruns", "subwords"),
        ("AĠsmallĠdogĠruns", "subwords"),
        ("it &apos;s a dog", "Moses"),
        ("a well @-@ known dog", "Moses"),
    ],
)
def test_what_is_no_ordinary_text_has_no_score(hypothesis: str, message: str) -> None:
    with refusing(message):
        score([hypothesis] * 3, ["a small dog"] * 3)
    for references in (["a dog"], ["", "", ""], ["a sm@@ all dog"] * 3):
        with refusing("reference"):
            score(["a dog"] * 3, references)
    with refusing("2 of 2"):
        score([hypothesis] * 2, ["a small dog"] * 2)


@pytest.mark.parametrize(
    ("hypotheses", "references"),
    [
        (["write &quot; for a quote"], ["&quot; is a quote"]),  # a text on that
        (["mail me@@home, @-@x"], ["a"]),
        (["@@ -1,4 +1,4 @@ of a diff"] * 3, ["@@ -1,4 +1,4 @@ of a diff"] * 3),
        (["##define x"] * 3, ["##define x"] * 3),
        (["the byte <0x41>"] * 3, ["the byte <0x41>"] * 3),
        (["Name: \u2581\u2581\u2581"] * 3, ["Name: \u2581\u2581\u2581"] * 3),
        (["Ġorġ twieled f'Ġunju. IL-MAĠĠORANZA"] * 3, ["a"] * 3),  # Maltese
        (["a"] * 297 + ["sm@@ all"] * 3, ["a"] * 300),  # what was in the corpus
        (["R&amp;D"] * 2 + ["a"] * 8, ["R&D"] * 10),
    ],
)
def test_ordinary_text(hypotheses: list[str], references: list[str]) -> None:
    check_ordinary(hypotheses, references)


def test_compound_split_scores_are_not_smoothed() -> None:
    """As fairseq-score's, which are 0 where no four tokens are right."""
    found = tokenised(["ein rot-blaues Haus ."], ["ein rotes Haus ."])
    assert found["tokenised_bleu"] > 0
    assert found["compound_split_bleu"] == 0
    assert "smooth:none" in found["compound_split_signature"]


def test_subwords_by_their_marks() -> None:
    found = [subword_marks(symbols) for symbols in (["▁the", "re"], ["the", "re@@"], ["the"])]
    assert found == ["sentencepiece", "subword_nmt", None]


HOUSES = [f"Das {n * n * 7919} Haus, {n * 104729} am See." for n in range(300)]


def printed(references: list[str]) -> str:
    """What fairseq-generate prints of a model that always says the same: no BLEU tells of it."""
    tokens = (line.replace(".", " .").replace("See", "S@@ ee <<unk>>") for line in references)
    lines = [f"T-{i}\t{line}\nD-{i}\t-1.0\tEin Hund ." for i, line in enumerate(tokens)]
    return "\n".join(reversed(lines)) + "\n"


@pytest.mark.parametrize(
    "wrong",
    [
        [*reversed(HOUSES)],
        ["A line of another text."] * 300,
        ["First", *HOUSES[:-1]],  # shifted,
        [*HOUSES[:280], "One", *HOUSES[280:-1]],  # at the end alone,
        HOUSES[:290],  # truncated,
        [*HOUSES[:290], *HOUSES[:10]],
        [*HOUSES[:290], *[""] * 10],  # and filled up
    ],
)
def test_the_references_are_those_that_fairseq_printed(wrong: list[str], tmp_path: Path) -> None:
    """A model that knows nothing has a score, and so has any model with a wrong reference."""
    out, reference = tmp_path / "out", tmp_path / "reference"
    out.write_text(printed(HOUSES))
    reference.write_text("".join(f"{line}\n" for line in HOUSES))
    assert len(read_system(out, reference).references) == 300
    reference.write_text("".join(f"{line}\n" for line in wrong))
    with refusing("reference", str(reference)):
        read_system(out, reference)


@pytest.mark.parametrize("shift", [1, -2])
def test_plain_translations_show_a_shift(shift: int, tmp_path: Path) -> None:
    out, reference = tmp_path / "out", tmp_path / "reference"
    out.write_text("".join(f"{line}\n" for line in HOUSES))
    shifted = HOUSES[-shift:] + HOUSES[:-shift]
    reference.write_text("".join(f"{line}\n" for line in shifted))
    with refusing(f"{abs(shift)} {'below' if shift > 0 else 'above'}"):
        read_system(out, reference)


WORDS = ["Hund", "Katze", "Garten", "Wasser", "Fenster", "Strasse", "Himmel", "Vogel", "Kinder"]


def sentences(number: int, seed: int) -> list[str]:
    """Captions of a template, and six words by chance: lines share some with any other."""
    chosen = np.random.default_rng(seed).choice(WORDS, (number, 6))
    return [f"Ein Mann in einem Hemd sieht {' '.join(words)}." for words in chosen]


def scored(hypotheses: list[str], references: list[str], folder: Path) -> None:
    """Read both as plain text; a perfect translation is that but for a word."""
    hypotheses = [f"{hypotheses[0]} da", *hypotheses[1:]]
    for name, lines in (("out", hypotheses), ("reference", references)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    read_system(folder / "out", folder / "reference")


#: Half of the words of each line are those of another line.
WEAK = [
    " ".join(one if i % 2 else other for i, (one, other) in enumerate(zip(*pair, strict=True)))
    for pair in zip(
        *([line.split() for line in sentences(300, seed)] for seed in (1, 2)), strict=True
    )
]


@pytest.mark.parametrize("hypotheses", [sentences(300, 1), WEAK], ids=["good", "weak"])
@pytest.mark.parametrize("shift", [1, 7, -2])
def test_plain_translations_show_a_shift_in_the_middle(
    hypotheses: list[str], shift: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, lost = sentences(300, 1), abs(shift)
    scored(hypotheses, right, tmp_path)
    assert not capsys.readouterr().err
    wrong = [*right[:100], *right[100 + lost :], *right[:lost]]  # lines are missing,
    if shift < 0:
        wrong = [*right[:100], *right[:lost], *right[100:-lost]]  # or there are more
    with refusing(f"{lost} {'above' if shift > 0 else 'below'}"):
        scored(hypotheses, wrong, tmp_path)


@pytest.mark.parametrize("number", [20, 300])
@pytest.mark.parametrize("seed", [3, 4, 5, None])
def test_a_model_that_knows_nothing_has_a_score(
    number: int, seed: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So has another text: a line says that nothing fits.  A few lines are not judged."""
    hypotheses = ["Ein Mann in einem Hemd."] * number if seed is None else sentences(number, seed)
    scored(hypotheses, sentences(number, 1), tmp_path)
    assert "reference" in capsys.readouterr().err
    scored(hypotheses[:19], sentences(19, 1), tmp_path)
    said = capsys.readouterr().err
    assert "not checked" in said
    assert "warning" not in said


#: What was done to a text, and what is said of it.
TOUCHED: dict[str, Callable[[str], str]] = {
    "capital letters": str.lower,
    "small letters": str.upper,
    "a mark at the end": lambda line: line.rstrip("."),
    "a space before punctuation": lambda line: line.replace(".", " ."),
    "a number at the start": lambda line: f"7 {line}",
    "a tag": lambda line: f"<seg>{line}</seg>",
    "escapes of Moses": lambda line: line.replace("nicht", "nicht &apos;s"),
    "HTML": lambda line: line.replace("nicht", "nicht&#39;s"),
    "separate from their accents": lambda line: unicodedata.normalize("NFD", line),
}


@pytest.mark.parametrize("said", TOUCHED)
@pytest.mark.parametrize("printed", [False, True])
def test_a_reference_that_is_not_untouched(
    said: str, printed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of plain translations, and of those that fairseq-generate printed."""
    text = [f"Die Tür {line} geht {'nicht' if i % 9 == 0 else 'leise'} auf."
            for i, line in enumerate(sentences(60, 1))]  # fmt: skip
    lines = text
    if printed:
        lines = [f"T-{i}\t{line}\nD-{i}\t-0.5\t{line}" for i, line in enumerate(text)]
    scored(lines, text, tmp_path)
    assert not capsys.readouterr().err
    scored(lines, [*map(TOUCHED[said], text)], tmp_path)
    assert said in capsys.readouterr().err


def test_lines_of_another_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without spaces between words, too."""
    for alphabet in ("", "\u4e00"):
        right, other = sentences(300, 1), sentences(300, 2)
        if alphabet:
            right, other = ([_in_han(line) for line in text] for text in (right, other))
        scored(right, right, tmp_path)
        assert not capsys.readouterr().err
        scored(right, [*right[:100], *other[:100], *right[200:]], tmp_path)
        said = capsys.readouterr().err
        assert "101 to 200" in said
        assert "1 to 100" not in said.replace("101", "")


def test_lines_of_a_small_set_in_another_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = sentences(60, 1)
    scored(right, [*right[:30], *reversed(right[30:])], tmp_path)
    assert "31 to 60" in capsys.readouterr().err


def test_an_empty_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = sentences(12, 1)
    scored(right, [*right[:7], "", *right[8:]], tmp_path)
    assert "line 8 " in capsys.readouterr().err


def test_a_text_that_is_its_own_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("".join(f"{line}\n" for line in sentences(60, 1)))
    read_system(tmp_path / "out", tmp_path / "out")
    assert "line for line" in capsys.readouterr().err


def test_a_reference_in_another_language(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names and numbers stand next to their own; most words are nowhere."""
    names = ["".join(chr(97 + int(digit)) for digit in str(n * n * 7919)) for n in range(50)]
    ours = [f"{name} steht am Fenster und sieht in den verschneiten Garten" for name in names]
    theirs = [f"{name[:5]} looks at snow that covers everything" for name in names]
    scored(ours, theirs, tmp_path)
    assert "warning" in capsys.readouterr().err


def _in_han(line: str) -> str:
    """A text with a character for each word of ``line``, and a common ending."""
    return "".join(chr(0x4E00 + sum(map(ord, word)) % 900) for word in line.split()[6:])


# ---- over sentences -----------------------------------------------------------------------------


def test_p_and_interval_under_the_null() -> None:
    """Of 400 exchangeable pairs, p is below 0.05 in 5%, and the interval leaves 0 out in 5%.

    By sacreBLEU's p, 11.5% are below 0.05, and 24% below 0.10; 0.01 of one standard error has 0.38.
    """
    weights = np.array([*resamples(400, 12345)])
    differences = np.random.default_rng(1).normal(size=(2000, 400))
    sampled = differences @ weights.T / 400
    p = np.array([bootstrap_p(*pair) for pair in zip(differences.mean(1), sampled, strict=True)])
    assert np.mean(p < 0.05) == pytest.approx(0.05, abs=0.015)
    assert np.mean(p < 0.10) == pytest.approx(0.10, abs=0.02)
    assert np.mean(p < 0.50) == pytest.approx(0.50, abs=0.04)
    widths = np.array([half_width(row) for row in sampled])
    left_out = np.abs(differences.mean(1)) > widths
    assert np.array_equal(left_out, p <= 0.05)
    assert np.mean(left_out) == pytest.approx(0.05, abs=0.015)


def test_a_pair_is_tested_as_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each resample scored by sacreBLEU as a set of its own, with the seed that is asked for."""
    monkeypatch.setenv("SACREBLEU_SEED", "77")
    monkeypatch.setattr(significance, "SAMPLES", 59)
    ours, theirs = spoilt(14), spoilt(8, 20)
    drawn = np.random.default_rng(77)
    picks = [drawn.choice(ALL, ALL) for _ in range(59)]
    for result, metric in zip(paired(theirs, ours, REFERENCES), (BLEU(), CHRF()), strict=True):

        def scores(text: list[str], metric: Any = metric) -> tuple[float, Any]:
            def of(rows: Any) -> float:
                chosen = [[lines[i] for i in rows] for lines in (text, REFERENCES)]
                return metric.corpus_score(chosen[0], [chosen[1]]).score

            return of(range(ALL)), np.array([of(rows) for rows in picks])

        (base, of_base), (system, of_system) = scores(theirs), scores(ours)
        assert (result.baseline, result.system) == pytest.approx((base, system))
        difference, sampled = system - base, of_system - of_base
        assert result.difference == pytest.approx(difference)
        far = np.abs(sampled - sampled.mean())
        assert result.p == pytest.approx((1 + (far >= abs(difference)).sum()) / 60)
        half = np.sort(far)[-3]  # p is 4 of 60 there, and 3 of 60 beyond it
        assert (result.low, result.high) == pytest.approx((difference - half, difference + half))
        for found, values in ((result.baseline_ci, of_base), (result.system_ci, of_system)):
            assert found == pytest.approx(np.diff(np.quantile(values, [0.025, 0.975]))[0] / 2)
        assert "bs:59|seed:77" in result.signature


def test_resamples_of_no_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As sacreBLEU's, they are others each time."""
    monkeypatch.setenv("SACREBLEU_SEED", "None")
    monkeypatch.setattr(significance, "SAMPLES", 19)
    one, other = (paired(spoilt(8, 20), spoilt(14), REFERENCES)[0] for _ in range(2))
    assert one != other
    assert "seed:none" in one.signature


def test_resamples_one_by_one_are_those_of_one_draw() -> None:
    drawn = np.random.default_rng(7).choice(50, (1000, 50))
    whole = np.array([np.bincount(row, minlength=50) for row in drawn])
    assert np.array_equal(np.array([*resamples(50, 7)]), whole)
    parts = [np.arange(100.0).reshape(50, 2), np.ones((50, 1))]
    for sums, part in zip(resampled(parts, 7), parts, strict=True):
        assert np.array_equal(sums, whole @ part)


def test_memory_of_resamples_is_that_of_one() -> None:
    """Of 5,000 sentences 40 kB, not 40 MB."""
    tracemalloc.start()
    resampled([np.ones((5000, 3))], 1)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2e6


@pytest.mark.parametrize("worse", [(5, 0), (0, 5), (6, 0), (13, 5), (12, 5)])
def test_interval_and_p_agree(worse: tuple[int, int]) -> None:
    """The interval is about the difference, and excludes 0 where p is at most 0.05.

    Of 5 different sentences, resamples alone would have an interval on one side of 0.
    """
    for one in paired(spoilt(worse[0]), spoilt(worse[1], 20), REFERENCES):
        assert (one.low + one.high) / 2 == pytest.approx(one.difference)
        assert (not one.low <= 0 <= one.high) == (one.p <= 0.05)


def test_subwords_are_not_compared() -> None:
    subwords = [line.replace("hat", "h@@ at") for line in REFERENCES]
    for pair in ((subwords, spoilt(1)), (spoilt(1), subwords)):
        with refusing("subwords"):
            paired(*pair, REFERENCES)


def test_translations_are_those_that_were_scored(tmp_path: Path) -> None:
    one, other = (write_run(tmp_path, name, 64) for name in "ab")
    for run, wrong in ((one, 3), (other, 9)):
        write_translations(run, spoilt(wrong), REFERENCES)
    assert main([str(one), str(other)]) == 0
    text = "".join(f"{line}\n" for line in spoilt(20))
    (other / "translations.txt").write_text(text)
    with refusing("b_64_1", "score.json"):
        main([str(one), str(other)])


def test_resamples_are_of_both_systems() -> None:
    """Two that share all faults but one differ by little on each resample."""
    tested, _ = paired(spoilt(21), spoilt(20), REFERENCES)
    assert tested.low < tested.difference < tested.high
    assert tested.high - tested.low < 0.5 * (tested.baseline_ci + tested.system_ci)


@pytest.mark.parametrize("lines", [[], ["", " "]])
def test_a_reference_without_words(lines: list[str]) -> None:
    with refusing("no words"):
        significance.paired(lines, lines, lines)


# ---- over seeds ---------------------------------------------------------------------------------


def test_holm_by_its_definition() -> None:
    """Sorted .005, .01, .03, .04 times 4, 3, 2, 1: .02, .03, .06, .04, none below one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([0.2, None]) == [0.2, None]
    *known, unknown = holm([0.01, 0.02, math.nan])
    assert known == pytest.approx([0.02, 0.02])
    assert unknown is not None
    assert math.isnan(unknown)


def test_student() -> None:
    """t of two degrees of freedom is 4.302653; p of t = 2 sqrt(3) there is 0.0742."""
    half = 4.302653 / 3**0.5
    for sign in (1, -1):
        found = gain_of([1.0 * sign, 2.0 * sign, 3.0 * sign])
        mean = 2 * sign
        assert found == pytest.approx((mean, mean - half, mean + half, 0.0742), abs=1e-4)
        assert not found.significant
    assert gain_of([2.0, 2.1, 2.2]).significant
    half = 2.919986 / 3**0.5  # of 90%
    narrow = gain_of([1.0, 2.0, 3.0], confidence=0.9)
    assert narrow == pytest.approx((2, 2 - half, 2 + half, 0.0742), abs=1e-4)


#: Standard deviations of losses over seeds of decide.json: standard heads, and other kinds.
STANDARD, KINDS = 0.014, (0.0229, 0.0505, 0.0472, 0.0158, 0.0457, 0.014, 0.0175, 0.0251, 0.0524)


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_intervals_of_rows_cover(seeds: int, correlation: float) -> None:
    """Of unequal spread, with one baseline: 95% for each row; Holm errs in 5% of tables at most."""
    random, trials = np.random.default_rng(seeds), 300
    start, alone = random.standard_normal((2, trials, 1 + len(KINDS), seeds))
    losses = correlation**0.5 * start[:, :1] + (1 - correlation) ** 0.5 * alone
    losses *= np.array([STANDARD, *KINDS])[:, None]
    tables = [[gain_of(row) for row in rows] for rows in losses[:, 1:] - losses[:, :1]]
    covered = np.mean([[not gain.significant for gain in rows] for rows in tables], axis=0)
    assert all(0.905 < row < 0.995 for row in covered)  # 3.5 standard errors
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)
    assert np.mean([min(holm([gain.p for gain in rows])) < 0.05 for rows in tables]) < 0.09


def test_sizes_share_one_standard_deviation() -> None:
    """Squares 2 + 8 over 2 + 2 degrees of freedom; t of four degrees of freedom is 2.776445."""
    kinds = [[1.0, 2.0, 3.0], [4.0, 6.0, 8.0], [7.0]]
    spread = pooled(kinds)
    assert spread == pytest.approx((2.5**0.5, 4))
    for gains in kinds:
        found, half = gain_of(gains, spread), 2.776445 * (2.5 / len(gains)) ** 0.5
        mean = np.mean(gains)
        assert (found.low, found.high) == pytest.approx((mean - half, mean + half))
    assert gain_of([1.0], pooled([[1.0], [2.0]])) == Gain(1.0)


@pytest.mark.parametrize("gains", [[1.0], [0.1 + 0.2, 0.3], [0.0, 0.0]])
def test_gains_without_an_interval(gains: list[float]) -> None:
    """One seed, or seeds that are all alike, say nothing of other seeds."""
    assert gain_of(gains) == Gain(pytest.approx(gains[0]))


def test_other_searches_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for lenpen, said in ((1.0, False), (0.6, True)):
        pair = [write_run(tmp_path, f"{name}{lenpen}", 64, lenpen=own) for name, own in
                (("a", 1.0), ("b", lenpen))]  # fmt: skip
        for run in pair:
            write_translations(run, spoilt(3), REFERENCES)
        assert main([*map(str, pair)]) == 0
        assert ("lenpen=0.6" in capsys.readouterr().err) == said


def test_the_names_of_menus_do_not_decide_about_a_script() -> None:
    """A Chinese manual has more Latin letters than characters, and far fewer Latin words."""
    manual = ["点击 Settings 打开 Preferences 对话框。", "在 LibreOffice Writer 中选择菜单。"]
    assert sum(map(str.isascii, filter(str.isalpha, "".join(manual)))) > 30
    assert tokenizer(manual) == "zh"
    assert tokenizer(["The city of Xi'an (西安) is in Shaanxi (陕西), as everyone knows."]) == "13a"
