"""Gains over seeds: intervals, corrected p, and which runs are one model's seeds."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from run_folders import write_run, write_translations
from scipy import stats

from collab_common.errors import UserError
from fairseq_collab.commands.compare import main
from fairseq_collab.metrics.seeds import holm, t_interval, t_test
from fairseq_collab.results.seeds import seeds_of

WORDS = [f"Wort{i}" for i in range(15)]
CHANCE = random.Random(1)
REFERENCES = [" ".join(CHANCE.choices(WORDS, k=9)) for _ in range(40)]


def spoilt(words: int, seed: int) -> list[str]:
    """Other words at the end of two thirds of the lines."""
    chance = random.Random(seed)
    return [
        " ".join([*line.split()[:-words], *["falsch"] * words]) if chance.random() < 0.67 else line
        for line in REFERENCES
    ]


def test_holm_by_its_definition() -> None:
    """Sorted .005, .01, .03, .04 times 4, 3, 2, 1: .02, .03, .06, .04, none below one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


@pytest.mark.parametrize(
    "values",
    [[-0.3, 0.1], [1.0, 2.0, 4.0], [0.5, 0.1, -0.2, 0.4], [0.2, 0.1, 0.4, 0.3, -0.5]],
)
def test_student(values: list[float]) -> None:
    found = stats.ttest_1samp(values, 0)
    assert t_test(values) == pytest.approx(found.pvalue, rel=1e-9)
    expected = found.confidence_interval()
    assert t_interval(values) == pytest.approx((expected.low, expected.high), rel=1e-6)


def test_one_seed_has_no_interval_over_seeds() -> None:
    assert (t_interval([1.0]), t_test([1.0])) == (None, None)


def test_seeds_that_are_alike_say_nothing_of_others() -> None:
    assert (t_interval([0.1 + 0.2, 0.3]), t_test([0.1 + 0.2, 0.3])) == (None, None)
    assert (t_interval([0.0, 0.0]), t_test([0.0, 0.0])) == ((0, 0), 1)


# ---- runs ----------------------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two methods with three seeds each, and another key dimension of one of them."""
    for seed, (many, few) in enumerate([(3, 1), (4, 2), (3, 2)], start=1):
        for method, words in (("concatenated", many), ("collab", few)):
            folder = write_run(tmp_path, method, 64, seed)
            write_translations(folder, spoilt(words, seed), REFERENCES)
    write_translations(write_run(tmp_path, "collab", 32, 1), spoilt(1, 4), REFERENCES)
    return tmp_path


def run_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_other_seeds_are_found(runs: Path) -> None:
    assert list(seeds_of(runs / "collab_64_2")) == [1, 2, 3]
    assert list(seeds_of(runs / "collab_32_1")) == [1]


def test_the_command(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = runs / "concatenated_64_1", runs / "collab_64_1"
    found = run_json(capsys, one, other, "--seeds")
    (system,) = found["systems"]
    bleu, chrf = system["results"]
    assert (bleu["metric"], chrf["metric"]) == ("BLEU", "chrF")
    assert list(bleu["gains"]) == ["1", "2", "3"]
    assert bleu["seeds_interval"] == pytest.approx(t_interval([*bleu["gains"].values()]))
    assert bleu["difference"] == pytest.approx(bleu["system"] - bleu["baseline"])
    assert [bleu["p_holm"], chrf["p_holm"]] == pytest.approx(holm([bleu["p"], chrf["p"]]))
    assert main([str(one), str(other), str(runs / "collab_32_1"), "--seeds"]) == 0
    text = capsys.readouterr().out
    assert "seeds:    1, 2, 3" in text
    assert "Holm corrects for all tests here" in text
    lines = [line for line in text.splitlines() if line.startswith("| BLEU")]
    assert [line.split("|")[3].strip() == "-" for line in lines] == [False, True]  # one seed


def test_what_does_not_compare_over_seeds(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late = write_translations(write_run(runs, "late", 64, 7), spoilt(1, 4), REFERENCES)
    with pytest.raises(UserError, match=r"no seed in common: 1, 2, 3 in .*, 7 in "):
        main([str(runs / "collab_64_1"), str(late), "--seeds"])
    with pytest.raises(UserError, match="they are not seeds of one model"):
        main([str(runs), str(late), "--seeds"])
    for wrong in (["--test", "both", "--seeds"], [str(late)]):
        with pytest.raises(SystemExit):
            main([str(late), str(late), *wrong])
    assert "several go with --seeds" in capsys.readouterr().err
