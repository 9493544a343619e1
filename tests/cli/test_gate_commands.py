"""From a converged model through closing gates to a smaller one, through the real commands."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cli.conftest import SHORT, SIZES
from commands import USER_DIR, succeed, train_log

from collab_lab.cli import prune as command_prune
from fairseq_collab.criterions.losses import GATES_LOGGED
from fairseq_compat import checkpoints

pytestmark = pytest.mark.slow

GATED = [
    "--arch=transformer_gated_heads",
    *SIZES,
    "--share-all-embeddings",
    "--gated-types=encoder",
]
CRITERION = ["--criterion=label_smoothed_cross_entropy_with_head_gates", "--gate-penalty=0.5"]


@pytest.fixture(scope="module")
def closing(data: Path, stock: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A checkpoint with gates that go on from fairseq's, the decoder frozen; and the log."""
    folder = tmp_path_factory.mktemp("gated")
    log = succeed(
        "fairseq-train", data, *USER_DIR, *GATED, *SHORT, *CRITERION, "--freeze-decoder",
        "--gate-speed=10000", "--finetune-from-model", stock, "--save-dir", folder,
    )  # fmt: skip
    return folder / "checkpoint_last.pt", log


def test_gates_go_on_from_a_converged_model(stock: Path, closing: tuple[Path, str]) -> None:
    """The encoder, and only it, has moved; its gates are logged."""
    checkpoint, log = closing
    entries = train_log(log)
    assert len(entries) == 3
    for entry in entries:
        assert set(GATES_LOGGED) <= entry.keys()
        assert float(entry["gates_open"]) == 4
    assert float(entries[-1]["gates_l0"]) < float(entries[0]["gates_l0"]) <= 4
    before, after = (checkpoints.read(path)["model"] for path in (stock, checkpoint))
    assert after["encoder.layers.0.self_attn.theta"].max() < 4e-4
    moved = {n for n in before.keys() & after.keys() if not before[n].equal(after[n])}
    assert "encoder.layers.0.fc1.weight" in moved
    assert not any(name.startswith("decoder.layers") for name in moved)


def test_prune_and_translate(
    data: Path, closing: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The smaller model has the same translations as the one with closed gates."""
    state = checkpoints.read(closing[0])
    gates = torch.tensor([4e-4, -4e-4, -4e-4, 4e-4])  # as after a longer training
    state["model"]["encoder.layers.0.self_attn.theta"] = gates
    whole, pruned = tmp_path / "whole.pt", tmp_path / "pruned.pt"
    checkpoints.save(state, whole)
    assert command_prune.main([str(whole), "--gates", f"--out={pruned}"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.rpartition(": ")[2] for line in printed[:2]] == ["0 3", "0 1 2 3"]
    assert "--arch transformer_headsize_n --heads-in-encoder 2" in printed[-1]
    found = []
    for path in (whole, pruned):
        output = succeed("fairseq-generate", data, *USER_DIR, "--path", path, "--cpu")
        found.append([line for line in output.splitlines() if line.startswith("H-")])
    assert len(found[0]) == 50
    for one, other in zip(*found, strict=True):  # ID, score, words
        assert one.split("\t")[::2] == other.split("\t")[::2]
