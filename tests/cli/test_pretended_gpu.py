"""Models, training, search and `heads` put each tensor where the model is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import toy_checkpoints
from commands import USER_DIR, sizes
from device_checks import attention, models
from device_checks.core import Place
from fairseq_cli import generate, train
from pretended_gpu import pretended_gpu
from torch import nn

from collab_common.main import main
from fairseq_collab.advice import candidates, search
from fairseq_collab.metrics.translate import BEAM

GPU = Place("cuda", quick=True)
#: With one number format of each kind of check.
CHECKS = {
    check.name: check
    for check in (*attention.checks(GPU), *models.checks(GPU))
    if check.name.endswith((" bfloat16", f"float32, beam {BEAM}", " --fp16"))
    and not (check.name.startswith("decoding") and check.name.endswith(" bfloat16"))
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
    save, data = tmp_path / "model", toy_checkpoints.COPY
    model = ["--arch=transformer_collab", "--key-dim=8", *sizes(32, 64), f"--save-dir={save}"]
    training = [
        "--optimizer=adam", "--lr=0.005", "--num-workers=0", "--disable-validation",
        "--criterion=label_smoothed_cross_entropy", "--max-tokens=400", "--max-update=5",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", list(map(str, ["train", data, *USER_DIR, *model, *training])))
    train.cli_main()
    checkpoint = save / "checkpoint_last.pt"
    command = ["generate", data, *USER_DIR, "--path", checkpoint, "--beam=3", "--max-len-b=9"]
    monkeypatch.setattr(sys, "argv", list(map(str, command)))
    generate.cli_main()
    assert "Generate test with beam=3" in capsys.readouterr().out
    of_heads = ["heads", checkpoint, data, "--out", tmp_path / "heads", "--relevance-sentences=2"]
    assert main(list(map(str, of_heads))) == 0


@pytest.mark.usefixtures("gpu")
def test_advise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole search: three methods, at one size."""
    for name in ("SHARES", "FFN_SHARES"):
        monkeypatch.setattr(candidates, name, (0.5,))
    few = {name: candidates.SHARING[name] for name in ("grouped-query", "collab")}
    monkeypatch.setattr(candidates, "SHARING", few)
    monkeypatch.setitem(candidates.USUAL, "calibration", 20)
    monkeypatch.setattr(search, "FINALISTS", 1)
    lengths = {f"max_{side}_positions": 8 for side in ("source", "target")}
    model = toy_checkpoints.write(tmp_path / "model.pt", **lengths, share_all_embeddings=True)
    asked = ["--want", "cache=0.6", "--max-loss=100", "--sample=12", "--out", tmp_path / "out"]
    command = ["advise", model, "--data", toy_checkpoints.COPY, *asked]
    assert main([str(each) for each in command]) == 0
    assert (tmp_path / "out" / "advised.pt").exists()
