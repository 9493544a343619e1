"""Language models through the unmodified fairseq commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.conftest import LM, SHORT
from commands import USER_DIR, succeed

from collab_lab.cli import main as cli

pytestmark = pytest.mark.slow


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
    """Shares are of the first."""
    paths = [ordinary_lm, language_model]
    assert cli.main(["cost", *map(str, paths), "--length", "10"]) == 0
    *_, standard, row, of, _ = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.split("|")[4:-1]] for line in (standard, row)]
    assert cells[0][:2] == ["128 = 64 + 64", "-"]
    assert cells[1][:2] == ["88 = 24 + 64 (69%)", "-"]
    numbers = [int(found[2].split()[0].replace(",", "")) for found in cells]
    assert f"({numbers[1] / numbers[0]:.0%})" in cells[1][2]
    assert of == f"%: of {ordinary_lm}"


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
