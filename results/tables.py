"""Tables of the pages of results, by name, from ``results/*.json``: a function a table.

Rows of a table are called as in the file (``name``), and are in its order, where that is possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean, geometric_mean, median
from typing import Any

from scipy.stats import spearmanr

from collab_lab.clock.turns import times_as_fast
from collab_lab.metrics.significance import Gain, Spread, gain_of, pooled
from collab_lab.results.render import grid, interval, num
from results.data import (
    BOTH,
    COMPARED,
    CONVERTED_KINDS,
    D_OF,
    DISTILLED,
    FEW,
    FULL,
    ITSELF,
    KEY_WIDTHS,
    LONG_TEXTS,
    MANUALS,
    NOISE,
    OWN,
    PLAIN,
    SEPARATE,
    SHARED,
    SIZES,
    STANDARD,
    THIRD,
    TRAINED_KINDS,
    TWO,
    WAYS,
    WHOLE,
    WIKIPEDIA,
    Runs,
    average,
    bought,
    by,
    by_feed_forward,
    by_length,
    cache_of,
    changed,
    decided,
    distilled,
    ends,
    gains,
    is_simulated,
    lead,
    load,
    long_rows,
    of_width,
    shared_and_separate,
    signed,
    speedups,
    times_in_logs,
)

Rows = Iterable[Sequence[Any]]
#: The text of each table.
TABLES: dict[str, Callable[[], str]] = {}


def table(rows: Callable[[], Rows]) -> Callable[[], Rows]:
    """Make a table of a function that returns titles and rows."""

    def text() -> str:
        titles, *cells = rows()
        return signed(grid(titles, cells))

    TABLES[rows.__name__] = text
    return rows


# ---- runs ---------------------------------------------------------------------------------------


def differences(ours: Runs, theirs: Runs, *scores: str) -> list[str]:
    """``+0.040 (-0.095 to +0.015)`` over the seeds that both have; one number a seed for two."""
    cells = []
    for score in scores:
        found = gains(ours, theirs, score)
        spec = "+.2f" if score in ("bleu", "chrf") else "+.3f"
        one_each = ", ".join(num(one, spec) for one in found)
        cells.append(one_each if len(found) < 3 else interval(gain_of(found), spec))
    return cells


# ---- decide.md ----------------------------------------------------------------------------------


def against_standard(ours: Runs) -> list[str]:
    """A kind of heads next to standard heads: name, KV cache, parameters, bits, BLEU."""
    standard = decided("scratch", "standard")
    cache = 100 * fmean(map(cache_of, ours)) / cache_of(standard[0])
    parameters = 100 * (fmean(run["parameters"] for run in ours) / standard[0]["parameters"] - 1)
    sizes = [f"{num(cache, '.1f').removesuffix('.0')}%", f"{num(parameters, '+.0f')}%"]
    return [ours[0]["name"], *sizes, *differences(ours, standard, "valid_bits", "bleu")]


@table
def decide_new() -> Rows:
    yield ["heads", "KV cache", "parameters", "bits", "BLEU", "bits, from 4 heads"]
    four = decided("scratch", "standard, 4 heads")
    yield [*against_standard(four), ""]
    for kind in TRAINED_KINDS:
        ours = decided("scratch", kind)
        yield [*against_standard(ours), *differences(ours, four, "valid_bits")]


@table
def decide_converted() -> Rows:
    yield ["heads", "KV cache", "bits", "BLEU", "minus trained narrow", "bits, 480 more"]
    control = decided("continued", "standard")
    for kind in CONVERTED_KINDS:
        ours, tuned = decided("converted", kind), decided("tuned", kind)
        name, cache, _, *scores = against_standard(ours)
        [narrow] = differences(ours, decided("scratch", kind), "valid_bits")
        [more] = differences(tuned, control, "valid_bits")
        yield [name, cache, *scores, narrow or "-", more or "-"]


# ---- cache.md -----------------------------------------------------------------------------------


@table
def cache_shares() -> Rows:
    rows = by(load("cache")["rows"], "d")[128]
    yield ["bytes", *by(rows, "name")]
    losses = by(rows, "name", "share")
    for share in sorted({share for _, share in losses}, reverse=True):
        found = (losses.get((name, share), []) for name in by(rows, "name"))
        yield [f"{share:.1%}", *(ends([row["lost"] for row in some]) for some in found)]


@table
def refit_ladder() -> Rows:
    yield ["", "models", "1/6", "1/3", "1/2", "2/3", "5/6"]
    for name, rows in by(load("cache")["ladder"], "name").items():
        cells = (average(some, "lost") for some in by(rows, "share").values())
        yield [name, len(by(rows, "model")), *cells]


@table
def prices_agreement() -> Rows:
    yield ["heads", "changes of a model", "rank correlation", "measured / price"]
    for kind in ("latent", "shared key, own queries", "grouped query", "separate keys",
                 "heads removed"):  # fmt: skip
        models = [rows for rows in by(priced_rows(kind), "model").values() if len(rows) > 2]
        found = [*map(priced, models)]
        ranks, factors = ([one[i] for one in found] for i in (0, 1))
        numbers = ends([*map(len, models)], "d")
        yield [kind, numbers, ends(ranks, ".2f"), ends(factors, ".2f")]


#: Prices of exact conversions are below this.
EXACT = 1e-6


def priced_rows(kind: str) -> Runs:
    """Changes of prices.json that have a price above :data:`EXACT`, by their own weighting."""
    rows = by(load("prices")["rows"], "kind")[kind]
    return [row for row in rows if row["what"] != "ladder" and (row["price"] or 0) > EXACT]


def priced(rows: Runs) -> tuple[float, float]:
    """Rank correlation of price and loss, and the median factor between them."""
    prices, lost = ([row[name] for row in rows] for name in ("price", "lost"))
    factor = median(b / a for a, b in zip(prices, lost, strict=True))
    return float(spearmanr(prices, lost).statistic), factor


#: Weightings of errors, as far as the page has them: how rows are called, and where they are.
LATENTS = {
    "plain SVD": ("ladder", "weights"),
    "weighted by activations": ("ladder", "inputs"),
    "by prices, even widths": ("even", None),
    "by prices, widths spread": ("spread", None),
}


@table
def prices_weightings() -> Rows:
    groups = by(load("prices")["models"], "group")
    columns = [("Multi30k, d = 128", share) for share in (1 / 4, 1 / 8)]
    columns += [("Multi30k, d = 256", share) for share in (1 / 4, 1 / 8)]
    yield [
        "widths",
        *(f"{group.rpartition(', ')[2]}, {KEY_WIDTHS[share]}" for group, share in columns),
    ]
    for name, (what, weighting) in LATENTS.items():
        cells = []
        for group, share in columns:
            names = [model["model"] for model in groups[group]]
            every = [row for row in load("prices")["rows"] if row["model"] in names]
            rows = [row for row in by(every, "kind", "what")["latent", what]
                    if row.get("weighting") == weighting
                    and row.get("cache", row.get("share")) == share]  # fmt: skip
            cells.append(f"{average(rows, 'lost')} (n = {len(rows)})" if rows else "-")
        yield [name, *cells]


@table
def prices_tuned() -> Rows:
    yield ["heads", "before the updates", "after them", "change of its loss"]
    runs = by(load("prices")["tuned"], "name", "training")
    for kind, name in (("grouped-2", "grouped query, 1/2"), ("grouped-4", "grouped query, 1/4"),
                       ("heads-3", "16 of 48 heads removed"), ("heads-2", "24 of 48"),
                       ("latent-4", "latents, 1/4"), ("latent-8", "latents, 1/8")):  # fmt: skip
        cells = [differences(runs[kind, tuned], runs["plain", tuned], "valid_bits")[0]
                 for tuned in (False, True)]  # fmt: skip
        yield [name, *cells, *differences(runs[kind, True], runs[kind, False], "valid_bits")]


#: Rows of docs/choose.md: share, what it is, its name in cache.json, its name in changed.json.
CHOICES = (
    (0.53125, "standard heads, 8 bits", "standard heads, bits alone", "standard heads, 8 bits"),
    (0.5, "latents, exact", "latent, widths and bits", "latents, exact"),
    (0.28125, "standard heads, 4 bits", "standard heads, bits alone", "standard heads, 4 bits"),
    (0.25, "latents, 8 bits", "latent, widths and bits", "cache, a quarter"),
    (0.125, "latents, 4 bits", "latent, widths and bits", "cache, an eighth"),
    (0.0625, "latents, 4 bits", "latent, widths and bits", "cache, a sixteenth"),
)


@table
def choose_caches() -> Rows:
    yield ["bytes", "how", "loss (bits)", "translations that change (%)"]
    found = by(by(load("cache")["rows"], "d")[128], "name", "share")
    for share, how, name, smaller in CHOICES:
        losses = [row["lost"] for row in found[name, share]]
        yield [f"{100 * share:.3g}%", how, ends(losses), changed(smaller)]


# ---- shrink.md ----------------------------------------------------------------------------------


@table
def shrunk() -> Rows:
    sizes = by_feed_forward()
    shares = sorted({row["share"] for rows in sizes.values() for row in rows}, reverse=True)
    yield ["what goes", "model", "n", *(f"{share:.1%}" for share in shares)]
    for size, rows in sizes.items():
        for name, some in by(rows, "name").items():
            found = by(some, "share")
            cells = (ends([row["lost"] for row in found.get(s, [])], ".3f") for s in shares)
            yield [name, size, len(by(some, "model")), *cells]


@table
def shrunk_tuned() -> Rows:
    """Before and after updates; after them next to the trained model after the same updates."""
    yield ["what went", "left", "updates", "n", "before", "after", "test, before", "test, after",
           "BLEU, after"]  # fmt: skip
    rows = by(load("shrink")["rows"], "model", "name", "share")
    tuned = by(load("shrink")["tuned"], "updates", "name", "share")
    for (updates, name, share), runs in tuned.items():
        if name == PLAIN:
            continue
        before = [row for run in runs for row in rows[run["model"], name, share]]
        control = tuned[updates, PLAIN, 1.0]
        cells = []
        for lost, bits in (("lost", "valid_bits"), ("lost_test", "test_bits")):
            cells += [average(before, lost), num(fmean(gains(runs, control, bits)), ".3f")]
        bleu = num(fmean(gains(runs, control, "bleu")), "+.1f")
        yield [name, f"{share:.0%}", num(updates), len(runs), *cells, bleu]


@table
def shrunk_together() -> Rows:
    yield ["change", "cache", "layers' parameters", "heads", "price", "loss", "test loss"]
    for (_, _, name), rows in by(load("shrink")["rows"], "what", "share", "name").items():
        if rows[0]["what"] == "parameters":
            continue
        left = [ends([100 * r["shares"][c] for r in rows], ".1f") for c in ("cache", "parameters")]
        heads = ends([100 * row["shares"]["heads"] for row in rows], ".1f")
        losses = (ends([r[k] for r in rows], ".4f") for k in ("price", "lost", "lost_test"))
        yield [name, *left, heads, *losses]


# ---- shared_keys.md -----------------------------------------------------------------------------

DIFFERENCES = ("loss, difference (95%)", "chrF", "BLEU")
SCORES = ("valid_loss", "chrf", "bleu")


#: BLEU of Cordonnier et al. 2020, table 1 (WMT14 En-De, d = 512), by K / d: shared, separate keys.
PAPER = {1.0: (27.58, 27.40), 0.5: (27.41, 27.10), 0.25: (27.40, 26.89), 0.125: (27.31, 26.77)}


@table
def readme_key_widths() -> Rows:
    """The mission's table: BLEU against key width at d = 128, next to the paper's."""
    yield ["key width K", "shared", "separate", "difference (95%)", "test loss, difference (95%)",
           "paper: shared", "separate", "difference"]  # fmt: skip
    for part, paper in PAPER.items():
        shared, separate = shared_and_separate("main", part)
        name = "d" if part == 1 else f"d/{round(1 / part)}"
        theirs = (*(num(bleu, ".1f") for bleu in paper), num(paper[0] - paper[1], "+.2f"))
        yield [name, *(average(side, "bleu", ".1f") for side in (shared, separate)),
               *differences(shared, separate, "bleu", "test_bits"), *theirs]  # fmt: skip


@table
def shared_keys_widths() -> Rows:
    """All widths of d = 128, with losses on both sets."""
    yield from of_widths("main")


@table
def shared_keys_amd() -> Rows:
    """The same trainings on an AMD processor, and other kinds of queries, trained only there."""
    yield from of_widths("amd")


@table
def shared_keys_wide() -> Rows:
    """All widths of d = 256, with losses on both sets."""
    yield from of_widths("large")


def of_widths(folder: str) -> Rows:
    """All widths of a size, with losses on both sets."""
    yield ["key width", "keys", "seeds", "parameters", "KV cache", "loss, validation", "loss, test",
           "chrF", "BLEU", "length ratio"]  # fmt: skip
    d = D_OF[folder]
    whole = cache_of(of_width(folder, SEPARATE, d)[0])
    kinds = {"shared": SHARED, "shared, full mixing": FULL, "shared, own queries": OWN,
             "separate": SEPARATE}  # fmt: skip
    trained = by(load("shared_keys")["widths"], "folder", "queries", "key_dim")
    for (part, name), (keys, kind) in product(KEY_WIDTHS.items(), kinds.items()):
        if kind in (FULL, OWN) and (folder, kind, d * part) not in trained:
            continue  # the kinds that were not trained at all widths
        runs = of_width(folder, kind, d * part)
        sizes = num(runs[0]["parameters"]), f"{num(100 * cache_of(runs[0]) / whole, '.4g')}%"
        losses = (average(runs, f"{side}_bits") for side in ("valid", "test"))
        scores = (average(runs, score, ".1f") for score in ("chrf", "bleu"))
        ratio = average(runs, "length_ratio")
        yield [f"{name}: {int(d * part)}", keys, len(runs), *sizes, *losses, *scores, ratio]


@table
def shared_keys_differences() -> Rows:
    """Shared minus separate keys, d = 128."""
    yield from differences_of_widths("main")


@table
def shared_keys_wide_differences() -> Rows:
    """Shared minus separate keys, d = 256."""
    yield from differences_of_widths("large")


def differences_of_widths(folder: str) -> Rows:
    """Shared minus separate keys of all widths of a size."""
    yield ["key width", "loss, validation", "loss, test", "chrF", "BLEU"]
    for part, name in KEY_WIDTHS.items():
        width = D_OF[folder] * part
        scores = "valid_bits", "test_bits", "chrf", "bleu"
        cells = differences(*shared_and_separate(folder, part), *scores)
        yield [f"{name}: {int(width)}", *cells]


@table
def shared_keys_queries() -> Rows:
    """What the query of a head may do: each kind of a quarter next to standard heads."""
    yield ["heads", "key width", "parameters", "test loss", *DIFFERENCES]
    standard = of_width("amd", SEPARATE, 128)
    scores = "test_bits", "chrf", "bleu"
    for name, ours in [
        (STANDARD, standard),
        *((kind, of_width("amd", kind, 32)) for kind in (SEPARATE, SHARED, FULL, OWN)),
    ]:
        cells = [""] * 3 if ours is standard else differences(ours, standard, *scores)
        sizes = ours[0]["key_dim"], num(ours[0]["parameters"])
        yield [name, *sizes, average(ours, "test_bits"), *cells]


# ---- heads.md, pretrained.md --------------------------------------------------------------------


@table
def heads_relations() -> Rows:
    """How often a head finds the other end of a syntactic relation."""
    yield ["relation", "pairs", "best head, to the governor (%)", "best head, to the dependent (%)",
           "best fixed distance (%)"]  # fmt: skip
    for name, directions in load("heads")["relations"].items():
        to_head, to_dependent = (directions[way] for way in ("dependent->head", "head->dependent"))
        shares = (to_head["best"], to_dependent["best"], to_head["fixed"])
        yield [name, num(to_head["pairs"]), *(num(100 * share, ".1f") for share in shares)]


@table
def heads_removed() -> Rows:
    # Method, and how many heads stay in seeds 1 and 2.
    left = {"all-0.01": "34 and 30 left", "all-0.03": "21 left", "all-0.1": "9 and 7 left"}
    columns = product(left.values(), ("loss", "change", "BLEU"))
    yield ["heads removed by", *map(": ".join, columns)]
    runs = by(load("heads")["pruning"], "folder", "method")
    ways = {"gates, then 1,000 updates": ("tuned", "tuned"),
            "price, then 2,000 updates": ("priced", "tuned"),
            "early in training, by importance": ("early", "scratch"),
            "the gates' shape from scratch": ("scratch", "scratch")}  # fmt: skip
    for name, (folder, base) in ways.items():
        cells = []
        for method in left:
            ours = runs.get((folder, method), [])
            losses = ", ".join(num(run["valid_loss"], ".3f") for run in ours)
            cells += [losses, *differences(ours, runs[base, "all-0"], "valid_loss", "bleu")]
        yield [name, *(cell or "-" for cell in cells)]


@table
def heads_stay() -> Rows:
    yield ["which 2 of 8 heads stay", "heads trained", "loss, against all 8 (95%)", "chrF", "BLEU",
           "loss, against random (95%)"]  # fmt: skip
    runs = load("heads")["groups"]
    whole = by(runs, "folder", "method")["tuned", "concatenated"]
    chance = by(runs, "stay")["random"]
    for (name, trained), ours in by(runs, "stay", "heads_trained").items():
        more = ["-"] if ours == chance else differences(ours, chance, "valid_loss")
        yield [name, trained, *differences(ours, whole, *SCORES), *more]


@table
def pretrained_kinds() -> Rows:
    yield ["heads", "key width K", "Spearman x 100", "against trained (95%)",
           "weights of queries and keys", "multiply-adds per token", "CPU seconds"]  # fmt: skip
    trained, *others = load("pretrained")["runs"]
    for one in (trained, *others):
        gain = Gain(one["spearman"] - trained["spearman"], *one.get("interval", ()))
        yield [one["heads"], one["key_dim"], num(one["spearman"], ".2f"),
               "" if one is trained else interval(gain), num(one["weights"]),
               num(one["multiply_adds"]), num(one.get("seconds"), ".0f", "")]  # fmt: skip


#: What errors are weighted by, in results/pretrained.json.
WEIGHTS = {
    "inputs": "inputs of both sides",
    "states": "effect on the states of tokens",
    "vectors": "effect on sentence vectors",
}


@table
def pretrained_weightings() -> Rows:
    yield ["errors weighted by", "widths", "key width K (mean)", "Spearman x 100",
           "error of vectors"]  # fmt: skip
    groups = by(load("pretrained")["weightings"], "key_dim", "weights", "widths")
    for (key_dim, weights, widths), seeds in groups.items():
        scores = (", ".join(num(row[name], spec) for row in seeds)
                  for name, spec in (("spearman", ".2f"), ("error", ".3f")))  # fmt: skip
        yield [WEIGHTS[weights], widths, key_dim, *scores]


# ---- cache.md: sizes of models ------------------------------------------------------------------


@table
def at_size() -> Rows:
    """Test losses: geometric means; ratios of sizes.

    The spread of logarithms is each row's own, pooled over sizes: some have a single model.
    """
    yield ["change", "left", *SIZES, "256 / 128", "512 / 128"]
    for (name, share), rows in by(load("at_size")["rows"], "name", "share").items():
        losses = [[row["lost_test"] for row in by(rows, "size").get(one, ())] for one in SIZES]
        logs = [[*map(math.log, some)] if min(some, default=0) > NOISE else [] for some in losses]
        spread = pooled(filter(None, logs))
        sizes = [of_logs(gain_of(one, spread)) if one else ends(some)
                 for some, one in zip(losses, logs, strict=True)]  # fmt: skip
        left = 1 - share if name == "heads removed" else share
        ratios = (of_logs(ratio(logs[1], one, spread), ".2f") if logs[1] and one else "-"
                  for one in logs[2:])  # fmt: skip
        yield [name, f"{left:.1%}", *sizes, *ratios]


#: Changes of one family that lose more than 0.01 bits at d = 128: name, shares.
FAMILIES: dict[str, dict[str, tuple[float, ...]]] = {
    "narrower latents": {"latents, widths and bits": (1 / 16,),
                         "latents, widths alone": (1 / 4, 1 / 8)},
    "grouped query": {"grouped query, groups and bits": (1 / 4,),
                      "grouped query, groups alone": (1 / 2, 1 / 4)},
    "heads removed": {"heads removed": (1 / 3, 1 / 2, 2 / 3)},
}  # fmt: skip


@table
def at_size_families() -> Rows:
    """Ratios of test losses: one number a model, the mean of a family's logarithms."""
    yield ["changes", "256 / 128", "512 / 128"]
    for family, names in FAMILIES.items():
        logs = []
        for size in SIZES:
            of_size = by(by(load("at_size")["rows"], "size")[size], "model")
            logs.append([_mean_log(rows, names) for rows in of_size.values()])
        spread = pooled(logs)
        yield [family, *(of_logs(ratio(logs[1], one, spread), ".2f") for one in logs[2:])]


