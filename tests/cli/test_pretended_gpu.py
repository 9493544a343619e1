"""Models, training, search and `heads` put each tensor where the model is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import old_checkpoints
import pytest
import torch
from commands import USER_DIR
from device_checks import attention, decoding, training
from device_checks.core import Check, Place
from fairseq_cli import generate, train
from pretended_gpu import pretended_gpu
from torch import nn

from collab_common.main import main
from fairseq_collab.advice import candidates, judge, search
from fairseq_collab.bench.models import architectures

GPU = Place("cuda", quick=True)
CHECKS = {
    check.name: check
    for check in (
        *(each for each in attention.checks(GPU) if each.name.endswith("bfloat16")),
        *(each for each in decoding.checks(GPU) if "bfloat16" not in each.name),
        *(
            Check(f"training {arch} --fp16", partial(training.trained, arch, "--fp16", GPU))
            for arch in architectures()
        ),
    )
}


@pytest.fixture
def gpu() -> Iterator[None]:
    with pretended_gpu():
        yield


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", CHECKS)
def test_on_one_device(name: str) -> None:
    CHECKS[name].run()


@pytest.mark.usefixtures("gpu")
def test_the_wrong_device_is_noticed() -> None:
    """The test of the test."""
    model, x = nn.Linear(3, 2), torch.ones(4, 3)
    expected = model(x)
    model.cuda()
    assert model.weight.is_cuda
    assert model(x.cuda()).device.type == "cuda"
    assert torch.equal(model(x.to("cuda")).cpu(), expected)
    with pytest.raises(RuntimeError, match="tensors on two devices"):
        model(x)
    with pytest.raises(RuntimeError, match="tensors on two devices"):
        model(x.cuda()) + torch.arange(2)
    with pytest.raises(TypeError, match="copy it to the CPU first"):
        model(x.cuda()).detach().numpy()
    (model(x.cuda()).sum() + torch.tensor(1.0)).backward()  # a number may be anywhere
    assert model.weight.grad.is_cuda


@pytest.mark.usefixtures("gpu")
def test_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Train, translate and look at the heads, in this process."""
    data, save = tmp_path / "bin", tmp_path / "model"
    training.prepare(tmp_path, data)
    command = training.training(data, save, 40, GPU)
    monkeypatch.setattr(sys, "argv", [str(each) for each in command])
    train.cli_main()
    model = save / "checkpoint_last.pt"
    command = ["generate", data, *USER_DIR, "--path", model, "--beam=3", "--max-len-b=20"]
    monkeypatch.setattr(sys, "argv", [str(each) for each in command])
    generate.cli_main()
    assert "Generate test with beam=3" in capsys.readouterr().out
    of_heads = ["heads", model, data, "--out", tmp_path / "heads", "--leave-out"]
    assert main([str(each) for each in of_heads]) == 0


@pytest.mark.usefixtures("gpu")
def test_advise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole search: three ways to share or leave out, at one size; a timing, and an update."""
    for name in ("SHARES", "FFN_SHARES"):
        monkeypatch.setattr(candidates, name, (0.5,))
    monkeypatch.setattr(judge, "TURNS", 1)
    few = {name: candidates.SHARING[name] for name in ("grouped-query", "collab")}
    monkeypatch.setattr(candidates, "SHARING", few)
    monkeypatch.setitem(candidates.USUAL, "steps", 1)
    monkeypatch.setitem(candidates.USUAL, "calibration", 20)
    monkeypatch.setattr(search, "FINALISTS", 1)
    lengths = {f"max_{side}_positions": 8 for side in ("source", "target")}
    model = old_checkpoints.write(tmp_path / "model.pt", **lengths, share_all_embeddings=True)
    asked = ["--want", "cache=0.6", "--max-loss=100", "--tune=1", "--out", tmp_path / "out"]
    command = ["advise", model, "--data", old_checkpoints.COPY, *asked]
    assert main([str(each) for each in command]) == 0
    assert (tmp_path / "out" / "advised.pt").exists()
