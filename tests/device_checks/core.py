"""What a check is, how one is run and told of, and which number formats a device has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch


@dataclass(frozen=True)
class Place:
    """Where checks run.

    Attributes:
        device: ``cuda`` or ``cpu``.
        quick: at the smallest sizes, as the test suite runs them on a CPU.
    """

    device: str
    quick: bool = False

    @property
    def formats(self) -> tuple[str, ...]:
        """Options of fairseq-train for number formats."""
        half = ("--bf16", "--fp16", "--amp", "--memory-efficient-fp16")
        return ("", *half) if self.device == "cuda" else ("", "--bf16")

    @property
    def options(self) -> list[str]:
        """Of fairseq's commands."""
        return ["--cpu"] * (self.device == "cpu")


class Check(NamedTuple):
    """One line of the report; ``run`` returns what was found, and raises where that is wrong."""

    name: str
    run: Callable[[], str]


def expect(condition: bool, what: str) -> None:
    """Raises AssertionError, also where Python leaves ``assert`` out."""
    if not condition:
        raise AssertionError(what)


def report(checks: Iterable[Check]) -> int:
    """Run all checks, a line each, to the last one; 1 if one has failed."""
    failed = 0
    for check in checks:
        start = time.perf_counter()
        try:
            line = f"ok {check.name}: {check.run()}"
        except Exception as error:  # whatever a device or a driver raises is the finding
            failed += 1
            what = " ".join(str(error).split()) or "no message"
            line = f"FAILED {check.name}: {type(error).__name__}: {what[:500]}"
        print(f"{line} ({time.perf_counter() - start:.1f} s)", flush=True)
    return min(failed, 1)


def described(device: str) -> str:
    """The device's name and the version of torch."""
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return f"{name}, torch {torch.__version__}"
