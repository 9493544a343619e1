"""Peak resident memory of a process that builds one model and translates one batch.

Memory is counted by process, so every model is measured in one of its own: ``python -m
fairseq_collab.bench.memory JSON``.  On a GPU the peak is that of torch's allocator.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch

import fairseq_collab  # noqa: F401  (registers the architectures)
from collab_common.errors import UserError
from fairseq_collab.bench.generate import Case, Translator, sentences
from fairseq_collab.bench.models import COLLAB, HEADSIZE, STOCK, Variant, build
from fairseq_collab.bench.settings import BEAM, PRESETS, Record, Settings
from fairseq_collab.bench.work import random_task

#: None is fairseq's.
MODELS = (None, Variant(HEADSIZE), Variant(COLLAB, 4), Variant(COLLAB, 8))


def run(settings: Settings) -> Iterator[Record]:
    """One record a preset and model, in bytes; of large models, not all.

    Raises:
        UserError: a process failed; its last line.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": str(settings.threads)}
    for preset in settings.presets:
        for number in range(len(MODELS) - (preset == "wmt_en_de")):
            order = json.dumps([asdict(settings), preset, number])
            command = [sys.executable, "-m", __name__, order]
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["it was killed"])[-1]
                raise UserError(last, "benchmark of memory")
            yield json.loads(done.stdout.splitlines()[-1])


def measure(settings: Settings, preset: str, variant: Variant | None) -> Record:
    """Translate one batch, at batch 64 and to length 60, or 30 for a large vocabulary."""
    torch.set_num_threads(settings.threads)
    batch, length = (8, 10) if settings.quick else (64, 30 if preset == "wmt_en_de" else 60)
    if preset == "tiny":
        batch = PRESETS[preset].batch
    case = Case(BEAM, batch, batch, length, (0, 1))
    task = random_task(preset, batch, settings.seed)
    torch.manual_seed(settings.seed)
    translate = Translator(build(variant, preset, task), task, case, settings)
    (found,) = sentences(task, case, settings)
    cuda = settings.device == "cuda"
    before = resident("VmRSS")
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    translate(found)
    return {
        "part": "memory",
        "preset": preset,
        "case": f"beam {BEAM}, batch {batch}, length {length}",
        "model": variant.name if variant else STOCK,
        "peak_bytes": torch.cuda.max_memory_allocated() if cuda else resident("VmHWM"),
        "before_bytes": before,
    }


def resident(field: str) -> int:
    """Bytes of this process, by Linux: ``VmRSS`` now, ``VmHWM`` at its peak.

    ``getrusage`` would not do: its peak begins with that of the process that started this one.
    """
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None, f"no {field} in /proc/self/status"
    return 1024 * int(found[1])


if __name__ == "__main__":
    fields, preset, number = json.loads(sys.argv[1])
    print(json.dumps(measure(Settings(**fields), preset, MODELS[number])))
