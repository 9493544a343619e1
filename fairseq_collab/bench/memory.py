"""Peak resident memory of a process that builds one model and translates one batch.

Every model is measured in a process of its own (``worker.py`` is started anew for each).  On a GPU
the peak is that of torch's allocator.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from fairseq_collab.bench.generate import Translator, memory_case
from fairseq_collab.bench.models import (
    COLLAB,
    HEADSIZE,
    STOCK,
    Variant,
    build_stock,
    build_variant,
    preset_options,
)
from fairseq_collab.bench.settings import Settings
from fairseq_collab.bench.work import batches, random_task

#: None is fairseq's.
MODELS: dict[str, Variant | None] = {
    STOCK: None,
    **{v.name: v for v in (Variant(HEADSIZE), Variant(COLLAB, 4), Variant(COLLAB, 8))},
}


def models(preset: str) -> list[str]:
    """Names of the models that are measured: of large ones, not all."""
    return [name for name in MODELS if preset != "wmt_en_de" or name != Variant(COLLAB, 8).name]


def run(settings: Settings, preset: str, name: str) -> dict[str, Any]:
    """Translate one batch with the model called ``name``; its record, in bytes."""
    case = memory_case(preset, settings.quick)
    task = random_task(preset, case.sentences, settings.seed)
    variant, options = MODELS[name], preset_options(preset)
    torch.manual_seed(settings.seed)
    model = build_variant(variant, options, task) if variant else build_stock(options, task)
    translate = Translator(model, task, case, settings)
    (batch,) = batches(task, "test", settings, max_sentences=case.batch)
    before = resident("VmRSS")
    if settings.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    translate(batch)
    cuda = settings.device == "cuda"
    peak = torch.cuda.max_memory_allocated() if cuda else resident("VmHWM")
    described = {"part": "memory", "preset": preset, "case": case.name, "model": name}
    return {**described, "peak_bytes": peak, "before_bytes": before}


def resident(field: str) -> int:
    """Bytes of this process, by Linux: ``VmRSS`` now, ``VmHWM`` at its peak.

    ``getrusage`` would not do: its peak begins with that of the process that started this one.
    """
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None, f"no {field} in /proc/self/status"
    return 1024 * int(found[1])
