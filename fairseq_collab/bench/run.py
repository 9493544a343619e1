"""The whole benchmark: each preset, architecture and task, as JSON and as a table."""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import torch

from collab_common.progress import say
from fairseq_collab.bench import train, translate
from fairseq_collab.bench.models import TIMED
from fairseq_collab.bench.timing import Record
from fairseq_collab.kernels.onednn import matrix_library
from fairseq_collab.results.tables import grid

ENGINES = ("fairseq", "ours", *translate.CTRANSLATE2)


def run(presets: Sequence[str], quick: bool, device: torch.device, threads: int) -> dict[str, Any]:
    """Time everything; the content of the JSON file."""
    start = time.time()
    torch.set_num_threads(threads)
    records: list[Record] = []
    with quiet():
        for preset in presets:
            for heads, arch in TIMED.items():
                say(f"{preset}, {heads}")
                labels = {"preset": preset, "heads": heads}
                found = [
                    *translate.run(arch, preset, quick, device, threads),
                    *train.run(arch, preset, quick, device),
                ]
                records += [{**labels, **record} for record in found]
    return {
        "seconds": round(time.time() - start, 1),
        "matrix_library": matrix_library(),
        "ctranslate2": version("ctranslate2") if find_spec("ctranslate2") else None,
        "records": records,
    }


def table(records: Sequence[Record]) -> str:
    """One row per preset, architecture and task; one column per engine."""
    cases: dict[tuple[str, ...], dict[str, str]] = {}
    for record in records:
        case = tuple(record[name] for name in ("preset", "heads", "task", "case"))
        spread = f"{record['ratio']:.2f} ({record['low']:.2f} to {record['high']:.2f})"
        cases.setdefault(case, {})[record["engine"]] = spread
    rows = [
        [*case, *(cells.get(name, "-") for name in ENGINES[1:])] for case, cells in cases.items()
    ]
    return grid(["preset", "heads", "task", "case", *ENGINES[1:]], rows, left=range(4))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without fairseq's log."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
