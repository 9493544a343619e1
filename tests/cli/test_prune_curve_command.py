"""``fairseq-collab prune-curve``: the curves, going on after an interruption, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import succeed
from refusals import wrong_usage

from collab_common.errors import UserError
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


def refusal(*command: object) -> str:
    with pytest.raises(UserError) as refused:
        command_curve.main([str(part) for part in command])
    return str(refused.value)


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

    command = [stock, data, "--out", curve, "--sites=encoder,all", *HALF]
    assert command_curve.main([str(part) for part in command]) == 0
    captured = capfd.readouterr()
    assert "**all attentions**, 12 heads" in captured.out
    assert "all: 6 of 12 heads removed" in captured.err
    assert "encoder: " not in captured.err  # it is there already
    second = read(curve)
    assert second["points"][:2] == first["points"]
    assert [(p["curve"], p["removed"]) for p in second["points"][2:]] == [("all", 6)]


def test_importance_measured_at_every_step(stock: Path, data: Path, tmp_path: Path) -> None:
    """The second step starts from the heads of the first, also where that one was done before."""
    command = [str(stock), str(data), "--out", str(tmp_path), "--sites=all", "--steps=0.3",
               "--most=0.6", "--subset=valid", "--cpu", "--iterative"]  # fmt: skip
    assert command_curve.main(command) == 0
    whole = read(tmp_path)
    assert whole["importance"] is None
    points = whole["points"]
    assert [point["removed"] for point in points] == [0, 4, 7]
    for site in ("encoder", "decoder", "cross"):
        assert set(points[2]["kept"][site][0]) <= set(points[1]["kept"][site][0])
    (tmp_path / "curve.json").write_text(json.dumps({**whole, "points": points[:2]}))
    assert command_curve.main(command) == 0
    again = read(tmp_path)["points"]
    assert [p["kept"] for p in again] == [p["kept"] for p in points]
    assert [p["bleu"] for p in again] == [p["bleu"] for p in points]


def test_heads_in_the_order_of_a_file(stock: Path, data: Path, tmp_path: Path) -> None:
    values = {site: [[0.1, 0.4, 0.2, 0.3]] for site in ("encoder", "decoder", "cross")}
    file, out = tmp_path / "heads.json", tmp_path / "out"
    content.write(file, {"measures": {"confidence": values}})
    command = [stock, data, "--out", out, "--sites=cross", *HALF, "--importance", file]
    assert "has no measure" in refusal(*command)
    assert command_curve.main([*map(str, command), "--by=confidence"]) == 0
    assert read(out)["points"][1]["kept"]["cross"] == [[1, 3]]
    content.write(file, {"measures": {"confidence": {**values, "extra": None}}})
    message = refusal(*command, "--by=confidence")
    assert "holds a curve with importance_sha256" in message
    assert "no such" in refusal(*command[:-1], tmp_path / "none.json").lower()


def test_a_curve_on_which_no_head_goes_is_refused(stock: Path, data: Path, tmp_path: Path) -> None:
    """Before anything is translated: there would be nothing to draw."""
    less = ["--steps=0.5", "--most=0.1", "--cpu"]
    assert refusal(stock, data, "--out", tmp_path / "out", *less).startswith("--most: no head")
    assert not (tmp_path / "out").exists()


def test_heads_that_cannot_go_alone_are_refused(trained: Path, data: Path, tmp_path: Path) -> None:
    message = refusal(trained, data, "--out", tmp_path / "out", *HALF)
    assert "CollaborativeAttention, of which none can be taken out alone" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--steps=0"], "--steps: must be above 0"),
        (["--sites=encoder,middle"], "must be some of encoder, decoder, cross, all"),
        (["--importance=x", "--iterative"], "leave it or --iterative out"),
        (["--importance=x", "--importance-subset=valid"], "leave it or --importance-subset out"),
        (["--by=entropy"], "without --importance one of importance_token_normalised"),
        (["--pairs-number=5"], "--pairs-number needs --pairs"),
    ],
)
def test_options_that_make_no_sense(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with wrong_usage(capsys, message):
        command_curve.main(["model.pt", "data", "--out", "out", *options])