def _mean_log(rows: Runs, names: Mapping[str, Sequence[float]]) -> float:
    found = [
        math.log(row["lost_test"])
        for row in rows
        if any(math.isclose(row["share"], share) for share in names.get(row["name"], ()))
    ]
    return fmean(found)


def ratio(theirs: Sequence[float], ours: Sequence[float], spread: Spread) -> Gain:
    """The difference of the means of two samples of logarithms."""
    error = spread.sd * math.sqrt(1 / len(ours) + 1 / len(theirs))
    return gain_of([fmean(ours) - fmean(theirs)], Spread(error, spread.freedom))


def of_logs(gain: Gain, spec: str = ".4f") -> str:
    """``0.0066 (0.0057 to 0.0077)`` from logarithms."""
    middle, low, high = (num(math.exp(x or 0), spec) for x in gain[:3])
    return middle if gain.low is None else f"{middle} ({low} to {high})"


@table
def at_size_trained() -> Rows:
    yield ["trained from the start", "d", "n", "valid bits", "difference", "test bits", "BLEU"]
    base: dict[int, Runs] = {}
    for (kind, d), ours in by(load("at_size")["trained"], "kind", "d").items():
        first = base.setdefault(d, ours)
        change = "" if ours == first else differences(ours, first, "valid_bits")[0]
        bits, tested = average(ours, "valid_bits"), average(ours, "test_bits")
        yield [kind, d, len(ours), bits, change, tested, average(ours, "bleu", ".1f")]


