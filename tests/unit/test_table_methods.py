"""A table without x: a row a method and its choices, and BLEU against parameters in the figure."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure
from run_folders import write_run
from unit.test_table import cells, csv_rows, read, split

from fairseq_collab.results import against, figure
from fairseq_collab.results.rows import NO_X
from fairseq_collab.results.table import main_table, markdown
from fairseq_collab.results.table_content import Table, read_table

METHODS = (
    ("concatenated", {}, 1_200_000, (40.0, 40.4)),
    ("grouped", {"model.head_groups": "2"}, 1_200_000, (39.0, 39.6)),
    ("grouped", {"model.head_groups": "16"}, 1_200_000, (39.5, 39.3)),
    ("grouped_pruned", {"model.heads_in_encoder": "2"}, 900_000, (39.8,)),
)


def methods(parent: Path) -> Path:
    """Runs of three methods, one of them with two choices, two seeds of most."""
    for name, choices, parameters, scores in METHODS:
        for seed, bleu in enumerate(scores, start=1):
            overrides = {"model": name, "common.seed": str(seed), **choices}
            facts = {"parameters": parameters, "overrides": overrides}
            folder = parent / "".join([name, *choices.values()])
            write_run(folder, name, 64, seed, bleu, **facts)
    return parent


def by_methods(parent: Path, baseline: str = against.NO_TEST) -> Table:
    return read_table(sorted(methods(parent).iterdir()), NO_X, baseline)


def test_rows_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for penalty in ("0.01", "0.003", "0"):
        overrides = {"model": "gated", "criterion.gate_penalty": penalty}
        write_run(tmp_path / penalty, "gated", 64, 1, 30.0, overrides=overrides)
    table = read_table(sorted(tmp_path.iterdir()), NO_X, against.NO_TEST)
    found = [row.label.rpartition("=")[2] for row in table.rows]
    assert found == ["0", "0.003", "0.01"]


def test_rows_without_x(tmp_path: Path) -> None:
    table = by_methods(tmp_path)
    assert [(row.label, len(row.runs)) for row in table.rows] == [
        ("concatenated", 2),
        ("grouped, head_groups=2", 2),
        ("grouped, head_groups=16", 2),
        ("grouped_pruned", 1),
    ]
    heading = split(main_table(table).split("\n"))[0]
    assert heading[:4] == ["method", "seeds", "BLEU", "chrF"]
    assert not any("paper" in name for name in heading)
    assert cells(table)[1][:3] == ["grouped, head_groups=2", "2", "39.30 ± 0.42"]
    assert cells(table)[3][:3] == ["grouped_pruned", "1", "39.80"]
    assert "none" not in csv_rows(table)[0]
    assert csv_rows(table)[0].keys() == read_csv_head(tmp_path) - {"key_dim"}
    text = markdown(table)
    assert "# BLEU against parameters: toy, test (4 sentences)" in text
    lines = [line[:5] for line in split(text.splitlines())]
    assert ["run", "method", "seed", "BLEU", "valid. loss (criterion, bits)"] in lines
    assert ["grouped_64_2", "grouped, head_groups=16", "2", "39.30", "4.000"] in lines
    assert "--x none --against none`" in text


def read_csv_head(folder: Path) -> set[str]:
    """The columns of a table by key dimension."""
    return set(csv_rows(read(folder / "concatenated"))[0])


def test_differences_without_x(tmp_path: Path) -> None:
    """Each method and choice against the baseline, which has one row."""
    table = by_methods(tmp_path, "concatenated")
    assert [found.mean for found in table.differences] == pytest.approx([-0.9, -0.8, -0.2])
    text = markdown(table)
    lines = [line[:4] for line in split(text.splitlines())]
    assert ["method", "seeds in both", "BLEU more than concatenated"] in [x[:3] for x in lines]
    assert ["grouped, head_groups=2", "2", "-0.90", "-2.17 to +0.37"] in lines
    assert "Differences are between runs of the same seed. The interval" in text


def test_differences_from_a_row(tmp_path: Path) -> None:
    """A row is named as in the table; others of its method are tested against it, too."""
    table = by_methods(tmp_path, "grouped, head_groups=2")
    assert [(found.row.label, found.mean) for found in table.differences] == [
        ("concatenated", pytest.approx(0.9)),
        ("grouped, head_groups=16", pytest.approx(0.1)),
        ("grouped_pruned", pytest.approx(0.8)),
    ]
    text = markdown(table)
    assert "## Against grouped, head_groups=2" in text
    assert "--x none --against 'grouped, head_groups=2'`" in text


def test_figure_against_parameters(tmp_path: Path) -> None:
    """Marks have numbers, which the legend explains in words; equal models stand side by side."""
    axes = Figure().add_subplot()
    figure.by_parameters(axes, by_methods(tmp_path).rows)
    _, labels = axes.get_legend_handles_labels()
    assert labels == [
        "1  concatenated heads",
        "2  heads in groups, head_groups=2",
        "3  heads in groups, head_groups=16",
        "4  elected heads",
    ]
    assert [text.get_text() for text in axes.texts] == ["1", "2", "3", "4"]
    assert [text.xy[0] for text in axes.texts] == pytest.approx([1.188, 1.2, 1.212, 0.9])
    bars = [container.lines[2][0].get_segments()[0] for container in axes.containers]
    assert bars[0][:, 1] == pytest.approx([40.2 - 0.2828, 40.2 + 0.2828], abs=1e-4)
    assert len(axes.collections) - len(bars) == 3, "small marks for the seeds of three rows"


def test_one_model_alone_has_a_figure(tmp_path: Path) -> None:
    axes = Figure().add_subplot()
    write_run(tmp_path, "concatenated", 64)
    figure.by_parameters(axes, read(tmp_path, NO_X).rows)
    assert [text.xy for text in axes.texts] == [(0.001064, 40.0)]


@pytest.mark.parametrize("methods", [1, 4, 8, 30])
def test_every_point_is_nearest_to_its_own_x(methods: int) -> None:
    """Also where numbers are no octave apart."""
    positions = figure.place([SimpleNamespace(x=x) for x in (1024, 1280, 1536, 2048)])
    widest = figure.step(positions, methods) * (methods - 1) / 2
    assert widest < (positions[1536] - positions[1280]) / 2
    assert figure.step({8: 3.0}, methods) <= figure.DODGE


def test_a_method_alone_at_its_x_stands_there(tmp_path: Path) -> None:
    """Only those that share an x make room for each other."""
    for method, key_dim in (("collab", 64), ("concatenated", 64), ("concatenated", 32)):
        write_run(tmp_path, method, key_dim)
    axes, rows = Figure().add_subplot(), read(tmp_path, "key_dim").rows
    figure._methods(axes, rows, figure.place(rows), "bleu", {})
    shared, alone = (container.lines[0].get_xdata() for container in axes.containers)
    assert list(alone) == pytest.approx([5, 6 + figure.DODGE / 2])
    assert list(shared)[-1] == pytest.approx(6 - figure.DODGE / 2)
