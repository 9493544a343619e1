"""The numbers of ``fairseq-collab report``: intervals and p are sacreBLEU's; fronts, curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from run_folders import REFERENCES, spoilt, start_run

from collab_common.errors import UserError
from fairseq_collab.metrics.significance import Result, paired
from fairseq_collab.results import against, published
from fairseq_collab.results.report import budget, charts, content, find, significance
from fairseq_collab.runs.run import Run
from fairseq_collab.runs.translations import System


def system(wrong: int, start: int = 0) -> System:
    return System(Path("system"), spoilt(wrong, start), REFERENCES)


def found(*systems: System) -> list[list[Result]]:
    """One call for all of them."""
    texts = [system.hypotheses for system in systems]
    return paired(texts, REFERENCES, "bootstrap", against.SAMPLES)


def test_many_systems_have_the_p_and_intervals_of_each_two() -> None:
    """One call gives, to the last digit, what a call for each of them gives."""
    best, *others = [system(2), system(12, start=1), system(3, start=1), system(5, start=1)]
    first, *tested = found(best, *others)
    assert [one.p for one in first] == [1.0, 1.0]
    for other, results in zip(others, tested, strict=True):
        assert results == found(best, other)[1]
        assert [one.baseline_ci for one in results] == [one.system_ci for one in first]


def test_tests_are_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = system(5), system(9, start=1)
    before = found(*pair)
    assert found(*pair) == before
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert found(*pair) != before


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
        "multiply_adds": 100,
        "fine_tuned": False,
        "epochs": [6, 6],
        "updates": [1000, 1000],
        "reduction": None,
        "head_ratio": None,
        "heads": 4,
    }
    return {**found, **facts}


def test_rows_are_tested_against_the_best_seed_by_seed() -> None:
    """Only of seeds that both have; a row without such seeds still has its interval."""
    rows = [row(1, [50.0]), row(2, [30.0, 31.0]), row(3, [33.0, 32.0], [2, 1]), row(4, [20.0], [9])]
    for made in rows:
        made["chrf"] = dict(made["bleu"])
    wrong = {(2, 1): 9, (2, 2): 9, (3, 1): 2, (3, 2): 8, (4, 9): 5}
    systems = {of: system(number, start=of[0]) for of, number in wrong.items()}
    tests = significance.against_best({"rows": [2, 3, 4], "best": [3]}, rows, systems)
    assert [(test["row"], test["against"], test["difference"]) for test in tests] == [
        (2, 3, -2.0),
        (4, 3, None),
    ]
    tested = {of: found(systems[3, of], systems[2, of])[1][0] for of in (1, 2)}
    assert tests[0]["seeds"] == [
        {"seed": 1, "difference": -2.0, "p": round(tested[1].p, 6)},
        {"seed": 2, "difference": -2.0, "p": round(tested[2].p, 6)},
    ]
    assert tests[1]["verdict"] == "untested"
    half = (tested[1].system_ci + tested[2].system_ci) / 2
    assert rows[1]["bleu"]["high"] == pytest.approx(30.5 + half, abs=1e-6)
    assert rows[1]["bleu"]["low"] == pytest.approx(30.5 - half, abs=1e-6)
    assert rows[3]["bleu"]["low"] < 20 < rows[3]["bleu"]["high"]
    assert "low" not in rows[0]["bleu"]  # of another budget


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
    assert significance.verdict([{"difference": gain, "p": p} for gain, p in seeds]) == expected


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


def test_numbers_stand_where_no_point_is() -> None:
    """Above a front's points to the left; below, where one would cover the number before it."""
    front = [row(1, [30.0], parameters=10e6), row(2, [30.1], parameters=10.1e6)]
    front.append(row(3, [34.0], parameters=20e6))
    others = [row(4, [31.0], parameters=20e6, method="concatenated")]
    for one in (*front, *others):
        one["bleu"] |= {"low": one["bleu"]["mean"] - 1, "high": one["bleu"]["mean"] + 1}
    axes = Figure().add_subplot()
    charts.draw_answer(
        axes,
        {
            "cost": "parameters", "best": front[2], "pick": front[0], "front": front,
            "rows": [*front, *others], "far_below": [],
        },
    )  # fmt: skip
    placed = {text.get_text(): text.get_va() for text in axes.texts}
    assert placed == {"1": "bottom", "2": "top", "3": "bottom", "4": "top"}
    assert axes.get_legend() is None  # it would lie on intervals


def test_every_number_has_a_place_of_its_own() -> None:
    """Also of rows that cost the same, and whose scores are alike."""
    rows = [row(number, [30 + number / 1000], parameters=10e6) for number in range(1, 5)]
    rows.append(row(5, [40.0], parameters=20e6))
    for one in rows:
        one["bleu"] |= {"low": one["bleu"]["mean"] - 1, "high": one["bleu"]["mean"] + 1}
    front = [rows[3], rows[4]]
    axes = Figure().add_subplot()
    answer = {"cost": "parameters", "best": rows[4], "front": front, "rows": rows, "far_below": []}
    charts.draw_answer(axes, answer)
    places = {text.get_text(): (text.get_ha(), text.get_va()) for text in axes.texts}
    assert set(places) == {"1", "2", "3", "4", "5"}
    assert len({places[number] for number in "1234"}) == 4
    faces = [line.get_markerfacecolor() for line in axes.lines if line.get_marker() == "o"]
    assert faces == [*[charts.PAGE] * 3, charts.LINK, charts.LINK]  # those off the front are open


