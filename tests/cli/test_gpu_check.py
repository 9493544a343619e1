"""``recipes/gpu_check.sh``: on a CPU, at the smallest sizes; ``pytest -m gpu``: on the GPU."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch
from commands import REPOSITORY
from device_checks import attention
from device_checks.__main__ import all_checks
from device_checks.core import Check, Place, expect, report

from fairseq_collab.bench.models import architectures
from fairseq_collab.models.variants import VARIANTS

GPU = Place("cuda")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the checks before this one have written is there."""
    return tmp_path_factory.mktemp("checks")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
@pytest.mark.parametrize("name", [check.name for check in all_checks(GPU, Path())])
def test_on_the_gpu(name: str, folder: Path) -> None:
    found = {check.name: check for check in all_checks(GPU, folder)}
    print(found[name].run())


@pytest.mark.usefixtures("warm_children")
def test_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All that a CPU can; every kind of heads, as the table of variants has them."""
    failed = report(all_checks(Place("cpu", quick=True), tmp_path))
    lines = capsys.readouterr().out.splitlines()
    assert not failed, "\n".join(line for line in lines if line.startswith("FAILED"))
    assert all(line.startswith("ok ") for line in lines)
    told = "\n".join(lines)
    for kind in VARIANTS:
        for dtype in ("float32", "float16", "bfloat16"):
            assert f"ok attention {kind.name} {dtype}: " in told
    for arch in architectures():
        assert f"ok training {arch} float32: " in told
        assert f"ok training {arch} --bf16: " in told
    assert "ok two processes, gloo: " in told


def test_formats_of_a_gpu() -> None:
    """Every option of fairseq-train for half precision, with each architecture and command."""
    names = [check.name for check in all_checks(GPU, Path())]
    for form in ("--fp16", "--amp", "--bf16", "--memory-efficient-fp16"):
        assert {f"training {arch} {form}" for arch in architectures()} <= {*names}
        assert f"fairseq-train and fairseq-generate {form}" in names
    assert len({*names}) == len(names)


def test_what_fails_is_told_and_the_rest_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
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
    """Heads on the device that see the future, and numbers that are none."""
    kind = VARIANTS[0]
    arguments = (kind, "cpu", torch.float32, attention.TOLERANCE[torch.float32])
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
    assert done.stderr == "gpu_check: torch finds no GPU here; DEVICE=cpu runs what a CPU can\n"
