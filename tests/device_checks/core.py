"""A check, how to run checks, and the number formats of a device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from collab_lab.clock.turns import take_turns


@dataclass(frozen=True)
class Place:
    """Where checks run.

    Attributes:
        name: ``cuda`` or ``cpu``.
        quick: at the smallest sizes, one architecture, as the test suite runs them on a CPU.
    """

    name: str
    quick: bool = False

    @property
    def device(self) -> torch.device:
        return torch.device(self.name)

    @property
    def least(self) -> float:
        """Seconds in which programs take turns, at least."""
        return 0 if self.quick else 2

    @property
    def formats(self) -> tuple[str, ...]:
        """Options of fairseq-train for number formats."""
        half = ("--bf16", "--fp16", "--amp", "--memory-efficient-fp16")
        return ("", *half) if self.name == "cuda" else ("", "--bf16")


class Check(NamedTuple):
    """One line of the report; ``run`` returns the finding, and raises an error if it is wrong."""

    name: str
    run: Callable[[], str]


def expect(condition: bool, what: str) -> None:
    """Raises AssertionError, also under ``python -O``."""
    if not condition:
        raise AssertionError(what)


def speeds(
    programs: Mapping[str, Callable[[Any], Any]], batch: Any, place: Place, steps: int = 1
) -> str:
    """How many times as fast the second program is as the first, in turns, and ms of a step."""
    for program in programs.values():
        program(batch)  # warms up, and captures graphs
    before, after = take_turns(programs, [batch], pause=0, least=place.least)
    spread = f"{after['low']:.2f} to {after['high']:.2f}"
    unit = " a step" if steps > 1 else ""
    slow, fast = (f"{1000 * one['seconds'] / steps:.2f}" for one in (before, after))
    return f"{after['ratio']:.2f} times as fast ({spread}), {slow} to {fast} ms{unit}"


def report(checks: Iterable[Check]) -> int:
    """Run all checks and print a line each; returns 1 if one has failed."""
    failed = 0
    for check in checks:
        start = time.perf_counter()
        try:
            line = f"ok {check.name}: {check.run()}"
        except Exception as error:  # whatever a device or a driver raises is the finding
            failed = 1
            what = " ".join(str(error).split()) or "no message"
            line = f"FAILED {check.name}: {type(error).__name__}: {what[:500]}"
        print(f"{line} ({time.perf_counter() - start:.1f} s)", flush=True)
    return failed