# ---- speed.md -----------------------------------------------------------------------------------

#: Rows with several engines: preset, beam and batch, name.
ENGINE_ROWS = (("trained", "beam 5, batch 64", "test set, batches of 64"),
               ("multi30k", "beam 5, batch 64", "d = 256, batch of 64"),
               ("wmt_en_de", "beam 5, batch 16", "d = 512, batch of 16"))  # fmt: skip


@table
def speed_stock() -> Rows:
    yield ["times as fast as stock fairseq, in two runs", "d", *BOTH]
    for name, d, preset, case in (
        ("translation of a test set, batches of 64", "256; 128", "trained", "beam 5, batch 64"),
        ("translation of 30 tokens, batch of 64", 256, "multi30k", "beam 5, batch 64"),
        ("translation of 30 tokens, batch of 16", 512, "wmt_en_de", "beam 5, batch 16"),
        ("training update, 2,048 tokens", 256, "multi30k", "training"),
        ("training update, 1,000 tokens", 512, "wmt_en_de", "training"),
    ):
        yield [name, d, *(ends(speedups(TWO, preset, case, heads), ".2f") for heads in BOTH)]


@table
def speed_engines() -> Rows:
    yield ["heads", "translation, beam 5", *COMPARED]
    for heads, (preset, case, name) in product(BOTH, ENGINE_ROWS):
        found = (speedups(THIRD, preset, case, heads, engine) for engine in COMPARED)
        yield [heads, name, *(ends(ratios, ".2f") for ratios in found)]


