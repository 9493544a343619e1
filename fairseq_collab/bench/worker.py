"""A process of a benchmark: ``python -m fairseq_collab.bench.worker JSON``.

The matrix library is chosen once a process, and memory is counted by process, so every part runs
in processes of its own.  What it is to do comes as JSON, and what it found goes to standard output.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from typing import Any

import torch

import fairseq_collab  # noqa: F401  (registers the architectures)
from collab_common.errors import UserError
from fairseq_collab.bench import (
    alone,
    checkpoints,
    core,
    counters,
    generate,
    grouped,
    memory,
    train,
)
from fairseq_collab.bench.settings import Settings
from fairseq_collab.kernels.onednn import matrix_library


def say(text: str) -> None:
    """Tell what is being done, to whoever watches."""
    print(text, file=sys.stderr, flush=True)


def work(order: dict[str, Any]) -> dict[str, Any]:
    """Do one order: ``part``, ``settings``, and for memory ``preset`` and ``model``."""
    settings = Settings(**{**order["settings"], "presets": tuple(order["settings"]["presets"])})
    torch.set_num_threads(settings.threads)
    part = order["part"]
    if part == "memory":
        say(f"memory, {order['preset']}: {order['model']}")
        records = [memory.run(settings, order["preset"], order["model"])]
    else:
        parts = {"generate": generate.run, "alone": alone.run, "train": train.run, "core": core.run}
        parts |= {"grouped": grouped.run, "counters": counters.run}
        parts |= {"commands": checkpoints.commands}
        records = parts[part](settings, say)
    return {"library": matrix_library(), "records": records}


def main(argv: list[str]) -> int:
    logging.disable(logging.WARNING)  # fairseq tells every step
    warnings.filterwarnings("ignore")
    try:
        print(json.dumps(work(json.loads(argv[0]))))
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
