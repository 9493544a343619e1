"""Published scores, to stand beside ours where an experiment has a counterpart: ``published.json``.

papers    what all four papers gain or lose against baselines of their own.  A paper has a
          ``title``, a ``caution`` (what has to be known of its figures) and ``claims``.  A claim is
          a ``system`` and a ``baseline`` beside it: ``where`` they stand, ``score`` and
          ``baseline_score`` in a ``metric``, million parameters (``size``, ``baseline_size``) where
          they are printed, and which of our rows stand for the two (``ours``, ``our_baseline``):

              methods      names of the method, "fork_" left out
              reduction    model dimension / key dimension (d/K), where that has to agree
              head_ratio   head size / (d/H), likewise
              heads        of each attention, likewise
              variant      what its sweep chose, as in a table, likewise
pruned    the fourth's table of pruned models (Voita et al. 2019, arXiv 1905.09418, table 2, WMT
          English-Russian): heads of encoder, decoder and cross-attention, BLEU of the model pruned
          with gates, and of one of its shape trained from scratch.

Corpora and models are others than ours, so that only differences may stand side by side.

Of the first paper's key-dimension table see :data:`SOURCE`; its parameter counts agree with our own
of those models (vocabulary of 32,768).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from collab_common.files import read_json
from fairseq_collab.results.report.significance import DIGITS, difference

MODEL_DIM = 512
COLUMN = f"paper's BLEU (WMT14, d = {MODEL_DIM}, same d/K)"
SOURCE = (
    "Cordonnier, Loukas, Jaggi 2020, arXiv 2006.16362: another corpus (WMT14 English-German), "
    f"another model (transformer base, d = {MODEL_DIM}) and an unstated kind of BLEU; rows are "
    "matched by the ratio of model dimension d to key dimension K (its code's choices of scale and "
    "initialisation are those of fork_collab and fork_concatenated). Figures as in a third party's "
    "summary, BLEU not confirmed independently"
)

#: What a report repeats of a claim.
PRINTED = ("where", "system", "baseline", "metric", "score", "baseline_score")
Row = Mapping[str, Any]
_CONTENT: dict[str, Any] = read_json(Path(__file__).with_suffix(".json"))
PAPERS: list[dict[str, Any]] = _CONTENT["papers"]


def counterpart(method: str, reduction: float) -> float | None:
    """BLEU of a method at the ratio ``reduction`` = d/K in the first paper; None if it has none."""
    for claim in PAPERS[0]["claims"]:
        sides = (claim["ours"], claim["score"]), (claim["our_baseline"], claim["baseline_score"])
        for side, bleu in sides:
            if side["methods"] == [method] and math.isclose(side["reduction"], reduction):
                return bleu
    return None


def beside(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Every paper with its claims and our counterparts, which may be none.

    Returns:
        a paper: ``title``, ``caution``, ``claims``; a claim: what is printed, ``difference``,
        ``size_ratio``, and ``ours``: row, baseline, mean difference in BLEU over shared seeds, and
        ratio of parameters.
    """
    return [{**paper, "claims": [_claim(one, rows) for one in paper["claims"]]} for paper in PAPERS]


def _claim(claim: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    return {
        **{field: claim[field] for field in PRINTED},
        "difference": round(claim["score"] - claim["baseline_score"], DIGITS),
        "size_ratio": _ratio(claim.get("size"), claim.get("baseline_size")),
        "ours": _ours(claim, rows),
    }


def _ratio(size: float | None, baseline: float | None) -> float | None:
    return None if size is None or baseline is None else round(size / baseline, DIGITS)


def _ours(claim: Mapping[str, Any], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Pairs of one experiment whose seeds were trained both ways."""
    return [
        {
            "row": row["number"],
            "baseline": baseline["number"],
            "difference": gain,
            "size_ratio": _ratio(row["parameters"], baseline["parameters"]),
        }
        for family in ("", "fork_")  # the authors' own code is compared with itself alone
        for row, baseline in permutations(rows, 2)
        if row["experiment"] == baseline["experiment"]
        and _stands_for(row, claim["ours"], family)
        and _stands_for(baseline, claim["our_baseline"], family)
        and (gain := difference(baseline, row)) is not None
    ]


def _stands_for(row: Row, side: Mapping[str, Any], family: str) -> bool:
    """Whether a row has what :mod:`fairseq_collab.results.published` asks of it."""
    numbers = {
        field: side[field] for field in ("reduction", "head_ratio", "heads") if field in side
    }
    return (
        row["method"] in [family + method for method in side["methods"]]
        and side.get("variant") in (None, row["variant"])
        and all(
            row[field] is not None and math.isclose(row[field], wanted, rel_tol=1e-4)
            for field, wanted in numbers.items()
        )
    )