@table
def speed_lead() -> Rows:
    yield ["heads", "beam", *(f"batch of {batch}" for batch in (1, 16, 64))]
    for heads, beam in product(BOTH, (1, 5)):
        yield [heads, beam, *(num(lead(heads, beam, batch), ".2f") for batch in (1, 16, 64))]


@table
def speed_lengths() -> Rows:
    yield ["heads", "beam", "32 tokens", "128", "512", "2,048", "ms a step, 2,048", "peak GiB",
           "cache, GiB"]  # fmt: skip
    for (beam, kind), lengths in by_length().items():
        last = lengths[2048][0]
        faster = (ends([row["speedup"] for row in some], ".2f") for some in lengths.values())
        sizes = (num(last[size] / 1024, ".1f") for size in ("memory", "cache"))
        yield [kind, beam, *faster, num(1000 * last["seconds"], ".1f"), *sizes]


@table
def speed_rounded() -> Rows:
    """Time of a step's attention over a rounded cache, in times of float32's."""
    records = load("rounded")["records"]
    threads = sorted({r["threads"] for r in records})
    columns = [(number, bits) for number in threads for bits in ("8", "4")]
    titles = (f"{bits} bits, {number} thread{'s' * (number > 1)}" for number, bits in columns)
    yield ["heads", "beam", "slots", *titles, "GB/s: float32", "4 bits"]
    for (kind, beam, slots), found in by(records, "kind", "beam", "slots").items():
        of = {r["threads"]: r for r in found}
        ratios = (times_as_fast(of[number]["turns"], "0", bits) for number, bits in columns)
        first = of[threads[0]]
        read = (
            first["bytes"][bits] / 1e9 / median(t[bits] for t in first["turns"])
            for bits in ("0", "4")
        )
        yield [kind, beam, num(slots), *map(str, ratios), *(num(one, ".1f") for one in read)]


