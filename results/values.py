"""Values that stand in sentences of the pages, by group and name, as the data have them.

A page has ``<!--=GROUP.NAME-->0.063<!--/-->``, and :mod:`.pages` fills in the number, so that prose
never holds a second copy.  A group is a function here; a page may use numbers of several groups.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, product
from statistics import fmean, linear_regression, median, stdev
from typing import Any

from collab_lab.clock.turns import times_as_fast
from collab_lab.metrics.significance import Gain, gain_of, holm, pooled
from collab_lab.results.render import interval, num
from results.data import (
    BOTH,
    COMPARED,
    CONVERTED_KINDS,
    D_OF,
    FEW,
    FULL,
    ITSELF,
    KEY_WIDTHS,
    LONG_TEXTS,
    MANUALS,
    NARROW,
    NOISE,
    ON_AMD,
    OWN,
    PLAIN,
    PLANNED,
    SEPARATE,
    SHARED,
    SIZES,
    STANDARD,
    THIRD,
    TRAINED_KINDS,
    TWO,
    WHOLE,
    WIDTHS,
    average,
    bought,
    by,
    by_feed_forward,
    by_length,
    changed,
    decided,
    distilled,
    ends,
    gains,
    load,
    narrow_keys,
    of_width,
    shared_and_separate,
    signed,
    speedups,
    times_in_logs,
)
from results.tables import PAPER, of_logs, priced, priced_rows

Values = Callable[[], Mapping[str, str]]
#: The numbers of each group.
VALUES: dict[str, Values] = {}


def group(values: Values) -> Values:
    """Make a function a group of numbers; it is called once."""

    @functools.cache
    def of_group() -> Mapping[str, str]:
        return {name: signed(value) for name, value in values().items()}

    VALUES[values.__name__] = of_group
    return values


def lost(size: str, name: str, share: float, score: str = "lost") -> list[float]:
    """Rises of the loss: a change of the models of one size of at_size.json.

    Args:
        score: ``lost`` on the validation set, ``lost_test`` on the test set.
    """
    rows = by(load("at_size")["rows"], "size", "name")[size, name]
    return [row[score] for row in rows if math.isclose(row["share"], share)]


def rises(d: int, name: str, share: float) -> str:
    """``0.006 to 0.008``: those of the models of one width of cache.json."""
    rows = by(load("cache")["rows"], "d", "name", "share")
    return ends([row["lost"] for row in rows[d, name, share]], ".3f")


def heads_lost(size: str) -> list[str]:
    """Without a third and without half of the heads."""
    return [ends(lost(size, "heads removed", share), ".3f") for share in (1 / 3, 1 / 2)]


def shrunk_losses(name: str, size: str = "d = 128, F = 2 d", share: float = 0.66) -> list[float]:
    """Rises at a share of the layers' parameters: what went by its name in shrink.json, and F."""
    rows = by(by_feed_forward()[size], "name")[name]
    return [row["lost"] for row in rows if math.isclose(row["share"], share)]


def shrunk_lost(name: str, size: str = "d = 128, F = 2 d") -> str:
    """``0.060 to 0.066``: the ends of :func:`shrunk_losses`."""
    return ends(shrunk_losses(name, size), ".3f")


def in_8_bits(*sizes: str) -> str:
    """What a cache in 8 bits loses at most, in all measurements."""
    again = by(load("changed")["rows"], "name")["standard heads, 8 bits"]
    every = [x for size in sizes for x in lost(size, "8 bits alone", 0.53125)]
    return below([*every, *(row["lost"] for row in again)])


#: Cuts that were measured on manuals and on captions, before the refit existed.
ON_BOTH_TEXTS = ("grouped-2", "grouped-4", "heads-3", "heads-2", "latent-4", "latent-8", "own-4")


def more_on_manuals() -> str:
    """``1.5 to 2.6``: losses on manuals in times of those on captions, before the refit."""
    captions = by(load("prices")["tuned"], "name", "training")
    found = []
    for kind in ON_BOTH_TEXTS:
        pairs = (captions[kind, False], captions["plain", False])
        manuals = decided_gain(("converted", kind), ("scratch", "standard"))
        found.append(manuals.mean / gain_of(gains(*pairs, "valid_bits")).mean)
    return ends(found, ".1f")


def below(numbers: Iterable[float]) -> str:
    """The least power of ten that is above all, without their signs."""
    return f"{10.0 ** math.ceil(math.log10(max(map(abs, numbers)))):.4f}".rstrip("0")


def decided_gain(ours: tuple[str, str], theirs: tuple[str, str]) -> Gain:
    """The difference in bits of two stages and kinds of decide.json."""
    return gain_of(gains(decided(*ours), decided(*theirs), "valid_bits"))


def less(ours: tuple[str, str], theirs: tuple[str, str]) -> str:
    """``0.197 (0.130 to 0.264)``: how much lower the loss of ours is."""
    return interval(decided_gain(theirs, ours), ".3f")


FOUR = (("scratch", "standard, 4 heads"), ("scratch", "standard"))
CONVERTED = (("converted", "latent-4"), ("scratch", "latent-4"))
GROUPED = (("converted", "grouped-2"), ("scratch", "grouped-2"))
GROUPED_TUNED = (("tuned", "grouped-2"), ("scratch", "grouped-2"))
#: A rival's name in shrink.json.
MASKS = "masks by Fisher"
#: Names of rows, in cache.json and (plural) in at_size.json.
BOTH_CUTS = "latent, widths and bits"
CUTS = "latents, widths and bits"
GROUPS, BITS = "grouped query, groups alone", "standard heads, bits alone"
SMALL, MIDDLE, LARGE = "d = 128, 2+2 layers", "d = 256", "d = 512"


