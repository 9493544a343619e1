"""``fairseq-collab heads``: the file, the page, resuming, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import toy_checkpoints

from collab_lab.analysis import stages
from collab_lab.cli import main as cli

pytestmark = pytest.mark.slow

MEASURES = {"confidence", "positional", "rare", "importance", "price", "relevance"}
ATTENTION_TYPES = ("encoder", "decoder", "cross")
CROSS_SELF = {"cross_self_attention": True, "no_cross_attention": True}


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Codes that make whole words of the copy task's, as its dictionary has them."""
    path = tmp_path_factory.mktemp("codes") / "code"
    merges = [f"w {i}</w>" for i in range(10)] + ["w 1", "w1 0</w>", "w1 1</w>"]
    path.write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    return path


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words that all depend on the next one, in two sentences; and a sentence that is too long."""

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
    """The analysis that the command, which succeeds, has written."""
    assert cli.main(["heads", *map(str, arguments), "--out", str(out)]) == 0
    return json.loads((out / "heads.json").read_text())


def test_a_collaborative_model(
    trained: Path, data: Path, codes: Path, trees: Path, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "folder"
    found = run(
        out, trained, data, "--conllu", trees, "--subwords", codes, "--relevance-sentences", 4
    )  # fmt: skip
    about = [found[name] for name in ("arch", "subset", "sentences")]
    assert about == ["transformer_collab", "valid", 50]
    assert found["heads"] == {type_: [4] for type_ in ATTENTION_TYPES}
    assert {"commit", "versions", "hardware", "date", "command"} < set(found)
    assert set(found["measures"]) == MEASURES
    assert found["relevance"]["sentences"] == 4
    for name, measure in found["measures"].items():
        for type_ in ATTENTION_TYPES:
            applies = (
                type_ == "encoder" if "rare" in name else type_ != "cross" or "pos" not in name
            )
            assert (measure[type_] is not None) == applies, (name, type_)
            assert not applies or [len(layer) for layer in measure[type_]] == [4]
    syntax = found["syntax"]
    assert (syntax["sentences"], syntax["too_long"]) == (2, 1)
    up = syntax["relations"]["obj"]["dependent->head"]
    assert (up["pairs"], up["baseline"]) == (11, {"offset": 1, "accuracy": 1})
    assert "(heads.svg)" in (out / "heads.md").read_text()
    assert (out / "heads.pdf").read_bytes().startswith(b"%PDF")
    assert "| obj dependent->head |" in (out / "heads.md").read_text()


def test_an_interrupted_analysis_is_resumed(
    stock: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each measure is kept; the same command measures the others; another model is rejected."""
    arguments = [stock, data, "--relevance-sentences=2", "--subset=test"]

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stages, "relevance", interrupted)
        assert cli.main(["heads", *map(str, arguments), "--out", str(tmp_path)]) == 130
    kept = json.loads((tmp_path / "heads.json").read_text())
    assert set(kept["measures"]) == MEASURES - {"relevance"}
    assert "**confidence**" in (tmp_path / "heads.md").read_text()
    monkeypatch.setattr(stages, "attention", interrupted)
    found = run(tmp_path, *arguments, "--cpu")
    assert set(found["measures"]) == MEASURES
    assert found["command"] == kept["command"]
    assert [stage for stage, made in found["resumed"].items() if "--cpu" in made["command"]] == [
        "relevance"
    ]
    assert (
        f"Later, relevance: `{found['resumed']['relevance']['command']}`"
        in (tmp_path / "heads.md").read_text()
    )
    assert found["measures"]["confidence"] == kept["measures"]["confidence"]
    assert cli.main(["heads", str(stock), str(data), "--out", str(tmp_path)]) == 1  # valid


@pytest.mark.parametrize(
    ("arch", "options", "said"),
    [
        ("transformer", {"cross_self_attention": True}, "--cross-self-attention"),
        ("transformer", CROSS_SELF, "--cross-self-attention"),
        ("transformer_align", {"full_context_alignment": True}, "--full-context-alignment"),
        ("transformer", {"no_cross_attention": True}, None),
        ("transformer_align", {}, None),
    ],
)
def test_other_stock_models(
    arch: str, options: dict[str, Any], said: str | None, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """One line, or the measures of every attention."""
    path, out = toy_checkpoints.write(tmp_path / "model.pt", arch, **options), tmp_path / "out"
    if said is None:
        found = run(out, path, toy_checkpoints.COPY, "--cpu", "--relevance-sentences", 2)
        assert set(found["measures"]) >= MEASURES - {"rare"}
        assert {k for k, v in found["measures"]["relevance"].items() if v} == {
            k for k, v in found["heads"].items() if v
        }
        return
    arguments = [str(path), str(toy_checkpoints.COPY), "--out", str(out)]
    assert cli.main(["heads", *arguments]) == 1
    assert said in capsys.readouterr().err
    assert not out.exists()
