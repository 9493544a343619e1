"""Scores: the tokenizer of a script, text that has no score, tests over sentences and seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from refusals import refusing

from collab_lab.metrics.bleu import check_ordinary, score, subword_marks, tokenizer
from collab_lab.metrics.significance import (
    Gain,
    bootstrap_p,
    gain_of,
    holm,
    interval_of,
    paired,
    pooled,
    resamples,
    within,
)
from collab_lab.runs.translations import read_hypotheses

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
        ("a sm@@ all dog", "3 of 3 hypotheses are in subwords; translate with --remove-bpe"),
        ("▁a ▁small ▁dog", "in subwords"),
        ("it &apos;s a dog", "3 of 3 hypotheses are in Moses' tokens; detokenise"),
        ("a well @-@ known dog", "in Moses' tokens"),
    ],
)
def test_what_is_no_ordinary_text_has_no_score(hypothesis: str, message: str) -> None:
    with refusing(message):
        score([hypothesis] * 3, ["a small dog"] * 3)
    for references in (["a dog"], ["", "", ""]):
        with refusing("reference"):
            score(["a dog"] * 3, references)


@pytest.mark.parametrize(
    ("hypotheses", "references"),
    [
        (["write &quot; for a quote"], ["&quot; is a quote"]),  # a text on that
        (["mail me@@home, @-@x"], ["a"]),
        (["a"] * 297 + ["sm@@ all"] * 3, ["a"] * 300),  # what was in the corpus
        (["R&amp;D"] * 2 + ["a"] * 8, ["R&D"] * 10),
    ],
)
def test_ordinary_text(hypotheses: list[str], references: list[str]) -> None:
    check_ordinary(hypotheses, references)


def test_subwords_by_their_marks() -> None:
    found = [subword_marks(symbols) for symbols in (["▁the", "re"], ["the", "re@@"], ["the"])]
    assert found == ["sentencepiece", "subword_nmt", None]


def test_translations_as_plain_text_and_as_fairseq_prints_them(tmp_path: Path) -> None:
    lines = ["D-1\t-0.5\tzwei", "H-0\t-0.5\teins @-@", "D-0\t-0.5\teins", "D-0\t-0.9\tein", "ok"]
    (tmp_path / "printed").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "plain").write_text("eins\nzwei\n")
    for name in ("printed", "plain"):
        assert read_hypotheses(tmp_path / name) == ["eins", "zwei"]
    (tmp_path / "printed").write_text("D-1\t-0.5\tzwei\n")
    with refusing("hypothesis 0 is missing (1 of 2); generate the whole set"):
        read_hypotheses(tmp_path / "printed")
    (tmp_path / "printed").write_text("".join(f"{line}\n" for line in 2 * lines))
    with refusing("sentence 1 in two places"):  # two outputs, one appended to the other
        read_hypotheses(tmp_path / "printed")
    (tmp_path / "printed").write_text("S-0\ta dog\n")
    with refusing("no hypotheses"):
        read_hypotheses(tmp_path / "printed")


# ---- over sentences -----------------------------------------------------------------------------


def test_p_and_interval_under_the_null() -> None:
    """Of 400 exchangeable pairs, p is below 0.05 in 5%, and the interval leaves 0 out in 5%.

    By sacreBLEU's p, 11.5% are below 0.05, and 24% below 0.10; 0.01 of one standard error has 0.38.
    """
    weights = resamples(400, 12345)
    differences = np.random.default_rng(1).normal(size=(2000, 400))
    sampled = differences @ weights.T / 400
    p = np.array([bootstrap_p(*pair) for pair in zip(differences.mean(1), sampled, strict=True)])
    assert np.mean(p < 0.05) == pytest.approx(0.05, abs=0.015)
    assert np.mean(p < 0.10) == pytest.approx(0.10, abs=0.02)
    assert np.mean(p < 0.50) == pytest.approx(0.50, abs=0.04)
    left_out = [not low <= 0 <= high for low, high in map(interval_of, sampled)]
    assert np.mean(left_out) == pytest.approx(0.05, abs=0.02)


def test_p_of_corpus_scores_is_that_of_their_resamples() -> None:
    """Scored by sacreBLEU's public functions on the resampled sentences."""
    references = [f"Satz {i} hat genau {i % 9} kurze Worte und endet hier bald." for i in range(60)]
    chance = np.random.default_rng(1)
    systems = [
        [
            line.replace("kurze", "viele") if bad else line
            for line, bad in zip(references, wrong, strict=True)
        ]
        for wrong in chance.random((2, 60)) < 0.4
    ]
    tested, _ = paired(*systems, references)
    drawn = np.random.default_rng(12345).choice(60, (1000, 60))[:40]
    scores = [
        [score([text[i] for i in rows], [references[i] for i in rows]).bleu for rows in drawn]
        for text in systems
    ]
    sampled = np.subtract(*reversed(scores))
    assert tested.p == pytest.approx(bootstrap_p(tested.difference, sampled), abs=0.2)
    assert [tested.low, tested.high] == pytest.approx(interval_of(sampled), abs=2)
    assert tested.low < tested.difference < tested.high


# ---- over seeds ---------------------------------------------------------------------------------


def test_holm_by_its_definition() -> None:
    """Sorted .005, .01, .03, .04 times 4, 3, 2, 1: .02, .03, .06, .04, none below one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([0.2, None]) == [0.2, None]


def test_student() -> None:
    """t of two degrees of freedom is 4.302653; p of t = 2 sqrt(3) there is 0.0742."""
    found = gain_of([1.0, 2.0, 3.0])
    half = 4.302653 / 3**0.5
    assert found == pytest.approx((2, 2 - half, 2 + half, 0.0742), abs=1e-4)
    assert not found.significant
    assert gain_of([2.0, 2.1, 2.2]).significant


def test_seeds_of_several_kinds_share_one_standard_deviation() -> None:
    """Squares 2 + 8 over 2 + 2 degrees of freedom; t of four degrees of freedom is 2.776445."""
    kinds = [[1.0, 2.0, 3.0], [4.0, 6.0, 8.0], [7.0]]
    spread = pooled(kinds)
    assert spread == pytest.approx((2.5**0.5, 4))
    for gains in kinds:
        found, half = gain_of(gains, spread), 2.776445 * (2.5 / len(gains)) ** 0.5
        mean = np.mean(gains)
        assert (found.low, found.high) == pytest.approx((mean - half, mean + half))
        assert within(gains, float(mean), spread) == pytest.approx(0.5)
    assert gain_of([1.0], pooled([[1.0], [2.0]])) == Gain(1.0)


def test_equivalence() -> None:
    """Gains of 1, 2, 3 are sqrt(3) standard errors below 3; p of that t is 0.1127."""
    assert within([1.0, 2.0, 3.0], 3.0) == pytest.approx(0.1127, abs=1e-4)
    assert within([-1.0, -2.0, -3.0], 3.0) == pytest.approx(0.1127, abs=1e-4)
    assert within([1.0, 2.0, 3.0], 1.0) > 0.5
    assert within([0.001, -0.001, 0.0], 0.02) < 0.01
    assert within([1.0], 3.0) is None


@pytest.mark.parametrize("gains", [[1.0], [0.1 + 0.2, 0.3], [0.0, 0.0]])
def test_gains_without_an_interval(gains: list[float]) -> None:
    """One seed, or seeds that are all alike, say nothing of other seeds."""
    assert gain_of(gains) == Gain(pytest.approx(gains[0]))
