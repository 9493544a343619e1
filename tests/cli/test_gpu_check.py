"""``recipes/gpu_check.sh``: on a CPU, at the smallest sizes; ``pytest -m gpu``: on the GPU."""

from __future__ import annotations

import pytest
import torch
from device_checks.__main__ import all_checks
from device_checks.core import Place, report

from collab_lab.clock import turns

ON_GPU = {check.name: check for check in all_checks(Place("cuda"))}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
@pytest.mark.parametrize("name", ON_GPU)
def test_on_the_gpu(name: str) -> None:
    print(ON_GPU[name].run())


@pytest.mark.slow
def test_on_the_cpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """All checks that a CPU can do, of one architecture; that of speed only runs."""
    monkeypatch.setattr(turns, "LEAST", (1, 0))
    failed = report(all_checks(Place("cpu", quick=True)))
    lines = capsys.readouterr().out.splitlines()
    assert not failed, "\n".join(line for line in lines if line.startswith("FAILED"))
    assert all(line.startswith("ok ") for line in lines)
    told = "\n".join(lines)
    for check in (
        "attention collab bfloat16",
        "training transformer_collab --bf16",
        "speed of the fused kernel, 32 positions",
        "speed of live slots",
        "fixed steps transformer_collab float32, beam 5",
        "speed of fixed steps transformer_collab float32, beam 5",
    ):
        assert f"ok {check}: " in told
