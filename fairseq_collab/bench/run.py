"""A whole benchmark: all parts in turn, each timed one with both matrix libraries.

The library is chosen by an environment variable, see :mod:`fairseq_collab.kernels.onednn`:
*default* is what our linear maps choose on this processor, *same* torch's own, which fairseq's
model uses always.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from collab_common.progress import bar
from collab_common.provenance import circumstances, versions
from fairseq_collab.bench import core, engines, fairseq_generate, generate, grouped, memory, train
from fairseq_collab.bench.models import using
from fairseq_collab.bench.settings import Record, Settings
from fairseq_collab.kernels.onednn import LIBRARIES, matrix_library

VERSION = 1  # of the JSON file
DEFAULT, SAME = "default", "same"
CASES = {
    "generate": (generate.run, fairseq_generate.run),
    "alone": (generate.run_alone,),
    "train": (train.run,),
    "grouped": (grouped.run,),
    "paper3": (grouped.run_paper_3,),
    "core": (core.run,),
    "memory": (memory.run,),
    "counters": (memory.run_counters,),
    "engines": (engines.run,),
}
#: Parts that are timed with each library.  Head groups are measured mainly against our own models,
#: which multiply with the same one.
TIMED = ("generate", "train", "core")
_ALLOCATOR = "MALLOC_"  # environment variables of glibc's allocator begin so


def run(settings: Settings, parts: Sequence[str], command: str) -> dict[str, Any]:
    """Run all parts; the content of the JSON file."""
    start, load = time.time(), os.getloadavg()
    torch.set_num_threads(settings.threads)
    records: list[Record] = []
    libraries: dict[str, str] = {}
    with quiet():
        for part in bar("parts", parts):
            for column, options in columns(part, settings):
                with chosen(column):
                    libraries[column] = library_of(settings)
                    found = itertools.chain.from_iterable(case(options) for case in CASES[part])
                    records += [{**record, "column": column} for record in found]
    made = circumstances(cpu=settings.device == "cpu")
    if "engines" in parts:
        made["versions"] |= versions("ctranslate2")
    return {
        "version": VERSION,
        "command": command,
        **made,
        "started": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(start)),
        "seconds": round(time.time() - start, 1),
        "load_before": load[0],
        "allocator": {k: v for k, v in os.environ.items() if k.startswith(_ALLOCATOR)},
        "libraries": libraries,
        "settings": asdict(settings),
        "records": records,
    }


def columns(part: str, settings: Settings) -> Iterator[tuple[str, Settings]]:
    """With which libraries a part is measured; with torch's own once only."""
    yield DEFAULT, settings
    with chosen(DEFAULT):
        library = library_of(settings)
    if library != LIBRARIES[0] and part in TIMED:
        yield SAME, replace(settings, main_only=True)


def library_of(settings: Settings) -> str:
    """What multiplies now; other libraries than torch's own are used in the usual case only."""
    usual = (settings.device, settings.dtype) == ("cpu", "float32")
    return matrix_library() if usual else LIBRARIES[0]


def chosen(column: str) -> contextlib.AbstractContextManager[None]:
    """Multiply with the library of a column, whatever the environment says."""
    return using(LIBRARIES[0] if column == SAME else None)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without fairseq's word on every step."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