#: Engines of onnx_speed.json, and their names.
ONNX_ENGINES = {
    "ct2-int8": "CTranslate2 int8",
    "ct2-float32": "CTranslate2 float32",
    "onnx-int8": "ONNX int8",
    "onnx-float32": "ONNX float32",
    "fairseq": "ours in fairseq",
    "stock fairseq": "stock fairseq",
}


@table
def onnx_speed() -> Rows:
    """Seconds of a batch in each engine, medians of turns, with MB and seconds of a start."""
    cases = by(load("onnx_speed")["rows"], "vocabulary", "sentences", "tokens", "threads")
    titles = [
        f"{n} x {tokens}"
        + (f", {vocabulary:,} words" if vocabulary != FEW else "")
        + (f", {threads} threads" if threads > 1 else "")
        for vocabulary, n, tokens, threads in cases
    ]
    yield ["engine", "heads", *titles, "MB", "peak, MB", "start, seconds", "cache, bytes a token"]
    rows = [row for some in cases.values() for row in some]
    for (heads, engine), found in by(rows, "heads", "engine").items():
        cells = []
        for case in cases.values():
            turns = [row["seconds"] for row in case if (row["heads"], row["engine"]) ==
                     (heads, engine)]  # fmt: skip
            cells.append(num(median(turns[0]), ".3g") if turns else "-")
        first = found[0]
        cache = first.get("cache")
        sizes = f"{num(cache['target'])} + {num(cache['source'])}" if cache else "-"
        start = num(first.get("start"), ".1f")
        memory = [num(first.get(name), ".0f") for name in ("mb", "peak")]
        yield [ONNX_ENGINES[engine], heads, *cells, *memory, start, sizes]