def converted_captions(bits: str = "valid_bits", score: str = "lost") -> Gain:
    """Latents trained from the start minus those converted, at a quarter, on captions."""
    trained = by(load("at_size")["trained"], "kind", "d")
    bases = trained["8 heads of 16", 128]
    more = lost(SMALL, "latents, widths alone", 1 / 4, score)
    converted = [{**base, bits: base[bits] + rise} for base, rise in zip(bases, more, strict=True)]
    ours = trained["latent, normalised, standard encoder", 128]
    return gain_of(gains(ours, converted, bits))


# ---- bits and BLEU -------------------------------------------------------------------------------


def slope(runs: Iterable[dict[str, Any]], bits: str) -> tuple[float, float]:
    """BLEU that 0.1 bits cost by a least-squares line, and the residual standard deviation."""
    pairs = [(run[bits], run["bleu"]) for run in runs]
    line = linear_regression(*zip(*pairs, strict=True))
    residuals = [bleu - line.intercept - line.slope * loss for loss, bleu in pairs]
    return -0.1 * line.slope, stdev(residuals)


@group
def bleu() -> dict[str, str]:
    """BLEU per 0.1 bits (decide.json; changed.json and prices.json), and what it leaves open."""
    manuals, residual = slope(by(load("decide")["runs"], "model_dim")[128], "valid_bits")
    untrained, tuned = (by(load("prices")["tuned"], "training")[x] for x in (False, True))
    cuts = [
        row
        for row in load("changed")["rows"]
        if row["lost"] is not None and row["name"] not in (ITSELF, "another seed")
    ]
    captions = [slope(cuts, "lost")[0], slope(untrained, "valid_bits")[0]]
    return {
        "manuals": f"{manuals:.1f}",
        "one_run": f"{1.96 * residual:.1f}",
        "captions": ends(captions, ".1f"),
        "tuned": f"{slope(tuned, 'valid_bits')[0]:.1f}",
    }


# ---- the KV cache --------------------------------------------------------------------------------


@group
def cache() -> dict[str, str]:
    """Losses of smaller KV caches (cache.json, at_size.json, changed.json, prices.json)."""
    eighth = by(load("cache")["rows"], "d", "name", "share")[128, BOTH_CUTS, 1 / 8]
    pooled = [row["lost"] for row in load("cache")["pooled"] if row["share"] == 0.5]
    on_test = converted_captions("test_bits", "lost_test")
    latents = [gain_of(_tuned("latent-4", "plain", updates)) for updates in (False, True)]
    nine_models = [x for size in SIZES for x in lost(size, "8 bits alone", 0.53125)]
    return {
        "eighth": rises(128, BOTH_CUTS, 1 / 8),
        "eighth_mean": f"{fmean(row['lost'] for row in eighth):.3f}",
        "sixteenth": rises(128, BOTH_CUTS, 1 / 16),
        "grouped_half": rises(128, GROUPS, 1 / 2),
        "eight_bits": in_8_bits(*SIZES),
        "eight_bits_nine": below(nine_models),
        "pooled": ends(pooled, ".2f"),
        "svd": ends(by_svd(), ".1f"),
        "grouped_quarter": rises(128, GROUPS, 1 / 4),
        "trained_more": interval(converted_captions(), ".3f"),
        "trained_more_test": interval(on_test, ".3f"),
        "updates": interval(_updates("plain"), ".3f"),
        "updates_captions": f"{_updates('plain').mean:+.3f}",
        "updates_latents": f"{_updates('latent-4').mean:.3f}",
        "latents_before": f"{latents[0].mean:.3f}",
        "latents_after": f"{latents[1].mean:.3f}",
        "updates_manuals": f"{decided_gain(('continued', 'standard'), FOUR[1]).mean:.3f}",
        "manuals": more_on_manuals(),
        **{f"factor_{d}": f"{too_low(size):.1f}"
           for d, size in zip((128, 256, 512), SIZES[1:], strict=True)},
    }  # fmt: skip


def by_svd() -> list[float]:
    """Test losses of latents by SVD in times of those by price, at equal widths."""
    losses = by(load("at_size")["rows"], "model", "name", "share")
    return [
        row["lost_test"] / losses[model, "latents, widths alone", share][0]["lost_test"]
        for (model, name, share), (row,) in losses.items()
        if name == "latents by SVD"
    ]


def too_low(size: str) -> float:
    """The median of test loss / price of the models of one size."""
    return median(
        row["lost_test"] / row["price"]
        for row in by(load("at_size")["rows"], "size")[size]
        if (row.get("price") or 0) > NOISE and row["lost_test"] > NOISE
    )


def _updates(kind: str) -> Gain:
    """What 250 updates change in a kind of prices.json: with minus without, by seed."""
    runs = by(load("prices")["tuned"], "name", "training")
    return gain_of(gains(runs[kind, True], runs[kind, False], "valid_bits"))


def _tuned(ours: str, theirs: str, updates: bool = True) -> list[float]:
    """The difference of two kinds of prices.json by seed: after 250 updates, or before them."""
    runs = by(load("prices")["tuned"], "name", "training")
    return gains(runs[ours, updates], runs[theirs, updates], "valid_bits")


@group
def prices() -> dict[str, str]:
    """How prices order the changes of the one model that has more than six of a kind."""
    kinds = by(load("prices")["rows"], "kind")
    every = (rows for kind in kinds for rows in by(priced_rows(kind), "model").values())
    many = [rows for rows in every if len(rows) > 6]
    ranks = [priced(rows)[0] for rows in many]
    return {"many": ends([*map(len, many)], "d"), "order_of_many": ends(ranks, ".2f")}


