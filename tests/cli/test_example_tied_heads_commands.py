"""A variant of one's own through the real commands: trained, translated with, and counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.conftest import SHORT, SIZES
from commands import REPOSITORY, refuse, succeed, train_log

pytestmark = pytest.mark.slow

PLUG_IN = ("--user-dir", REPOSITORY / "tests" / "examples" / "tied_heads")
ARCH = "--arch=transformer_tied_heads_multi30k"


@pytest.fixture(scope="module")
def checkpoint(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three updates of the variant."""
    folder = tmp_path_factory.mktemp("tied_heads")
    log = succeed("fairseq-train", data, *PLUG_IN, ARCH, *SIZES, *SHORT, "--save-dir", folder)
    assert len(train_log(log)) == 3
    return folder / "checkpoint_last.pt"


def test_it_translates(checkpoint: Path, data: Path) -> None:
    output = succeed(
        "fairseq-generate", data, *PLUG_IN, "--path", checkpoint, "--cpu", "--beam=3",
        "--max-len-a=0", "--max-len-b=5",
    )  # fmt: skip
    assert "Generate test with beam=3: BLEU4 = " in output


def test_its_cost_is_counted(checkpoint: Path) -> None:
    """d = 32, one layer: 32 numbers of 4 bytes, which are keys and values."""
    report = succeed("fairseq-collab", "cost", *PLUG_IN, checkpoint)
    row = [cell.strip() for cell in report.splitlines()[-2].split("|")]
    assert row[4:6] == ["128 = 128 + 0"] * 2


def test_without_the_plug_in_its_architecture_is_unknown(checkpoint: Path) -> None:
    """fairseq itself ends in a KeyError."""
    line = refuse("fairseq-collab", "cost", checkpoint)
    assert line.startswith(f"fairseq-collab cost: error: {checkpoint}: there is no architecture")
