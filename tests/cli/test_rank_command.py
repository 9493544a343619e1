"""``fairseq-collab rank``: the table, the figure, the summary, and what is refused."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from cli.conftest import MODEL, SHORT
from commands import REPOSITORY, preprocess, refuse, succeed, write_copy_task
from torch import nn

from collab_common import main as cli
from fairseq_collab.checkpoints import opener as loading

STORED = REPOSITORY / "tests" / "stored" / "transformer_collab_1"
RESULTS = {"rank.csv", "rank.png", "rank.pdf"}


@pytest.fixture(scope="module")
def data_of_stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sentences of the stored model, binarised with its dictionaries."""
    folder = tmp_path_factory.mktemp("stored")
    for language in ("en", "de"):
        shutil.copy(STORED / "source.en", folder / f"valid.{language}")
    succeed(
        "fairseq-preprocess", "--source-lang=en", "--target-lang=de",
        "--srcdict", STORED / "dict.en.txt", "--tgtdict", STORED / "dict.de.txt",
        "--validpref", folder / "valid", "--destdir", folder / "bin",
    )  # fmt: skip
    return folder / "bin"


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_trained_model(data_of_stored: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    output = succeed(
        "fairseq-collab", "rank", STORED / "checkpoint.pt", data_of_stored, "--out", out
    )
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
    trained = [r for r in rows if r["kind"] == "sum" and r["weights"] == "trained"]
    assert {(row["rows"], row["columns"], row["bound"], row["rank"]) for row in trained} == {
        ("32", "32", "8", "8")
    }
    lengths = {row["length_to"] for row in rows if row["kind"] == "logits"}
    assert lengths <= {"5", "10"}  # sentences of 3 to 5 words, and the end
    per_head = [r for r in rows if (r["site"], r["head"], r["kind"]) == ("cross", "0", "logits")]
    assert sum(int(row["sentences"]) for row in per_head) == 3
    assert "sentences longer than the head is wide: 0 of 36, all heads counted" in output
    line = next(line for line in output.splitlines() if line.startswith("cross    sum "))
    assert line.split()[2:4] == ["8.0", "8.0"]


def test_a_stock_model_and_some_sentences(data: Path, tmp_path: Path) -> None:
    """Results lie beside the checkpoint unless told otherwise, and are the same every time."""
    stock = [option for option in MODEL if "key-dim" not in option and "arch" not in option]
    succeed("fairseq-train", data, "--arch=transformer", *stock, *SHORT, "--save-dir", tmp_path)
    command = ["rank", str(tmp_path / "checkpoint_last.pt"), str(data), "--sentences=7"]
    assert cli.main([*command, "--subset=test", "--bin-width=3"]) == 0
    out = tmp_path / "checkpoint_last.pt.rank"
    assert {path.name for path in out.iterdir()} == RESULTS
    rows = table(out / "rank.csv")
    assert {row["bound"] for row in rows if row["kind"] == "map"} == {"8"}
    assert {row["bound"] for row in rows if row["kind"] == "stacked_keys"} == {"32"}
    logits = [row for row in rows if row["kind"] == "logits"]
    assert {int(row["length_to"]) - int(row["length_from"]) for row in logits} == {2}
    assert sum(int(row["sentences"]) for row in logits) == 7 * 12
    # Another tolerance changes ranks and nothing else: what is not among the largest is none.
    assert cli.main([*command, "--subset=test", "--bin-width=3", "--tolerance=0.999"]) == 0
    again = table(out / "rank.csv")
    assert {row.pop("rank") for row in again if row["kind"] == "map"} == {"1"}
    assert [{**row, "rank": ""} for row in again] == [{**row, "rank": ""} for row in rows]


def test_data_that_lacks_something(trained: Path, data: Path, tmp_path: Path) -> None:
    line = refuse("fairseq-collab", "rank", trained, tmp_path)
    assert f"{tmp_path}: holds no binarised language pair" in line
    line = refuse("fairseq-collab", "rank", trained, data, "--subset=dev")
    assert "has no data set 'dev' for this language pair; it has test, train, valid" in line


def test_refusals(
    trained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert not trained.with_name(f"{trained.name}.rank").exists()  # nothing half-done


def test_data_with_another_dictionary(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_copy_task(tmp_path / "text", words=20, train=50)
    other = preprocess(tmp_path / "text", tmp_path / "bin")
    assert cli.main(["rank", str(trained), str(other), "--out", str(tmp_path / "out")]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert "the encoder's dictionary has 16 symbols in it, 24 here" in line
    assert not (tmp_path / "out").exists()


def test_models_that_are_no_transformers(
    trained: Path, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        loading, "load_model_ensemble_and_task", lambda *_, **__: ([nn.GRU(1, 1)],) * 3
    )
    assert cli.main(["rank", str(trained), str(data)]) == 1
    assert f"{trained}: not an encoder-decoder transformer" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--sentences=0", "--bin-width=x", "--tolerance=1"])
def test_options(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["rank", "checkpoint.pt", "data", option])
    assert exit_.value.code == 2
    assert f"argument {option.split('=')[0]}: must be a" in capsys.readouterr().err