@group
def rivals() -> dict[str, str]:
    """An eighth of the cache in five models, by price and by the rival that loses least."""
    documents = [row for row in load("long")["rows"] if row["calibrated"] == "documents"]
    rows = by([*documents, *load("captions")["rows"]], "name")
    names = {"ours": "latents, an eighth", "input": "the layer's input in 4 bits"}
    found = {key: [row["lost"] for row in rows[name]] for key, name in names.items()}
    return {"ours": ends(found["ours"]), "input_most": f"{max(found['input']):.3f}"}


# ---- heads and units -----------------------------------------------------------------------------


@group
def shrink() -> dict[str, str]:
    """Losses of fewer heads and feed-forward units (shrink.json, at_size.json)."""
    ct2 = [row["lost"] for row in by(load("shrink")["rows"], "what")["ct2"]]
    third, half = heads_lost(SMALL)
    of_large = {"4d": "d = 128, F = 4 d", "256": "d = 256, F = 2 d"}
    return {
        "third": shrunk_lost("heads and units"),
        "third_mean": f"{fmean(shrunk_losses('heads and units')):.3f}",
        "masks": shrunk_lost(MASKS),
        "masks_mean": f"{fmean(shrunk_losses(MASKS)):.3f}",
        "alone": shrunk_lost("heads alone"),
        "alone_mean": f"{fmean(shrunk_losses('heads alone')):.3f}",
        **{f"third_{key}": shrunk_lost("heads and units", size) for key, size in of_large.items()},
        **{f"masks_{key}": shrunk_lost(MASKS, size) for key, size in of_large.items()},
        "half_even": ends(shrunk_losses("equal shares a layer", share=0.49), ".3f"),
        "ct2": ends(ct2, ".3f"),
        "masks_more_test": interval(gain_of(masks_more("lost_test")), "+.3f"),
        "without_command": str(sum("command" not in row for row in load("shrink")["rows"])),
        "third_of_heads": third,
        "half_of_heads": half,
        "third_of_heads_512": heads_lost(LARGE)[0],
    }


def masks_more(score: str, share: float = 0.66) -> list[float]:
    """How much more masks lose than the plan at a share of the layers' parameters."""
    rows = by(by(by_feed_forward()["d = 128, F = 2 d"], "share")[share], "name", "model")
    models = sorted(model for name, model in rows if name == MASKS)
    return [rows[MASKS, m][0][score] - rows["heads and units", m][0][score] for m in models]


#: Of the test whether the plan's lead over masks lasts: share of the parameters, updates.
HALF, LASTING = 0.49, 1_000


@group
def shrunk_tuned() -> dict[str, str]:
    """Whether the plan's lead over masks lasts: six models cut to a half, and trained on.

    That there is no lead is a test of its own: a 90% interval that lies within a margin which was
    said before (two one-sided tests).
    """
    runs = by(load("shrink")["tuned"], "updates", "name", "share")
    plan, masks, control = (
        runs[LASTING, name, share]
        for name, share in (("heads and units", HALF), (MASKS, HALF), (PLAIN, 1.0))
    )
    after = gains(masks, plan, "test_bits")
    cuts = by(by(by_feed_forward()["d = 128, F = 2 d"], "share")[HALF], "name")
    kept = [
        f"{100 * fmean(row['shares']['parameters'] for row in cuts[name]):.1f}%"
        for name in ("heads and units", MASKS)
    ]
    models = by(load("shrink")["models"], "model")
    changes = [run["test_bits"] - models[run["model"]][0]["test_bits"] for run in control]
    return {
        "n": str(len(after)),
        "kept": " and ".join(kept),
        "lead_before": interval(gain_of(masks_more("lost_test", HALF)), "+.3f"),
        "lead_after": interval(gain_of(after), "+.3f"),
        "lead_after_90": interval(gain_of(after, confidence=0.9), "+.3f"),
        "lead_bleu": interval(gain_of(gains(plan, masks, "bleu")), "+.2f"),
        "left": interval(gain_of(gains(plan, control, "test_bits")), ".3f"),
        "left_bleu": interval(gain_of(gains(plan, control, "bleu")), "+.2f"),
        "control": interval(gain_of(changes), "+.3f"),
    }


@group
def translations() -> dict[str, str]:
    """Percent of the translations that change (changed.json)."""
    return {
        "eighth": changed("cache, an eighth", ".1f"),
        "seeds": changed("another seed", ".1f"),
        "third_of_heads": changed("a third of the heads", ".1f"),
    }


@group
def heads() -> dict[str, str]:
    """Heads that are elected, or important, next to random ones (heads.json)."""
    stay = by(load("heads")["groups"], "stay")
    elected, important = (
        gain_of(gains(stay[name], stay["random"], "valid_loss"))
        for name in ("elected, one per group", "most important")
    )
    return {
        "elected": interval(elected, "+.3f"),
        "important": interval(important, "+.3f"),
        "important_p": f"{important.p:.3f}",
    }


# ---- trainings from the start --------------------------------------------------------------------


