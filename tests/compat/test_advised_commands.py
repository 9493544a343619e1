"""Commands that messages and pages advise are run as they are written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from commands import refuse, succeed
from toy_checkpoints import COPY

pytestmark = pytest.mark.slow

OPTIONS = ["--arch=transformer_tiny", "--optimizer=sgd", "--lr=0.1", "--max-tokens=200", "--cpu"]
OPTIONS += ["--max-update=1", "--no-epoch-checkpoints"]
HYDRA = ["task=translation", f"task.data={COPY}", "+model._name=transformer_tiny"]
HYDRA += ["optimizer=adam", "criterion=cross_entropy", "dataset.batch_size=8", "common.cpu=true"]
HYDRA += ["lr_scheduler=fixed", "optimization.max_update=1", "optimization.lr=[0.1]"]


def advised(command: str, *options: object) -> list[str]:
    """What a refusal of two processes says to run, with the options of the refused command."""
    size = "distributed_training." * (command == "fairseq-hydra-train") or "--"
    name = "distributed_world_size" if "." in size else "distributed-world-size"
    line = refuse(command, *options, f"{size}{name}=2")
    (advice,) = re.findall("`(.*)`", line)
    return shlex.split(advice.replace("...", shlex.join(map(str, options))))


def test_two_processes_as_fairseq_train_advises(tmp_path: Path) -> None:
    words = advised("fairseq-train", COPY, *OPTIONS, "--save-dir", tmp_path)
    output = succeed(*words)
    assert "training on 2 devices" in output
    assert "/hydra/" not in output, "warnings"
    assert (tmp_path / "checkpoint_last.pt").exists()


def test_two_processes_as_hydra_advises(tmp_path: Path) -> None:
    words = advised("fairseq-hydra-train", *HYDRA, f"hydra.run.dir={tmp_path}")
    succeed(*words)
    assert (tmp_path / "checkpoints" / "checkpoint_last.pt").exists()


def test_other_commands_say_to_leave_it_out() -> None:
    line = refuse("fairseq-validate", COPY, "--path=m.pt", "--cpu", "--distributed-world-size=2")
    assert line.endswith("leave the option out")
