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
    series = {"shared keys": {64: [-3.0, -1.0], 32: [-4.0]}, "separate keys": {64: [-2.1]}}
    page = figure.draw(series, "key width", "BLEU", "Title", "standard heads")
    axes = page.axes[0]
    seeds, shared, _, separate, standard = axes.lines
    assert list(shared.get_xdata()) == [32, 64]
    assert list(shared.get_ydata()) == [-4, -2]
    assert list(seeds.get_ydata()) == [-4, -3, -1]
    assert list(separate.get_xdata()) == [64]
    assert list(standard.get_ydata()) == [0, 0]
    heights = {text.get_text(): text.xyann[1] for text in axes.texts}
    assert sorted(heights, key=heights.__getitem__) == [
        "separate keys", "shared keys", "standard heads"
    ]  # fmt: skip
    assert heights["shared keys"] - heights["separate keys"] > 0.03, "a line apart"


def test_a_method_looks_the_same_in_every_figure() -> None:
    own, even, unknown = figure.styles(["shared keys, own queries", "latent, even", "mine"])
    assert [own] == [*figure.styles(["shared key, own queries, d = 128"])]
    latent, small = figure.styles(["latent", "latent, d = 256"])
    assert latent[:2] == even[:2] == small[:2]
    assert (latent[2], even[2], small[2]) == ("-", "--", "--")
    assert len({own[:2], even[:2], unknown[:2]}) == 3


def test_a_figure_is_reproducible_and_needs_no_font(tmp_path: Path) -> None:
    write_run(tmp_path, "collab", 64)
    files = figure.of_table(read_table([tmp_path]))
    assert files == figure.of_table(read_table([tmp_path]))
    assert b"<text" not in files["figure.svg"]
