"""Sentences of the pages whose numbers are compared with the data; persons write sentences."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from collab_lab.metrics.significance import Gain, gain_of, holm
from collab_lab.metrics.turns import times_as_fast
from collab_lab.results.render import interval, num
from results.data import (
    BOTH,
    CONVERTED_KINDS,
    ENGINES,
    LONG_TEXTS,
    MANUALS,
    NOISE,
    PARTS,
    PLAIN,
    ROOT,
    SEPARATE,
    SHARED,
    SIZES,
    THIRD,
    TRAINED_KINDS,
    TWO,
    WHOLE,
    bought,
    by,
    by_feed_forward,
    by_length,
    changed,
    decided,
    ends,
    gains,
    load,
    of_width,
    signed,
    speedups,
)

#: Texts with numbers that a page must have, as the data make them: a function a page.
SENTENCES: dict[str, Callable[[], Iterable[str]]] = {}
Texts = Callable[[], Iterable[str]]


def sentences(page: str) -> Callable[[Texts], Texts]:
    """Make a function the sentences of a page; they are parts of its text."""

    def register(texts: Texts) -> Texts:
        SENTENCES[page] = functools.cache(lambda: tuple(texts()))
        return texts

    return register


def lost(size: str, name: str, share: float) -> list[float]:
    """Rises of the validation loss: a change of the models of one size of at_size.json."""
    rows = by(load("at_size")["rows"], "size", "name")[size, name]
    return [row["lost"] for row in rows if math.isclose(row["share"], share)]


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


def key_widths(kind: str) -> list[str]:
    """Validation losses of a kind at the four key widths of d = 128."""
    runs = (of_width("main", kind, 128 // divisor) for divisor in (1, 2, 4, 8))
    return [f"{fmean(run['valid_loss'] for run in of_one):.3f}" for of_one in runs]


def scratch_gain(name: str) -> Gain:
    """How much more a kind at a quarter of the key width loses than standard heads."""
    kinds = by(by(load("shared_keys")["runs"], "folder")["scratch"], "queries")
    return gain_of(gains(kinds[name], kinds["standard heads"], "valid_bits"))


def in_8_bits(*sizes: str) -> str:
    """What a cache in 8 bits loses at most, in all measurements."""
    again = by(load("changed")["rows"], "name")["standard heads, 8 bits"]
    every = [x for size in sizes for x in lost(size, "8 bits alone", 0.53125)]
    return below([*every, *(row["lost"] for row in again)])


def more_on_manuals() -> str:
    """``2.0 to 2.4``: losses on manuals in times of those on captions, before the refit."""
    captions = by(load("prices")["tuned"], "name", "training")
    found = []
    for kind in ("grouped-2", "grouped-4", "heads-3", "heads-2"):
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


def converted_captions() -> Gain:
    """Latents trained from the start minus those converted, at a quarter, on captions."""
    trained = by(load("at_size")["trained"], "kind", "d")
    bases = trained["8 heads of 16", 128]
    more = lost(SMALL, "latents, widths alone", 1 / 4)
    converted = [
        {**base, "valid_bits": base["valid_bits"] + rise}
        for base, rise in zip(bases, more, strict=True)
    ]
    ours = trained["latent, normalised, standard encoder", 128]
    return gain_of(gains(ours, converted, "valid_bits"))


@sentences("results/tools_time.md")
def times_of_tools() -> Iterable[str]:
    rows = load("tools_time")["rows"]
    small = [row for row in rows if row["model"] == "d = 128"]
    longest = max(row["seconds"] for row in small if row["name"].startswith("shrink"))
    yield f"{longest:.0f} seconds for {small[0]['parameters'] / 1e6:.1f} million"


@sentences("README.md")
def _readme() -> Iterable[str]:
    names = {
        SHARED: "shared by all heads (collaborative; diagonal: each head scales one query)",
        SEPARATE: "separate (128: standard heads)",
    }
    for kind, name in names.items():
        yield f"| {name} | {' | '.join(key_widths(kind))} |"
    found = by(load("cache")["rows"], "d", "name", "share")[128, BOTH_CUTS, 1 / 8]
    yield f"an eighth of the bytes costs {fmean(row['lost'] for row in found):.3f} bits"
    both, heads = (fmean(shrunk_losses(name)) for name in ("heads and units", "heads alone"))
    yield f"a third of their parameters costs {both:.3f} bits by one plan"
    yield f"{heads:.3f} by heads alone"
    shared, separate = map(scratch_gain, ("shared, diagonal", "separate keys"))
    bracket = interval(shared, ".3f").replace("(", "(95%: ")
    yield f"of the width costs {bracket} if heads share keys, {separate.mean:.3f}"
    yield f"eight heads of 16 have {-decided_gain(*FOUR).mean:.3f} bits more than four of 32"
    yield f"| 47% of the cache's bytes | below {in_8_bits(SMALL)}, 3 |"
    yield f"| 87.5% of them | {rises(128, BOTH_CUTS, 1 / 8)}, 3 |"
    yield f"| 34% of the layers' parameters | {shrunk_lost('heads and units')}, 3 |"
    yield f"grouped query lost {more_on_manuals()} times as much"
    ct2 = [row["lost"] for row in by(load("shrink")["rows"], "what")["ct2"]]
    yield f"| 34% of the layers' parameters | {ends(ct2, '.3f')}, 3 |"
    yield f"| 50% of the cache's bytes | {rises(128, GROUPS, 1 / 2)}, 3 |"
    batch = speedups(THIRD, "wmt_en_de", "beam 5, batch 16", BOTH[0], ENGINES[-1])[0]
    yield f"as it is {batch:.1f} times as fast as stock fairseq"
    ours = speedups(THIRD, "wmt_en_de", "beam 5, batch 16", BOTH[0], ENGINES[-3])[0]
    yield f"our standard heads {ours:.1f} times"


@sentences("docs/choose.md")
def _choose() -> Iterable[str]:
    third, half = heads_lost(SMALL)
    large, small = (
        ends(lost(size, "latents, widths alone", 1 / 4), ".3f") for size in (LARGE, SMALL)
    )
    yield f"cost {large} (here {small}), a third of the heads {heads_lost(LARGE)[0]}."
    yield f"half of the cache, {rises(128, GROUPS, 1 / 2)}, n = 3"
    fast = [f"{speedups(THIRD, 'trained', f'beam {beam}, batch 1', BOTH[0], engine)[0]:.1f}"
            for engine in reversed(ENGINES[1:]) for beam in (5, 1)]  # fmt: skip
    yield f"int8 is {fast[0]} (beam 5) and {fast[1]} times (greedy) as fast as stock fairseq."
    yield f"Float32 is {fast[2]} and {fast[3]} times as fast."
    batch = [speedups(THIRD, "wmt_en_de", "beam 5, batch 16", BOTH[0], engine)[0]
             for engine in reversed(ENGINES[1:])]  # fmt: skip
    yield f"Batch 16, d = 512: int8 {batch[0]:.1f}, float32 {batch[1]:.1f}."
    yield f"the loss rises by less than {in_8_bits(*SIZES)}"
    for share, how, name, spec, smaller in (
        (0.53125, "standard heads, 8 bits", BITS, ".4f", "standard heads, 8 bits"),
        (0.5, "latents, exact", BOTH_CUTS, ".3f", "latents, exact"),
        (0.28125, "standard heads, 4 bits", BITS, ".4f", "standard heads, 4 bits"),
        (0.25, "latents, 8 bits", BOTH_CUTS, ".4f", "cache, a quarter"),
        (0.125, "latents, 4 bits", BOTH_CUTS, ".3f", "cache, an eighth"),
        (0.0625, "latents, 4 bits", BOTH_CUTS, ".3f", "cache, a sixteenth"),
    ):
        losses = [
            row["lost"] for row in by(load("cache")["rows"], "d", "name", "share")[128, name, share]
        ]
        percent = f"{100 * share:.4g}" if share < 0.25 else f"{100 * share:.0f}"
        yield f"| {percent}% | {how} | {ends(losses, spec)} | {changed(smaller)}% |"
    yield f"An eighth took [{ends(slower_steps('latents, an eighth'), '.1f')}]"
    yield f"a sixteenth costs [{ends(from_short_texts('latents, a sixteenth'), '.3f')} more"
    kinds = [by_length()[5, kind][2048] for kind in (BOTH[0], "latent, a quarter")]
    long = ends([row["speedup"] for kind in kinds for row in kind], ".1f")
    yield f"both are {long} times as fast"
    yield f"a third of the heads costs {third}, half {half} (n = 3)"
    yield f"Without a third, {changed('a third of the heads', '.1f')}% of the translations change"
    yield f"Four heads of 32 lose {-decided_gain(*FOUR).mean:.3f} less than eight of 16"
    yield f"({-decided_gain(*CONVERTED).mean:.3f} better than latents from the start at a quarter"
    yield f"grouped query at half is {decided_gain(*GROUPED).mean:.3f} better trained"
    yield from _seeds()


def _seeds() -> Iterable[str]:
    """How many seeds an interval takes, by the spread of decide.json's first table."""
    kinds = by(by(load("decide")["runs"], "stage")["scratch"], "kind")
    standard = kinds.pop("standard")
    found = [gains(ours, standard, "valid_bits") for ours in kinds.values()]
    sd = math.sqrt(fmean(stdev(one) ** 2 for one in found if len(one) > 2))
    yield f"standard deviation of {sd:.3f}"


