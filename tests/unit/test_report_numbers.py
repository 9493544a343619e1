"""The numbers of ``fairseq-collab report``: intervals and p are sacreBLEU's; fronts, curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_folders import start_run, write_generation

from collab_common.errors import UserError
from fairseq_collab.results import against
from fairseq_collab.results.compare import paired
from fairseq_collab.results.published import PAPERS
from fairseq_collab.results.report import (
    bootstrap,
    budget,
    curves,
    find,
    layout,
    matrix,
    notes,
    papers,
)
from fairseq_collab.runs.fairseq_output import decoding_speed
from fairseq_collab.runs.run import Run
from fairseq_collab.runs.translations import System

SENTENCES = [f"Satz {i} hat genau {i + 3} kurze Worte und endet hier." for i in range(60)]


def system(wrong: int, start: int = 0) -> System:
    """Translations of which ``wrong`` are not the reference's."""
    spoilt = range(start, start + wrong)
    lines = [
        text.replace("kurze Worte", "viele") if i in spoilt else text
        for i, text in enumerate(SENTENCES)
    ]
    return System(Path("system"), lines, SENTENCES)


def scored(made: System) -> bootstrap.Scored:
    return bootstrap.Scored(made, bootstrap.resample(made, bootstrap.draws(len(SENTENCES))))


@pytest.mark.parametrize("wrong", [(20, 12), (10, 9), (3, 2), (5, 5)])
def test_p_and_interval_are_those_of_compare(wrong: tuple[int, int]) -> None:
    """One draw for all runs gives, to the last digit, what a test of each two gives."""
    one, other = system(wrong[0]), system(wrong[1], start=1)
    bleu, chrf = paired(one, other, "bootstrap", against.SAMPLES)
    ours = scored(one), scored(other)
    assert bootstrap.paired_p(*ours) == bleu.p
    for name, result in (("BLEU", bleu), ("chrF", chrf)):
        found = [bootstrap.interval([run.scores[name]]) for run in ours]
        assert found[1].mean == pytest.approx(result.system, abs=1e-9)
        assert (found[1].high - found[1].low) / 2 == pytest.approx(result.system_ci, abs=1e-9)
        assert (found[0].high - found[0].low) / 2 == pytest.approx(result.baseline_ci, abs=1e-9)


def test_few_different_sentences_are_no_evidence() -> None:
    one, other = scored(system(1)), scored(system(0))
    assert bootstrap.paired_p(one, other) == 1.0  # 2 of 2 exchanges of one sentence
    assert bootstrap.paired_p(one, one) == 1.0


def test_the_interval_of_seeds_is_of_their_mean_on_the_same_draws() -> None:
    """Two seeds that vary against each other cancel out; drawn apart they would not."""
    up = bootstrap.Resampled(10.0, np.arange(1000.0))
    down = bootstrap.Resampled(20.0, np.arange(1000.0)[::-1])
    found = bootstrap.interval([up, down])
    assert (found.mean, found.low, found.high) == (15.0, 499.5, 499.5)
    alone = bootstrap.interval([up])
    assert (alone.low, alone.high) == (25.0, 974.0)  # 25 of 1,000 draws on either side


def test_draws_are_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (bootstrap.draws(7) == bootstrap.draws(7)).all()
    assert (bootstrap.draws(7).sum(axis=1) == 7).all()
    other = bootstrap.draws(7)
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert (bootstrap.draws(7) != other).any()


def row(number: int, bleu: list[float], seeds: list[int] | None = None, **facts: Any) -> dict:
    """What of a row tests and fronts read."""
    found = {
        "number": number,
        "experiment": "runs",
        "method": "collab",
        "variant": "",
        "seeds": seeds or list(range(1, len(bleu) + 1)),
        "bleu": {"mean": sum(bleu) / len(bleu), "values": bleu},
        "parameters": 100,
        "fine_tuned": False,
        "epochs": [6, 6],
        "updates": [1000, 1000],
        "reduction": None,
        "head_ratio": None,
    }
    return {**found, **facts}


