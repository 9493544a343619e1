"""The figures of tables and pages: lines, names at their ends, standard heads across."""

from __future__ import annotations

from pathlib import Path

from run_folders import MODEL_DIM, write_run

from collab_lab.results import figure
from collab_lab.results.table import read_table, standard_row


def test_standard_heads_are_a_line(tmp_path: Path) -> None:
    """They are the separate keys that are as wide as the model."""
    separate = {"arch": "transformer_headsize_n", "model_dim": MODEL_DIM}
    write_run(tmp_path, "concatenated", MODEL_DIM, **separate)
    write_run(tmp_path, "concatenated", 64, **separate)
    write_run(tmp_path, "collab", MODEL_DIM, arch="transformer_collab", model_dim=MODEL_DIM)
    row = standard_row(read_table([tmp_path]).rows)
    assert row is not None
    assert (row.label, row.x) == ("concatenated", MODEL_DIM)


def test_what_is_drawn() -> None:
    series = [
        figure.Series("shared keys", {64: [30.0, 32.0], 32: [29.0]}),
        figure.Series("separate keys", {64: [30.9]}),
    ]
    page = figure.draw(
        series, "key width", "BLEU", "Title", levels={"standard heads": [33.0, 34.0]}
    )
    axes = page.axes[0]
    shared, seeds, separate, standard = axes.lines
    assert list(shared.get_xdata()) == [5, 6], "octaves, not moved"
    assert list(shared.get_ydata()) == [29, 31]
    assert list(seeds.get_ydata()) == [30, 32]
    assert list(separate.get_xdata()) == [6]
    assert list(standard.get_ydata()) == [33.5, 33.5]
    texts = {text.get_text(): text for text in axes.texts}
    assert texts.keys() == {"shared keys", "separate keys", "standard heads"}