#: Target tokens of Multi30k's training set, in 4,000 subwords.
EPOCH = 507_859


@sentences("docs/papers.md")
def _papers() -> Iterable[str]:
    machines = [by(load("shared_keys")["widths"], "folder")[name] for name in ("main", "intel")]
    hours = (
        sum(run["epochs"] * EPOCH / run["train_tokens_per_second"] for run in runs) / 3600
        for runs in machines
    )
    yield f"{len(machines[0])} trainings take {' or '.join(f'{x:.1f}' for x in hours)} hours"


@sentences("results/changed.md")
def _changed() -> Iterable[str]:
    yield f"an eighth of the KV cache, {changed('cache, an eighth', '.1f')}% of the translations"
    yield f"two seeds of one training differ in {changed('another seed', '.1f')}%"


@sentences("docs/trained_models.md")
def _trained_models() -> Iterable[str]:
    manuals = decided_gain(("continued", "standard"), FOUR[1]).mean
    captions = _updates("plain").mean
    yield f"({manuals:.3f} bits after 480 updates on manuals, {captions:+.3f} after 250"


def _updates(kind: str) -> Gain:
    """What 250 updates change in a kind of prices.json: with minus without, by seed."""
    runs = by(load("prices")["tuned"], "name", "training")
    return gain_of(gains(runs[kind, True], runs[kind, False], "valid_bits"))


