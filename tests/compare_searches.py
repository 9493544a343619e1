"""Our search beside fairseq's: ``python tests/compare_searches.py DATA CHECKPOINT``.

Translates the two test sets of a Multi30k folder (``python -m data_prep.multi30k``) with all
combinations of :data:`BEAMS`, :data:`PENALTIES` and :data:`LENGTHS`, by both searches in one
process.  Prints one line a combination: how many hypotheses there are, those whose tokens differ
(of the best of a sentence, and of all), and the largest difference of a score and of a token's.
Exits with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import itertools
import os
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_collab.bench.settings import Settings
from fairseq_collab.bench.work import batches
from fairseq_collab.trained.opener import load
from fairseq_compat.search import SEARCHES, VARIABLE

BEAMS, PENALTIES = (1, 4, 5, 10), (0.6, 1.0, 1.4)
LENGTHS: dict[str, dict[str, Any]] = {
    "free": {},
    "at least 12": {"min_len": 12},
    "at most 8": {"max_len_b": 8},
}
SUBSETS, BATCH = ("test", "test1"), 64


class Difference(NamedTuple):
    """What two searches disagree about."""

    hypotheses: int
    best: int
    all: int
    score: float
    token_score: float


def compare(task: Any, model: Any, found: list[Any], **options: Any) -> Difference:
    """Both searches on the same batches, with options of ``fairseq-generate``."""
    generator = task.build_generator([model], Namespace(**options))
    translations = []
    for name in SEARCHES:
        os.environ[VARIABLE] = name
        translations.append([s for b in found for s in task.inference_step(generator, [model], b)])
    del os.environ[VARIABLE]
    return differences(*translations)


def differences(ours: list[Any], theirs: list[Any]) -> Difference:
    """Of two searches for the same sentences."""
    total = best = others = 0
    score = token_score = 0.0
    for one, other in zip(ours, theirs, strict=True):
        assert len(one) == len(other), "other numbers of hypotheses"
        total += len(one)
        for rank, (a, b) in enumerate(zip(one, other, strict=True)):
            if a["tokens"].tolist() != b["tokens"].tolist():
                best, others = best + (rank == 0), others + 1
                continue
            score = max(score, abs(float(a["score"] - b["score"])))
            apart = (a["positional_scores"] - b["positional_scores"]).abs()
            token_score = max(token_score, float(apart.max()))
    return Difference(total, best, others, score, token_score)


def table(
    data: Path,
    checkpoint: Path,
    sentences: int = 0,
    subsets: Sequence[str] = SUBSETS,
    lengths: dict[str, dict[str, Any]] = LENGTHS,
) -> Iterator[tuple[str, Difference]]:
    """One line a combination, of all subsets together; 0 sentences for all of a set."""
    trained = load(checkpoint, data)
    trained.model.eval()
    trained.model.make_generation_fast_()
    number = -(-sentences // BATCH) if sentences else 10**6
    found = [
        batch
        for subset in subsets
        for batch in batches(trained.task, subset, Settings(), number, max_sentences=BATCH)
    ]
    for beam, penalty, (name, limits) in itertools.product(BEAMS, PENALTIES, lengths.items()):
        options = {"beam": beam, "lenpen": penalty, **limits}
        label = f"beam {beam:>2}  lenpen {penalty}  length {name:<11}"
        yield label, compare(trained.task, trained.model, found, **options)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--sentences", type=int, default=0, help="of each set (default: all)")
    args = parser.parse_args()
    wrong = 0
    for label, found in table(args.data, args.checkpoint, args.sentences):
        wrong += found[1:] != (0, 0, 0, 0)
        print(
            f"{label}  {found.hypotheses:>6} hypotheses, other tokens: {found.best} of the best, "
            f"{found.all} of all; scores differ by {found.score:.1e}, a token's by "
            f"{found.token_score:.1e}",
            flush=True,
        )
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
