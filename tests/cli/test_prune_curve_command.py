"""``fairseq-collab prune-curve``: the curves, going on after an interruption, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import succeed
from refusals import refusing

from fairseq_collab.analysis.heads import content
from fairseq_collab.commands import prune_curve as command_curve

pytestmark = pytest.mark.slow

HALF = ["--steps=0.5", "--most=0.5", "--subset=valid", "--cpu"]
RESULTS = {"curve.json", "table.md", "curve.png"}


@pytest.fixture(scope="module")
def curve(stock: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a curve that only one site was asked for."""
    out = tmp_path_factory.mktemp("results") / "curve"
    output = succeed(
        "fairseq-collab", "prune-curve", stock, data, "--out", out, "--sites=encoder", *HALF
    )
    assert "encoder: 2 of 4 heads removed:" in output
    return out


def read(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "curve.json").read_text())


def run(*command: object) -> None:
    assert command_curve.main([*map(str, command)]) == 0


def test_a_curve_and_its_continuation(
    stock: Path, data: Path, curve: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert {path.name for path in curve.iterdir()} == RESULTS
    first = read(curve)
    assert [(p["curve"], p["removed"], p["of"]) for p in first["points"]] == [
        ("encoder", 0, 4), ("encoder", 2, 4),
    ]  # fmt: skip
    assert first["heads"] == {"encoder": [4], "decoder": [4], "cross": [4]}
    measure = first["importance"]["encoder"][0]
    kept = first["points"][1]["kept"]
    assert set(kept["encoder"][0]) == set(sorted(range(4), key=lambda i: measure[i])[2:])
    assert kept["decoder"] == [[0, 1, 2, 3]]
    assert {"commit", "versions", "hardware", "date", "command"} <= first.keys()

    run(stock, data, "--out", curve, "--sites=encoder,all", *HALF)
    captured = capfd.readouterr()
    assert "**all attentions**, 12 heads" in captured.out
    assert "all: 6 of 12 heads removed" in captured.err
    assert "encoder: " not in captured.err  # it is there already
    second = read(curve)
    assert second["points"][:2] == first["points"]
    assert [(p["curve"], p["removed"]) for p in second["points"][2:]] == [("all", 6)]


def test_importance_measured_at_every_step(stock: Path, data: Path, tmp_path: Path) -> None:
    """The second step starts from the heads of the first, also where that one was done before."""
    command = [stock, data, "--out", tmp_path, "--sites=all", "--steps=0.3", "--most=0.6",
               "--subset=valid", "--cpu", "--iterative"]  # fmt: skip
    run(*command)
    whole = read(tmp_path)
    assert whole["importance"] is None
    points = whole["points"]
    assert [point["removed"] for point in points] == [0, 4, 7]
    for site in ("encoder", "decoder", "cross"):
        assert set(points[2]["kept"][site][0]) <= set(points[1]["kept"][site][0])
    (tmp_path / "curve.json").write_text(json.dumps({**whole, "points": points[:2]}))
    run(*command)
    again = read(tmp_path)["points"]
    assert [p["kept"] for p in again] == [p["kept"] for p in points]
    assert [p["bleu"] for p in again] == [p["bleu"] for p in points]


def test_heads_in_the_order_of_a_file(stock: Path, data: Path, tmp_path: Path) -> None:
    values = {site: [[0.1, 0.4, 0.2, 0.3]] for site in ("encoder", "decoder", "cross")}
    file, out = tmp_path / "heads.json", tmp_path / "out"
    content.write(file, {"measures": {"confidence": values}})
    command = [stock, data, "--out", out, "--sites=cross", *HALF, "--importance", file]
    with refusing("has no measure"):
        run(*command)
    run(*command, "--by=confidence")
    assert read(out)["points"][1]["kept"]["cross"] == [[1, 3]]
    content.write(file, {"measures": {"confidence": {**values, "extra": None}}})
    with refusing("holds a curve with importance_sha256"):
        run(*command, "--by=confidence")
    with refusing("No such file"):
        run(*command[:-1], tmp_path / "none.json")


def test_a_curve_on_which_no_head_goes_is_refused(stock: Path, data: Path, tmp_path: Path) -> None:
    """Before anything is translated: there would be nothing to draw."""
    with refusing("--most: no head"):
        run(stock, data, "--out", tmp_path / "out", "--steps=0.5", "--most=0.1", "--cpu")
    assert not (tmp_path / "out").exists()


def test_heads_that_cannot_go_alone_are_refused(trained: Path, data: Path, tmp_path: Path) -> None:
    with refusing("CollaborativeAttention, of which none can be taken out alone"):
        run(trained, data, "--out", tmp_path / "out", *HALF)
    assert not (tmp_path / "out").exists()
