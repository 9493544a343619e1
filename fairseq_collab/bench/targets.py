"""What the project wants to reach, and what a run's records say of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_collab.bench.core import authors_name
from fairseq_collab.bench.grouped import WITHOUT
from fairseq_collab.bench.models import COLLAB, HEADSIZE, STOCK, Variant

Record = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """A ratio that is wanted at least; ``wants`` picks the records that it speaks of."""

    name: str
    least: float
    part: str
    wants: Callable[[Record], bool]


def _batched(model: Variant) -> Callable[[Record], bool]:
    return lambda r: r["model"] == model.name and r["beam"] == 5 and r["batch"] > 1


def _trained(model: Variant) -> Callable[[Record], bool]:
    return lambda r: r["model"] == model.name


def _against_authors(record: Record) -> bool:
    return record["against"] == authors_name(4) and record["case"].startswith("decoding")


def _constrained(record: Record) -> bool:
    """The group constraint takes at most a tenth of an update."""
    return record["against"] == WITHOUT


_HEADSIZE, _QUARTER, _EIGHTH = Variant(HEADSIZE), Variant(COLLAB, 4), Variant(COLLAB, 8)
_OURS = (_HEADSIZE.name, _QUARTER.name, _EIGHTH.name)

TARGETS = (
    Target("translation, beam 5, head size d/H", 1.5, "generate", _batched(_HEADSIZE)),
    Target("translation, beam 5, K = d/4", 1.7, "generate", _batched(_QUARTER)),
    Target("training, head size d/H", 1.05, "train", _trained(_HEADSIZE)),
    Target("training, K = d/4", 1.1, "train", _trained(_QUARTER)),
    Target("training, K = d/8", 1.2, "train", _trained(_EIGHTH)),
    Target("an update without head groups / with them", 0.91, "grouped", _constrained),
    Target("attention alone v. the authors' form, K = d/4", 2.0, "core", _against_authors),
    Target("stock's key cache / that of K = d/8", 8.0, "counters", _trained(_EIGHTH)),
    Target("stock's peak memory / ours", 1.0, "memory", lambda r: r["model"] in _OURS),
)


def reached(target: Target, records: Sequence[Record], column: str) -> dict[str, float]:
    """The ratio in each case that a target speaks of, by a short name of the case."""
    found: dict[str, float] = {}
    for record in records:
        if record["part"] != target.part or not target.wants(record):
            continue
        if record["column"] != column:
            continue
        case = f"{record['preset']}, {record['case']}"
        if target.part == "counters":
            found[record["preset"]] = _stock(record, records, "cache_self_keys")
        elif target.part == "memory":
            found[f"{record['preset']}, {record['model']}"] = _stock(record, records, "peak_bytes")
        else:
            found[case] = record["ratio"]
    return found


_SAME = ("part", "preset", "case")


def _stock(record: Record, records: Sequence[Record], field: str) -> float:
    """Stock's value of a field divided by the record's."""
    (stock,) = (
        other
        for other in records
        if other["model"] == STOCK and all(other[k] == record[k] for k in _SAME)
    )
    return stock[field] / record[field]
