"""The demo corpus: German by the rules, the same by seed, prepared by one command."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import refusing
from text_tools import manifest, names

from data_prep import demo_data
from data_prep.demo_data import generate
from data_prep.demo_grammar import VERBS, Clause, Grammar, Phrase, english, german

SMALL = ["--train", "300", "--valid", "20", "--test", "20", "--vocab-size", "200"]
SHE = Phrase(("she", "her"), {"nom": "sie", "acc": "sie", "dat": "ihr"}, "3sg", True)
THEY = Phrase(("they", "them"), {"nom": "sie", "acc": "sie", "dat": "ihnen"}, "pl", True)
I = Phrase(("I", "me"), {"nom": "ich", "acc": "mich", "dat": "mir"}, "1sg", True)  # noqa: E741


@pytest.mark.parametrize(
    ("verb", "subject", "tense", "negated", "source", "main", "final"),
    [
        ("open", SHE, "present", False, "she opens", "sie macht auf", "sie aufmacht"),
        ("open", SHE, "past", True, "she did not open", "sie machte nicht auf", ""),
        ("open", THEY, "perfect", False, "they have opened", "sie haben aufgemacht", ""),
        ("go", I, "perfect", False, "I have gone", "ich bin gegangen", "ich gegangen bin"),
        ("arrive", SHE, "present", False, "she arrives", "sie kommt an", "sie ankommt"),
        ("see", THEY, "past", False, "they saw", "sie sahen", "sie sahen"),
        ("read", I, "must", False, "I must read", "ich muss lesen", "ich lesen muss"),
        ("help", I, "present", False, "I help", "ich helfe", "ich helfe"),
        ("wait", THEY, "past", False, "they waited", "sie warteten", "sie warteten"),
    ],
)
def test_clauses(
    verb: str, subject: Phrase, tense: str, negated: bool, source: str, main: str, final: str
) -> None:
    entry = next(one for one in VERBS if one[0][0] == verb)
    clause = Clause(subject, entry, tense, negated)
    assert " ".join(english(clause)) == source
    assert " ".join(german(clause, "main")).strip() == main
    if final:
        assert " ".join(german(clause, "final")) == final


def test_pairs() -> None:
    pairs = [*generate(1000, 1)]
    assert pairs == [*generate(1000, 1)] != [*generate(1000, 2)]
    assert len({source for source, _ in pairs}) == 1000
    for pair in pairs:
        assert all(side[0].isupper() and side[-1] in ".?" and "  " not in side for side in pair)
        assert not any(mark in side for side in pair for mark in ("-", "_", " ,", ";"))


def test_a_grammar_that_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Grammar, "sentence", lambda self: ("A.", "B."))
    with refusing():
        list(generate(2, 1))


@pytest.mark.usefixtures("no_fairseq")
def test_made_once_and_the_same_by_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def prepare(name: str, *more: str) -> int:
        return demo_data.main(["--out", str(tmp_path / name), *SMALL, *more])

    assert prepare("demo") == 0
    assert names(tmp_path) == {"demo", "demo-text"}
    made = manifest(tmp_path / "demo")
    assert made["origin"] == {"corpus": "demo", "seed": 1}
    assert made["sets"]["train"]["kept"] == 300
    assert prepare("demo") == 0
    assert "nothing to do" in capsys.readouterr().out
    assert prepare("again") == 0
    assert manifest(tmp_path / "again")["outputs"] == made["outputs"]
    assert prepare("demo", "--seed", "2") == 1
    error = capsys.readouterr().err
    assert f" demo-data: error: {tmp_path}/demo-text: " in error
    assert "options.seed: 1" in error
    assert prepare("demo", "--seed", "2", "--force") == 0
    assert manifest(tmp_path / "demo")["inputs"] != made["inputs"]
