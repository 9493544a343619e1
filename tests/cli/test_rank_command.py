"""``fairseq-collab rank``: the table, the figure, the summary, and what is refused."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from commands import refuse
from torch import nn

from collab_common import main as cli
from fairseq_collab.trained import opener as loading

RESULTS = {"rank.csv", "rank.png", "rank.pdf"}


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_trained_model(
    trained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 7 sentences; and again with another tolerance, which changes ranks and nothing else."""
    out = tmp_path / "new" / "folder"
    command = ["rank", str(trained), str(data), "--subset=test", "--sentences=7", "--bin-width=3",
               "--out", str(out)]  # fmt: skip
    assert cli.main(command) == 0
    output = capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == RESULTS
    assert (out / "rank.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "rank.png").stat().st_size > 20_000
    rows = table(out / "rank.csv")
    heads = {(row["site"], row["layer"], row["head"]) for row in rows if row["kind"] == "map"}
    assert heads == {
        (site, "0", str(head)) for site in ("encoder", "decoder", "cross") for head in range(4)
    }
    for row in rows:
        assert float(row["rank"]) <= float(row["bound"])
        energy = sum(float(value) ** 2 for value in row["spectrum"].split())
        assert energy == pytest.approx(1, abs=2e-3)
        assert bool(row["sentences"]) == row["kind"].startswith("logits")
    maps = [row for row in rows if row["kind"] == "sum" and row["weights"] == "trained"]
    assert {(row["rows"], row["columns"], row["bound"], row["rank"]) for row in maps} == {
        ("32", "32", "8", "8")
    }
    logits = [row for row in rows if row["kind"] == "logits"]
    assert {int(row["length_to"]) - int(row["length_from"]) for row in logits} == {2}
    assert sum(int(row["sentences"]) for row in logits) == 7 * 12
    longer = sum(int(row["longer"]) for row in logits)
    assert f"sentences longer than the head is wide: {longer} of 84, all heads counted" in output
    line = next(line for line in output.splitlines() if line.startswith("cross    sum "))
    assert line.split()[2:4] == ["8.0", "8.0"]

    assert cli.main([*command, "--tolerance=0.999"]) == 0
    again = table(out / "rank.csv")
    assert {row.pop("rank") for row in again if row["kind"] == "map"} == {"1"}
    assert [{**row, "rank": ""} for row in again] == [{**row, "rank": ""} for row in rows]


def test_results_lie_beside_the_checkpoint_unless_told_otherwise(
    trained: Path, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "model.pt").symlink_to(trained)
    assert cli.main(["rank", str(tmp_path / "model.pt"), str(data), "--sentences=1"]) == 0
    assert {path.name for path in (tmp_path / "model.pt.rank").iterdir()} == RESULTS


def test_data_that_lacks_something(trained: Path, data: Path, tmp_path: Path) -> None:
    """What fairseq raises is put into a line where the process ends."""
    line = refuse("fairseq-collab", "rank", trained, tmp_path)
    assert f"{tmp_path}: holds no binarised language pair" in line
    line = refuse("fairseq-collab", "rank", trained, data, "--subset=dev")
    assert "has no data set 'dev' for this language pair; it has test, train, valid" in line


def test_refusals(
    trained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def line(*arguments: object) -> str:
        assert cli.main(["rank", *map(str, arguments)]) == 1
        return capsys.readouterr().err.splitlines()[-1]

    assert f"{tmp_path / 'no.pt'}: there is no such checkpoint" in line(tmp_path / "no.pt", data)
    assert "no/where: there is no such data folder" in line(trained, tmp_path / "no" / "where")
    file = tmp_path / "file"
    file.write_text("mine")
    assert f"{file}: no such folder can be made" in line(trained, data, "--out", file)
    assert file.read_text() == "mine"
    (tmp_path / "taken" / "rank.csv").mkdir(parents=True)
    assert "rank.csv: cannot be written" in line(trained, data, "--out", tmp_path / "taken")
    assert str(file) in line(file, data)
    monkeypatch.setattr(
        loading, "load_model_ensemble_and_task", lambda *_, **__: ([nn.GRU(1, 1)],) * 3
    )
    assert f"{trained}: neither an encoder-decoder transformer" in line(trained, data)
    assert not trained.with_name(f"{trained.name}.rank").exists()  # nothing half-done
