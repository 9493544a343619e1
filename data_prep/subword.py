"""Joint subword units: one sentencepiece BPE model for both languages."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import sentencepiece

from collab_common.errors import UserError
from collab_common.files import count_lines
from data_prep.faults import Action
from data_prep.parallel_text import lines_of

# sentencepiece leaves longer sentences out of its training (not out of the corpus): its default
LONGEST_FOR_TRAINING = 4192  # bytes
# that it trains on, since it has them all in memory: 5 GB. WMT14 English-German has 9 million
MOST_LINES = 10_000_000
BATCH = 4096


def train(texts: list[Path], vocab_size: int, model: Path) -> dict[str, Any]:
    """Trains on all lines of `texts`, in this order, and writes the model.

    Of more than MOST_LINES it takes every n-th, the same ones every time.

    The lines are handed over instead of the files' names, which would be written into the
    model and make its hash depend on where it was trained.

    Returns the kind of model and counts: "pieces", "lines", "lines_left_out" as too long, and
    "every", the n, where there is one.
    """
    every = max(1, -(-sum(map(count_lines, texts)) // MOST_LINES))
    counts = {"pieces": 0, "lines": 0, "lines_left_out": 0}
    written = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_counted(texts, counts, every),
            model_writer=written,
            model_type="bpe",
            vocab_size=vocab_size,
            character_coverage=1.0,
            num_threads=1,  # written into the model, so it must not depend on the machine
            max_sentence_length=LONGEST_FOR_TRAINING,
            minloglevel=1,
        )
    except RuntimeError as error:
        # 'Internal: src/x.cc(678) [condition] Too high.' -> 'Too high'
        why = str(error).rpartition("] ")[2].strip().removesuffix(".")
        raise UserError(
            f"sentencepiece cannot learn a vocabulary of {vocab_size} ({why})",
            texts[0].name,
            "try another --vocab-size",
        ) from None
    model.write_bytes(written.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    counts["pieces"] = processor.get_piece_size()
    counts |= {"every": every} if every > 1 else {}
    return {"model": "bpe", "longest_line_bytes": LONGEST_FOR_TRAINING, **counts}


def _counted(texts: list[Path], counts: dict[str, int], every: int) -> Iterator[str]:
    for path in texts:
        for line in lines_of(path):
            counts["lines"] += 1
            if counts["lines"] % every:
                continue
            counts["lines_left_out"] += len(line.encode("utf-8")) > LONGEST_FOR_TRAINING
            yield line


def segment(
    model: Path,
    sources: tuple[Path, Path],
    targets: tuple[Path, Path],
    on_empty: Action,
    where: Callable[[int, int], str] | None = None,
) -> dict[str, int]:
    """Writes both sides of a text as pieces joined by spaces; counts what came out.

    A line of nothing but, say, zero-width spaces has no pieces: `on_empty` is for those, too.

    Args:
        where: a user's name of a line, given its side and its number from 1
    """
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    counts = {"read": 0, "without_pieces": 0, "dropped": 0}
    lines = zip(*map(lines_of, sources), strict=True)
    with (
        targets[0].open("w", encoding="utf-8", newline="\n") as source_out,
        targets[1].open("w", encoding="utf-8", newline="\n") as target_out,
    ):
        while batch := list(islice(lines, BATCH)):
            sides = [encode(processor, side) for side in zip(*batch, strict=True)]
            for pair in zip(*sides, strict=True):
                counts["read"] += 1
                if not all(pair):
                    counts["without_pieces"] += 1
                    if on_empty is Action.REFUSE:
                        side, line = int(bool(pair[0])), counts["read"]
                        raise UserError(
                            "nothing is left of this line after normalisation",
                            where(side, line) if where else f"{sources[side]}:{line}",
                            "mend the text, or give --on-empty drop (or count)",
                        )
                    if on_empty is Action.DROP:
                        counts["dropped"] += 1
                        continue
                source_out.write(pair[0] + "\n")
                target_out.write(pair[1] + "\n")
    return counts


def encode(processor: Any, lines: Iterable[str]) -> list[str]:
    """Lines as pieces joined by spaces."""
    return [
        " ".join(pieces) for pieces in processor.encode(list(lines), out_type=str, num_threads=1)
    ]
