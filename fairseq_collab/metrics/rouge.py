"""ROUGE of summaries (Lin 2004, Text Summarization Branches Out), with intervals and a signature.

Of a summary with tokens h and its reference with tokens r, each an F-measure 2PR / (P + R):

    R1, R2:  P = common n-grams / n-grams of h     R = common n-grams / n-grams of r     n = 1, 2
    RL:      P = LCS(h, r) / |h|                   R = LCS(h, r) / |r|

LCS is the length of the longest common subsequence, over the whole summary (ROUGE-L of one
sentence; not the union over sentences, rougeLsum).  Tokens are runs of a-z and 0-9 of the
lowercased text, as in ROUGE-1.5.5: other alphabets have none.  There is no stemming, which is the
perl program's default.

The scores are TorchMetrics', whose ROUGE is tested against Google's rouge-score, which is tested
against the perl program.  Unstemmed it downloads nothing and needs nothing beside torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collab_common.errors import UserError
from fairseq_collab.metrics.seeds import percentiles

#: Our names of the scores, and TorchMetrics'.
METRICS = {"R1": "rouge1", "R2": "rouge2", "RL": "rougeL"}
SAMPLES = 1000
SEED = 12345  # sacreBLEU's


@dataclass(frozen=True)
class Interval:
    """A mean (0 to 100), and its 95 % interval: of summaries, the percentiles of a bootstrap."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class Rouge:
    """Scores of a set of summaries by the names of ``METRICS``; ``summaries`` is their number."""

    scores: dict[str, Interval]
    signature: str
    summaries: int


def rouge(hypotheses: Sequence[str], references: Sequence[str]) -> Rouge:
    """Score summaries, one reference each."""
    values = f_measures(hypotheses, references)
    return Rouge(intervals(values), signature(len(values)), len(values))


def f_measures(hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[np.float64]:
    """F-measures (0 to 100) of every summary: (summaries, 3), in the order of ``METRICS``.

    An empty summary has 0.

    Raises:
        UserError: TorchMetrics is not installed, there are not as many summaries as references, or
            a reference has no tokens.
    """
    rouge_score = _library()
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} summaries but {len(references)} references",
            todo="give the references of the set that was summarised",
        )
    if not references:
        raise UserError("there are no summaries", todo="give at least one")
    rows = []
    for number, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True), 1):
        # ROUGE's tokens, where there are any: of a text in another alphabet every score would be 0.
        if not any(sign.isascii() and sign.isalnum() for sign in reference):
            raise UserError(
                f"reference {number} has no letters of the Latin alphabet and no digits",
                todo="ROUGE knows no others; mend the references",
            )
        found = rouge_score(hypothesis, reference, rouge_keys=tuple(METRICS.values()))
        rows.append([100 * float(found[f"{name}_fmeasure"]) for name in METRICS.values()])
    return np.array(rows)


def intervals(values: NDArray[np.float64]) -> dict[str, Interval]:
    """Mean and interval of every column of ``values`` (summaries, 3).

    With the differences of two systems it is a paired bootstrap: the same seed and number of
    summaries draw the same samples.
    """
    number = len(values)
    drawn = np.random.default_rng(SEED).multinomial(number, [1 / number] * number, size=SAMPLES)
    means = drawn @ values / number  # (samples, summaries) @ (summaries, 3) = (samples, 3)
    return {
        name: Interval(float(mean), *percentiles(of_samples))
        for name, mean, of_samples in zip(METRICS, values.mean(axis=0), means.T, strict=True)
    }


def signature(summaries: int) -> str:
    """How the scores were computed, in a line, in the manner of sacreBLEU's signatures."""
    return (
        f"nrefs:1|n:{summaries}|score:f1|case:lc|tok:a-z0-9|stemmer:none|rl:whole-text"
        f"|ci:bootstrap-{SAMPLES}-seed-{SEED}|torchmetrics:{version('torchmetrics')}"
    )


def summary(result: Rouge) -> str:
    """A line a score, and the signature."""
    lines = [f"{name} {score}" for name, score in result.scores.items()]
    return "\n".join([*lines, f"ROUGE: {result.summaries} summaries, 95 %  {result.signature}"])


def _library() -> Any:
    try:
        # Here: it takes seconds, and only ROUGE needs it.
        from torchmetrics.functional.text.rouge import rouge_score
    except ModuleNotFoundError as error:
        todo = "pip install -c constraints.txt '.[summarisation]'"
        raise UserError("ROUGE needs the package torchmetrics", todo=todo) from error
    return rouge_score
