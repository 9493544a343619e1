"""``recipes/gpu_check.sh``: on a CPU, at the smallest sizes; ``pytest -m gpu``: on the GPU."""

from __future__ import annotations

import os
import subprocess

import pytest
import torch
from commands import REPOSITORY
from device_checks import attention
from device_checks.__main__ import all_checks
from device_checks.core import Check, Place, expect, report

from fairseq_collab.bench.models import architectures
from fairseq_collab.models.variants import VARIANTS

ON_GPU = {check.name: check for check in all_checks(Place("cuda"))}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
@pytest.mark.parametrize("name", ON_GPU)
def test_on_the_gpu(name: str) -> None:
    print(ON_GPU[name].run())


def test_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    """All checks that a CPU can do, of every attention type and architecture."""
    failed = report(all_checks(Place("cpu", quick=True)))
    lines = capsys.readouterr().out.splitlines()
    assert not failed, "\n".join(line for line in lines if line.startswith("FAILED"))
    assert all(line.startswith("ok ") for line in lines)
    told = "\n".join(lines)
    for kind in VARIANTS:
        for dtype in ("float32", "float16", "bfloat16"):
            assert f"ok attention {kind.name} {dtype}: " in told
    for arch in architectures():
        for form in ("float32", "--bf16"):
            assert f"ok training {arch} {form}: " in told


def test_formats_of_a_gpu() -> None:
    """Every option of fairseq-train for half precision, with each architecture."""
    for form in ("--fp16", "--amp", "--bf16", "--memory-efficient-fp16"):
        assert {f"training {arch} {form}" for arch in architectures()} <= {*ON_GPU}


def test_failures_are_reported_and_the_other_checks_run(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [
        Check("one", lambda: str(expect(False, "two\nlines"))),
        Check("other", lambda: str(1 // 0)),
        Check("last", lambda: "fine"),
    ]
    assert report(checks) == 1
    one, other, last = capsys.readouterr().out.splitlines()
    assert one.startswith("FAILED one: AssertionError: two lines (")
    assert other.startswith("FAILED other: ZeroDivisionError: ")
    assert last.startswith("ok last: fine (")
    assert report(checks[2:]) == 0


def test_a_wrong_attention_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads on the device that see the future, and an output that is NaN."""
    kind = VARIANTS[0]
    arguments = (kind, torch.device("cpu"), torch.float32, attention.TOLERANCE[torch.float32])
    results = attention.results

    def seeing(module, query, key, padding, future):
        blind = future is not None and query.dtype == torch.float32
        return results(module, query, key, padding, future.logical_not() if blind else future)

    monkeypatch.setattr(attention, "results", seeing)
    with pytest.raises(AssertionError, match=r"error .* of decoder, .*, at most 1e-05"):
        attention.attention_errors(*arguments)
    nothing = torch.full((2,), float("nan"))
    assert attention.error(nothing, torch.ones(2, dtype=torch.float64)) == float("inf")


def test_without_a_gpu() -> None:
    """One line, at once."""
    done = subprocess.run(
        ["bash", REPOSITORY / "recipes" / "gpu_check.sh"],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "DEVICE": "cuda"},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "gpu_check: torch finds no GPU; DEVICE=cpu runs the checks on the CPU\n"
