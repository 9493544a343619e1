"""Runs of ``results/*.json``, chosen and paired by seed, for tables and figures of the pages.

A run is a flat object (``{"method": "collab", "seed": 1, "bleu": 34.1}``).
"""

from __future__ import annotations

import functools
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from collab_common.errors import UserError
from collab_common.files import read_json
from collab_lab.metrics.significance import Gain, Spread, gain_of
from collab_lab.results.render import interval, mean, num

TODO = "correct the table's function"
ROOT = Path(__file__).parents[2]
Json = dict[str, Any]
Runs = list[Json]
#: Kinds of heads, by their names in recipes/decide.sh.
KINDS = {
    "standard": "standard heads",
    "own": "shared key, own queries, K = d/4",
    "own-4": "shared key, own queries, K = d/4",
    "own-8": "shared key, own queries, K = d/8",
    "full": "shared key, full mixing, K = d/4",
    "diagonal": "shared key, diagonal mixing, K = d/4",
    "separate": "separate keys, K = d/4",
    "grouped-2": "grouped query",
    "grouped-4": "grouped query",
    "latent-4": "latent",
    "latent-8": "latent",
    "even-4": "latent, even widths",
    "even-8": "latent, even widths",
    "shape-latent-4": "latent, widths by price",
    "heads-3": "16 of 48 heads removed",
    "heads-2": "24 of 48 heads removed",
}
#: Kinds of heads, by their names in prices.json.
PRICED = {
    "latent": "latent",
    "own": "shared key, own queries",
    "grouped-query": "grouped query",
    "separate": "separate keys",
    "heads": "heads removed",
}
#: Key widths as shares of d.
PARTS = {0.125: "an eighth", 0.25: "a quarter", 0.5: "half", 1.0: "full"}
#: Methods of shared_keys.json: shared keys with a diagonal, and separate keys.
SHARED, SEPARATE = "collab_diagonal", "concatenated"


@functools.cache
def load(name: str) -> Any:
    """A JSON file of ``results/``; losses of its runs are in bits, too."""
    content = read_json(ROOT / "results" / f"{name}.json")
    for run in [*content.get("runs", ()), *content.get("rates", ())]:
        if "valid_nats" in run:
            run["valid_bits"] = run["valid_nats"] / math.log(2)
    return content


def where(runs: Iterable[Json], **values: Any) -> Runs:
    """The runs that have these ``values``, by seed; UserError for none."""
    found = [run for run in runs if all(run.get(key) == value for key, value in values.items())]
    if not found:
        raise UserError(f"no run has {values}", todo=TODO)
    return sorted(found, key=lambda run: run.get("seed", 0))


def pick(rows: Iterable[Json], **values: Any) -> Json:
    """The one row that has these ``values``; UserError for none, or several."""
    first, *others = where(rows, **values)
    if others:
        raise UserError(f"{1 + len(others)} rows have {values}", todo=TODO)
    return first


def pairs_of(ours: Runs, theirs: Runs) -> list[tuple[Json, Json]]:
    """Runs of one seed, for the seeds that both have."""
    by_seed = {run["seed"]: run for run in theirs}
    if len(by_seed) < len(theirs) or len({run["seed"] for run in ours}) < len(ours):
        raise UserError("several runs have one seed", todo=TODO)
    return [(run, by_seed[run["seed"]]) for run in ours if run["seed"] in by_seed]


def gains(ours: Runs, theirs: Runs, score: str) -> list[float]:
    """The gain of each seed that both have."""
    return [run[score] - other[score] for run, other in pairs_of(ours, theirs)]


def difference(ours: Runs, theirs: Runs, score: str = "valid_loss") -> str:
    """``+0.040 (-0.095 to +0.015)`` over the seeds that both have; one number a seed for two."""
    found = gains(ours, theirs, score)
    spec = "+.3f" if "valid" in score else "+.2f"
    if len(found) < 3:
        return ", ".join(num(one, spec) for one in found)
    return interval(gain_of(found), spec)


def average(found: Iterable[Json], score: str, spec: str = ".3f") -> str:
    """The mean of a score."""
    return num(mean(run[score] for run in found), spec)


def ends(numbers: Sequence[float], spec: str = ".2f") -> str:
    """``0.94 to 0.99``, or the one number."""
    return " to ".join(dict.fromkeys(num(end(numbers), spec) for end in (min, max)))


def ratio(ours: Sequence[float], theirs: Sequence[float], spread: Spread) -> Gain | None:
    """The difference of the means of two samples of logarithms."""
    if not (ours and theirs):
        return None
    error = spread.sd * math.sqrt(1 / len(ours) + 1 / len(theirs))
    return gain_of([fmean(ours) - fmean(theirs)], Spread(error, spread.freedom))


def of_logs(gain: Gain, spec: str = ".4f") -> str:
    """``0.0066 (0.0057 to 0.0077)`` from logarithms."""
    middle, low, high = (num(math.exp(x or 0), spec) for x in gain[:3])
    return middle if gain.low is None else f"{middle} ({low} to {high})"


def cache_of(run: Json) -> int:
    """Bytes of a target token in self-attention and of a source token in cross-attention."""
    sides = [f"{part}_bytes_per_{side}_token" for part in ("key", "value")
             for side in ("target", "source")]  # fmt: skip
    return sum(run[field] for field in sides)


def sizes(ours: Runs, theirs: Runs) -> list[str]:
    """KV cache and parameters, against those of standard heads: two cells."""

    def share(size: Callable[[Json], float]) -> float:
        return sum(map(size, ours)) / len(ours) / size(theirs[0])

    change = share(operator.itemgetter("parameters")) - 1
    cache = num(100 * share(cache_of), ".1f").removesuffix(".0")
    return [f"{cache}%", f"{num(100 * change, '+.0f')}%"]


def decided(stage: str, kind: str, heads: int = 8, width: int = 128) -> Runs:
    """The runs of decide.json of one kind of heads, ordered by seed; maybe none.

    From ``scratch``, ``continued`` for a tenth of the updates, ``converted``, ``tuned`` for a tenth
    after that, or a ``repeat`` of a run from scratch.
    """
    wanted = (stage, kind, heads, width)
    keys = ("stage", "kind", "heads", "model_dim")
    found = [run for run in load("decide")["runs"] if tuple(run[key] for key in keys) == wanted]
    return sorted(found, key=lambda run: run["seed"])


def of_width(folder: str, method: str, width: int) -> Runs:
    """Runs of shared_keys.json with one key width."""
    return where(load("shared_keys")["widths"], folder=folder, method=method, key_dim=width)


def priced_groups() -> dict[str, Runs]:
    """Models of prices.json, those that differ in the seed alone together."""
    groups: dict[str, Runs] = defaultdict(list)
    for model in load("prices")["models"]:
        groups[model["group"]].append(model)
    return groups


def query_runs(folder: str) -> Runs:
    """Runs with ``queries``: those of the page's own, and those that both questions need."""
    found = [dict(run) for run in load("shared_keys")["runs"] if run["folder"] == folder]
    names = {run["queries"] for run in found}
    for run in load("shared_keys")["widths"]:
        if run["folder"] == folder == "large" and run["key_dim"] in (256, 64):
            narrow = "separate" if run["key_dim"] < 256 else "standard"
            queries = "diagonal" if run["method"] == SHARED else narrow
            if queries not in names:
                found.append({**run, "queries": queries})
    return sorted(found, key=lambda run: run["seed"])
