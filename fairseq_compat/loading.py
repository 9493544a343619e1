"""fairseq's background loading of batches, ended before the interpreter is."""

from __future__ import annotations

import atexit
import contextlib
import functools
import queue
import time
import weakref
from typing import Any

_PATIENCE = 10.0  # seconds that batches in the making are waited for


def end_with_the_process() -> None:
    """End the threads that load batches ahead while Python still runs.

    They are daemons. A training that stops within an epoch (`--max-update`, Ctrl-C) leaves one
    behind, and if it is inside torch when the interpreter goes down, the process aborts: exit
    status 134 after a training that was fine.
    """
    from fairseq.data import iterators

    started: weakref.WeakSet[Any] = weakref.WeakSet()
    original = iterators.BufferedIterator._create_consumer

    @functools.wraps(original)
    def _create_consumer(self: Any) -> None:
        original(self)
        started.add(self)

    iterators.BufferedIterator._create_consumer = _create_consumer
    atexit.register(_end_all, started)


def _end_all(started: weakref.WeakSet[Any]) -> None:
    for iterator in list(started):
        iterator._consumer._max_len = 0  # the batch in the making is the last
    deadline = time.monotonic() + _PATIENCE
    for iterator in list(started):
        while iterator._consumer.is_alive() and time.monotonic() < deadline:
            _empty(iterator._queue)  # it may wait for room
            iterator._consumer.join(0.01)


def _empty(batches: queue.Queue[Any]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            batches.get_nowait()