@sentences("results/speed.md")
def _speed() -> Iterable[str]:
    cases = (("trained", "beam 5, batch 64"), ("multi30k", "training"))
    standard, shared = (
        [ends(speedups(TWO, *case, heads), ".2f") for case in cases] for heads in BOTH
    )
    third = ends(speedups(THIRD, *cases[0], BOTH[0]), ".2f")
    yield f"translates {standard[0]} times as fast as in stock fairseq** (two runs; {third}"
    yield f"A training update is {standard[1]} times as fast"
    yield f"of the width it is {shared[1]} times as fast"


@sentences("results/prices.md")
def _prices() -> Iterable[str]:
    third, half = heads_lost(SMALL)
    eighth, sixteenth = (rises(128, BOTH_CUTS, share) for share in (1 / 8, 1 / 16))
    yield f"costs {eighth} bits per target token"
    yield f"A sixteenth costs {sixteenth}. A third of the heads costs {third}, half of them {half}"
    means = [row["lost"] for row in load("cache")["pooled"] if row["share"] == 0.5]
    yield f"lose {ends(means, '.2f')} bits at half of the cache"
    mean, low, high, _ = _updates("plain")
    yield f"of the trained model by {mean:.3f} ({low:.3f} to {high:.3f})"


@sentences("results/shrink.md")
def _shrink() -> Iterable[str]:
    yield f"goes for {shrunk_lost('heads and units')} bits per target token"
    yield f"Masks by their Fisher information, refitted alike, lose {shrunk_lost(MASKS)}"
    yield f"heads alone {shrunk_lost('heads alone')}"
    wide = (shrunk_lost(name, "d = 128, F = 4 d") for name in ("heads and units", MASKS))
    yield f"At F = 4 d (one model) a third goes for {' by one plan, for '.join(wide)} by masks"
    larger = (shrunk_lost(name, "d = 256, F = 2 d") for name in ("heads and units", MASKS))
    yield f"it goes for {' and '.join(larger)}"
    tuned = by(load("shrink")["tuned"], "name")
    [control], [ours], [theirs] = (tuned[name] for name in (PLAIN, "heads and units", MASKS))
    model = by(load("shrink")["models"], "model")[control["model"]][0]
    both, masks = (one["valid_bits"] - control["valid_bits"] for one in (ours, theirs))
    yield f"{both:.3f} bits are lost by one plan, {masks:.3f} by masks"
    yield f"change that of the trained model by {control['valid_bits'] - model['valid_bits']:+.3f}"