def test_pairs_are_tested_seed_by_seed() -> None:
    rows = [row(1, [30.0, 31.0]), row(2, [33.0, 32.0], seeds=[2, 1]), row(3, [40.0], seeds=[9])]
    asked = []

    def p(one: int, other: int, seed: int) -> float:
        asked.append((one, other, seed))
        return {1: 0.01, 2: 0.2}[seed]

    first, *others = matrix.pairs(rows, p)
    assert asked == [(1, 2, 2), (1, 2, 1)]
    assert first == {
        "row": 2,
        "against": 1,
        "difference": 2.0,
        "seeds": [
            {"seed": 2, "difference": 2.0, "p": 0.2},
            {"seed": 1, "difference": 2.0, "p": 0.01},
        ],
        "verdict": "some",
    }
    assert [(pair["difference"], pair["verdict"]) for pair in others] == [(None, "untested")] * 2


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ([(1.0, 0.01), (2.0, 0.04)], "all"),
        ([(1.0, 0.01), (2.0, 0.05)], "some"),
        ([(1.0, 0.01), (-2.0, 0.01)], "some"),  # significant both ways is no agreement
        ([(1.0, 0.06), (2.0, 0.5)], "none"),
        ([], "untested"),
    ],
)
def test_verdicts(seeds: list[tuple[float, float]], expected: str) -> None:
    assert matrix.verdict([{"difference": gain, "p": p} for gain, p in seeds]) == expected


def test_front() -> None:
    rows = [
        row(1, [30.0], parameters=10),  # the cheapest
        row(2, [29.0], parameters=20),  # dearer and worse than 1
        row(3, [31.0], parameters=20),
        row(4, [31.0], parameters=20),  # as good and as dear as 3: neither beats the other
        row(5, [31.0], parameters=30),  # as good as 3, but dearer
        row(6, [32.0], parameters=40),  # the best
        row(7, [31.5], parameters=40),  # as dear as 6, but worse
    ]
    assert budget.front(rows, "parameters") == [1, 3, 4, 6]
    assert budget.best(rows) == [6]
    assert budget.best(rows[2:5]) == [3, 4, 5]


def test_budgets_are_told_apart() -> None:
    rows = [
        row(1, [1.0], updates=[1005, 1010]),
        row(2, [1.0]),
        row(3, [1.0], updates=[1011, 1011]),  # more than 1 % above row 2
        row(4, [1.0], fine_tuned=True, updates=[500, 500]),
    ]
    found = budget.budgets(rows)
    assert [(one["letter"], one["rows"], one["fine_tuned"]) for one in found] == [
        ("A", [1, 2], False),
        ("B", [3], False),
        ("C", [4], True),
    ]
    assert found[0]["updates"] == [1000, 1010]
    assert [budget.letter(number) for number in (0, 25, 26, 27, 52)] == ["A", "Z", "AA", "AB", "BA"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("model: {}", False),
        ("checkpoint: {finetune_from_model: null, restore_file: checkpoint_last.pt}", False),
        ("checkpoint: {finetune_from_model: some.pt}", True),
        ("checkpoint: {restore_file: other.pt}", True),
    ],
)
def test_what_starts_from_trained_weights(tmp_path: Path, config: str, expected: bool) -> None:
    folder = start_run(tmp_path, "run")
    (folder / "config.yaml").write_text(config)
    assert budget.fine_tuned(Run(folder)) is expected


def valid(updates: int, loss: str) -> str:
    entry = f'{{"epoch": 1, "valid_nll_loss": "{loss}", "valid_num_updates": "{updates}"}}'
    return f"2026-11-21 06:57:40 | INFO | valid | {entry}\n"


def test_curves_are_those_of_the_log(tmp_path: Path) -> None:
    run = Run(start_run(tmp_path, "run"))
    assert curves.curve(run) == []
    run.log.write_text(
        valid(10, "5.5") + "noise\n" + valid(20, "4.5") + valid(20, "4.25")  # resumed
        + valid(30, "nan") + valid(40, "4.0")[:-9] + "}\n"
    )  # fmt: skip
    assert curves.curve(run) == [[10, 5.5], [20, 4.25]]
    assert curves.still_falling([[10, 5.5], [20, 4.25]])
    assert curves.still_falling([[10, 4.0], [20, 4.25]]) is False
    assert curves.still_falling([[10, 4.0]]) is None


def test_a_log_that_cannot_be_read(tmp_path: Path) -> None:
    run = Run(start_run(tmp_path, "run"))
    run.log.mkdir()
    with pytest.raises(UserError, match=r"train\.log: cannot be read: Is a directory"):
        curves.curve(run)


