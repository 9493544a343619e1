"""Tests over sentences: whether two translations of one set differ by chance.

The test is sacreBLEU's (``sacrebleu.significance.PairedTest``): paired bootstrap resampling (Koehn
2004), two-sided, seeded by SACREBLEU_SEED (12345 if unset).  It is about other sentences, not about
other trainings: a small p says that these two models differ, not that their methods do.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from fairseq_collab.metrics.text import tokenizer

logging.getLogger("sacrebleu").setLevel(logging.WARNING)  # it logs every step

METRICS = ("BLEU", "chrF")


@dataclass(frozen=True)
class Result:
    """One metric (0 to 100); ``ci`` is half of a 95 % interval."""

    metric: str
    baseline: float
    baseline_ci: float
    system: float
    system_ci: float
    difference: float
    p: float
    signature: str


def paired(baseline: list[str], system: list[str], references: list[str]) -> list[Result]:
    """Test a system against the baseline: one result per metric."""
    signatures, scores = PairedTest(
        [("baseline", baseline), ("system", system)],
        # Scorers that have the references count their words only once.
        {name: scorer_of(name, references, references=[references]) for name in METRICS},
        None,
        test_type="bs",
    )()
    least, found = least_p(baseline, system), []
    for name, key in zip(METRICS, signatures, strict=True):
        theirs, ours = cast(list[Any], scores[key])
        found.append(
            Result(
                metric=name,
                baseline=float(theirs.score),
                baseline_ci=float(theirs.ci),
                system=float(ours.score),
                system_ci=float(ours.ci),
                difference=float(ours.score - theirs.score),
                p=max(float(ours.p_value), least),
                signature=str(signatures[key]),
            )
        )
    return found


def scorer_of(metric: str, text: Sequence[str], **options: Any) -> Any:
    """sacreBLEU's scorer of one of :data:`METRICS` for ``text``, as in :func:`.bleu.score`."""
    if metric == "chrF":
        return CHRF(**options)
    return BLEU(tokenize=tokenizer(text), **options)


def different(baseline: list[str], system: list[str]) -> int:
    """The number of sentences that the two translate differently."""
    return sum(a != b for a, b in zip(baseline, system, strict=True))


def least_p(baseline: list[str], system: list[str]) -> float:
    """The smallest two-sided p that n differing sentences can give: 2 of their 2^n exchanges.

    sacreBLEU counts samples that differ by *more* than the two systems do, which none does if they
    are identical: it then reports 1/(samples + 1), its smallest p.
    """
    return min(1.0, 2.0 ** (1 - different(baseline, system)))