@group
def keys() -> dict[str, str]:
    """Shared minus separate keys of equal width (shared_keys.json)."""

    def narrow(score: str, spec: str, *folders: str, parts: Iterable[float] = NARROW) -> str:
        """With one variance within the sizes."""
        found = [narrow_keys(score, [folder], parts) for folder in folders or WIDTHS]
        return of_groups(found, spec)

    bits = ([-gain for gain in narrow_keys("test_bits", [folder])] for folder in WIDTHS)
    return {
        "pairs": better_with_shared_keys("test_bits", *WIDTHS),
        "pairs_bleu": better_with_shared_keys("bleu", *WIDTHS),
        "significant": after_holm(["main"], "test_bits"),
        "significant_bleu": after_holm(["main"], "bleu"),
        "significant_both": after_holm(["main"], "test_bits", "bleu"),
        "significant_sizes": after_holm(WIDTHS, "test_bits"),
        "significant_bleu_sizes": after_holm(WIDTHS, "bleu"),
        "narrow_bits": " and ".join(interval(gain_of(of_size), ".3f") for of_size in bits),
        "narrow_bleu": narrow("bleu", "+.2f"),
        "narrow_bleu_sizes": " and ".join(narrow("bleu", "+.2f", size) for size in WIDTHS),
        "narrow_bleu_amd": narrow("bleu", "+.2f", *ON_AMD),
        "all_bleu": narrow("bleu", "+.2f", parts=KEY_WIDTHS),
        "narrow_bleu_pairs": narrow_pairs("bleu"),
        "quarter_of_half": " and ".join(quarter_of_half("bleu", "+.2f", size) for size in WIDTHS),
        "quarter_of_half_amd": quarter_of_half("bleu", "+.2f", "amd"),
        "quarter_of_half_bits": " and ".join(
            quarter_of_half("test_bits", "+.3f", size) for size in WIDTHS
        ),
        "narrow_chrf": narrow("chrf", "+.2f"),
        "narrow_chrf_sizes": " and ".join(narrow("chrf", "+.2f", size) for size in WIDTHS),
    }


def narrow_pairs(score: str) -> str:
    """The difference over narrow widths of both sizes, with the variance of its single pairs."""
    widths = product(WIDTHS, NARROW)
    return of_groups([gains(*shared_and_separate(*one), score) for one in widths], "+.2f")


def of_groups(groups: Sequence[Sequence[float]], spec: str) -> str:
    """The mean of grouped differences and its interval, with one variance within the groups."""
    return interval(gain_of([*chain.from_iterable(groups)], pooled(groups)), spec)


def quarter_of_half(score: str, spec: str, folder: str) -> str:
    """Shared keys of a quarter of the width minus separate keys of a half."""
    d = D_OF[folder]
    shared, separate = of_width(folder, SHARED, d / 4), of_width(folder, SEPARATE, d / 2)
    return interval(gain_of(gains(shared, separate, score)), spec)


@group
def falls() -> dict[str, str]:
    """What is lost from full key width to an eighth of it, here and in the paper."""

    def of(kind: str, score: str, spec: str) -> str:
        """By size; of a loss, its rise."""
        found = (
            [better(score) * fall for fall in falls_of(kind, score, size).values()]
            for size in WIDTHS
        )
        return " and ".join(interval(gain_of(some), spec) for some in found)

    def less(*folders: str) -> str:
        """How much less BLEU shared keys lose, with one variance within the sizes."""
        found = []
        for folder in folders:
            shared, separate = (falls_of(kind, "bleu", folder) for kind in (SHARED, SEPARATE))
            found.append([separate[seed] - fall for seed, fall in shared.items()])
        return of_groups(found, ".2f")

    paper = [full - eighth for full, eighth in zip(PAPER[1.0], PAPER[0.125], strict=True)]
    return {
        "shared": of(SHARED, "bleu", ".1f"),
        "separate": of(SEPARATE, "bleu", ".1f"),
        "shared_bits": of(SHARED, "test_bits", ".3f"),
        "separate_bits": of(SEPARATE, "test_bits", ".3f"),
        "less": less(*WIDTHS),
        "less_sizes": " and ".join(less(size) for size in WIDTHS),
        "less_amd": less(*ON_AMD),
        "paper": f"{paper[0]:.2f}",
        "paper_less": f"{paper[1] - paper[0]:.2f}",
    }


@group
def trainings() -> dict[str, str]:
    """The trainings of shared_keys.json: their number and time, and the same ones elsewhere."""
    runs = [run for part in load("shared_keys").values() for run in part]
    widths = by(load("shared_keys")["widths"], "folder")
    # Of the median: some runs were suspended for a while, and their seconds ran on.
    seconds = {
        size: [run["train_seconds"] for run in every if run["queries"] not in (FULL, OWN)]
        for size, every in widths.items()
    }
    hours = {size: len(every) * median(every) / 3600 for size, every in seconds.items()}
    elsewhere = {
        score: [
            abs(gain)
            for part, kind in product(KEY_WIDTHS, (SHARED, SEPARATE))
            for gain in gains(
                of_width("main", kind, 128 * part), of_width("amd", kind, 128 * part), score
            )
        ]
        for score in ("valid_bits", "bleu")
    }
    on_amd = [fmean(gains(*shared_and_separate("amd", part), "bleu")) for part in KEY_WIDTHS]
    return {
        "rows": str(len(runs)),
        "number": str(len(widths["main"])),
        "hours": f"{hours['main']:.1f}",
        "hours_256": f"{hours['large']:.0f}",
        "on_amd": ", ".join(num(gain, "+.2f") for gain in on_amd),
        "elsewhere_bits": num(max(elsewhere["valid_bits"]), ".3f"),
        "elsewhere_bleu": num(max(elsewhere["bleu"]), ".1f"),
        "four_heads": average(of_width("main", SEPARATE, 128), "bleu", ".1f"),
    }


