"""The benchmark on the device: that it runs, and what it finds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch

from fairseq_collab.bench.models import COLLAB, HEADSIZE, Variant
from fairseq_collab.bench.run import run
from fairseq_collab.bench.settings import Settings

from .core import Check, Place, expect

PARTS = ("generate", "train", "core")
NAMES = (Variant(HEADSIZE).name, Variant(COLLAB, 4).name)


def checks(place: Place) -> Iterator[Check]:
    """Each timed part, in each number format that the benchmark has."""
    for dtype in ("float32", "bfloat16"):
        preset = "tiny" if place.quick else "multi30k"
        settings = Settings(
            presets=(preset,), quick=True, device=place.device, dtype=dtype,
            threads=torch.get_num_threads(),
        )  # fmt: skip
        for part in ("core",) if place.quick else PARTS:
            yield Check(f"bench {part} {dtype}", partial(ratios, part, settings))


def ratios(part: str, settings: Settings) -> str:
    """How many times as fast as fairseq's: a hint only, of a few turns."""
    found = {}
    for record in run(settings, [part], "device check")["records"]:
        expect(math.isfinite(record["ratio"]), f"no ratio of {record['model']}")
        if record["model"] in NAMES:
            found.setdefault(record["model"], []).append(f"{record['ratio']:.2f}")
    expect(set(found) == set(NAMES), f"only {', '.join(found) or 'nothing'} was timed")
    return "; ".join(f"{model} {', '.join(each)}" for model, each in found.items())
