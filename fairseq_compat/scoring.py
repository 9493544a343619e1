"""The two options of `fairseq-score` that fail with a TypeError."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any


def accept_symbol_indices() -> None:
    """Let `bleu.Scorer(pad, eos, unk)` work beside `bleu.Scorer(config)`."""
    from fairseq.scoring import bleu

    original = bleu.Scorer.__init__

    @functools.wraps(original)
    def __init__(self: Any, cfg: Any, *indices: int) -> None:
        original(self, bleu.BleuConfig(cfg, *indices) if indices else cfg)

    bleu.Scorer.__init__ = __init__


def accept_open_files() -> None:
    """Let `sacrebleu.corpus_bleu` read its lines from open files, as sacreBLEU 1 did."""
    import sacrebleu

    original = sacrebleu.corpus_bleu

    @functools.wraps(original)
    def corpus_bleu(hypotheses: Any, references: Any, *args: Any, **kwargs: Any) -> Any:
        references = [_lines(reference) for reference in references]
        return original(_lines(hypotheses), references, *args, **kwargs)

    sacrebleu.corpus_bleu = corpus_bleu


def _lines(text: Any) -> Sequence[str]:
    if isinstance(text, Sequence):
        return text
    return [line.rstrip("\n") for line in text]