# ---- seconds.md ---------------------------------------------------------------------------------

#: Engines of what_cuts_buy.json, and their names: CTranslate2's by the type of numbers.
ENGINE_NAMES = {
    "ct2-int8": "int8",
    "ct2-float32": "float32",
    "onnx-int8": "ONNX int8",
    "fairseq": "ours",
}


def cuts_bought(*cases: tuple[int, int]) -> Rows:
    """A row per cut: times as fast as the whole model in the same engine, by engine and batch."""
    records = [record for case in cases for record in bought(*case)]
    columns = [
        (engine, record)
        for engine in ENGINE_NAMES
        for record in records
        if f"{engine}: {WHOLE}" in record["turns"][0]
    ]
    yield [
        "times as fast; batches of",
        "parameters",
        *(f"{ENGINE_NAMES[engine]}, {r['batch']}" for engine, r in columns),
    ]
    whole = (median(t[f"{engine}: {WHOLE}"] for t in r["turns"]) for engine, r in columns)
    yield ["whole model, seconds", "-", *(num(seconds, ".2f") for seconds in whole)]
    names = dict.fromkeys(program.partition(": ")[2] for r in records for program in r["turns"][0])
    for name in [name for name in names if name != WHOLE]:
        parameters = records[0]["parameters"]
        share = parameters[name] / parameters[WHOLE] if name in parameters else None
        yield [
            name,
            num(share, ".0%"),
            *(
                times(r["turns"], f"{engine}: {name}", f"{engine}: {WHOLE}")
                for engine, r in columns
            ),
        ]
    pairs = [(r["turns"], f"ct2-int8: {WHOLE}", f"{engine}: {WHOLE}") for engine, r in columns]
    yield ["whole model in CTranslate2's int8", "-", *(times(*pair) for pair in pairs)]


def times(turns: Sequence[dict[str, float]], name: str, as_: str) -> str:
    """How many times as fast, with half of its interval; "-" for what was not timed."""
    if name == as_ or not {name, as_} <= {*turns[0]}:
        return "-"
    return str(times_as_fast(turns, name, as_))


@table
def what_cuts_buy() -> Rows:
    yield from cuts_bought((32_000, 30))


@table
def what_cuts_buy_few_words() -> Rows:
    yield from cuts_bought((8_000, 30))


@table
def what_caches_buy() -> Rows:
    yield from cuts_bought((8_000, 512))


@table
def what_cuts_take() -> Rows:
    """Predicted and measured shares of the whole model's seconds."""
    records = [record for record in bought(32_000, 30) if "predicted" in record]
    columns = [
        (engine, record)
        for engine in ENGINE_NAMES
        for record in records
        if f"{engine}: {WHOLE}" in record["predicted"]
    ]
    titles = (f"{ENGINE_NAMES[engine]}, {r['batch']}" for engine, r in columns)
    yield ["batches of", *titles]
    names = dict.fromkeys(key.partition(": ")[2] for r in records for key in r["predicted"])
    for name in [name for name in names if name != WHOLE]:
        keys = [(f"{engine}: {name}", f"{engine}: {WHOLE}", r) for engine, r in columns]
        yield [
            name,
            *(
                f"{r['predicted'][key]:.2f}; {1 / times_as_fast(r['turns'], key, whole).mean:.2f}"
                for key, whole, r in keys
            ),
        ]


@table
def tools_time() -> Rows:
    """Seconds of a command, by model."""
    rows = load("tools_time")["rows"]
    models = {row["model"]: row["parameters"] for row in rows}
    found = {(row["name"], row["model"]): row["seconds"] for row in rows}
    kind = {True: "6+6 layers", False: "trained, 2+2 layers"}
    titles = (
        f"{kind[name.startswith('d')]}, {number / 1e6:.1f} M" for name, number in models.items()
    )
    yield ["seconds", *titles]
    for command in dict.fromkeys(row["name"] for row in rows):
        yield [command, *(num(found.get((command, model)), ".0f") for model in models)]


# ---- long.md ------------------------------------------------------------------------------------


@table
def long_steps() -> Rows:
    """Milliseconds of a step, and MiB of its cache, by cache and batch."""
    rows = load("long_steps")["rows"]
    batches = sorted({row["batch"] for row in rows})
    found = {(row["name"], row["batch"]): row for row in rows}
    what = ("ms a step", "seconds", 1000, ".1f"), ("cache, MiB", "cache", 1, ",.1f")
    yield ["KV cache", *(f"{title}: batch of {n}" for title, *_ in what for n in batches)]
    for name in dict.fromkeys(row["name"] for row in rows):
        yield [name, *(num(factor * found[name, n][field], form)
                       for _, field, factor, form in what for n in batches)]  # fmt: skip


@table
def long_positions() -> Rows:
    """Rises by position in the translation, and of the same sentences alone."""
    yield from positions(MANUALS)


@table
def long_blocks() -> Rows:
    """Rises by position in the text of a language model, and in short blocks."""
    yield from positions(WIKIPEDIA)