@sentences("results/at_size.md")
def _at_size() -> Iterable[str]:
    rows = by(load("at_size")["rows"], "size")
    found = [
        median(row["lost_test"] / row["price"] for row in rows[size]
               if (row.get("price") or 0) > NOISE and row["lost_test"] > NOISE)
        for size in SIZES[1:]
    ]  # fmt: skip
    yield f"medians of loss / price are {found[0]:.1f}, {found[1]:.1f} and {found[2]:.1f}"
    losses = by((row for some in rows.values() for row in some), "model", "name", "share")
    rival = [
        row["lost_test"] / losses[model, "latents, widths alone", share][0]["lost_test"]
        for (model, name, share), (row,) in losses.items()
        if name == "latents by SVD"
    ]
    yield f"loses {ends([min(rival), max(rival)], '.1f')} times as much as prices"
    every = [x for size in SIZES for x in lost(size, "8 bits alone", 0.53125)]
    yield f"8 bits cost less than {below(every)}"
    mean, low, high, _ = converted_captions()
    yield f"lose {mean:.3f} ({low:.3f} to {high:.3f}) bits more when they are trained"


def comparisons() -> list[Gain]:
    """The differences in bits of decide.md's tables that have an interval."""
    standard, four = FOUR[1], FOUR[0]
    pairs = [(four, standard)]
    for kind in TRAINED_KINDS:
        pairs += [(("scratch", kind), theirs) for theirs in (standard, four)]
    for kind in CONVERTED_KINDS:
        pairs += [(("converted", kind), theirs) for theirs in (standard, ("scratch", kind))]
        pairs += [(("tuned", kind), ("continued", "standard"))]
    found = (gains(decided(*ours), decided(*theirs), "valid_bits") for ours, theirs in pairs)
    return [gain_of(of_seeds) for of_seeds in found if len(of_seeds) > 2]


