"""What cuts of trained models lose: writes rows of cache.json, at_size.json and shrink.json.

    python results/cuts.py results/shrink.json --data data/multi30k --model m30k128-1=average.pt

Every row is a change of a model without training: heads, feed-forward units, the KV cache, by price
and refitted on calibration sentences of the training set.  Losses are rises in bits per target
token, on the validation and the test set.  A row replaces that of the same model and change, and
has its commit; rows of other models stay.  Run again, it goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from collab_common.errors import UserError
from collab_common.files import read_json, write_json
from collab_common.provenance import circumstances
from collab_lab import convert, open_model, prune
from collab_lab.metrics.loss import mean_bits
from collab_lab.shrinking.plan import Plan, Programme, costs, whole_costs
from collab_lab.shrinking.shrunk import Calibration, Shrunk, shrink
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained, samples

#: Shares of the layers' parameters, and cuts of both: what ``results/shrink.md`` compares.
PARAMETERS = (0.825, 0.66, 0.49, 0.33)
HEADS = (5 / 6, 2 / 3, 1 / 2, 1 / 3, 1 / 6)


class Row(NamedTuple):
    """A change: a kind, its name in tables, a share, bits of the cache.

    The share is what stays; of "heads removed" it is what goes.
    """

    what: str
    name: str
    share: float
    bits: str | None = None


def rows_of(file: str) -> Iterator[Row]:
    """The rows of a file of results."""
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
            yield Row("headsize", name, share, "auto")
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


class Work:
    """Changes of one model, all from one calibration pass; losses on two sets."""

    def __init__(self, checkpoint: Path, data: Path, sentences: int):
        self.model = open_model(checkpoint, data)
        self.found = Calibration.of(self.model, sentences=sentences)
        self.sets = {name: samples(self.model, name) for name in ("valid", "test")}
        self.bits = {name: mean_bits(self.model.model, of) for name, of in self.sets.items()}
        self.read = {"statistics": self.found.attentions, "sentences": sentences}

    def lost(self, changed: Trained) -> dict[str, float]:
        """The rise of both losses."""
        after = {name: mean_bits(changed.model, of) for name, of in self.sets.items()}
        rises = {name: round(after[name] - self.bits[name], 6) for name in after}
        return {"lost": rises["valid"], "lost_test": rises["test"]}

    def of(self, row: Row, is_plan: bool) -> dict[str, Any]:
        """What the change is predicted and measured to lose.

        Args:
            is_plan: the change is one of ``shrink``.
        """
        if not is_plan:
            return self.by_name(row)
        makes: dict[str, Callable[[], Any]] = {
            "parameters": lambda: self.shrunk(row.name, row.share),
            "cache": lambda: shrink(self.model, cache=row.share, calibration=self.found),
            "heads": lambda: shrink(self.model, heads=row.share, calibration=self.found),
            "both": lambda: shrink(
                self.model, cache=0.125, parameters=row.share, calibration=self.found
            ),
            "ct2": lambda: shrink(
                self.model, parameters=row.share, engine="ct2", calibration=self.found
            ),
        }
        made = makes[row.what]()
        shares = {name: round(share, 4) for name, share in made.shares.items()}
        plan = made.plan.to_json()
        return {
            "price": round(made.plan.price, 6),
            "rise": round(made.rise, 6),
            "shares": shares,
            "prices": {name: round(price, 6) for name, price in made.plan.prices.items()},
            "heads": {type_: [*map(len, of)] for type_, of in plan["heads"].items()},
            "units": {name: len(units) for name, units in plan["units"].items()},
            **self.lost(made.model),
        }

    def shrunk(self, name: str, share: float) -> Any:
        """A model with a share of the layers' parameters."""
        if name == "equal shares a layer":
            return self.even(share)
        only = {"heads alone": ["heads"], "units alone": ["units"]}.get(name)
        return shrink(self.model, parameters=share, only=only, calibration=self.found)

    def even(self, share: float) -> Any:
        """The largest model with equal shares of heads and units in all layers.

        Of each attention and block the cheapest go first; what a layer loses does not depend on
        its prices.
        """
        work = Programme(
            self.model, self.found.attentions, self.found.units, "headsize", ("heads", "units")
        )
        whole = whole_costs(self.model)

        def plan_of(step: int) -> Plan:
            return self._even_plan(work, 1 - step / 64)

        def fits(step: int) -> bool:
            smaller, _ = plan_of(step).build(self.model, self.found.attentions)
            return costs(smaller)["parameters"] <= share * whole["parameters"]

        step = bisect_left(range(64), True, key=fits)
        if step == 64:
            raise UserError(f"even one head and unit a layer leave more than {share}")
        plan = plan_of(step)
        model, plan, rise = plan.apply(
            self.model, self.found.attentions, self.found.batches, self.found.bits
        )
        now = costs(model)
        return Shrunk(model, plan, rise, {name: now[name] / whole[name] for name in whole})

    def _even_plan(self, work: Programme, left: float) -> Plan:
        retained: Any = {type_: [[] for _ in of] for type_, of in self.model.heads.items()}
        units, prices = {}, {"heads": 0.0, "units": 0.0}
        for site, removals in work.removals.items():
            number = max(1, round(left * len(removals.order)))
            gone = removals.prices[len(removals.order) - number]
            if isinstance(site, Attention):
                retained[site.type][site.layer] = removals.retained(number)
                prices["heads"] += gone
            elif number < len(removals.order):
                units[site] = removals.retained(number)
                prices["units"] += gone
        return Plan("headsize", retained, units, {}, {}, prices)

    def by_name(self, row: Row) -> dict[str, Any]:
        """A conversion, or heads removed, as the commands make them."""
        if row.what == "heads":
            heads = sum(map(sum, self.model.heads.values()))
            pruned = prune(self.model, round(row.share * heads), **self.read)
            retained = {t: [list(of) for of in layers] for t, layers in pruned.retained.items()}
            price, more, model = pruned.price, {"retained": retained}, pruned.model
        else:
            made = convert(self.model, row.what, cache=row.share, cache_bits=row.bits, **self.read)
            sizes = {str(a): size for a, size in made.sizes.items()}
            bits = {str(a): number for a, number in made.bits.items()}
            price, more, model = made.price, {"sizes": sizes, "bits": bits}, made.model
        return {"price": round(price or 0.0, 6), **self.lost(model), **more}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="results/NAME.json")
    parser.add_argument("--data", type=Path, required=True, help="data folder")
    parser.add_argument("--model", action="append", required=True, metavar="NAME=CHECKPOINT")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--only", help="names of rows that contain this")
    args = parser.parse_args(argv)
    now = circumstances(cpu=True)
    for model in args.model:
        name, _, checkpoint = model.partition("=")
        work: Work | None = None
        for file in args.files:
            content = read_json(file) if file.exists() else {"models": [], "rows": []}
            for row in rows_of(file.stem):
                if args.only and args.only not in row.name:
                    continue
                same = [r for r in content["rows"] if is_same(r, row, name)]
                if same and same[0].get("commit") == now["commit"]:
                    continue
                work = work or Work(Path(checkpoint), args.data, args.sentences)
                try:
                    found = work.of(row, file.stem == "shrink")
                except UserError as error:  # such as units alone below their share
                    print(file.stem, name, row.name, f"{row.share:.4g}: {error}", flush=True)
                    continue
                former = same[0] if same else {}
                made = {
                    **{k: former[k] for k in ("d", "size") if k in former},
                    **{"model": name, "d": former.get("d", width(work.model)), "what": row.what},
                    **{"name": row.name, "share": row.share, "bits_option": row.bits},
                    **{"commit": now["commit"], "date": now["date"], **found},
                }
                if same:
                    content["rows"][content["rows"].index(former)] = made
                else:
                    content["rows"].append(made)
                write_json(file, content)
                before = f" (was {former['lost']})" if same else ""
                print(
                    file.stem,
                    name,
                    row.name,
                    f"{row.share:.4g}: {made['lost']}{before}",
                    flush=True,
                )
            if work is not None and file.stem == "shrink":
                known = {m["model"]: m for m in content["models"]}
                known[name] = about(name, work, args, now)
                write_json(file, {**content, "models": list(known.values())})
    return 0


def is_same(row: dict[str, Any], wanted: Row, model: str) -> bool:
    """Whether a stored row is that of a model and a change."""
    if row["model"] != model or row["what"] != wanted.what:
        return False
    same_name = row.get("name", wanted.name) == wanted.name
    return same_name and abs(row["share"] - wanted.share) < 1e-9


def width(model: Trained) -> int:
    return int(model.options["decoder_embed_dim"])


def about(name: str, work: Work, args: argparse.Namespace, now: dict[str, Any]) -> dict[str, Any]:
    """The model of rows: its size, its losses, and how they were made."""
    layers = [len(work.model.attentions[t]) for t in ("encoder", "decoder")]
    return {
        "model": name,
        "d": width(work.model),
        "layers": "+".join(map(str, layers)),
        "parameters": sum(p.numel() for p in work.model.model.parameters()),
        "valid_bits": round(work.bits["valid"], 6),
        "test_bits": round(work.bits["test"], 6),
        "sentences": args.sentences,
        "command": f"python results/cuts.py results/shrink.json --data D --model {name}=average.pt",
        **{key: now[key] for key in ("commit", "versions", "hardware", "date")},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