@group
def queries() -> dict[str, str]:
    """Kinds of queries in single trainings, or few, and what they save (shared_keys.json)."""
    standard = of_width("amd", SEPARATE, 128)
    kinds = {"diagonal": SHARED, "full": FULL, "own": OWN, "separate": SEPARATE}
    narrow = {name: of_width("amd", kind, 32) for name, kind in kinds.items()}
    costs = {name: gain_of(gains(ours, standard, "test_bits")) for name, ours in narrow.items()}
    corrected = holm([gain.p for gain in costs.values()])
    found = {name: interval(gain, "+.3f") for name, gain in costs.items()}
    found |= {f"{name}_p": num(p, ".3f") for name, p in zip(costs, corrected, strict=True)}
    for name in ("diagonal", "own", "separate"):
        for part, short in (("parameters", "parameters"), ("multiply_adds", "work")):
            share = narrow[name][0][part] / standard[0][part]
            found[f"{name}_{short}"] = f"{100 * (1 - share):.0f}%"
    runs = by(load("shared_keys")["runs"], "folder", "queries")
    for name in ("full", "own"):
        for ending, score, spec in (("", "test_bits", "+.3f"), ("_bleu", "bleu", "+.2f")):
            of_diagonal = gain_of(gains(narrow[name], narrow["diagonal"], score))
            found[f"{name}_of_diagonal{ending}"] = interval(of_diagonal, spec)
    of_widths = (
        gains(of_width("amd", FULL, 128 * part), of_width("amd", SHARED, 128 * part), "test_bits")
        for part in KEY_WIDTHS
    )
    found["full_of_widths"] = ", ".join(interval(gain_of(one), "+.3f") for one in of_widths)
    of_sizes = [
        gains(of_width(size, SHARED, d / 4), of_width(size, SEPARATE, d), "test_bits")
        for size, d in WIDTHS.items()
    ]
    found["diagonal_sizes"] = of_groups(of_sizes, "+.3f")
    on_amd = {"amd": 128, "large": 256}
    for name, kind, share in (
        ("full_sizes", SEPARATE, 1),
        ("full_of_diagonal_sizes", SHARED, 0.25),
    ):
        of_sizes = [
            gains(of_width(size, FULL, d / 4), of_width(size, kind, d * share), "test_bits")
            for size, d in on_amd.items()
        ]
        found[name] = of_groups(of_sizes, "+.3f")
    enja = runs["enja", STANDARD]
    for name in ("separate", "diagonal", "full"):
        [gain] = gains(runs["enja", kinds[name]], enja, "valid_bits")
        found[f"enja_{name}"] = num(gain, "+.3f")
    for name, folder, kind, width, against, score in (
        ("diagonal_intel", "main", SHARED, 32, 128, "test_bits"),
        ("separate_intel", "main", SEPARATE, 32, 128, "test_bits"),
        ("diagonal_256", "large", SHARED, 64, 256, "test_bits"),
        ("separate_256", "large", SEPARATE, 64, 256, "test_bits"),
        ("full_256", "large", FULL, 64, 256, "test_bits"),
        ("full_whole", "amd", FULL, 128, 128, "test_bits"),
        ("full_eighth", "amd", FULL, 16, 128, "test_bits"),
        ("eight_heads", "heads8", SHARED, 32, 32, "test_bits"),
        ("eight_heads_bleu", "heads8", SHARED, 32, 32, "bleu"),
    ):
        sides = of_width(folder, kind, width), of_width(folder, SEPARATE, against)
        found[name] = interval(gain_of(gains(*sides, score)), "+.2f" if score == "bleu" else "+.3f")
    return found


def falls_of(kind: str, score: str, folder: str) -> dict[int, float]:
    """A score at full key width minus that at an eighth of it, by seed."""
    full, eighth = (of_width(folder, kind, D_OF[folder] * part) for part in (1, 0.125))
    found = gains(full, eighth, score)
    return {run["seed"]: fall for run, fall in zip(full, found, strict=True)}


def after_holm(folders: Iterable[str], *scores: str) -> str:
    """How many differences of shared from separate keys are significant after Holm's correction.

    It is over all widths of the folders, and all scores: ``3 of 4``.
    """
    corrected = holm([
        gain_of(gains(*shared_and_separate(folder, part), score)).p
        for folder, score, part in product(folders, scores, KEY_WIDTHS)
    ])  # fmt: skip
    return f"{sum(p is not None and p < 0.05 for p in corrected)} of {len(corrected)}"


def better(score: str) -> int:
    """1 for a score of which a better model has more, -1 for a loss."""
    return {"bleu": 1, "chrf": 1, "valid_bits": -1, "test_bits": -1}[score]


def better_with_shared_keys(score: str, *folders: str) -> str:
    """In how many pairs of equal width and seed shared keys are better: ``12 of 12``."""
    widths = product(folders, KEY_WIDTHS)
    found = [*chain.from_iterable(gains(*shared_and_separate(*one), score) for one in widths)]
    return f"{sum(better(score) * gain > 0 for gain in found)} of {len(found)}"


def comparisons() -> list[Gain]:
    """The differences in bits with an interval of decide.md: of its tables, and its sentences."""
    standard, four = FOUR[1], FOUR[0]
    pairs = [(four, standard)]
    for kind in TRAINED_KINDS:
        pairs += [(("scratch", kind), theirs) for theirs in (standard, four)]
    for kind in CONVERTED_KINDS:
        pairs += [(("converted", kind), theirs) for theirs in (standard, ("scratch", kind))]
        pairs += [(("tuned", kind), ("continued", "standard"))]
    found = (gains(decided(*ours), decided(*theirs), "valid_bits") for ours, theirs in pairs)
    of_tables = [gain_of(of_seeds) for of_seeds in found if len(of_seeds) > 2]
    return [
        *of_tables,
        decided_gain(*GROUPED_TUNED),
        decided_gain(("continued", "standard"), standard),
        decided_gain(("tuned", "latent-4"), ("continued", "latent-4")),
        decided_gain(("scratch", "shape-latent-4"), ("scratch", "latent-4")),
        four_heads_on_captions("test_bits"),
        four_heads_of_64(),
    ]


