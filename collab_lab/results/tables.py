"""Tables of the pages of results, by name, from ``results/*.json``: a function a table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any

from collab_lab.metrics.significance import gain_of, holm, pooled
from collab_lab.results import page_data as data
from collab_lab.results.page_data import Runs, decided, difference, load, where
from collab_lab.results.render import grid, mean, num

Rows = Iterable[Sequence[Any]]
#: The text of each table.
TABLES: dict[str, Callable[[], str]] = {}
SCORES = ("valid_bits", "chrf", "bleu")


def table(left: Iterable[int] = (0,)) -> Callable[[Callable[[], Rows]], Callable[[], Rows]]:
    """Make a table of a function that returns titles and rows; columns ``left`` are words."""

    def register(rows: Callable[[], Rows]) -> Callable[[], Rows]:
        TABLES[rows.__name__] = partial(text_of, rows, left)
        return rows

    return register


def text_of(rows: Callable[[], Rows], left: Iterable[int]) -> str:
    """Markdown, with minus signs instead of hyphens before numbers."""
    titles, *cells = rows()
    return re.sub(r"(?<![\w-])-(?=\d)", "\N{MINUS SIGN}", grid(titles, cells, left))


def against(ours: Runs, baseline: Runs, name: str) -> list[str]:
    """A kind of heads next to a baseline: KV cache, parameters, bits, BLEU, pairs."""
    pairs = data.pairs_of(ours, baseline)
    cells = [difference(ours, baseline, score) for score in ("valid_bits", "bleu")]
    return [name, *data.sizes([run for run, _ in pairs], baseline), *cells, str(len(pairs))]


STANDARD = ("scratch", "standard")
FOUR = "standard heads, 4 of size 32"


@table()
def decide_new() -> Rows:
    yield ["heads", "KV cache", "parameters", "bits", "BLEU", "bits, from 4 heads"]
    standard, four = decided(*STANDARD), decided(*STANDARD, heads=4)
    yield [*against(four, standard, FOUR)[:-1], ""]
    for kind in ("own", "full", "diagonal", "separate", "grouped-2", "grouped-4", "latent-4",
                 "shape-latent-4", "latent-8"):  # fmt: skip
        ours = decided("scratch", kind)
        bits = difference(ours, four, "valid_bits")
        yield [*against(ours, standard, data.KINDS[kind])[:-1], bits]


@table()
def decide_converted() -> Rows:
    yield ["heads", "KV cache", "bits", "BLEU", "minus trained narrow", "bits, 480 more"]
    standard, control = decided(*STANDARD), decided("continued", "standard")
    for kind in ("latent-4", "even-4", "latent-8", "own-4", "grouped-2", "grouped-4", "heads-3",
                 "heads-2"):  # fmt: skip
        ours, tuned = decided("converted", kind), decided("tuned", kind)
        trained = decided("scratch", "own" if kind == "own-4" else kind)
        name, cache, _, bits, bleu, _ = against(ours, standard, data.KINDS[kind])
        more = [difference(*pair, "valid_bits") or "-"
                for pair in ((ours, trained), (tuned, control))]  # fmt: skip
        yield [name, cache, bits, bleu, *more]


def groups() -> list[str]:
    """A column for each group of models of prices.json."""
    return [f"{name} ({len(models)})" for name, models in data.priced_groups().items()]


@table()
def prices_agreement() -> Rows:
    yield ["kind: rank correlation; measured / predicted", *groups()]
    for kind, label in data.PRICED.items():
        cells = []
        for models in data.priced_groups().values():
            found = [model["agreement"][kind] for model in models]
            factor = data.ends([one["factor"][1] for one in found])
            ranks = data.ends([one["spearman"] for one in found]) if found[0]["changes"] > 3 else ""
            cells.append("; ".join(filter(None, (ranks, factor))))
        yield [label, *cells]


DIFFERENCES = ("loss, difference (95%)", "chrF", "BLEU")
QUERIES = {"standard": "standard heads", "separate": "separate keys",
           "diagonal": "shared, diagonal", "full": "shared, full", "own": "shared, own",
           "own, fairseq's start": "shared, own, fairseq's start"}  # fmt: skip


@table(left=(1,))
def shared_keys_widths() -> Rows:
    yield ["d", "key width", "loss, shared", "loss, separate", *DIFFERENCES]
    for d, folder in ((128, "main"), (256, "large")):
        for part, name in data.PARTS.items():
            width = int(d * part)
            shared, separate = (
                data.of_width(folder, kind, width) for kind in (data.SHARED, data.SEPARATE)
            )
            losses = [data.average(side, "valid_loss") for side in (shared, separate)]
            scores = [difference(shared, separate, one) for one in ("valid_loss", "chrf", "bleu")]
            yield [d, f"{name}: {width}", *losses, *scores]


def queries(folder: str, d: int) -> Rows:
    """What the query of a head may do: each kind next to standard heads."""
    yield ["heads", "key width", "seeds", "loss", *DIFFERENCES]
    found = data.query_runs(folder)
    standard = where(found, queries="standard", key_dim=d)
    score = "valid_bits" if all("valid_bits" in run for run in found) else "valid_loss"
    for kind, name in QUERIES.items():
        width = d if kind == "standard" else d // 4
        ours = [run for run in found if (run["queries"], run["key_dim"]) == (kind, width)]
        scores = [difference(ours, standard, one) for one in (score, "chrf", "bleu")]
        if ours:
            cells = [""] * 3 if kind == "standard" else scores
            yield [name, width, len(ours), data.average(ours, score), *cells]


for _folder, _d in (("scratch", 128), ("large", 256)):
    TABLES[f"shared_keys_{_folder}"] = partial(text_of, partial(queries, _folder, _d), (0,))


#: Runs of heads.json with fewer heads: method, and how many stay in seeds 1 and 2.
LEFT = {"all-0.01": "34 and 30 left", "all-0.03": "21 left", "all-0.1": "9 and 7 left"}


@table()
def heads_removed() -> Rows:
    columns = product(LEFT.values(), ("loss", "change", "BLEU"))
    yield ["heads removed by", *map(": ".join, columns)]
    runs = load("heads")["pruning"]
    ways = {"gates, then 1,000 updates": ("tuned", "tuned"),
            "price, then 2,000 updates": ("priced", "tuned"),
            "early in training, by importance": ("early", "scratch"),
            "the gates' shape from scratch": ("scratch", "scratch")}  # fmt: skip
    for name, (folder, base) in ways.items():
        whole = where(runs, folder=base, method="all-0")
        cells = []
        for method in LEFT:
            ours = [run for run in runs if (run["folder"], run["method"]) == (folder, method)]
            ours.sort(key=lambda run: run["seed"])
            cells += [", ".join(num(run["valid_loss"], ".3f") for run in ours) or "-"]
            cells += [difference(ours, whole, score) or "-" for score in ("valid_loss", "bleu")]
        yield [name, *cells]


@table(left=(0, 1))
def heads_stay() -> Rows:
    yield ["which 2 of 8 heads stay", "heads trained", "loss, against all 8 (95%)", "chrF", "BLEU",
           "loss, against random (95%)"]  # fmt: skip
    tuned = where(load("heads")["groups"], folder="tuned")
    whole, chance = (where(tuned, method=one) for one in ("concatenated", "grouped_random"))
    for name, trained, method in (("elected, one per group", "in 2 groups", "grouped_pruned"),
                                  ("most important", "standard", "grouped_important"),
                                  ("random", "standard", "grouped_random")):  # fmt: skip
        ours = where(tuned, method=method)
        cells = [difference(ours, whole, score) for score in ("valid_loss", "chrf", "bleu")]
        yield [name, trained, *cells, "-" if ours == chance else difference(ours, chance)]


@table()
def pretrained_kinds() -> Rows:
    yield ["heads", "key width K", "Spearman x 100", "against trained (95%)",
           "weights of queries and keys", "multiply-adds per token", "CPU seconds"]  # fmt: skip
    runs = load("pretrained")["runs"]
    trained = data.pick(runs, query="trained")["spearman"]
    names = {"separate": "separate keys", "diagonal": "shared keys, diagonal",
             "full": "shared keys, full", "own": "shared keys, own queries"}  # fmt: skip
    for one in runs:
        name = names.get(one["query"])
        cells = ["", num(one["weights"]), num(one["multiply_adds"]), ""]
        if name:
            low, high = (num(end, "+.2f") for end in one["interval"])
            cells[0] = f"{num(one['spearman'] - trained, '+.2f')} ({low} to {high})"
            cells[3] = num(one["seconds"], ".0f")
        yield [name or "as trained", one["key_dim"], num(one["spearman"], ".2f"), *cells]


@table()
def cache_shares() -> Rows:
    columns = {"latent, widths and bits": ("latent", "auto"), "widths alone": ("latent", "none"),
               "standard heads, bits alone": ("headsize", "auto"),
               "grouped query, widths and bits": ("grouped-query", "auto"),
               "groups alone": ("grouped-query", "none")}  # fmt: skip
    yield ["bytes", *columns]
    found = [row for row in load("cache")["rows"] if row["d"] == 128 and row["what"] != "heads"]
    for share in sorted({row["share"] for row in found}, reverse=True):
        cells = []
        for what, bits in columns.values():
            rows = [one for one in found if (one["what"], one["bits_option"]) == (what, bits)]
            losses = [one["lost"] for one in rows if one["share"] == share]
            cells.append(data.ends(losses, ".4f") if losses else "-")
        yield [f"{share:.1%}", *cells]


#: Shares of heads that are removed.
SHARES = {1 / 6: "1/6", 1 / 3: "1/3", 1 / 2: "1/2", 2 / 3: "2/3", 5 / 6: "5/6"}


def at_share(rows: Runs, share: float, loss: str = "lost") -> list[float]:
    """The losses of the rows that have this share."""
    return [row[loss] for row in rows if math.isclose(row["share"], share, rel_tol=1e-3)]


#: Steps of the refit, each with those before it, by their names in cache.json.
STEPS = {"plain": "removed", "mean": "removed, their mean in the bias",
         "local refit": "each attention refitted by itself", "in order": "in the order of data",
         "target of the trained model": "to the trained output",
         "with the residual": "and residual stream", "and fc2": "and `fc2`"}  # fmt: skip


@table()
def refit_ladder() -> Rows:
    yield ["", "models", *SHARES.values()]
    ways = [(step, "obs", label) for step, label in STEPS.items()]
    ways += [("and fc2", one, f"{one} instead of prices") for one in ("pairs", "importance")]
    for step, choice, label in ways:
        of = {"kind": "heads", "what": step, "choice": choice, "ridge": 0.01, "sentences": 1000}
        rows = where(load("cache")["ladder"], **of)
        cells = [mean(at_share(rows, share)) for share in SHARES]
        yield [label, len({one["model"] for one in rows}), *(num(cell, ".3f") for cell in cells)]


#: Changes of at_size.json: name, ``what``, shares of the bytes or of removed heads, bits.
CHANGES = (
    ("8 bits alone", "headsize", (17 / 32,), "auto"),
    ("4 bits alone", "headsize", (9 / 32,), "auto"),
    ("latents, widths and bits", "latent", (1 / 4, 1 / 8, 1 / 16), "auto"),
    ("latents, widths alone", "latent", (1 / 4, 1 / 8), "none"),
    ("latents by SVD", "svd", (1 / 4, 1 / 8), "none"),
    ("grouped query, groups and bits", "grouped-query", (1 / 4,), "auto"),
    ("grouped query, groups alone", "grouped-query", (1 / 2, 1 / 4), "none"),
    ("heads removed", "heads", (1 / 3, 1 / 2, 2 / 3), None),
)
#: Losses below it are noise of single precision and of the text.
NOISE = 5e-4


@table()
def at_size() -> Rows:
    """Test losses: geometric means, the spread of logarithms pooled; ratios of sizes."""
    rows, sizes = load("at_size")["rows"], (128, 256)
    cells: list[tuple[str, float, dict[int, list[float]]]] = []
    for name, what, shares, bits in CHANGES:
        of = [row for row in rows if (row["what"], row["bits_option"]) == (what, bits)]
        for share in shares:
            losses = {d: at_share([row for row in of if row["d"] == d], share, "lost_test")
                      for d in (*sizes, 512)}  # fmt: skip
            cells.append((name, share, losses))
    logs = [
        {d: [math.log(x) for x in losses[d]] if min(losses[d]) > NOISE else [] for d in sizes}
        for *_, losses in cells
    ]
    spread = pooled(one[d] for one in logs for d in sizes if one[d])
    ratios = [data.ratio(one[256], one[128], spread) for one in logs]
    corrected = holm([one and one.p for one in ratios])
    yield ["change", "left", *(f"d = {d}" for d in sizes), "256 / 128", "p (Holm)", "d = 512"]
    for (name, share, losses), one, between, p in zip(cells, logs, ratios, corrected, strict=True):
        left = 1 - share if name == "heads removed" else share
        yield [
            name, f"{left:.1%}",
            *(data.of_logs(gain_of(one[d], spread)) if one[d] else data.ends(losses[d], ".4f")
              for d in sizes),
            data.of_logs(between, ".2f") if between else "-",
            "-" if p is None else num(p, ".3f").replace("0.000", "< 0.001"),
            data.ends(losses[512], ".4f") if losses[512] else "-",
        ]  # fmt: skip


@table()
def at_size_trained() -> Rows:
    runs = load("at_size")["trained"]
    yield ["trained from the start", "d", "n", "valid bits", "difference", "test bits", "BLEU"]
    base: dict[int, Any] = {}
    for kind in dict.fromkeys(run["kind"] for run in runs):
        ours = where(runs, kind=kind)
        first = base.setdefault(ours[0]["d"], ours)
        change = "" if ours == first else difference(ours, first, "valid_bits")
        tested = data.average(ours, "test_bits") if "test_bits" in ours[0] else "-"
        scores = [
            data.average(ours, "valid_bits"),
            change,
            tested,
            data.average(ours, "bleu", ".1f"),
        ]
        yield [kind, ours[0]["d"], len(ours), *scores]