def test_curves_behind_can_be_seen() -> None:
    """In text's colours, not in those of rules, which are too faint on a dark page."""
    lines = [(row(number, [30.0]), [[1, 5.0], [2, 4.0]]) for number in (1, 2, 3)]
    text = charts.learning_curves(lines, [1, 2], "curves", "some")
    assert text.count("stroke: var(--faint)") == 1


def test_budgets_are_told_apart() -> None:
    tuned: dict[str, Any] = {"fine_tuned": True, "updates": [500, 500]}
    rows = [
        row(1, [1.0], updates=[1005, 1010]),
        row(2, [1.0]),
        row(3, [1.0], updates=[1011, 1011]),  # more than 1 % above row 2
        row(4, [1.0], **tuned, experiment="tuned/all"),
        row(5, [1.0], **tuned, experiment="other/tuned"),  # of another start, perhaps
        row(6, [1.0], **tuned, experiment="tuned/encoder"),
    ]
    found = budget.budgets(rows)
    assert [(one["letter"], one["rows"], one["folder"]) for one in found] == [
        ("A", [1, 2], None),
        ("B", [3], None),
        ("C", [5], "other"),
        ("D", [4, 6], "tuned"),
    ]
    assert found[0]["updates"] == [1000, 1010]
    assert [budget.letter(number) for number in (0, 25, 26, 27, 52)] == ["A", "Z", "AA", "AB", "BA"]


def test_a_cost_that_a_former_row_lacks_has_no_front() -> None:
    (found,) = budget.budgets([row(1, [1.0]), row(2, [2.0], multiply_adds=None)])
    assert found["fronts"] == {"parameters": [2]}


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
    assert content.curve(run) == []
    run.log.write_text(
        valid(10, "5.5") + "noise\n" + valid(20, "4.5") + valid(20, "4.25")  # resumed
        + valid(30, "nan") + valid(40, "4.0")[:-9] + "}\n"
    )  # fmt: skip
    assert content.curve(run) == [[10, 5.5], [20, 4.25]]


def test_a_log_that_cannot_be_read(tmp_path: Path) -> None:
    run = Run(start_run(tmp_path, "run"))
    run.log.mkdir()
    with pytest.raises(UserError, match=r"train\.log: cannot be read: Is a directory"):
        content.curve(run)


def test_runs_are_found_at_any_depth(tmp_path: Path) -> None:
    for place in ("a/trained/run1", "a/tuned/run1", "b/run2"):
        start_run(tmp_path / place, "").joinpath("checkpoints").mkdir()
    (tmp_path / "b" / "no-run").mkdir()
    (tmp_path / "b" / "no-run" / "score.json").write_text("{}")
    found, strays = find.find([tmp_path, tmp_path / "b", tmp_path / "a" / "tuned" / "run1"])
    assert [*found] == ["a/trained/run1", "a/tuned/run1", "b/run2"]
    assert strays == ["b/no-run: has a score.json, but no config.yaml"]
    alone, _ = find.find([tmp_path / "a" / "tuned"])
    assert [*alone] == ["tuned/run1"]


def test_runs_are_found_behind_links(tmp_path: Path) -> None:
    start_run(tmp_path / "elsewhere", "a")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "elsewhere")
    found, _ = find.find([tmp_path / "here"])
    assert [run.name for run in found.values()] == ["a"]


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


def test_papers_are_carried_over() -> None:
    """The figures of the papers' tables, paper by paper: difference, and change of parameters."""
    found = published.beside([])
    assert [paper["title"].rsplit(" ", 1)[1] for paper in found] == [
        "2006.16362",
        "2002.07028",
        "2305.14380",
        "1905.09418",
    ]
    gains = [[claim["difference"] for claim in paper["claims"]] for paper in found]
    assert gains == [
        [0.18, 0.31, 0.51, 0.54, 0.01, -0.3, 0.0, -0.51, -0.09, -0.63],
        [-0.28, -0.44, 0.65, 0.83, 1.35, 0.34, -0.98, 0.09, 0.82, 0.13, 0.57, 0.54],
        [1.3, 1.1, 0.9, 0.9, 0.8],
        [0.02, -0.24, -0.54, -0.7],
    ]
    assert found[2]["claims"][2]["size_ratio"] == round(30 / 44, 6)
    assert not any(claim["ours"] for paper in found for claim in paper["claims"])
    assert all(paper["caution"] for paper in published.PAPERS)


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
        row(10, [33.0], method="size-32", heads=32),
        row(11, [32.0], method="size-32", heads=8),
        row(12, [32.5], method="size-d/H-wide", heads=32),
        row(13, [1.0], method="size-d/H-wide", heads=8),
    ]
    first, sizes, grouped, gated = (paper["claims"] for paper in published.beside(rows))
    quarter = next(claim for claim in first if claim["system"] == "collab, K = d/4")
    assert quarter["ours"] == [{"row": 1, "baseline": 2, "difference": 0.5, "size_ratio": 0.5}]
    whole = [claim["ours"] for claim in first if claim["baseline"] == "concatenated, K = d"]
    assert [{"row": 1, "baseline": 3, "difference": -1.0, "size_ratio": 0.5}] in whole
    found = {one["where"][:9]: one["ours"] for one in sizes if one["ours"]}
    pairs = {
        where: [(one["row"], one["baseline"]) for one in ours] for where, ours in found.items()
    }
    assert pairs == {
        "table 2A,": [(10, 11)],
        "tables 1 ": [(10, 12)],
    }  # of table 2B the seed has no partner
    assert grouped[2]["ours"] == [{"row": 7, "baseline": 3, "difference": 0.0, "size_ratio": 0.5}]
    assert [one["row"] for one in gated[0]["ours"]] == [9]
