"""What cuts of trained models lose: writes rows of cache.json, at_size.json and shrink.json.

    python results/cuts.py results/shrink.json --data data/multi30k --model m30k128-1=average.pt

Every row is a change of a model without training: heads, feed-forward units, the KV cache, by price
and refitted on calibration sentences of the training set.  Losses are rises in bits per target
token, on the validation and the test set.  Run again, it resumes.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple

from collab_common.errors import UserError
from collab_lab import prune
from collab_lab.shrinking.by_hand import keeping
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.making import make, unfitted
from collab_lab.shrinking.plan import Plan
from collab_lab.shrinking.pruning import all_heads
from collab_lab.shrinking.shape import model_costs, sites_of, whole_costs
from collab_lab.shrinking.shrink import shrink
from collab_lab.shrinking.smaller import Smaller
from collab_lab.trained.attentions import Attention
from collab_lab.trained.feed_forward import FeedForward
from results.measured import Wanted, Work, run

#: Shares of the layers' parameters, and cuts of both: what ``results/shrink.md`` compares.
PARAMETERS = (0.825, 0.66, 0.49, 0.33)
#: Of equal shares, between all and none.
STEPS = 64
HEADS = (5 / 6, 2 / 3, 1 / 2, 1 / 3, 1 / 6)


class Row(NamedTuple):
    """A change: a kind, its name in tables, a share, bits of the cache.

    The share is what stays; of "heads removed" it is what goes.
    """

    what: str
    name: str
    share: float
    bits: str | None = None


def changes(file: str) -> Iterator[Row]:
    """The changes in a file of data."""
    is_size = file == "at_size"
    latents = "latents" if is_size else "latent"
    if file in ("cache", "at_size"):
        both = (0.25, 0.125, 0.0625)
        for share in (
            both if is_size else (1 / 2, 1 / 4, 3 / 16, 1 / 8, 3 / 32, 1 / 16, 1 / 24, 1 / 32)
        ):
            yield Row("latent", f"{latents}, widths and bits", share, "auto")
        for share in both[:2] if is_size else both:
            yield Row("latent", f"{latents}, widths alone", share, "none")
        names = {0.53125: "8 bits alone", 0.28125: "4 bits alone"}
        for share in names if is_size else (0.53125, 0.5, 0.28125):
            name = names[share] if is_size else "standard heads, bits alone"
            yield Row("unchanged", name, share, "auto")
        grouped = "groups and bits" if is_size else "widths and bits"
        for share in (0.25,) if is_size else (0.5, 0.25, 0.125):
            yield Row("grouped-query", f"grouped query, {grouped}", share, "auto")
        for share in (0.5, 0.25):
            yield Row("grouped-query", "grouped query, groups alone", share, "none")
        for share in (2 / 3, 1 / 2, 1 / 3) if is_size else HEADS[1:]:
            yield Row("heads", "heads removed", share)
    elif file == "shrink":
        for share in PARAMETERS:
            for name in ("heads and units", "heads alone", "units alone", "equal shares a layer"):
                yield Row("parameters", name, share)
        for share in (0.125, 0.0625):
            yield Row("cache", "cache", share)
        yield Row("both", "cache of an eighth", 0.66)
        yield Row("ct2", "heads and units for CTranslate2", 0.66)
        for share in HEADS:
            yield Row("heads", "heads", share)


def rows_of(file: str) -> Iterator[Wanted]:
    """The rows of a file of data."""
    for row in changes(file):
        keys = {"what": row.what, "name": row.name, "share": row.share, "bits_option": row.bits}
        yield Wanted("rows", keys, (file, row))


def measure(work: Work, wanted: Wanted) -> dict[str, Any]:
    """What a change is predicted and measured to lose."""
    file, row = wanted.of
    if file == "shrink":
        return planned(work, row)
    about = work.about()
    if file == "cache":
        return {"base": about["valid_bits"], **by_name(work, row)}
    size = f"d = {about['d']}" + ", 2+2 layers" * (about["layers"] == "2+2")
    return {"size": size, **by_name(work, row)}


def planned(work: Work, row: Row) -> dict[str, Any]:
    """A change of ``shrink``."""
    options: dict[str, dict[str, Any]] = {
        "parameters": {"parameters": row.share},
        "cache": {"cache": row.share},
        "heads": {"heads": row.share},
        "both": {"cache": 0.125, "parameters": row.share},
        "ct2": {"parameters": row.share, "engine": "ct2"},
    }
    if row.name == "equal shares a layer":
        made = even(work, row.share)
    else:
        only = {"heads alone": ["heads"], "units alone": ["units"]}.get(row.name)
        made = shrink(work.model, only=only, evidence=work.found, **options[row.what])
    return {"price": round(made.plan.price, 6), **listed(work, made)}


def listed(work: Work, made: Smaller) -> dict[str, Any]:
    """What a plan keeps, and what it loses."""
    plan = made.plan.to_json()
    return {
        "rise": round(made.rise, 6),
        "shares": {name: round(share, 4) for name, share in made.shares.items()},
        "prices": {name: round(price, 6) for name, price in made.plan.prices.items()},
        "heads": {type_: [*map(len, of)] for type_, of in plan["heads"].items()},
        "units": {name: len(units) for name, units in plan["units"].items()},
        **work.lost(made.model),
    }


def even(work: Work, share: float) -> Smaller:
    """The largest model with equal shares of heads and units in all layers.

    Of each attention and block the cheapest go first; what a layer loses does not depend on
    its prices.
    """
    model, found = work.model, work.found
    whole = whole_costs(model)

    def at(step: int) -> Plan:
        return even_plan(found, 1 - step / STEPS)

    def fits(step: int) -> bool:
        smaller, _ = unfitted(found, at(step))
        return model_costs(smaller).parameters <= share * whole.parameters

    step = bisect_left(range(STEPS), True, key=fits)
    if step == STEPS:
        raise UserError(f"even one head and unit a layer leave more than {share}")
    return make(found, at(step))


def even_plan(found: Evidence, left: float) -> Plan:
    """A plan that keeps a share of each attention's heads and of each block's units."""
    model, prices = found.trained, {"heads": 0.0, "units": 0.0}
    units = dict[FeedForward, list[int]]()
    retained = all_heads(model)
    for site in sites_of(model):
        removals = found.removals(site)
        number = max(1, round(left * len(removals.order)))
        gone = removals.prices[len(removals.order) - number]
        if isinstance(site, Attention):
            retained[site.type][site.layer] = removals.retained(number)
            prices["heads"] += gone
        elif number < len(removals.order):
            units[site] = removals.retained(number)
            prices["units"] += gone
    return keeping(model, retained, units, prices)


def by_name(work: Work, row: Row) -> dict[str, Any]:
    """A conversion, or heads removed, as the commands make them."""
    more: dict[str, Any]
    if row.what == "heads":
        heads = sum(map(sum, work.model.heads.values()))
        pruned = prune(work.model, round(row.share * heads), **work.read)
        more = {"retained": pruned.plan.retained}
        price, model = pruned.price, pruned.model
    else:
        made = shrink(
            work.model, cache=row.share, kinds=[row.what], cache_bits=row.bits,
            evidence=work.found,
        )  # fmt: skip
        more = {"sizes": {str(a): size for a, size in made.plan.sizes.items()}}
        more["bits"] = {str(a): number for a, number in made.plan.bits.items()}
        price, model = made.plan.price, made.model
    return {"price": round(price or 0.0, 6), **work.lost(model), **more}


def main(argv: list[str]) -> int:
    return run("cuts.py", __doc__, argv, rows_of, measure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
