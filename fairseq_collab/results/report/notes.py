"""What the page does not show: told from the facts of its runs, so that no note is out of place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairseq_collab.results.report.curves import still_falling
from fairseq_collab.results.report.matrix import LEVEL

#: Below this a model is said to be small (transformer base has 44 million without embeddings).
SMALL = 20_000_000
#: Below this number of seeds little is known of others.
FEW_SEEDS = 5


def notes(section: dict[str, Any]) -> list[str]:
    """One line for every reason to read a data set's numbers with care."""
    rows = section["rows"]
    found = [
        _seeds(rows),
        f"Intervals and p speak of other sentences like the {section['sentences']:,} of "
        f"{section['subset']}, for these trained models; not of other seeds, other test sets or "
        "other languages.",
        _tests(section["tests"]),
        _budgets(section["budgets"]),
        _falling(section["curves"]),
        _size(rows),
        _heads(rows),
        _speeds(section),
    ]
    return [note for note in found if note]


def _seeds(rows: Sequence[dict[str, Any]]) -> str:
    counts = sorted({len(row["seeds"]) for row in rows})
    if counts[0] >= FEW_SEEDS:
        return ""
    if counts[0] == 1:
        single = sum(len(row["seeds"]) == 1 for row in rows)
        return (
            f"{single} of {len(rows)} rows {'is' if single == 1 else 'are'} one training: how far "
            "another seed would be from it, nothing here tells."
        )
    many = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return (
        f"{many} seeds a row: a standard deviation of so few is itself very uncertain, and "
        "differences that hold for both or all of them may not hold for the next."
    )


def _tests(tests: Sequence[dict[str, Any]]) -> str:
    number = sum(len(pair["seeds"]) for pair in tests)
    if not number:
        return "No two rows share a seed, so that none were tested against each other."
    return (
        f"No p is corrected for the number of tests: of {number:,}, about "
        f"{number * LEVEL:,.1f} would be below {LEVEL:g} if nothing differed."
    )


def _budgets(budgets: Sequence[dict[str, Any]]) -> str:
    if len(budgets) == 1:
        return ""
    text = f"Rows were trained in {len(budgets)} ways (column budget)"
    if any(one["fine_tuned"] for one in budgets):
        text += "; those that started from trained weights had the training of these before, too"
    return text + ". Best rows and Pareto fronts are those of each budget alone."


def _falling(curves: Sequence[dict[str, Any]]) -> str:
    verdicts = [still_falling(run["points"]) for curve in curves for run in curve["runs"]]
    known = [verdict for verdict in verdicts if verdict is not None]
    if not any(known):
        return ""
    return (
        f"In {sum(known)} of {len(known)} trainings the last validation was the best: they were "
        "still learning, and a longer training may order the rows otherwise."
    )


def _size(rows: Sequence[dict[str, Any]]) -> str:
    sizes = [row["parameters"] for row in rows]
    if max(sizes) >= SMALL:
        return ""
    low, high = (f"{size / 1e6:.2f}" for size in (min(sizes), max(sizes)))
    millions = low if low == high else f"{low} to {high}"
    return f"Models are small ({millions} million parameters); larger ones may behave otherwise."


def _heads(rows: Sequence[dict[str, Any]]) -> str:
    heads = sorted({row["heads"] for row in rows if row["heads"] is not None})
    groups = {row["experiment"] for row in rows}
    if len(heads) < 2 or len(groups) < 2:
        return ""
    counts = ", ".join(map(str, heads))
    return (
        f"Models have different numbers of heads ({counts}); rows of different experiments may "
        "differ in more than their names say, see the commands."
    )


def _speeds(section: dict[str, Any]) -> str:
    rows = section["rows"]
    missing = sum(row["sentences_per_second"] is None for row in rows)
    text = (
        "Training tokens/s are what each training logged; how busy its machine was is not recorded."
    )
    if missing:
        text += f" Decoding speed was not recorded for {missing} of {len(rows)} rows."
    return text
