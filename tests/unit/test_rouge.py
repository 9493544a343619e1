"""ROUGE against its definition, and what it refuses."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from refusals import refusing
from run_folders import facts_of, start_run, write_generation, write_run, write_translations

from fairseq_collab.commands import score
from fairseq_collab.former.rouge_table import add_rouge
from fairseq_collab.metrics.rouge import f_measures, intervals, rouge, signature
from fairseq_collab.runs.run import Run

WORDS = [f"w{i}" for i in range(8)]


def summaries(number: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, 12))) for _ in range(number)]


@pytest.mark.parametrize(
    ("summary", "r1", "r2", "rl"),
    [
        ("police kill the gunman", 3 / 4, 1 / 3, 3 / 4),
        ("the gunman kill police", 3 / 4, 1 / 3, 2 / 4),
    ],
)
def test_the_example_of_the_paper(summary: str, r1: float, r2: float, rl: float) -> None:
    """Lin 2004, section 3.1: ROUGE-2 cannot tell the two summaries apart, ROUGE-L can."""
    found = f_measures([summary], ["police killed the gunman"])
    assert found[0] == pytest.approx([100 * r1, 100 * r2, 100 * rl], rel=1e-6)


def naive(hypothesis: list[str], reference: list[str]) -> list[float]:
    """The three F-measures by their definitions."""

    @lru_cache
    def common(i: int, j: int) -> int:
        if 0 in (i, j):
            return 0
        if hypothesis[i - 1] == reference[j - 1]:
            return 1 + common(i - 1, j - 1)
        return max(common(i - 1, j), common(i, j - 1))

    def grams(tokens: list[str], n: int) -> Counter[tuple[str, ...]]:
        return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))

    found = []
    for n in (1, 2):
        ours, theirs = grams(hypothesis, n), grams(reference, n)
        both = ours.total() + theirs.total()
        found.append(2 * (ours & theirs).total() / both if both else 0.0)
    lengths = len(hypothesis), len(reference)
    return [100 * f for f in [*found, 2 * common(*lengths) / sum(lengths)]]


def test_equals_the_definition() -> None:
    """F = 2PR/(P+R) = 2 common / (|h| + |r|)."""
    hypotheses, references = summaries(150, seed=1), summaries(150, seed=2)
    expected = [naive(h.split(), r.split()) for h, r in zip(hypotheses, references, strict=True)]
    np.testing.assert_allclose(f_measures(hypotheses, references), expected, rtol=1e-5)


def test_case_and_punctuation_do_not_count_and_nothing_is_stemmed() -> None:
    found = f_measures(["#PERSON1# thanks, Tom!", "kills"], ["person1: thanks tom", "kill"])
    assert found.tolist() == [[100, 100, 100], [0, 0, 0]]


def test_an_empty_summary_has_nothing() -> None:
    assert f_measures(["", "..."], ["a b", "a b"]).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_intervals_are_those_of_a_mean() -> None:
    """As wide as the normal approximation says, around the mean, and the same every time."""
    values = np.random.default_rng(1).normal(30, 10, size=(400, 3))
    found = intervals(values)
    assert found == intervals(values)
    for name, column in zip(("R1", "R2", "RL"), values.T, strict=True):
        assert found[name].mean == pytest.approx(column.mean())
        half = 1.96 * column.std() / 20
        assert found[name].low == pytest.approx(column.mean() - half, abs=half / 5)
        assert found[name].high == pytest.approx(column.mean() + half, abs=half / 5)


def test_a_constant_has_no_spread() -> None:
    found = rouge(["a b c"] * 5, ["a b d"] * 5)
    for interval in found.scores.values():
        assert interval.low == pytest.approx(interval.mean) == pytest.approx(interval.high)
    assert found.summaries == 5


def test_the_signature_names_the_choices() -> None:
    for part in ("n:7", "stemmer:none", "score:f1", "ci:bootstrap-1000", "torchmetrics:"):
        assert part in signature(7).replace("|", " | ")


@pytest.mark.parametrize(
    ("hypotheses", "references", "line"),
    [
        (["a", "b"], ["a"], "2 summaries but 1 references; give the references of the set"),
        ([], [], "there are no summaries"),
        (["a", "b"], ["a", ""], "reference 2 has no letters of the Latin alphabet and no digits"),
        (
            ["\u0431"],
            ["\u0431\u0432"],
            "reference 1 has no letters of the Latin alphabet and no digits",
        ),
    ],
)
def test_refuses(hypotheses: list[str], references: list[str], line: str) -> None:
    with refusing(line):
        f_measures(hypotheses, references)


def test_a_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchmetrics.functional.text.rouge", None)
    told = "ROUGE needs the package torchmetrics; pip install -c constraints.txt '.[summarisation]'"
    with refusing(told):
        f_measures(["a"], ["a"])


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    path = tmp_path / "reference.txt"
    path.write_text("".join(f"{line}\n" for line in summaries(20, seed=1)))
    return path


def test_score_adds_rouge(
    tmp_path: Path, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generation = write_generation(tmp_path / "a.out", summaries(20, seed=2))
    arguments = [str(generation), "--reference", str(reference)]
    assert score.main([*arguments, "--rouge", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = f_measures(summaries(20, seed=2), summaries(20, seed=1)).mean(axis=0)
    assert [found["rouge"]["scores"][name]["mean"] for name in ("R1", "R2", "RL")] == list(expected)
    assert score.main([*arguments, "--rouge"]) == 0
    text = capsys.readouterr().out
    assert "BLEU" in text
    assert f"RL {expected[2]:.2f} (" in text
    assert signature(20) in text
    assert score.main(arguments) == 0
    assert "ROUGE" not in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--rouge", "--examples=5", "--comet=model"])
def test_score_refuses_what_is_of_translations_for_language_models(
    option: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before one is measured, and alike where it has been."""
    monkeypatch.setattr(score.comet, "check", lambda _: None)
    folder = start_run(tmp_path / "runs", "lm")
    task = f"task: {{_name: language_modeling, data: {tmp_path}}}"
    (folder / "config.yaml").write_text(f"dataset: {{gen_subset: test}}\n{task}\n")
    (tmp_path / "test.idx").touch()
    line = (
        f"{option.partition('=')[0]}: is of translations, and lm is a language model; leave it out"
    )
    with refusing(line):
        score.main([str(folder), option])
    for finished in (False, True):
        if finished:
            of_words = {"version": 2, "task": "language_modeling", "perplexity": {"test": 9.0}}
            facts = {"run": "lm", **facts_of("collab", 64, **of_words)}
            (folder / "score.json").write_text(json.dumps(facts))
        assert score.main([str(tmp_path / "runs"), option]) == 1
        assert line in capsys.readouterr().err


def finished(parent: Path, method: str, hypotheses: list[str], seed: int = 1) -> Path:
    """A finished run with translations, against ``summaries(20, seed=1)``."""
    references = summaries(20, seed=1)
    facts = {"bleu": score.score(hypotheses, references).bleu, "sentences": 20}
    facts["trained_at_commit"] = "c0ffee"
    folder = write_run(parent, method, 16, seed, **facts)
    write_translations(folder, hypotheses, references)
    return folder


def test_a_run_of_an_earlier_version_gets_rouge(tmp_path: Path) -> None:
    """From its translations, once; the scores that it has stay."""
    folder = finished(tmp_path, "concatenated", summaries(20, seed=2))
    before = Run(folder).score()
    assert before is not None
    assert before.rouge is None
    add_rouge(Run(folder))
    record = Run(folder).score()
    assert record is not None
    assert (record.task, record.bleu) == ("summarization", before.bleu)
    assert record.rouge == rouge(summaries(20, seed=2), summaries(20, seed=1)).scores
    assert record.rouge_signature == signature(20)