@sentences("results/decide.md")
def _decide() -> Iterable[str]:
    theirs, ours = (decided(*kind) for kind in reversed(CONVERTED))
    yield f"by {ends(gains(theirs, ours, 'valid_bits'), '.3f')} bits per target token"
    compared = comparisons()
    of_holm = dict(zip(compared, holm([gain.p for gain in compared]), strict=True))
    mean = decided_gain(*CONVERTED)
    yield f"The mean is {less(*CONVERTED)} bits; its p is {mean.p:.3f}, and {of_holm[mean]:.3f}"
    alone, together = (
        sum(p < 0.05 for p in of if p is not None)
        for of in ([gain.p for gain in compared], of_holm.values())
    )
    yield f"Of the {len(compared)} differences in bits with an interval, {alone} have p < 0.05"
    yield f"p < 0.05, {together} after Holm's correction"
    yield interval(decided_gain(*GROUPED_TUNED), "+.3f")
    yield f"of the standard models by {less(('continued', 'standard'), FOUR[1])} bits"
    both_tuned = decided_gain(("tuned", "latent-4"), ("continued", "latent-4"))
    yield f"are then {interval(both_tuned, '+.3f')}"
    yield from _seeds()


@sentences("results/heads.md")
def _heads() -> Iterable[str]:
    stay = by(load("heads")["groups"], "stay")
    elected, important = (
        gain_of(gains(stay[name], stay["random"], "valid_loss"))
        for name in ("elected, one per group", "most important")
    )
    yield f"from random heads, {interval(elected, '+.3f')} bits"
    yield f"undecided: {interval(important, '+.3f')}, p = {important.p:.3f}"


@sentences("results/shared_keys.md")
def _shared_keys() -> Iterable[str]:
    pairs = [
        gain
        for (d, folder), part in product(((128, "main"), (256, "large")), PARTS)
        for gain in gains(
            of_width(folder, SEPARATE, d * part), of_width(folder, SHARED, d * part), "valid_loss"
        )
    ]
    yield f"than separate keys, by {ends(pairs, '.3f')} bits"
    kinds = by(by(load("shared_keys")["runs"], "folder")["scratch"], "queries")
    diagonal = gains(kinds["shared, diagonal"], kinds["standard heads"], "valid_bits")
    yield f"differs from standard heads by {interval(gain_of(diagonal), '+.3f')} bits"


@sentences("results/README.md")
def _results() -> Iterable[str]:
    def against(kind: str, theirs: tuple[str, str]) -> str:
        return interval(decided_gain(("scratch", kind), theirs), "+.3f")

    eight, four = FOUR[1], FOUR[0]
    yield f"on software manuals, too ({against('diagonal', eight)}"
    yield f"on software manuals it costs {against('grouped-2', eight)}"
    yield f"yes ({against('own-4', eight)} bits"
    yield f"not distinguished: {against('own-4', four)}"
    yield f"by {against('shape-latent-4', ('scratch', 'latent-4'))} bits"


def bought_times(name: str, engine: str, vocabulary: int = 32_000, length: int = 30) -> list[float]:
    """How many times as fast a cut of what_cuts_buy.json is, by batch."""
    return [
        times_as_fast(r["turns"], f"{engine}: {name}", f"{engine}: {WHOLE}").mean
        for r in bought(vocabulary, length)
    ]


@sentences("results/rounded.md")
def _rounded() -> Iterable[str]:
    shares = defaultdict[str, list[float]](list)
    for r in load("rounded")["records"]:
        of_kind = shares[r["kind"].split(",")[0]]
        of_kind += [1 / times_as_fast(r["turns"], bits, "0").mean for bits in ("8", "4")]
    yield f"takes {ends(shares['standard heads'], '.2f')} of float32's time with standard heads"
    yield f"Grouped query takes {ends(shares['grouped query'], '.2f')}"
    yield f"a step takes {ends(slower_steps('latents, an eighth'), '.1f')} times as long"
    rounded = slower_steps("8 bits")
    yield f"8 bits took {rounded[0]:.1f} and {rounded[1]:.1f} times as long"


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


@sentences("results/rivals.md")
def _rivals() -> Iterable[str]:
    documents = [row for row in load("long")["rows"] if row["calibrated"] == "documents"]
    rows = by([*documents, *load("captions")["rows"]], "name")
    names = ("latents, an eighth", "the layer's input in 4 bits")
    ours, least = (max(row["lost"] for row in rows[name]) for name in names)
    yield f"lose up to {ours:.3f} bits per target token"
    yield f"the rival that loses least up to {least:.3f}"


