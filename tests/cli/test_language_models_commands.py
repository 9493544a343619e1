"""Language models through the unmodified fairseq commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from cli.conftest import LM, SHORT
from commands import USER_DIR, succeed

from collab_lab.cli import main as cli


@pytest.fixture(scope="module")
def language_model(monolingual: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lm")
    succeed(
        "fairseq-train", monolingual, *USER_DIR, *LM, "--arch=transformer_lm_collab", "--key-dim=6",
        "--query-mixing=diagonal", *SHORT, "--criterion=cross_entropy", "--save-dir", folder,
    )  # fmt: skip
    return folder / "checkpoint_last.pt"


def test_cost_of_language_models(
    language_model: Path, ordinary_lm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Collaborative heads: projections 2 d (K + d) T, scores and context (H K + d) T^2.

    A file that is not there leaves the others their rows; shares are of the first.
    """
    paths = [ordinary_lm, "none.pt", language_model]
    assert cli.main(["cost", *map(str, paths), "--length", "10"]) == 1
    *_, standard, row, of, about = capsys.readouterr().out.splitlines()
    words = len(torch.load(language_model)["model"]["decoder.embed_tokens.weight"])
    per_token = 2 * 16 * (6 + 16) + 2 * 16 * 32 + 16 * words
    found = 10 * per_token + 100 * (4 * 6 + 16)
    baseline = found + 10 * 2 * 16 * (16 - 6) - 100 * (4 * 6 - 16)
    cells = [cell.strip() for cell in row.split("|")[4:-1]]
    assert cells == ["88 = 24 + 64 (69%)", "-", f"{found:,} ({found / baseline:.0%})"]
    cells = [cell.strip() for cell in standard.split("|")[4:-1]]
    assert cells == ["128 = 64 + 64", "-", f"{baseline:,}"]
    assert of == f"%: of {ordinary_lm}"
    assert about == "multiply-adds: 10 tokens on each side, or in a language model's block"


def test_heads_of_a_language_model(
    language_model: Path, monolingual: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heads = ["heads", str(language_model), str(monolingual), "--out", str(tmp_path), "--cpu"]
    assert cli.main([*heads, "--subset=test"]) == 0
    output = capsys.readouterr().out
    assert "a language model: no cross-attention, syntax, rare source tokens or relevance" in output
    found = json.loads((tmp_path / "heads.json").read_text())
    assert found["heads"] == {"encoder": [], "decoder": [4], "cross": []}
    applies = {"confidence", "positional", "importance", "price"}
    assert applies <= {name for name, of in found["measures"].items() if of["decoder"]}
    assert not any(of["encoder"] or of["cross"] for of in found["measures"].values())
    assert cli.main([*heads, "--conllu", "trees"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert "--conllu: a language model has no encoder" in line
