"""Joint subword units of ordinary text: one sentencepiece BPE model for both languages."""

from __future__ import annotations

import io
from itertools import islice
from pathlib import Path
from typing import Any

import sentencepiece

from collab_common.errors import UserError
from collab_common.files import count_lines, create
from data_prep.check import SetReport
from data_prep.parallel_text import Pair, lines_of

MODEL = "spm.model"
# sentencepiece leaves longer sentences out of its training (not out of the corpus): its default
LONGEST_FOR_TRAINING = 4192  # bytes
# that it trains on, since it has them all in memory: 5 GB. WMT14 English-German has 9 million
MOST_LINES = 10_000_000
NO_PIECES = "empty after normalisation"


def train(texts: Pair, vocab_size: int, model: Path) -> int:
    """Trains on all lines of `texts`, in this order, and writes the model; its number of pieces.

    Of more than MOST_LINES it takes every n-th. Names of files would be written into the model.
    """
    every = max(1, -(-sum(map(count_lines, texts)) // MOST_LINES))
    lines = (line for path in texts for line in lines_of(path))
    written = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=islice(lines, every - 1, None, every),
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
        what = f"sentencepiece cannot learn a vocabulary of {vocab_size} ({why})"
        raise UserError(what, texts[0].name, "try another --vocab-size") from None
    model.write_bytes(written.getvalue())
    return int(_processor(model).get_piece_size())


def segment(model: Path, sources: Pair, targets: Pair, report: SetReport, *, drop: bool) -> None:
    """Writes both sides of a text as pieces joined by blanks; counts tokens in the report.

    Normalisation leaves nothing of some lines, such as one of zero-width spaces: such a pair is
    dropped from training text (`drop`), and an error elsewhere.
    """
    processor = _processor(model)
    with create(targets[0]) as source_out, create(targets[1]) as target_out:
        for number, lines in enumerate(zip(*map(lines_of, sources), strict=True), 1):
            pieces = [processor.encode(line, out_type=str) for line in lines]
            if not all(pieces):
                where = f"{sources[0 if not pieces[0] else 1].name}:{number}"
                if not drop:
                    raise UserError(f"line is {NO_PIECES}", where, "correct the text")
                report.drop(NO_PIECES, where)
                report.kept -= 1
                continue
            for out, side in zip((source_out, target_out), pieces, strict=True):
                report.tokens += len(side)
                out.write((" ".join(side) + "\n").encode())


def _processor(model: Path) -> Any:
    return sentencepiece.SentencePieceProcessor(model_file=str(model))
