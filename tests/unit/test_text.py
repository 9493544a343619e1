"""What lines show of how they are counted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary
from omegaconf import OmegaConf
from refusals import refusing

from fairseq_collab.metrics.bleu import score
from fairseq_collab.metrics.model_bleu import corpus_bleu, words_of
from fairseq_collab.metrics.seeds import gain
from fairseq_collab.metrics.significance import paired
from fairseq_collab.metrics.text import check_ordinary, tokenizer
from fairseq_collab.runs.fairseq_output import fairseq, read_hypotheses, read_lines
from fairseq_collab.runs.run import Run
from fairseq_collab.runs.translations import subwords_of

CHINESE = ["我们 2020 年在北京见面。", "两个人在公园里踢足球,旁边有一只狗。"]
CLOSE = ["我们 2021 年在北京见面。", "两个人在公园里打足球,旁边有一只狗。"]


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        (["Zwei Männer spielen Fußball."], "13a"),
        (["두 남자가 축구를 한다.", "Ελληνικά"], "13a"),
        (["The word 我 in an English sentence."], "13a"),
        (["2020"], "13a"),
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
    assert corpus_bleu(CLOSE, CHINESE) == pytest.approx(found.bleu)
    ((_, _), (tested, _)) = paired([CHINESE, CLOSE], CHINESE, "bootstrap", samples=10)
    assert (tested.system, tested.baseline) == pytest.approx((found.bleu, 100))
    one = gain({1: CHINESE}, {1: CLOSE}, CHINESE, "BLEU", samples=10)
    assert one.system == pytest.approx(found.bleu)


@pytest.mark.parametrize(
    ("hypothesis", "message"),
    [
        ("a sm@@ all dog", "3 of 3 hypotheses are in subwords; translate with --remove-bpe"),
        ("sm@@", "in subwords"),
        ("▁a ▁small ▁dog", "in subwords"),
        ("it &apos;s a dog", "3 of 3 hypotheses are in Moses' tokens; detokenise"),
        ("a well @-@ known dog", "in Moses' tokens"),
    ],
)
def test_what_is_no_ordinary_text_has_no_score(hypothesis: str, message: str) -> None:
    with refusing(message):
        score([hypothesis] * 3, ["a small dog"] * 3)


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


def test_a_mark_of_windows_is_no_part_of_the_first_word(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes("\ufeffone\r\n\ufefftwo\r\n".encode())
    assert read_lines(tmp_path / "text") == ["one", "\ufefftwo"]


def test_an_unknown_word_of_the_reference_is_never_right() -> None:
    words = Dictionary()
    line = torch.tensor([words.add_symbol("dog"), words.unk(), words.eos(), words.pad()])
    assert words_of(words, line) == ["dog", "<unk>"]
    assert words_of(words, line, unknown="<<unk>>") == ["dog", "<<unk>>"]


def test_half_precision_is_for_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq-generate would translate in it on a CPU, too."""
    common = {"fp16": True, "user_dir": "ours", "cpu": False}
    dataset = {"max_tokens": 9, "max_tokens_valid": None, "batch_size": None, "num_workers": 0}
    config = OmegaConf.create({"common": common, "dataset": dataset, "task": {"data": "data"}})
    given: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        given.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    for there in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        fairseq("generate", Run(tmp_path), config, None, tmp_path / "out", [])
    assert ["--fp16" in command for command in given] == [True, False]


def test_translations_are_utf_8_whatever_the_locale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside this interpreter stands a command that prints as fairseq's do."""
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")  # as such a locale would have it
    command = tmp_path / "fairseq-generate"
    said = "print('\u201eHäuser', flush=True); print('Töpfe', file=sys.stderr)"
    command.write_text(f"#!{sys.executable}\nimport sys; {said}\n", encoding="utf-8")
    command.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    common = {"fp16": False, "user_dir": "ours", "cpu": True}
    dataset = {"max_tokens": 9, "max_tokens_valid": None, "batch_size": None, "num_workers": 0}
    config = OmegaConf.create({"common": common, "dataset": dataset, "task": {"data": "data"}})
    assert fairseq("generate", Run(tmp_path), config, None, tmp_path / "out", []) == "Töpfe\n"
    assert (tmp_path / "out").read_text(encoding="utf-8") == "\u201eHäuser\n"


def test_outputs_of_fairseq_0_9(tmp_path: Path) -> None:
    """They have no lines D."""
    (tmp_path / "out").write_text("S-0\tx\nH-0\t-0.5\ta dog\nP-0\t-0.5\n")
    assert read_hypotheses(tmp_path / "out") == ["a dog"]


@pytest.mark.parametrize(
    ("symbols", "expected"),
    [("▁the 9\nre 3\n", "sentencepiece"), ("the 9\nre@@ 3\n", "subword_nmt"), ("the 9\n", None)],
)
def test_subwords_by_the_dictionary(tmp_path: Path, symbols: str, expected: str | None) -> None:
    (tmp_path / "dict.de.txt").write_text(symbols)
    assert subwords_of(tmp_path, "de") == expected
    assert subwords_of(tmp_path, "fr") is None