@group
def decide() -> dict[str, str]:
    """Kinds of heads by one protocol (decide.json)."""
    theirs, ours = (decided(*kind) for kind in reversed(CONVERTED))
    compared, mean = comparisons(), decided_gain(*CONVERTED)
    of_holm = dict(zip(compared, holm([gain.p for gain in compared]), strict=True))
    alone, together = (
        sum(p < 0.05 for p in of if p is not None)
        for of in ([gain.p for gain in compared], of_holm.values())
    )

    def against(kind: str, other: tuple[str, str]) -> str:
        return interval(decided_gain(("scratch", kind), other), "+.3f")

    return {
        "seeds": ends(gains(theirs, ours, "valid_bits"), ".3f"),
        "converted": less(*CONVERTED),
        "p": f"{mean.p:.3f}",
        "p_holm": f"{of_holm[mean]:.3f}",
        "compared": str(len(compared)),
        "significant": str(alone),
        "significant_holm": str(together),
        "grouped_tuned": interval(decided_gain(*GROUPED_TUNED), "+.3f"),
        "control": less(("continued", "standard"), FOUR[1]),
        "both_tuned": interval(
            decided_gain(("tuned", "latent-4"), ("continued", "latent-4")), "+.3f"
        ),
        "grouped_converted": interval(decided_gain(*GROUPED), ".3f"),
        "four": less(*FOUR),
        "four_captions": interval(four_heads_on_captions("test_bits"), ".3f"),
        "four_captions_valid": interval(four_heads_on_captions("valid_bits"), ".3f"),
        "four_256": interval(four_heads_of_64(), "+.3f"),
        "diagonal": against("diagonal", FOUR[1]),
        "grouped": against("grouped-2", FOUR[1]),
        "own": against("own-4", FOUR[1]),
        "own_of_four": against("own-4", FOUR[0]),
        "by_price": against("shape-latent-4", ("scratch", "latent-4")),
        "sd": f"{spread_of_seeds():.3f}",
    }


def four_heads_on_captions(score: str) -> Gain:
    """A loss of eight heads of 16 minus that of four of 32, on captions."""
    eight = by(load("at_size")["trained"], "kind", "d")["8 heads of 16", 128]
    return gain_of(gains(eight, of_width("main", SEPARATE, 128), score))


def four_heads_of_64() -> Gain:
    """Loss of four heads of 64 minus that of eight of 32, on captions at d = 256."""
    trained = by(load("at_size")["trained"], "kind", "d")
    four, eight = (trained[kind, 256] for kind in ("4 heads of 64", "8 heads of 32"))
    return gain_of(gains(four, eight, "valid_bits"))


def spread_of_seeds() -> float:
    """The standard deviation of differences by seed in decide.json's first table."""
    kinds = by(by(load("decide")["runs"], "stage")["scratch"], "kind")
    standard = kinds.pop("standard")
    found = [gains(ours, standard, "valid_bits") for ours in kinds.values()]
    return math.sqrt(fmean(stdev(one) ** 2 for one in found if len(one) > 2))


# ---- long texts ----------------------------------------------------------------------------------


def long_lost(
    name: str, calibrated: str = "documents", text: str = "lost", model: str = MANUALS
) -> float:
    """A rise of long.json: of long texts, or of short ones."""
    rows = by(load("long")["rows"], "model", "name", "calibrated")
    return float(rows[model, name, calibrated][0][text])


def slower_steps(name: str) -> list[float]:
    """Seconds of a step of 1,000 tokens in times of float32's, for batches of 1 and 16."""
    steps = {(row["name"], row["batch"]): row["seconds"] for row in load("long_steps")["rows"]}
    return [steps[name, n] / steps["float32", n] for n in (1, 16)]


def from_short_texts(name: str) -> list[float]:
    """What long texts lose more if a change is calibrated on short ones, by model."""
    return [long_lost(name, "sentences", model=m) - long_lost(name, model=m) for m in LONG_TEXTS]


@group
def long() -> dict[str, str]:
    """Smaller caches in long texts (long.json); models in the order of LONG_TEXTS."""
    eighth, sixteenth, models = "latents, an eighth", "latents, a sixteenth", LONG_TEXTS
    short = [
        long_lost(sixteenth, "documents", "lost_sentences", model)
        - long_lost(sixteenth, "sentences", "lost_sentences", model)
        for model in models
    ]
    input_4_bits, rotated = (
        [long_lost(name, model=model) for model in models]
        for name in ("the layer's input in 4 bits", "rotation, 2 bits")
    )
    found = {
        "eighth": ends([long_lost(eighth, model=model) for model in models]),
        "more": f"{max(from_short_texts(eighth)):.3f}",
        "sixteenth_more": ends(from_short_texts(sixteenth), ".3f"),
        "four_bits_more": ends(from_short_texts("4 bits"), ".3f"),
        "short_more": f"{max(short):.3f}",
        "input": ends(input_4_bits, ".3f"),
        "rotation": ends(rotated, ".3f"),
    }
    for model, name in zip(models, ("manuals", "lists", "wikipedia"), strict=True):
        row = by(load("long")["models"], "model")[model][0]
        found |= {f"{name}_long": f"{row['documents_bits']:.2f}",
                  f"{name}_short": f"{row['sentences_bits']:.2f}"}  # fmt: skip
    for share, rises_ in (("eighth", from_short_texts(eighth)),
                          ("sixteenth", from_short_texts(sixteenth))):  # fmt: skip
        for name, rise in zip(("manuals", "lists", "wikipedia"), rises_, strict=True):
            found[f"{share}_{name}"] = num(rise, ".3f")
    return found


# ---- seconds -------------------------------------------------------------------------------------


def bought_times(name: str, engine: str, vocabulary: int = 32_000, length: int = 30) -> list[float]:
    """How many times as fast a cut of what_cuts_buy.json is, by batch."""
    return [
        times_as_fast(r["turns"], f"{engine}: {name}", f"{engine}: {WHOLE}").mean
        for r in bought(vocabulary, length)
    ]


