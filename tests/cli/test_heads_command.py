"""``fairseq-collab heads``: the file, the page, the summary, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import preprocess, write_copy_task

from collab_common import main as cli
from fairseq_collab.analysis.heads.measures import FREQUENT

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


def run(out: Path, *arguments: object) -> dict[str, Any]:
    """What the command, which succeeds, has written."""
    assert cli.main(["heads", *map(str, arguments), "--out", str(out)]) == 0
    return json.loads((out / "heads.json").read_text())


@pytest.mark.slow
def test_a_collaborative_model(
    trained: Path, data: Path, codes: Path, trees: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "new" / "folder"
    found = run(
        out, trained, data, "--conllu", trees, "--subwords", codes, "--relations", "obj", "nsubj",
        "--relevance-rule", "paper", "ours", "released", "--relevance-sentences", 4, "--leave-out",
    )  # fmt: skip
    output = capsys.readouterr().out
    assert (found["version"], found["arch"], found["subset"]) == (1, "transformer_collab", "valid")
    assert found["checkpoint"] == "checkpoint_last.pt"
    assert found["heads"] == {site: [4] for site in SITES}
    assert found["sentences"] == 50
    assert found["source_tokens"] == found["target_tokens"]  # the target is the source
    assert {"commit", "versions", "hardware", "date", "command"} < set(found)
    rules = {"relevance", "relevance_ours", "relevance_released"}
    assert set(found["measures"]) == MEASURES | GRADIENTS | rules | {"loss_increase"}
    assert {rule: one["sentences"] for rule, one in found["relevance"].items()} == {
        "paper": 4, "ours": 50, "released": 4,
    }  # fmt: skip
    assert -1 <= found["rank_correlations"]["importance_token"]["cross"] <= 1
    assert found["rank_correlations"]["rare"] == dict.fromkeys(SITES)
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


def test_a_stock_model_and_other_sentences(stock: Path, data: Path, tmp_path: Path) -> None:
    arguments = [stock, data, "--no-relevance", "--subset=test"]
    found = run(tmp_path / "one", *arguments, "--example-lines", "3", "1")
    assert (found["arch"], found["subset"]) == ("transformer", "test")
    assert set(found["measures"]) == MEASURES
    assert "relevance" not in found
    assert found["syntax"] is None
    assert [example["line"] for example in found["examples"]] == [3, 1]
    text = (data.parent / "text" / "test.en").read_text().splitlines()
    assert found["examples"][0]["source"] == [*text[2].split(), "</s>"]
    # Numbers depend on the batches by rounding alone.
    again = run(tmp_path / "two", *arguments, "--max-tokens=30", "--examples=0")
    assert again["examples"] == []
    assert again["source_tokens"] == found["source_tokens"]
    for name in ("confidence", "entropy"):
        for site in SITES:
            (layer,), (other,) = found["measures"][name][site], again["measures"][name][site]
            assert layer == pytest.approx(other, abs=1e-5)


@pytest.mark.slow
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
    write_copy_task(tmp_path / "text", words=20, train=50)
    other = preprocess(tmp_path / "text", tmp_path / "bin")
    assert "the encoder's dictionary has 16 symbols in it, 24 here" in line(trained, other)
    wrong = line(trained, data, "--example-lines", 51)
    assert "--example-lines: there are 50 sentences, no 51" in wrong
    with pytest.raises(FileNotFoundError):  # fairseq's: a line where the process ends
        line(trained, data, "--subset=no")
    assert not out.exists()
    wrong = line(trained, data, "--max-tokens=3", "--no-relevance")
    assert "--max-tokens: a sentence of valid has more than the 3 tokens of a batch" in wrong
    assert f"{data}: has neither spm.model nor code" in line(trained, data, "--conllu", trees)

    bad = tmp_path / "bad.conllu"
    arguments = [trained, data, "--subwords", codes, "--conllu", bad]
    assert f"{bad}: no such file" in line(*arguments)
    bad.write_text(trees.read_text() + "1\tw1\n")
    number = bad.read_text().count("\n")
    assert f"{bad}:{number}: 2 columns between tabs, not 10" in line(*arguments)
    bad.write_text("\n")
    assert f"{bad}: has no sentence that the model can read" in line(*arguments)
    assert not list(out.iterdir())  # nothing half-done
    assert f"{bad}: no such folder can be made" in line(trained, data, out=bad)