@sentences("results/long.md")
def _long() -> Iterable[str]:
    eighth, sixteenth = "latents, an eighth", "latents, a sixteenth"
    models = LONG_TEXTS
    most = max(long_lost(eighth, model=model) for model in models)
    yield f"lose at most {most:.3f} bits per target token there"
    more = max(from_short_texts(eighth))
    yield f"they lose up to {more:.3f} more"
    yield f"and a sixteenth {ends(from_short_texts(sixteenth), '.3f')} more"
    yield f"Four bits of the heads lose {ends(from_short_texts('4 bits'), '.3f')} more"
    short = [
        long_lost(sixteenth, "documents", "lost_sentences", model)
        - long_lost(sixteenth, "sentences", "lost_sentences", model)
        for model in models
    ]
    yield f"Short texts then lose up to {max(short):.3f} more"
    for model in models:
        row = by(load("long")["models"], "model")[model][0]
        long, short = (row[f"{text}_bits"] for text in ("documents", "sentences"))
        yield f"{long:.2f} bits in long texts, {short:.2f} in short ones"
    one, two, three = (num(rise, ".3f") for rise in from_short_texts(eighth))
    yield f"{one} (manuals), {two} (lists) and {three} (Wikipedia) more"
    one, two, three = (num(rise, ".3f") for rise in from_short_texts(sixteenth))
    yield f"At a sixteenth it is {one}, {two} and {three} more"
    whole, rotated = (
        [long_lost(name, model=model) for model in models]
        for name in ("the layer's input in 4 bits", "rotation, 2 bits")
    )
    yield f"the input in 4 bits, uncut, loses {ends(whole, '.3f')}"
    yield f"Two bits of the heads by rotation lose {ends(rotated, '.3f')}"


def mispredicted(record: dict[str, Any]) -> list[float]:
    """Predicted minus measured shares of the whole model's seconds."""
    found = []
    for name, predicted in record["predicted"].items():
        whole = f"{name.partition(':')[0]}: {WHOLE}"
        found.append(predicted - 1 / times_as_fast(record["turns"], name, whole).mean)
    return found


@sentences("results/what_cuts_buy.md")
def _what_cuts_buy() -> Iterable[str]:
    def times(name: str, **case: int) -> str:
        return " and ".join(f"{x:.2f}" for x in bought_times(name, "ct2-int8", **case))

    single, together = bought_times("plan, 66%", "ct2-int8")
    yield f"parameters are {single:.2f} times as fast for single sentences"
    yield f"For batches of 32 they are {together:.2f} times as fast"
    yield f"{times('4 heads, F 1,024')} times as fast, three decoder"
    yield f"layers of six {times('3 decoder layers')}."
    yield f"{bought_times('shortlist of words', 'ct2-int8')[0]:.2f} times as fast for single"
    even = shrunk_losses("equal shares a layer", share=0.49)
    yield f"lose {ends(even, '.3f')} bits by equal shares"
    yield f"{times('4 heads, F 512', vocabulary=8_000)} times as fast"
    yield f"in place of six buy {times('3 decoder layers', vocabulary=8_000)}"
    for r in bought(32_000, 30):
        most = f"{max(map(abs, mispredicted(r))):.2f}"
        yield f"at most {most}" if r["batch"] == 1 else f"by up to {most}"
    int8 = [
        times_as_fast(r["turns"], f"ct2-int8: {WHOLE}", f"ct2-float32: {WHOLE}").mean
        for r in bought(32_000, 30)
    ]
    yield f"int8 alone is {' and '.join(f'{x:.1f}' for x in int8)} times as fast as float32"


def wrong(root: Path = ROOT) -> list[tuple[Path, str]]:
    """Sentences that pages of a project lack, as the data have them."""
    return [
        (root / page, signed(text))
        for page, texts in SENTENCES.items()
        for text in texts()
        if signed(text) not in signed((root / page).read_text(encoding="utf-8"))
    ]