def mispredicted(record: dict[str, Any]) -> list[float]:
    """Predicted minus measured shares of the whole model's seconds."""
    found = []
    for name, predicted in record["predicted"].items():
        whole = f"{name.partition(':')[0]}: {WHOLE}"
        found.append(predicted - 1 / times_as_fast(record["turns"], name, whole).mean)
    return found


@group
def seconds() -> dict[str, str]:
    """What cuts buy, and what rounding takes (what_cuts_buy.json, rounded.json)."""

    def times(name: str, **case: int) -> list[str]:
        return [f"{x:.2f}" for x in bought_times(name, "ct2-int8", **case)]

    def ranges(name: str, vocabulary: int = 32_000, engine: str = "ct2-int8") -> list[str]:
        """With 95% intervals."""
        return [interval_of_times(r, name, engine) for r in bought(vocabulary, 30)]

    int8 = [
        times_as_fast(r["turns"], f"ct2-int8: {WHOLE}", f"ct2-float32: {WHOLE}").mean
        for r in bought(32_000, 30)
    ]
    off = [f"{max(map(abs, mispredicted(r))):.2f}" for r in bought(32_000, 30)]
    [at_512] = bought(8_000, 512)
    rounded = rounded_times()
    slower, slowest = slower_steps("8 bits"), slower_steps("4 bits")
    pairs = {
        "plan": ranges("plan, 66%"),
        "half": ranges("4 heads, F 1,024"),
        "layers": ranges("3 decoder layers"),
        "shortlist": times("shortlist of words"),
        "keys_quarter": ranges("keys and values 1/4"),
        "few_words": ranges("4 heads, F 512", 8_000),
        "few_words_layers": ranges("3 decoder layers", 8_000),
        "few_words_onnx": ranges("4 heads, F 512", 8_000, "onnx-int8"),
        "few_words_layers_onnx": ranges("3 decoder layers", 8_000, "onnx-int8"),
        "int8": [f"{x:.1f}" for x in int8],
        "off": off,
    }
    return {
        **{f"{name}_{batch}": value
           for name, pair in pairs.items() for batch, value in zip((1, 32), pair, strict=True)},
        "rounded_standard": ends(rounded["standard heads"], ".2f"),
        "rounded_grouped": ends(rounded["grouped query"], ".2f"),
        "step_eighth": ends(slower_steps("latents, an eighth"), ".1f"),
        "step_rounded": ends([*slower, *slowest], ".1f"),
        "step_4_bits_1": f"{slowest[0]:.1f}",
        "step_4_bits_16": f"{slowest[1]:.1f}",
        "quarter_512": interval_of_times(at_512, "keys and values 1/4", "fairseq"),
        "step_8_bits_1": f"{slower[0]:.1f}",
        "step_8_bits_16": f"{slower[1]:.1f}",
    }  # fmt: skip


def interval_of_times(record: dict[str, Any], name: str, engine: str = "ct2-int8") -> str:
    """``1.23 (0.85 to 1.79)``: how many times as fast a cut is in an engine."""
    times = times_as_fast(record["turns"], f"{engine}: {name}", f"{engine}: {WHOLE}")
    return f"{times.mean:.2f} ({times.low:.2f} to {times.high:.2f})"


def rounded_times() -> dict[str, list[float]]:
    """Time of attention over a cache of 8 or 4 bits in times of float32's, by kind of heads."""
    shares = defaultdict[str, list[float]](list)
    for r in load("rounded")["records"]:
        of_kind = shares[r["kind"].split(",")[0]]
        of_kind += [1 / times_as_fast(r["turns"], bits, "0").mean for bits in ("8", "4")]
    return shares


@group
def live() -> dict[str, str]:
    """A search that keeps only the slots that a beam sees (live_slots.json), float32."""
    found = {}
    for row in load("live_slots")["forced"]:
        if row["name"] == "float32":
            share = times_as_fast(row["turns"], "all slots", "live slots")
            between = "" if share.low is None else f" ({share.low:.2f} to {share.high:.2f})"
            found[f"time_{row['length']}"] = f"{share.mean:.2f}{between}"
            found[f"bytes_{row['length']}"] = (
                f"{row['bytes']['live slots'] / row['bytes']['all slots']:.2f}"
            )
    return found


@group
def speed() -> dict[str, str]:
    """Next to stock fairseq, and to CTranslate2 (speed.json)."""
    cases = (("trained", "beam 5, batch 64"), ("multi30k", "training"))
    standard, shared = (
        [ends(speedups(TWO, *case, heads), ".2f") for case in cases] for heads in BOTH
    )

    single = [
        ends([time for end in ("low", "high") for time in speedups(TWO, *case, BOTH[0], of=end)],
             ".2f")
        for case in cases
    ]  # fmt: skip

    def one(preset: str, case: str, engine: str) -> str:
        return f"{speedups(THIRD, preset, case, BOTH[0], engine)[0]:.1f}"

    found = {
        "translation": standard[0],
        "training": standard[1],
        "training_shared": shared[1],
        "translation_turns": single[0],
        "training_turns": single[1],
        "third_run": ends(speedups(THIRD, *cases[0], BOTH[0]), ".2f"),
        "long": ends([row["speedup"] for kind in (BOTH[0], "latent, a quarter")
                      for row in by_length()[5, kind][2048]], ".1f"),
    }  # fmt: skip
    for engine, name in zip(COMPARED, ("ours", "float32", "int8"), strict=True):
        found[f"{name}_16"] = one("wmt_en_de", "beam 5, batch 16", engine)
        for beam in (5, 1):
            found[f"{name}_beam_{beam}"] = one("trained", f"beam {beam}, batch 1", engine)
    return found


