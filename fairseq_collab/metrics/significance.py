"""Tests over sentences: whether two translations of one set differ by chance.

Tests are sacreBLEU's (``sacrebleu.significance.PairedTest``): paired bootstrap resampling (Koehn
2004) and paired approximate randomisation (Riezler and Maxwell 2005), two-sided, seeded by
SACREBLEU_SEED (12345 if unset).  They are about other sentences, not about other trainings: a small
p says that these two models differ, not that their methods do.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from collab_common.errors import UserError
from fairseq_collab.metrics.text import tokenizer

logging.getLogger("sacrebleu").setLevel(logging.WARNING)  # it logs every step

SEED_VARIABLE = "SACREBLEU_SEED"
#: Our names of the tests, sacreBLEU's, and its default numbers of samples.
TESTS = {"bootstrap": ("bs", 1000), "randomisation": ("ar", 10000)}
METRICS = ("BLEU", "chrF")


@dataclass(frozen=True)
class Result:
    """One metric (0 to 100) under one test; ``ci`` is half of a 95 % bootstrap interval."""

    test: str
    metric: str
    baseline: float
    baseline_ci: float
    system: float
    system_ci: float
    difference: float
    p: float
    signature: str


def paired(
    baseline: list[str],
    system: list[str],
    references: list[str],
    test: str,
    samples: int = 0,
    metrics: Sequence[str] = METRICS,
) -> list[Result]:
    """Test a system against the baseline: one result per metric.

    Args:
        test: one of ``TESTS``.
        samples: 0 for sacreBLEU's default.
    """
    seed()
    short, default = TESTS[test]
    signatures, scores = PairedTest(
        [("baseline", baseline), ("system", system)],
        # Scorers that have the references count their words only once.
        {name: scorer_of(name, references, references=[references]) for name in metrics},
        None,
        test_type=short,
        n_samples=samples or default,
        # Randomisation has no intervals of its own: 1,000 bootstrap samples, sacreBLEU's default.
        n_ar_confidence=0 if short == "ar" else -1,
    )()
    least, found = least_p(baseline, system), []
    for name, key in zip(metrics, signatures, strict=True):
        theirs, ours = cast(list[Any], scores[key])
        found.append(
            Result(
                test=test,
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


def seed() -> int | None:
    """The seed of the tests, by the environment; None for a new one every time."""
    text = os.environ.get(SEED_VARIABLE, "12345")
    if text.lower() == "none":
        return None
    if not text.isdecimal() or int(text) == 0:  # 0 would be printed in signatures, but not used
        raise UserError(
            f"{text!r} is no seed", SEED_VARIABLE, "set a whole number above 0, or unset"
        )
    return int(text)