def positions(name: str) -> Rows:
    """Rises by position of what has a price; rivals that are simulated are on their own page."""
    model = by(load("long")["models"], "model")[name][0]
    first, *others = (f"to {end:,}" for end in model["parts"])
    yield ["KV cache", "bytes (%)", first, *others, "whole (95%)", LONG_TEXTS[name][1]]
    own = (*model["by_part"], model["documents_bits"], model["sentences_bits"])
    yield ["(none: the model's own loss)", "100.0", *(num(bits, ".2f") for bits in own)]
    for row in long_rows(name):
        if is_simulated(row):
            continue
        parts = [num(rise, ".4f") for rise in row["by_part"]]
        share = num(100 * row["share"], ".1f")
        yield [row["name"], share, *parts, _rise(row), num(row["lost_sentences"], ".4f")]


@table
def long_calibration() -> Rows:
    """Rises by what a plan is calibrated on, and by what it is used for."""
    found = by(load("long")["rows"], "model", "name", "calibrated")
    models = dict.fromkeys(row["model"] for row in load("long")["models"])
    yield ["KV cache", "calibrated on", *(text for model in models for text in LONG_TEXTS[model])]
    texts = {"documents": "long", "sentences": "short", "other": "another text"}
    names = dict.fromkeys(name for _, name, text in found if text == "sentences")
    for name, (text, called) in product(names, texts.items()):
        rows = [found.get((model, name, text), [{}])[0] for model in models]
        cells = (row.get(field) for row in rows for field in ("lost", "lost_sentences"))
        yield [name, called, *(num(one, ".4f") for one in cells)]


@table
def long_rivals() -> Rows:
    """Rises in documents and in captions one by one, by model; 95% under resampling of texts."""
    captions = load("captions")
    models = [*load("long")["models"], *captions["models"]]
    titles = [LONG_TEXTS[model["model"]][0] for model in load("long")["models"]]
    titles += ["captions" for _ in captions["models"]]
    sized = (f"{title}, d = {model['d']}" for title, model in zip(titles, models, strict=True))
    yield ["KV cache", "bytes (%)", *sized]
    documents = by(load("long")["rows"], "calibrated")["documents"]
    found = by([*documents, *captions["rows"]], "name", "model")
    for name in dict.fromkeys(row["name"] for row in captions["rows"]):
        rows = [found[name, model["model"]][0] for model in models]
        yield [name, num(100 * rows[0]["share"], ".1f"), *map(_rise, rows)]


def _rise(row: Mapping[str, Any]) -> str:
    low, high = (num(end, ".4f") for end in row["interval"][-1])
    return f"{num(row['lost'], '.4f')} ({low} to {high})"


@table
def long_translations() -> Rows:
    """Documents translated with beam 5."""
    yield ["KV cache", "BLEU", "chrF", "length ratio", "4-grams that repeat (%)", "at the limit"]
    rows = by(load("long")["translations"], "model")[MANUALS]
    repeated = num(100 * rows[0]["repeated_in_references"], ".1f")
    yield ["references", "-", "-", "1.000", repeated, "-"]
    for row in rows:
        yield [
            row["name"], *(num(row[name], ".1f") for name in ("bleu", "chrf")),
            num(row["length_ratio"], ".3f"), num(100 * row["repeated"], ".1f"),
            f"{row['at_limit']} of {row['documents']}",
        ]  # fmt: skip


@table
def live_slots() -> Rows:
    """Seconds and bytes of a search that keeps the slots that a beam sees, by cache and length."""
    yield ["KV cache", "tokens", "time, live / all (95%)", "times as fast as stock fairseq",
           "MB: stock fairseq", "all slots", "live slots", "equal"]  # fmt: skip
    for row in load("live_slots")["forced"]:
        turns, sizes = row["turns"], row["bytes"]
        ratio = times_as_fast(turns, "all slots", "live slots")
        is_timed = "stock fairseq" in sizes
        stock = str(times_as_fast(turns, "live slots", "stock fairseq")) if is_timed else "-"
        names = ("stock fairseq", "all slots", "live slots")
        found = (num(sizes[name] / 1e6, ".1f") if name in sizes else "-" for name in names)
        equal = f"{row['equal']} of {row['sentences']}"
        yield [row["name"], num(row["length"]), str(ratio), stock, *found, equal]


@table
def live_documents() -> Rows:
    """Documents of manuals, translated with all slots and with the live ones."""
    yield ["slots", "seconds", "cache, MB", "decoding, MB of the process", "equal"]
    (row,) = load("live_slots")["documents"]
    for name in ("all slots", "live slots"):
        found = row[name]
        sizes = (num(found[size] / 1e6, ".0f") for size in ("state", "decoding"))
        yield [name, num(found["seconds"], ".0f"), *sizes, f"{row['equal']} of {row['sentences']}"]


# ---- one copy -----------------------------------------------------------------------------------


@table
def one_copy_losses() -> Rows:
    """Share of the cache's bytes, and what is lost, by model; full widths, then plans."""
    content = load("one_copy")
    rows = {(row["model"], *_change(row)): row for row in content["losses"]}
    yield ["cache; loss", *(f"{m['layers']}, d = {m['d']}" for m in content["models"])]
    for name, bits, share in dict.fromkeys(map(_change, content["losses"])):
        how = _bits(bits) if share is None else f"{share:.1%}"
        found = (rows.get((m["model"], name, bits, share)) for m in content["models"])
        cells = (
            f"{row['cache']:.1%}; {num(row['lost'], '+.4f')}" if row else num(None) for row in found
        )
        yield [f"{name}, {how}", *cells]