@group
def onnx() -> dict[str, str]:
    """Seconds in ONNX Runtime in times of other engines', and bytes (onnx_speed.json)."""
    data = load("onnx_speed")
    found = onnx_ratios(data["rows"]) | {
        f"earlier_{name}": ratio for name, ratio in onnx_ratios(data["earlier"]).items()
        if not name.startswith("ours")
    }  # fmt: skip
    rows = by(data["rows"], *ONNX_NAMES)
    long = ONNX_CASES["long"]
    for name, heads in (("quarter", "latents 1/4"), ("eighth", "latents 1/8, 4 bits")):
        for kind in ("int8", "float32"):
            engine = f"onnx-{kind}"
            found[f"{name}_{kind}"] = median_ratio(
                *(rows[one, engine, *long][0]["seconds"] for one in (heads, "standard"))
            )
        sizes = [rows[one, "onnx-float32", *long][0]["cache"] for one in (heads, "standard")]
        found[f"{name}_bytes"] = f"{sum(sizes[0].values()) / sum(sizes[1].values()):.3f}"
    return found


ONNX_NAMES = ("heads", "engine", "vocabulary", "threads", "sentences", "tokens")
#: Vocabulary, threads, sentences, tokens.
ONNX_CASES = {"1": (FEW, 1, 1, 30), "32": (FEW, 1, 32, 30), "long": (FEW, 1, 1, 512)}


def onnx_ratios(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Seconds of standard heads in ONNX Runtime in times of CTranslate2's; ours in times of it."""
    named, found = by(rows, *ONNX_NAMES), dict[str, str]()

    def seconds(engine: str, case: str) -> list[float]:
        of_case: list[float] = named["standard", engine, *ONNX_CASES[case]][0]["seconds"]
        return of_case

    for case in ONNX_CASES:
        for kind in ("int8", "float32"):
            ours = seconds(f"onnx-{kind}", case)
            found[f"{kind}_{case}"] = median_ratio(ours, seconds(f"ct2-{kind}", case))
        found[f"ours_{case}"] = median_ratio(
            seconds("fairseq", case), seconds("onnx-float32", case)
        )
    return found


def median_ratio(above: Sequence[float], below: Sequence[float]) -> str:
    return f"{median(a / b for a, b in zip(above, below, strict=True)):.2f}"


@group
def tools() -> dict[str, str]:
    """Seconds of this project's own commands (tools_time.json)."""
    rows = load("tools_time")["rows"]
    small = [row for row in rows if row["model"] == "d = 128"]
    shrinks = [row for row in rows if row["name"].startswith("shrink")]
    longest = max(row["seconds"] for row in shrinks if row["model"] == "d = 128")
    return {
        "longest": f"{longest:.0f}",
        "parameters": f"{small[0]['parameters'] / 1e6:.1f}",
        "base": f"{max(row['seconds'] for row in shrinks) / 60:.0f}",
    }


@group
def distil() -> dict[str, str]:
    """Ways to a smaller model, after training (distil.json)."""
    whole, exact = distilled("whole"), distilled("whole", "onnx-float32")
    values = {"n": str(len(whole)), "turns": str(len(whole[0]["seconds"]))}
    for score, tests in PLANNED.items():
        gained = [after(*pair, score) for pair in tests.values()]
        for name, gain, p in zip(tests, gained, holm([one.p for one in gained]), strict=True):
            values |= {name: interval(gain, SPECS[score]), f"{name}_p": num(p, ".3f")}
    cuts = {"cut": "cut-onnx-text", "cut_ct2": "cut-ct2-text"}
    pairs = [("cut", "whole", "whole-text")]
    pairs += [("cut_ct2", *of) for of in (("whole", "whole-text"), *FROM_THE_START.items())]
    for name, of, theirs in pairs:
        for score, spec in SPECS.items():
            values[f"{name}_of_{of}_{score}"] = interval(after(cuts[name], theirs, score), spec)
    for name, method in {"cut": "cut-onnx", "shallow": "shallow-again"}.items():
        gain = after(f"{method}-distilled", f"{method}-text", "bleu")
        values[f"{name}_distilling"] = interval(gain, "+.2f")
    first = after("narrow-distilled", "narrow-text", "bleu")
    values["distilling_first"] = interval(first, "+.2f")
    values["whole_bleu"] = num(fmean(row["bleu"] for row in whole), ".1f")
    for name, method in {**cuts, **FROM_THE_START}.items():
        for engine in ("onnx", "ct2"):
            times = times_of_seeds(method, f"{engine}-int8", "whole-text")
            values[f"{name}_in_{engine}"] = times
    speeds = [
        math.exp(fmean(times_in_logs("cut-ct2-text", engine, small)))
        for engine in ("onnx-int8", "ct2-int8")
        for small in FROM_THE_START.values()
    ]
    values["cut_ct2_of_small"] = ends(speeds, ".2f")
    values["cut_untrained_in_onnx"] = times_of_seeds("cut-onnx")
    values["cut_ct2_untrained_in_ct2"] = times_of_seeds("cut-ct2", "ct2-int8")
    values["int8_minus"] = interval(gain_of(gains(whole, exact, "bleu")), "+.2f")
    values["int8_faster"] = num(1 / fmean(row["faster"] for row in exact), ".2f")
    return values


#: How differences of a score are written.
SPECS = {"bleu": "+.2f", "bits": "+.3f"}
#: Small models after their second training.
FROM_THE_START = {"narrow": "narrow-again-text", "shallow": "shallow-again-text"}


def after(ours: str, theirs: str, score: str) -> Gain:
    """The difference of two methods of distil.json, in ONNX Runtime with int8."""
    return gain_of(gains(distilled(ours), distilled(theirs), score))


def times_of_seeds(method: str, engine: str = "onnx-int8", of: str = "whole") -> str:
    """How many times as fast as another: the geometric mean over seeds, and its interval."""
    return of_logs(gain_of(times_in_logs(method, engine, of)), ".2f")
