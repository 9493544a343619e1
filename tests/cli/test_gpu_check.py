"""``recipes/gpu_check.sh``: on a CPU, at the smallest sizes; ``pytest -m gpu``: on the GPU."""

from __future__ import annotations

import pytest
import torch
from device_checks.__main__ import all_checks
from device_checks.core import Place, report
from device_checks.models import ARCHITECTURES

from fairseq_collab.models.variants import VARIANTS

ON_GPU = {check.name: check for check in all_checks(Place("cuda"))}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
@pytest.mark.parametrize("name", ON_GPU)
def test_on_the_gpu(name: str) -> None:
    print(ON_GPU[name].run())


@pytest.mark.slow
def test_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    """All checks that a CPU can do, of every attention type and architecture."""
    failed = report(all_checks(Place("cpu", quick=True)))
    lines = capsys.readouterr().out.splitlines()
    assert not failed, "\n".join(line for line in lines if line.startswith("FAILED"))
    assert all(line.startswith("ok ") for line in lines)
    told = "\n".join(lines)
    assert all(f"ok attention {kind.name} bfloat16: " in told for kind in VARIANTS)
    assert all(f"ok training {arch} --bf16: " in told for arch in ARCHITECTURES)
    assert all(f"ok fixed steps {arch} float32, beam 5: " in told for arch in ARCHITECTURES)