def _change(row: Mapping[str, Any]) -> tuple[str, int | None, float | None]:
    return row["name"], row.get("bits"), row.get("share")


def _bits(number: int | None) -> str:
    return f"{number or 16} bits"


@table
def one_copy_steps() -> Rows:
    """Bytes of a source and a target token; a step's seconds next to standard heads', by length."""
    rows = by(load("one_copy")["steps"], "layers")
    yield ["heads", *(f"{n} layers" for n in rows), *(f"step, {n}" for n in rows)]
    cases = next(iter(rows.values()))[0]["cache"]
    first = next(iter(cases))
    for name in cases:
        kind, _, bits = name.rpartition(", ")
        sizes = (f"{of[0]['cache'][name]:,}" for of in rows.values())
        times = (
            "; ".join(num(1 / times_as_fast(row["turns"], name, first).mean, ".2f") for row in of)
            if name in of[0]["turns"][0]
            else num(None)
            for of in rows.values()
        )
        yield [f"{kind}, {_bits(int(bits))}", *sizes, *times]


# ---- shrink.md: translations -------------------------------------------------------------------


@table
def translations_changed() -> Rows:
    """Lowest and highest of the models; scores are differences from the model itself."""
    yield ["model", "n", "translations that change (%)", "loss (bits)", "BLEU", "chrF"]
    by_name = by(load("changed")["rows"], "name")
    own = {row["model"]: row for row in by_name.pop(ITSELF)}
    for name, rows in by_name.items():
        losses = [row["lost"] for row in rows if row["lost"] is not None]
        scores = (
            ends([row[score] - own[row["model"]][score] for row in rows], "+.2f")
            for score in ("bleu", "chrf")
        )
        yield [name, len(rows), changed(name), ends(losses), *scores]


# ---- made.md ------------------------------------------------------------------------------------

#: Machines, by a word of their name.
MACHINES = {"Intel": "Intel Xeon", "EPYC": "AMD EPYC", "H100": "H100"}


@table
def runs_made() -> Rows:
    """How stored runs were made: those that differ in nothing but the seed, or in what varies."""
    yield ["file", "runs", "n", "seeds", "commit", "machine", "date", "checkpoint", "command"]
    for file, part, label in (
        *(("decide", "runs", "stage"), ("heads", "pruning", "folder")),
        *(("heads", "groups", "folder"), ("prices", "tuned", "training")),
        *(("shared_keys", "runs", "folder"), ("shared_keys", "widths", "folder")),
        *(("shrink", "tuned", "model"), ("distil", "rows", "engine")),
    ):
        groups: dict[tuple[str, ...], Runs] = {}
        for run in load(file)["runs" if part == "runs" else part]:
            groups.setdefault(_made(run, label), []).append(run)
        for (name, *cells), some in groups.items():
            seeds = sorted({run["seed"] for run in some})
            listed = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
            yield [file, f"{part}: {name}", len(some), listed, *cells]


def _made(run: dict[str, Any], label: str) -> tuple[str, ...]:
    name = {True: "with updates", False: "without"}.get(run[label], run[label])
    commits = (run.get("trained_at_commit") or run.get("commit") or "-").split(", ")
    commit = ", ".join(one[:7] + "-dirty" * ("-dirty" in one) for one in commits)
    machine = next((name for word, name in MACHINES.items() if word in run["hardware"]), "other")
    rule = run["checkpoint_rule"] or "not recorded"
    command = "kept" if run.get("recipe", run["command"]) else "none"
    return (name, commit, machine, run["date"], rule, command)


# ---- seconds.md: quality against seconds ---------------------------------------------------------


@table
def distil() -> Rows:
    yield ["", "parameters", "MB", "loss, validation", "loss, test", "chrF", "BLEU",
           "BLEU minus the whole model's, trained on", "times as fast",
           "CTranslate2: BLEU", "CTranslate2: times as fast"]  # fmt: skip
    for method, name in DISTILLED.items():
        yield [name, *_of_method(method, "int8")]
    yield ["whole model, float32", *_of_method("whole", "float32")]


def _of_method(method: str, numbers: str) -> Iterator[str]:
    """Cells of a method; losses of what was trained on translations say little on references."""
    ours, there = (distilled(method, f"{engine}-{numbers}") for engine in ("onnx", "ct2"))
    yield average(ours, "parameters", ",.0f")
    yield average(ours, "mb", ".1f")
    for score in ("valid_bits", "bits"):
        yield "-" if "distilled" in method else average(ours, score, ".3f")
    for score in ("chrf", "bleu"):
        yield average(ours, score, ".2f")
    tuned = "whole-text"
    yield "-" if method == tuned else differences(ours, distilled(tuned), "bleu")[0]
    yield num(geometric_mean(row["faster"] for row in ours), ".2f")
    yield average(there, "bleu", ".2f")
    yield num(geometric_mean(row["faster"] for row in there), ".2f")


@table
def distil_short() -> Rows:
    """The ways to a smaller model after their last training, next to the whole model after it."""
    yield ["", "parameters", "loss, test", "BLEU", "times as fast in ONNX Runtime",
           "in CTranslate2"]  # fmt: skip
    for name, method in WAYS.items():
        ours = distilled(method)
        logs = [times_in_logs(method, engine) for engine in ("onnx-int8", "ct2-int8")]
        times = [num(math.exp(fmean(one)), ".2f") for one in logs]
        specs = {"parameters": ",.0f", "bits": ".3f", "bleu": ".2f"}
        yield [name, *(average(ours, score, spec) for score, spec in specs.items()), *times]