def test_runs_are_found_at_any_depth(tmp_path: Path) -> None:
    for place in ("a/trained/run1", "a/tuned/run1", "b/run2"):
        start_run(tmp_path / place, "").joinpath("checkpoints").mkdir()
    (tmp_path / "b" / "no-run").mkdir()
    (tmp_path / "b" / "no-run" / "score.json").write_text("{}")
    found, strays = find.find([tmp_path, tmp_path / "b", tmp_path / "a" / "tuned" / "run1"])
    assert [place.name for place in found] == ["a/trained/run1", "a/tuned/run1", "b/run2"]
    assert strays == ["b/no-run: has a score.json, but no config.yaml"]
    alone, _ = find.find([tmp_path / "a" / "tuned"])
    assert [place.name for place in alone] == ["tuned/run1"]


def test_folders_without_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none: there is no such folder$"):
        find.find([tmp_path / "none"])
    with pytest.raises(UserError, match=r"no runs in it; give folders of runs that"):
        find.find([tmp_path])


def test_names_tell_nothing_of_the_machine() -> None:
    def named(*paths: str) -> list[str]:
        return list(find.names(map(Path, paths)).values())

    assert named("/home/me/runs/x") == ["x"]
    assert named("/r/a/tuned", "/r/a/trained", "/r/b") == ["a/trained", "a/tuned", "b"]
    assert named("/home/me/runs/x", "/data/y") == ["data/y", "runs/x"]
    assert named("/r", "/r/a") == ["r", "a"]
    assert named("/1/a/b/c", "/2/a/b/c") == ["1/a/b/c", "2/a/b/c"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a", "--out", "/home/me/runs/x"], "a --out .../runs/x"),
        (["task.data=/home/me/data", "x=1/2"], "task.data=.../data x=1/2"),
        (["/home/me/a/b/c.pt", "/tmp/c"], ".../b/c.pt .../c"),
        (["x=['file:///home/me/a/b/c']"], """'x=['"'"'file://.../b/c'"'"']'"""),
        (["https://host/a/b"], "https://host/a/b"),
        (["model=choice(a,b)"], "'model=choice(a,b)'"),
        (["f='/home/my name/${seed}.pt'"], """'f='"'"'.../${seed}.pt'"'"''"""),
        ([], None),
    ],
)
def test_commands_have_no_absolute_paths(arguments: list[str], expected: str | None) -> None:
    assert find.command_text(arguments) == expected


def test_reasons_have_no_absolute_paths() -> None:
    text = "no space on /home/me/runs (d/H is 1/2): see /home/me/x.log, raw/test.de"
    assert find.portable(text) == ("no space on .../runs (d/H is 1/2): see .../x.log, raw/test.de")


def test_decoding_speed_is_fairseqs_clock(tmp_path: Path) -> None:
    line = "Translated 1,014 sentences (15,195 tokens) in 2.9s (350.12 sentences/s, 5240 tokens/s)"
    assert decoding_speed(f"x\n2026-11-21 | INFO | fairseq_cli.generate | {line}\n") == 350.12
    assert decoding_speed(write_generation(tmp_path / "g", ["a"]).read_text()) is None


def test_papers_are_carried_over() -> None:
    """The figures of the papers' tables, paper by paper: difference, and change of parameters."""
    found = papers.beside([])
    assert [paper["title"].rsplit(" ", 1)[1] for paper in found] == [
        "2006.16362",
        "2002.07028",
        "2305.14380",
        "1905.09418",
    ]
    gains = [[claim["difference"] for claim in paper["claims"]] for paper in found]
    assert gains == [
        [0.18, 0.31, 0.51, 0.54, 0.01, -0.3, 0.0, -0.51, -0.09, -0.63],
        [-0.98, 0.09, 0.82],
        [1.3, 1.1, 0.9, 0.9, 0.8],
        [0.02, -0.24, -0.54, -0.7],
    ]
    assert found[2]["claims"][2]["size_ratio"] == round(30 / 44, 6)
    assert not any(claim["ours"] for paper in found for claim in paper["claims"])
    assert all(paper.caution for paper in PAPERS)


