"""The plug-in in fairseq's commands: it trains, resumes, translates, and trains in two processes.

These tests take seconds and are not marked as slow: without them, ``recipes/test.sh --fast``, which
is all that some versions of Python and torch are tested with, would start no command.
"""

from __future__ import annotations

import re
from pathlib import Path

from commands import USER_DIR, sizes, succeed, train_log, warm
from toy_checkpoints import COPY

from fairseq_compat import checkpoints

TRAINING = [
    COPY, *USER_DIR, "--source-lang=en", "--target-lang=de", "--arch=transformer_collab",
    "--key-dim=6", *sizes(16, 24), "--optimizer=adam", "--lr=0.01", "--max-tokens=100",
    "--num-workers=0", "--cpu", "--seed=1", "--log-format=json", "--log-interval=1",
    "--no-epoch-checkpoints", "--disable-validation",
]  # fmt: skip
TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node=2", "--no-python")
GLOO = ("--distributed-backend=gloo", "--ddp-backend=legacy_ddp")


def test_trains_resumes_and_translates(tmp_path: Path) -> None:
    """The first command starts its interpreter, the others are forks of one."""
    train = ["fairseq-train", *TRAINING, "--save-dir", tmp_path]
    cold = {"PYTHONHASHSEED": "1"}
    assert len(train_log(succeed(*train, "--max-update=1", **cold))) == 1
    (entry,) = train_log(succeed(*train, "--max-update=2"))
    assert entry["num_updates"] == "2"
    model = tmp_path / "checkpoint_last.pt"
    options = ("--cpu", "--beam=2", "--max-len-b=9")
    output = succeed("fairseq-generate", COPY, *USER_DIR, "--path", model, *options)
    translated = set(re.findall(r"^H-(\d+)\t", output, re.MULTILINE))
    assert translated == set(re.findall(r"^S-(\d+)\t", output, re.MULTILINE)) != set()


def test_two_processes(tmp_path: Path) -> None:
    train = [*TORCHRUN, warm() / "fairseq-train", *TRAINING, *GLOO, "--save-dir", tmp_path]
    succeed(*train, "--max-update=2")
    (history,) = checkpoints.read(tmp_path / "checkpoint_last.pt")["optimizer_history"]
    assert history["num_updates"] == 2
