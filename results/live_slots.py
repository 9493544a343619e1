"""What a search saves that keeps only the slots that a beam sees, next to one that keeps all.

Translations are compared.  Bytes are those of all tensors of the incremental state; the peak is the
largest number before any step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from fairseq.sequence_generator import SequenceGenerator

from collab_common.errors import UserError
from collab_lab import open_model
from collab_lab.clock.lengths import cache_bytes, in_new_process, peak_memory
from collab_lab.clock.turns import clock
from collab_lab.export.plain import plain
from collab_lab.metrics.generate import BEAM
from collab_lab.metrics.length_limit import LENGTH_LIMIT
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import batches, fitting, samples
from fairseq_collab.attention import cache
from fairseq_collab.models.decoder import Decoder
from results.records import Content
from results.seconds import CPU, checkpoint_of, in_turns
from results.work import Case

STOCK, ALL, LIVE = "stock fairseq", "all slots", "live slots"
NEVER = 2**62


@contextmanager
def keeping(slots: str) -> Iterator[None]:
    """Keep all slots of beams for a while, or only the live ones, as always."""
    with mock.patch.object(cache, "DROP_EVERY", NEVER if slots == ALL else cache.DROP_EVERY):
        yield


class Search:
    """Translates batches with beam 5."""

    def __init__(self, model: Trained, slots: str, **options: Any):
        self.model, self.slots = model.model.eval(), slots
        words = model.task.target_dictionary
        self.generator = SequenceGenerator(
            [self.model], words, beam_size=BEAM, **{**LENGTH_LIMIT, **options}
        )

    def __call__(self, batch: Any) -> list[list[int]]:
        """The best hypothesis of each sentence."""
        with torch.no_grad(), keeping(self.slots):
            found = self.generator.generate([self.model], batch)
        return [best["tokens"].tolist() for best, *_ in found]

    def watched(self, batch: Any, look: Callable[[Any], None]) -> list[list[int]]:
        """The same, with a look at the incremental state before each step's layers."""

        def hook(_: Any, arguments: Any, options: Any) -> None:
            (state,) = (x for x in (*arguments, *options.values()) if isinstance(x, dict))
            look(state)

        handle = self.model.decoder.layers[0].register_forward_pre_hook(hook, with_kwargs=True)
        try:
            return self(batch)
        finally:
            handle.remove()


def peak_bytes(search: Search, batch: Any) -> tuple[int, list[list[int]]]:
    """The largest number of bytes of the incremental state before a step, and translations."""
    peak = 0

    def look(state: Any) -> None:
        nonlocal peak
        peak = max(peak, cache_bytes(state))

    found = search.watched(batch, look)
    return peak, found


def opened(path: Path, data: Path, **changed: Any) -> Trained:
    """The model of a checkpoint; UserError if its search keeps all slots anyway."""
    model = open_model(path, data, **changed)
    if not isinstance(model.model.decoder, Decoder):
        todo = "convert it first: fairseq-collab reparametrize"
        raise UserError("is stock fairseq's, which keeps all slots", path, todo)
    return model


def equal(expected: list[Any], live: list[Any]) -> Content:
    """How many translations are equal."""
    same = sum(a == b for a, b in zip(expected, live, strict=True))
    return {"equal": same, "sentences": len(live)}


def forced(case: Case, length: int, sentences: int, turns: int, stock: bool) -> Content:
    """Sentences of the test set, translated to a length: seconds of turns, and bytes.

    Args:
        stock: whether stock fairseq is timed, too.
    """
    with checkpoint_of(case) as path:
        more = {"max_target_positions": max(1024, length + 2)}
        model = opened(path, case.text.data, **more)
    indices = fitting(model, "test")
    chosen = [indices[i * len(indices) // sentences] for i in range(sentences)]
    (batch,) = batches(model, "test", chosen, max_sentences=sentences)
    models = {STOCK: plain(model)} if stock else {}
    models |= {ALL: model, LIVE: model}
    options = {"max_len_a": 0, "max_len_b": length, "min_len": length - 1}
    searches = {name: Search(of, name, **options) for name, of in models.items()}
    found = {name: peak_bytes(search, batch) for name, search in searches.items()}  # a warm-up
    seconds = in_turns(searches, turns, batch)
    return {
        "turns": [{name: round(x, 4) for name, x in turn.items()} for turn in seconds],
        "bytes": {name: peak for name, (peak, _) in found.items()},
        **equal(found[ALL][1], found[LIVE][1]),
    }


def live_documents(case: Case, number: int) -> Content:
    """Documents of the test set, with their own lengths, in a process for each search."""
    with checkpoint_of(case) as path:
        rows = {
            slots: in_new_process(documents_of, path, case.text.data, number, slots)
            for slots in (ALL, LIVE)
        }
    expected, live = (rows[slots].pop("found") for slots in (ALL, LIVE))
    tokens = [len(line) for line in live]
    return {**rows, **equal(expected, live), "tokens": sum(tokens), "longest": max(tokens)}


def documents_of(checkpoint: Path, data: Path, number: int, slots: str) -> dict[str, Any]:
    """Seconds, peak of this process and of the state, and translations."""
    model = opened(checkpoint, data)
    search, parts = Search(model, slots), samples(model, "test", number)
    before, start = peak_memory(CPU), clock()
    found = [search(part) for part in parts]
    seconds, memory = clock() - start, peak_memory(CPU)
    state = max(peak_bytes(search, part)[0] for part in parts)
    return {
        "seconds": seconds, "process": memory, "decoding": memory - before, "state": state,
        "found": [line for part in found for line in part],
    }  # fmt: skip