def test_ours_stand_beside_the_same_ratio() -> None:
    base = {"method": "concatenated", "parameters": 200}
    rows = [
        row(1, [30.0], reduction=4.0),
        row(2, [29.5], **base, reduction=4.0),
        row(3, [31.0], **base, reduction=1.0),
        row(4, [28.0], reduction=4.0, method="fork_collab"),  # no fork_concatenated
        row(5, [99.0], reduction=4.0, experiment="elsewhere"),
        row(6, [31.5], **base, head_ratio=2.0, reduction=1.0, seeds=[2]),
        row(7, [31.0], method="grouped_pruned"),
        row(8, [30.0], method="gated", variant="gate_penalty=0"),
        row(9, [29.0], method="gated", variant="gate_penalty=0.1"),
    ]
    first, sizes, grouped, gated = (paper["claims"] for paper in papers.beside(rows))
    quarter = next(claim for claim in first if claim["system"] == "collab, K = d/4")
    assert quarter["ours"] == [{"row": 1, "baseline": 2, "difference": 0.5, "size_ratio": 0.5}]
    whole = [claim["ours"] for claim in first if claim["baseline"] == "concatenated, K = d"]
    assert [{"row": 1, "baseline": 3, "difference": -1.0, "size_ratio": 0.5}] in whole
    assert not any(claim["ours"] for claim in sizes)  # its seed has no partner
    assert grouped[2]["ours"] == [{"row": 7, "baseline": 3, "difference": 0.0, "size_ratio": 0.5}]
    assert [one["row"] for one in gated[0]["ours"]] == [9]


def test_marks_stand_side_by_side() -> None:
    places = layout.spread([50.0, 50.0, 10.0, 52.0], 10, 0, 100)
    assert places[2] == 10
    assert places[:2] + places[3:] == pytest.approx([40.67, 50.67, 60.67], abs=0.01)
    assert layout.spread([99.0, 99.0], 10, 0, 100) == [90, 100]  # not beyond the end
    crowd = layout.spread([50.0] * 30, 10, 0, 100)
    assert crowd == pytest.approx(list(np.linspace(0, 100, 30)))  # no room: nearer together
    assert layout.spread([], 10, 0, 100) == []


def test_ticks_are_round() -> None:
    assert layout.nice_ticks(27.1, 36.4) == [28, 30, 32, 34, 36]
    assert layout.nice_ticks(0.11, 0.32) == [0.15, 0.2, 0.25, 0.3]
    assert layout.nice_ticks(5, 5) == [5]


def section(**facts: Any) -> dict[str, Any]:
    """What notes are made of; nothing in it is worth a note but what always is."""
    made = row(1, [30.0] * 5, parameters=44_000_000, heads=8, sentences_per_second=9.0)
    return {
        "sentences": 1000,
        "subset": "test",
        "rows": [made],
        "budgets": [{"fine_tuned": False}],
        "curves": [{"runs": [{"points": [[1, 4.0], [2, 5.0]]}]}],
        "tests": [{"seeds": [{}] * 40}],
        **facts,
    }


def test_notes_say_what_is_so() -> None:
    plain = " ".join(notes.notes(section()))
    assert "of 40, about 2.0 would be below 0.05" in plain
    for absent in ("seeds a row", "budget", "still learning", "small", "heads"):
        assert absent not in plain
    few = row(1, [30.0, 31.0], parameters=1_000_000, heads=4, sentences_per_second=None)
    other = row(2, [30.0], parameters=2_500_000, heads=8, sentences_per_second=1.0)
    rows = [few, {**other, "experiment": "more"}]
    falling = [{"runs": [{"points": [[1, 4.0], [2, 3.0]]}, {"points": []}]}]
    text = " ".join(
        notes.notes(
            section(
                rows=rows,
                curves=falling,
                tests=[{"seeds": []}],
                budgets=[{"fine_tuned": False}, {"fine_tuned": True}],
            )
        )
    )
    for present in (
        "1 of 2 rows is one training",
        "No two rows share a seed",
        "Rows were trained in 2 ways",
        "those that started from trained weights had the training of these before",
        "In 1 of 1 trainings the last validation was the best",
        "1.00 to 2.50 million parameters",
        "different numbers of heads (4, 8)",
        "not recorded for 1 of 2 rows",
    ):
        assert present in text
    assert "2 seeds a row" in " ".join(notes.notes(section(rows=[few])))
