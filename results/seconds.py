"""Seconds: programs that take turns, programs in their own process, and this project's commands."""

from __future__ import annotations

import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from collab_lab import open_model
from collab_lab.clock.lengths import in_new_process, peak_memory, watch
from collab_lab.clock.turns import turns
from collab_lab.metrics.generate import BEAM
from collab_lab.trained.sentences import batches, dataset_of
from results.records import Content
from results.work import Case

CPU = torch.device("cpu")
#: Tokens from which a first translation counts: it takes a quarter of a minute.
LONG = 512


def in_turns(
    programs: Mapping[str, Callable[[Any], Any]], number: int, batch: Any = None, pause: float = 0.0
) -> list[dict[str, float]]:
    """Seconds of each turn, by program: A B C, C B A, ..."""
    timed = turns(programs, [batch], pause)
    return [next(timed) for _ in range(number)]


@contextmanager
def threads_set(number: int) -> Iterator[None]:
    """A number of threads, within it."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def checkpoint_of(case: Case) -> Iterator[Path]:
    """The checkpoint of a changed model, within it."""
    with tempfile.TemporaryDirectory() as folder:
        path = case.text.checkpoint
        if case.made.model is not case.text.model:
            path = Path(folder, "changed.pt")
            case.made.model.save(path)
        yield path


def steps(case: Case, batch: int, length: int) -> Content:
    """A step of long translations, in a new process: see :func:`steps_of`."""
    with checkpoint_of(case) as path:
        return dict(in_new_process(steps_of, path, case.text.data, batch, length))


def steps_of(checkpoint: Path, data: Path, batch: int, length: int) -> Content:
    """Seconds of a step, bytes of the cache and the peak of this process, of one translation.

    The longest documents of the test set, again and again, are translated with beam 5 to a length
    that is forced.
    """
    model = open_model(checkpoint, data)
    longest = np.argsort(-dataset_of(model, "test").src_sizes, kind="stable")
    order = [int(longest[i % len(longest)]) for i in range(batch)]
    (sample,) = batches(model, "test", order, max_sentences=batch)
    with torch.no_grad():
        before = peak_memory(CPU)
        (found,) = watch(model.model, model.task, sample, BEAM, [length], CPU, before)
    return {**found, "source_tokens": int(sample["net_input"]["src_lengths"].max())}


def command(case: Case, words: str, sentences: int) -> Content:
    """Wall-clock seconds of a command of this project, and those of all its threads.

    Args:
        words: the command, with ``{out}``; CHECKPOINT DATA follow the first word.
    """
    with checkpoint_of(case) as path, tempfile.TemporaryDirectory() as folder:
        name, *rest = shlex.split(words.format(out=Path(folder, "out")))
        more = [] if name == "export" else ["--cpu", f"--sentences={sentences}"]
        start: list[Any] = [sys.executable, "-m", "collab_lab.cli.main", name, path, case.text.data]

        def program(_: Any) -> None:
            subprocess.run([*start, *rest, *more], check=True, stdout=subprocess.DEVNULL)

        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        (seconds,) = in_turns({name: program}, 1)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    parameters = sum(p.numel() for p in case.made.model.model.parameters())
    taken = {"seconds": round(seconds[name], 1), "cpu_seconds": round(cpu, 1)}
    return {"parameters": parameters, **taken}
