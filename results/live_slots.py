"""What a search saves that keeps only the slots that a beam sees: writes results/live_slots.json.

    python results/live_slots.py results/live_slots.json --model NAME=CHECKPOINT --data D

Three measurements, each of one search that keeps all slots and one that keeps the live ones:

    forced     sentences of the test set, translated to forced lengths; programs take turns
    text       the test set with its own lengths, in batches, sorted by length or not; in turns
    documents  with ``--documents N``: N documents of the test set, each program in its own process

Translations are compared.  Bytes are those of all tensors of the incremental state; the peak is the
largest number before any step.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from fairseq.sequence_generator import SequenceGenerator

from collab_common.errors import UserError
from collab_lab import open_model
from collab_lab.clock.bench import cache_bytes, peak_memory
from collab_lab.clock.turns import clock, times_as_fast, turns
from collab_lab.export.model import plain
from collab_lab.metrics.generate import BEAM
from collab_lab.metrics.longest import LIMIT
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import batches, fitting, samples
from fairseq_collab.attention import cache
from fairseq_collab.attention.cache import beam_history, has_beam_history
from fairseq_collab.models.decoder import Decoder
from results.long import MADE, Text
from results.measured import File, origin

STOCK, ALL, LIVE = "stock fairseq", "all slots", "live slots"
CACHES = ("float32", "8 bits", "4 bits", "latents, an eighth")
LENGTHS, SENTENCES, BATCHES = (30, 200, 800, 2000), 16, (32, 128)
CALIBRATION = 1000
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
            [self.model], words, beam_size=BEAM, **{**LIMIT, **options}
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


class Widths:
    """Slots that a search reads, in all steps together."""

    def __init__(self) -> None:
        self.all = self.kept = self.live = self.steps = 0

    def __call__(self, state: Any) -> None:
        """Count before a step.

        ``live`` counts slots that a beam of the same sentence sees: what batches of one would keep,
        if dead slots were dropped in every step.
        """
        if not has_beam_history(state):
            return
        history = beam_history(state)
        mask = history.mask[:, 0]  # (B, beam, slots)
        self.all += mask.size(0) * history.steps * history.beam
        self.kept += mask.size(0) * mask.size(2)
        self.live += int((mask == 0).any(1).sum())

    def shares(self) -> dict[str, float]:
        return {"kept": round(self.kept / self.all, 4), "live": round(self.live / self.all, 4)}


def peak_bytes(search: Search, batch: Any) -> tuple[int, list[list[int]]]:
    """The largest number of bytes of the incremental state before a step, and translations."""
    peak = 0

    def look(state: Any) -> None:
        nonlocal peak
        peak = max(peak, cache_bytes(state))

    found = search.watched(batch, look)
    return peak, found


# ---- measurements --------------------------------------------------------------------------------


def forced(model: Trained, batch: Any, length: int, number: int, names: Sequence[str]) -> Any:
    """Seconds of turns, bytes, and how many translations are equal, at a length."""
    stock = plain(model) if STOCK in names else model
    options = {"max_len_a": 0, "max_len_b": length, "min_len": length - 1}
    searches = {name: Search(stock if name == STOCK else model, name, **options) for name in names}
    found = {name: peak_bytes(search, batch) for name, search in searches.items()}  # a warm-up
    timed = turns(searches, [batch])
    seconds = [next(timed) for _ in range(number)]
    (_, expected), (_, live) = found[ALL], found[LIVE]
    return {
        "turns": [{name: round(x, 4) for name, x in turn.items()} for turn in seconds],
        "bytes": {name: peak for name, (peak, _) in found.items()},
        "equal": sum(a == b for a, b in zip(expected, live, strict=True)),
        "sentences": len(live),
    }


def text(model: Trained, size: int, is_sorted: bool, number: int) -> dict[str, Any]:
    """The same for the test set in batches of ``size`` sentences, and shares of the slots."""
    indices = fitting(model, "test")
    if is_sorted:
        of = model.task.dataset("test")
        indices.sort(key=lambda index: int(of.num_tokens(index)))
    else:
        random.Random(1).shuffle(indices)
    parts = [*batches(model, "test", indices, max_sentences=size)]
    searches = {name: Search(model, name) for name in (ALL, LIVE)}
    widths = Widths()
    live = [line for part in parts for line in searches[LIVE].watched(part, widths)]
    expected = [line for part in parts for line in searches[ALL](part)]
    programs = {
        name: lambda parts, search=search: [search(part) for part in parts]
        for name, search in searches.items()
    }
    timed = turns(programs, [parts])
    return {
        "turns": [next(timed) for _ in range(number)],
        "equal": sum(a == b for a, b in zip(expected, live, strict=True)),
        "sentences": len(live),
        "shares": widths.shares(),
    }


class Documents(NamedTuple):
    """What a process of its own translates."""

    checkpoint: Path
    data: Path
    number: int
    slots: str


def documents(of: Documents) -> dict[str, Any]:
    """Seconds, peak of this process and of the state, and translations."""
    model = open_model(of.checkpoint, of.data)
    search, parts = Search(model, of.slots), samples(model, "test", of.number)
    before, start = peak_memory(torch.device("cpu")), clock()
    found = [search(part) for part in parts]
    seconds, memory = clock() - start, peak_memory(torch.device("cpu"))
    state = max(peak_bytes(search, part)[0] for part in parts)
    return {
        "seconds": seconds, "process": memory, "decoding": memory - before, "state": state,
        "found": [line for part in found for line in part],
    }  # fmt: skip


def of_both(path: Path, data: Path, number: int) -> dict[str, Any]:
    """Documents with all slots and with the live ones."""
    context = multiprocessing.get_context("forkserver")  # a peak of this process would count
    context.set_forkserver_preload(["collab_lab.clock.bench"])
    rows: dict[str, Any] = {}
    for slots in (ALL, LIVE):
        with context.Pool(1, torch.set_num_threads, [torch.get_num_threads()]) as pool:
            rows[slots] = pool.apply(documents, (Documents(path, data, number, slots),))
    expected, live = (rows[slots].pop("found") for slots in (ALL, LIVE))
    tokens = [len(line) for line in live]
    return {
        **rows, "equal": sum(a == b for a, b in zip(expected, live, strict=True)),
        "sentences": len(live), "tokens": sum(tokens), "longest": max(tokens),
    }  # fmt: skip


# ---- rows ----------------------------------------------------------------------------------------


def made(checkpoint: Path, data: Path, name: str, folder: Path) -> Path:
    """A checkpoint with one of the :data:`CACHES`, planned and fitted as in long.py."""
    if name == "float32":
        return checkpoint
    path = folder / f"{name}.pt".replace(" ", "-")
    if not path.exists():
        MADE[name](Text(checkpoint, data, CALIBRATION)).model.save(path)
    return path


def report(keys: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Print the ratios of a row."""
    ratio = ""
    if "turns" in found:
        ratio = f"{1 / times_as_fast(found['turns'], LIVE, ALL).mean:.3f} of the time"
    print(*keys.values(), ratio, {k: v for k, v in found.items() if k != "turns"}, flush=True)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="results/live_slots.json")
    parser.add_argument("--model", required=True, metavar="NAME=CHECKPOINT")
    parser.add_argument("--data", type=Path, required=True, help="data folder")
    parser.add_argument("--caches", nargs="+", choices=CACHES, default=CACHES, metavar="NAME")
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS, metavar="TOKENS")
    parser.add_argument("--sentences", type=int, default=SENTENCES, help="of a forced length")
    parser.add_argument("--batches", type=int, nargs="*", default=BATCHES, metavar="N")
    parser.add_argument("--documents", type=int, metavar="N", help="translate only N documents")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--stock", action="store_true", help="time stock fairseq, too")
    args = parser.parse_args(argv)
    name, _, checkpoint = args.model.partition("=")
    numbers = (args.lengths, args.sentences, args.batches, args.documents, args.turns, args.stock)
    file = File(args.file)
    now = origin("live_slots.py", argv, Path(checkpoint), args.data, *map(str, numbers))

    if not isinstance(open_model(checkpoint, args.data).model.decoder, Decoder):
        todo = "convert it first: fairseq-collab reparametrize"
        raise UserError("is stock fairseq's, which keeps all slots", checkpoint, todo)

    def put(part: str, measure: Callable[[], Any], **more: Any) -> None:
        keys = {"model": name, **more}
        if not file.is_made(part, keys, now["made_from"]):
            found = measure()
            file.put(part, keys, {**keys, **found, **now})
            report(keys, found)

    with tempfile.TemporaryDirectory() as folder:
        for kind in args.caches:
            path = made(Path(checkpoint), args.data, kind, Path(folder))
            if args.documents:
                put(
                    "documents", functools.partial(of_both, path, args.data, args.documents),
                    name=kind,
                )  # fmt: skip
                continue
            for length in args.lengths:
                model = open_model(path, args.data, max_target_positions=max(1024, length + 2))
                (batch,) = batches(
                    model, "test", spread(model, args.sentences), max_sentences=args.sentences
                )
                programs = [ALL, LIVE]
                if args.stock and kind == "float32":
                    programs = [STOCK, *programs]
                measure = functools.partial(forced, model, batch, length, args.turns, programs)
                put("forced", measure, name=kind, length=length)
            for size in args.batches:
                for is_sorted in (True, False):
                    model = open_model(path, args.data)
                    measure = functools.partial(text, model, size, is_sorted, args.turns)
                    put("text", measure, name=kind, batch=size, sorted=is_sorted)
    return 0


def spread(model: Trained, number: int) -> list[int]:
    """Sentences that are spread evenly over the test set."""
    indices = fitting(model, "test")
    return [indices[i * len(indices) // number] for i in range(number)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
