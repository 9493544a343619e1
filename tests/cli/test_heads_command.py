"""``fairseq-collab heads``: the file, the report, the summary, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import MODEL, SHORT
from commands import preprocess, succeed, write_copy_task

from collab_common import main as cli
from fairseq_collab.analysis.heads.measures import FREQUENT
from fairseq_collab.commands import heads as command

MEASURES = {"confidence", "positional", "rare", "rare_of_two", "entropy"}
GRADIENTS = {
    "relevance", "importance_token", "importance_sample", "importance_token_normalised",
}  # fmt: skip
SITES = ("encoder", "decoder", "cross")


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Codes that make whole words of the copy task's, as its dictionary has them."""
    path = tmp_path_factory.mktemp("codes") / "code"
    merges = [f"w {i}</w>" for i in range(10)] + ["w 1", "w1 0</w>", "w1 1</w>"]
    path.write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    return path


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words that all hang on the next one, in two sentences; and one that is too long."""

    def tree(length: int) -> str:
        rows = [
            f"{i}\tw{i % 12}\tw\tX\t_\t_\t{i + 1 if i < length else 0}\tobj\t_\t_"
            for i in range(1, length + 1)
        ]
        return "\n".join(rows) + "\n\n"

    path = tmp_path_factory.mktemp("trees") / "trees.conllu"
    path.write_text(tree(5) + tree(8) + tree(2000))
    return path


def read(out: Path) -> dict[str, Any]:
    return json.loads((out / "heads.json").read_text())


def test_a_collaborative_model(
    trained: Path, data: Path, codes: Path, trees: Path, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "folder"
    output = succeed(
        "fairseq-collab", "heads", trained, data, "--conllu", trees, "--subwords", codes,
        "--relations", "obj", "nsubj", "--out", out,
    )  # fmt: skip
    found = read(out)
    assert (found["version"], found["arch"], found["subset"]) == (1, "transformer_collab", "valid")
    assert found["checkpoint"] == "checkpoint_last.pt"
    assert found["heads"] == {site: [4] for site in SITES}
    assert found["sentences"] == 50
    assert found["source_tokens"] == found["target_tokens"]  # the target is the source
    assert {"commit", "versions", "hardware", "date", "command"} < set(found)
    assert set(found["measures"]) == MEASURES | GRADIENTS
    for name, measure in found["measures"].items():
        for site in SITES:
            applies = site == "encoder" if "rare" in name else site != "cross" or "pos" not in name
            assert (measure[site] is not None) == applies, (name, site)
            assert not applies or [len(layer) for layer in measure[site]] == [4]
    # The dictionary has no more words than count as frequent.
    assert found["rare"]["frequent"] == FREQUENT
    assert found["measures"]["rare"]["encoder"] == [[None] * 4]
    assert [len(shares) for shares in found["offsets"]["encoder"][0]] == [7] * 4
    assert [len(row) for row in found["similarity"]["weights"]["cross"][0]] == [4] * 4
    syntax = found["syntax"]
    assert (syntax["trees"], syntax["sentences"], syntax["side"]) == ("trees.conllu", 2, "source")
    assert (syntax["too_long"], syntax["subwords"], syntax["unknown"]) == (1, 13, 0)
    up = syntax["relations"]["obj"]["dependent->head"]
    assert (up["pairs"], up["baseline"]) == (11, {"offset": 1, "accuracy": 1})
    assert syntax["relations"]["nsubj"]["dependent->head"]["pairs"] == 0
    assert [len(site) for site in found["roles"].values()] == [1, 1, 1]
    assert len(found["examples"]) == 4
    for example in found["examples"]:
        shape = (len(example["target"]), len(example["source"]))
        assert example["source"][-1] == example["target"][-1] == "</s>"
        (layer,) = example["weights"]["cross"]
        assert {(len(head), len(head[0])) for head in layer} == {shape}
        assert all(sum(row) == pytest.approx(1, abs=0.02) for head in layer for row in head)
    assert "</html>" in (out / "report.html").read_text()
    assert (out / "heads_confidence.png").read_bytes().startswith(b"\x89PNG")
    assert "obj dependent->head: " in output
    assert "100.0% at offset +1, 11 pairs" in output
    assert "nsubj head->dependent: no pairs" in output


def test_a_stock_model_and_other_sentences(data: Path, tmp_path: Path) -> None:
    stock = [option for option in MODEL if "key-dim" not in option and "arch" not in option]
    succeed("fairseq-train", data, "--arch=transformer", *stock, *SHORT, "--save-dir", tmp_path)
    checkpoint = str(tmp_path / "checkpoint_last.pt")

    def run(name: str, *options: str) -> dict[str, Any]:
        out = tmp_path / name
        arguments = ["heads", checkpoint, str(data), "--no-relevance", "--out", str(out), *options]
        assert cli.main(arguments) == 0
        return read(out)

    found = run("one", "--subset=test", "--example-lines", "3", "1")
    assert (found["arch"], found["subset"]) == ("transformer", "test")
    assert set(found["measures"]) == MEASURES
    assert found["syntax"] is None
    assert [example["line"] for example in found["examples"]] == [3, 1]
    text = (data.parent / "text" / "test.en").read_text().splitlines()
    assert found["examples"][0]["source"] == [*text[2].split(), "</s>"]
    # Numbers depend on the batches by rounding alone.
    again = run("two", "--subset=test", "--max-tokens=30", "--examples=0")
    assert again["examples"] == []
    assert again["source_tokens"] == found["source_tokens"]
    for name in ("confidence", "entropy"):
        for site in SITES:
            (layer,), (other,) = found["measures"][name][site], again["measures"][name][site]
            assert layer == pytest.approx(other, abs=1e-5)


def test_refusals(
    trained: Path, data: Path, codes: Path, trees: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "out"

    def line(*arguments: object, out: Path = out) -> str:
        assert cli.main(["heads", *map(str, arguments), "--out", str(out)]) == 1
        return capsys.readouterr().err.splitlines()[-1]

    assert f"{tmp_path / 'no.pt'}: there is no such checkpoint" in line(tmp_path / "no.pt", data)
    assert "no/where: there is no such data folder" in line(trained, tmp_path / "no" / "where")
    told = line(trained, data, "--example-lines", 51)
    assert "--example-lines: there are 50 sentences, no 51" in told
    with pytest.raises(FileNotFoundError):  # fairseq's: told in a line outside of this process
        line(trained, data, "--subset=no")
    assert not out.exists()
    told = line(trained, data, "--max-tokens=3", "--no-relevance")
    assert "--max-tokens: a sentence of valid has more than the 3 tokens of a batch" in told
    told = line(trained, data, "--conllu", trees)
    assert f"{data}: has neither spm.model nor code" in told
    told = line(trained, data, "--conllu", tmp_path / "no.conllu", "--subwords", codes)
    assert f"{tmp_path / 'no.conllu'}: no such file" in told
    bad = tmp_path / "bad.conllu"
    bad.write_text(trees.read_text() + "1\tw1\n")
    told = line(trained, data, "--conllu", bad, "--subwords", codes)
    assert f"{bad}:{bad.read_text().count(chr(10))}: 2 columns between tabs, not 10" in told
    bad.write_text("\n")
    told = line(trained, data, "--conllu", bad, "--subwords", codes)
    assert f"{bad}: has no sentence that the model can read" in told
    assert not list(out.iterdir())  # nothing half-done
    file = tmp_path / "file"
    file.write_text("mine")
    assert f"{file}: no such folder can be made" in line(trained, data, out=file)


def test_data_with_another_dictionary(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_copy_task(tmp_path / "text", words=20, train=50)
    other = preprocess(tmp_path / "text", tmp_path / "bin")
    assert cli.main(["heads", str(trained), str(other), "--out", str(tmp_path / "out")]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert "the encoder's dictionary has 16 symbols in it, 24 here" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--max-tokens=0", "--examples=x", "--example-lines=0"])
def test_options(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["heads", "checkpoint.pt", "data", "--out=out", option])
    assert exit_.value.code == 2
    assert f"argument {option.split('=')[0]}: must be a" in capsys.readouterr().err
    assert command.whole("0") == 0
