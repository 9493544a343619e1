"""From training in groups to a smaller model, through the real commands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import SHORT, SIZES
from commands import USER_DIR, run_command, succeed, train_log
from refusals import refusing

from collab_lab.cli import prune as command_prune
from collab_lab.cli import vote as command_vote
from fairseq_collab.criterions.losses import GROUPS_LOGGED
from fairseq_compat import checkpoints

pytestmark = pytest.mark.slow

GROUPED = [
    "--arch=transformer_grouped_heads", *SIZES, "--head-groups=2", "--share-all-embeddings",
]  # fmt: skip
CRITERION = ["--criterion=label_smoothed_cross_entropy_with_head_groups", "--group-alpha=0.3"]


@pytest.fixture(scope="module")
def trained_in_groups(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A checkpoint after an update and its resumption up to the third, and the second's log."""
    folder = tmp_path_factory.mktemp("grouped")
    command = ["fairseq-train", data, *USER_DIR, *GROUPED, *SHORT, *CRITERION]
    succeed(*command, "--max-update=1", "--save-dir", folder)
    log = succeed(*command, "--max-update=3", "--save-dir", folder)
    return folder / "checkpoint_last.pt", log


def test_training_logs_the_groups_and_keeps_them(trained_in_groups: tuple[Path, str]) -> None:
    entries = train_log(trained_in_groups[1])
    assert len(entries) == 2
    for entry in entries:
        assert set(GROUPS_LOGGED) <= entry.keys()
    weights = checkpoints.read(trained_in_groups[0])["model"]
    membership = weights["decoder.layers.0.encoder_attn.membership"]
    assert membership.shape == (4, 2)
    assert membership.sum(dim=1).tolist() == [1] * 4


@pytest.fixture(scope="module")
def voted(data: Path, trained_in_groups: tuple[Path, str]) -> Path:
    checkpoint = trained_in_groups[0]
    out = checkpoint.with_name("votes.json")
    command = [str(checkpoint), str(data), "--subset=valid", "--cpu", f"--out={out}"]
    assert command_vote.main(command) == 0
    return out


def test_vote_prune_and_translate(
    data: Path, trained_in_groups: tuple[Path, str], voted: Path, tmp_path: Path
) -> None:
    votes: dict[str, Any] = json.loads(voted.read_text())
    assert votes["feature"] == "value"
    for layers in votes["votes"].values():
        assert [[sum(row) for row in layer] for layer in layers] == [[votes["batches"]] * 2]
    pruned = tmp_path / "pruned.pt"
    command = [trained_in_groups[0], data, "--votes", voted, "--out", pruned]
    done = run_command("fairseq-collab", "prune", *command)
    assert done.returncode == 0, done.stderr
    *types, _, last = done.stdout.splitlines()[-5:]
    assert [line.partition(":")[0] for line in types] == ["encoder", "decoder", "cross"]
    assert all("2 of 4 heads" in line for line in types)
    assert last.startswith("fairseq-train ")  # unit/test_prune_configuration.py runs it
    output = succeed("fairseq-generate", data, *USER_DIR, "--path", pruned, "--cpu")
    assert output.count("\nH-") == 50


def test_prune_by_price(
    data: Path, trained_in_groups: tuple[Path, str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The predicted loss and the measured one; what is saved translates."""
    out, options = tmp_path / "out.pt", ["--remove-share=0.5", "--sentences=20", "--check"]
    checkpoint = str(trained_in_groups[0])
    assert command_prune.main([checkpoint, str(data), *options, f"--out={out}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    price, loss = (
        next(one for one in lines if one.startswith(name))
        for name in ("price: ", "validation loss")
    )
    assert sum(int(line.split()[1]) for line in lines if "of 4 heads" in line) == 6
    assert 0 < float(price.split()[1]) < 1
    after, change, before = map(float, re.findall(r"[+-]?\d\.\d{4}", loss))
    assert change == pytest.approx(after - before, abs=2e-4)
    output = succeed("fairseq-generate", data, *USER_DIR, "--path", out, "--cpu")
    assert output.count("\nH-") == 50


def test_what_prune_rejects(trained_in_groups: tuple[Path, str], tmp_path: Path) -> None:
    """A folder that is not there, and a name that is no checkpoint's."""
    for name in ("no/o.pt", "pruned"):
        with refusing("give "):
            command_prune.main([str(trained_in_groups[0]), "--random=3", "--keep=1",
                                f"--out={tmp_path / name}"])  # fmt: skip
    assert not list(tmp_path.iterdir())
