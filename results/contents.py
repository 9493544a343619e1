"""The numbers of each page: a function per template of ``templates/`` returns what it shows.

``fairseq-collab pages`` calls them.  All numbers come from the JSON files of this folder.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from collab_common.files import read_json
from collab_lab.metrics.significance import gain_of, holm, within
from collab_lab.results.pages import (
    Drawing,
    gain,
    gains,
    grid,
    interval,
    mean,
    num,
    pick,
    sources,
    values,
    where,
)

Runs = list[dict[str, Any]]
Content = dict[str, Any]
PARTS = {0.125: "an eighth", 0.25: "a quarter", 0.5: "half", 1.0: "full"}


@functools.cache
def load(name: str) -> Any:
    content = read_json(Path(__file__).with_name(f"{name}.json"))
    for run in [*content.get("runs", ()), *content.get("rates", ())]:
        if "valid_nats" in run:
            run["valid_bits"] = run["valid_nats"] / math.log(2)
    return content


def runs(name: str, part: str = "runs", **wanted: Any) -> Runs:
    return where(load(name)[part], **wanted)


def difference(ours: Runs, theirs: Runs, score: str = "valid_loss") -> str:
    """``+0.040 (-0.095 to +0.015)`` over the seeds that both have; one number a seed for two."""
    found = gains(*pairs_of(ours, theirs), score)
    spec = "+.3f" if "valid" in score else "+.2f"
    if len(found) < 3:
        return ", ".join(num(one, spec) for one in found)
    return interval(gain_of(found), spec)


def pairs_of(ours: Runs, theirs: Runs) -> tuple[Runs, Runs]:
    """The runs of the seeds that both have."""
    seeds = {run["seed"] for run in ours} & {run["seed"] for run in theirs}
    return tuple([run for run in side if run["seed"] in seeds] for side in (ours, theirs))  # type: ignore[return-value]


def scores(ours: Runs, theirs: Runs, loss: str = "valid_loss") -> list[str]:
    """Differences in loss, chrF and BLEU: three cells."""
    return [difference(ours, theirs, score) for score in (loss, "chrf", "bleu")]


def table(titles: str, rows: Iterable[Sequence[Any]], left: Iterable[int] = (0,)) -> str:
    """A Markdown table; ``titles`` has the columns' names, separated by ``|``."""
    return grid(titles.split(" | "), rows, left)


def by_seed(found: Runs, score: str) -> str:
    spec = ".3f" if score in ("valid_loss", "valid_bits", "error") else ".2f"
    return ", ".join(num(one, spec) for one in values(found, score))


def average(found: Iterable[Any], score: str, spec: str = ".3f") -> str:
    return num(mean(values(found, score)), spec)


# ---- decide.md -----------------------------------------------------------------------------------

#: Kinds of heads, by their names in recipes/decide.sh.
DECIDED = {
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
SCORES = (("valid_bits", ".3f"), ("chrf", ".2f"), ("bleu", ".2f"))
#: The difference in bits that counts as nothing, chosen before the runs.
MARGIN = 0.02
FOUR = "standard heads, 4 of size 32"
#: Stages without a conversion.
TRAINED = ("scratch", "continued", "repeat")


def decided(stage: str, kind: str, heads: int = 8, width: int = 128) -> Runs:
    """The runs of one kind of heads, ordered by seed.

    From ``scratch``, ``continued`` for a tenth of the updates, ``converted``, ``tuned`` for a tenth
    after that, or a ``repeat`` of a run from scratch.
    """
    wanted = (stage, kind, heads, width)
    keys = ("stage", "kind", "heads", "model_dim")
    found = [run for run in load("decide")["runs"] if tuple(run[key] for key in keys) == wanted]
    return sorted(found, key=lambda run: run["seed"])


def decided_loss(stage: str, kind: str) -> str:
    """The difference in loss from 8 standard heads."""
    return difference(decided(stage, kind), decided("scratch", "standard"), "valid_bits")


def four_heads() -> Runs:
    """4 standard heads of size 32, trained from scratch."""
    return decided("scratch", "standard", heads=4)


def four_on_captions() -> str:
    """The difference of 4 from 8 standard heads on Multi30k, d = 128, with label smoothing."""
    eight = where(load("heads")["groups"], folder="trained", method="concatenated")
    return difference(where(query_runs("scratch"), queries="standard", key_dim=128), eight)


def verdict(ours: Runs, theirs: Runs) -> str:
    """In words, by t-interval and by equivalence within :data:`MARGIN`."""
    gains_ = gains(*pairs_of(ours, theirs), "valid_bits")
    if len(gains_) < 3:
        return "too few seeds"
    p, found = within(gains_, MARGIN), gain_of(gains_)
    if p is not None and p < 0.05:
        return "within the margin"
    if found.significant:
        return "higher" if found.mean > 0 else "lower"
    return "can't tell"


def row_against(name: str, ours: Runs, baseline: Runs, *others: Runs) -> list[str]:
    """Differences from a baseline, in loss, chrF and BLEU; in loss from others."""
    cells = [difference(ours, baseline, score) for score in ("valid_bits", "chrf", "bleu")]
    cells += ["" if ours == other else difference(ours, other, "valid_bits") for other in others]
    seeds = str(len(pairs_of(ours, baseline)[0]))
    return [name, *sizes(ours, baseline)[:2], seeds, *cells, verdict(ours, baseline)]


def against_standard(
    stage: str, kinds: Iterable[str], *baselines: Runs, heads: int = 8
) -> list[list[str]]:
    found = {kind: decided(stage, kind, heads) for kind in kinds}
    return [row_against(DECIDED[kind], ours, *baselines) for kind, ours in found.items() if ours]


def narrow_or_convert(kind: str, narrow: str) -> list[str]:
    """Both ways to one kind of heads, without and with a tenth of the updates more."""
    standard, control = decided("scratch", "standard"), decided("continued", "standard")
    trained, made = decided("scratch", narrow), decided("converted", kind)
    longer, tuned = decided("continued", narrow), decided("tuned", kind)
    return [
        DECIDED[kind],
        sizes(made, standard)[0],
        difference(trained, standard, "valid_bits"),
        difference(made, standard, "valid_bits"),
        difference(made, trained, "valid_bits"),
        difference(longer, control, "valid_bits") if longer else "-",
        difference(tuned, control, "valid_bits") if tuned else "-",
    ]


def decide() -> Content:
    standard, control = decided("scratch", "standard"), decided("continued", "standard")
    four, latent, own = four_heads(), decided("scratch", "latent-4"), decided("scratch", "own")
    small = decided("scratch", "standard", width=64)
    first, keys = decided("repeat", "standard", heads=4), shared_keys()
    new = ("own", "full", "diagonal", "separate", "grouped-2", "grouped-4", "latent-4",
           "shape-latent-4", "latent-8")  # fmt: skip
    changed = ("latent-4", "even-4", "latent-8", "even-8", "own-4", "own-8", "grouped-2",
               "grouped-4", "heads-3", "heads-2")  # fmt: skip
    titles = "heads | KV cache | parameters | seeds | bits | chrF | BLEU | verdict"

    def bits(ours: Runs, theirs: Runs = standard) -> str:
        return difference(ours, theirs, "valid_bits")

    both = {kind: kind for kind in ("latent-4", "latent-8", "grouped-2", "grouped-4")}
    series: dict[str, dict[float, list[float]]] = defaultdict(dict)
    for stage, how in (("converted", "converted"), ("scratch", "trained narrow")):
        for kind, name in DECIDED.items():
            ours = decided(stage, kind)
            if ours and "heads" not in name and "even" not in name:
                share = round(cache_of(ours[0]) / cache_of(standard[0]), 4)
                label = f"{name.split(', K')[0]}, {how}"
                series[label][share] = gains(*pairs_of(ours, standard), "valid_bits")
    series["4 standard heads"][1] = gains(*pairs_of(four, standard), "valid_bits")
    rates = load("decide")["rates"]
    with_latents = {one["rate"]: one for one in where(rates, kind="latent-4")} | {0.003: latent[0]}
    compared = [
        [
            num(one["rate"], "g"),
            *(num(one[score], spec) for score, spec in SCORES),
            num(with_latents.get(one["rate"], {}).get("valid_bits"), ".3f"),
        ]
        for one in where(rates, kind="standard")
    ]
    found = load("decide")["runs"]
    repeated = [
        gain
        for kind, of in (("own", own), ("latent-4", latent))
        for gain in gains(*pairs_of(of, decided("repeat", kind)), "valid_bits")
    ]
    return {
        "standard": by_seed(standard, "valid_bits"),
        "four_by_seed": by_seed(four, "valid_bits"),
        "new": table(titles.replace("verdict", "bits, 4 standard heads | verdict"), [
            row_against(FOUR, four, standard, four),
            *against_standard("scratch", new, standard, four),
        ]),
        "converted": table(titles, against_standard("converted", changed, standard)),
        "four_converted": table(titles, against_standard(
            "converted", ("latent-4", "latent-8", "own-4", "grouped-2"), first, heads=4
        )),
        "four_quarter": bits(decided("converted", "latent-4", heads=4), first),
        "four_narrow": bits(decided("scratch", "latent-4", heads=4), first),
        "four_eighth": bits(decided("converted", "latent-8", heads=4), first),
        "tuned": table(titles, against_standard("tuned", changed, control)),
        "both": table(
            "heads | KV cache | trained narrow | converted | converted minus trained narrow | "
            "trained narrow, 480 more | converted, 480 more",
            [narrow_or_convert(kind, narrow) for kind, narrow in {**both, "own-4": "own"}.items()],
        ),
        "rates": table("rate | bits | chrF | BLEU | latents at a quarter, bits", compared),
        "latent_rates": {
            f"{rate:g}": num(one["valid_bits"] - standard[0]["valid_bits"], "+.3f")
            for rate, one in with_latents.items()
        },
        "more": bits(control),
        "loss": decided_loss,
        "four": bits(four),
        "four_captions": four_on_captions(),
        "own_four": bits(own, four),
        "grouped_more": bits(decided("tuned", "grouped-2"), control),
        "own_more": bits(decided("tuned", "own-4"), control),
        "full_four": bits(decided("scratch", "full"), four),
        "diagonal_four": bits(decided("scratch", "diagonal"), four),
        "diagonal_eight": keys["eight"],
        "diagonal_captions": keys["diagonal"],
        "xavier": keys["xavier_block"],
        "first": average(first, "valid_bits"),
        "small": average(small, "valid_bits"),
        "small_converted": bits(decided("converted", "latent-4", width=64), small),
        "small_narrow": bits(decided("scratch", "latent-4", width=64), small),
        "own_from_four": bits(decided("converted", "own-4", heads=4), own),
        "latent_quarter_size": num(
            -gain(decided("converted", "latent-4"), latent, "valid_bits").mean, ".2f"
        ),
        "own_full": bits(decided("scratch", "full"), own),
        "diagonal_full": bits(decided("scratch", "diagonal"), decided("scratch", "full")),
        "shape_even": bits(decided("scratch", "shape-latent-4"), latent),
        "latent_quarter": bits(decided("converted", "latent-4"), latent),
        "latent_quarter_more": bits(
            decided("tuned", "latent-4"), decided("continued", "latent-4")
        ),
        "latent_eighth": bits(decided("converted", "latent-8"), decided("scratch", "latent-8")),
        "latent_shape": bits(
            decided("converted", "latent-4"), decided("scratch", "shape-latent-4")
        ),
        "grouped_half": bits(decided("converted", "grouped-2"), decided("scratch", "grouped-2")),
        "grouped_quarter": bits(decided("converted", "grouped-4"), decided("scratch", "grouped-4")),
        "own_converted": bits(decided("converted", "own-4"), own),
        "own_parameters": sizes(own, standard)[1].removeprefix("+"),
        "latent_grouped": bits(latent, decided("scratch", "grouped-4")),
        "repeats": ends(repeated, "+.3f"),
        "figure": Drawing(
            "decide.svg", "Validation loss against the KV cache, software manuals",
            "share of the KV cache", "bits per target token", series, zero="8 standard heads",
            names={0.125: "1/8", 0.25: "1/4", 0.5: "1/2", 0.5625: "", 0.625: "5/8", 1: "1"},
        ),
        "made": "\n".join(
            f"- {what}: {sources(part)[2:]}".replace("\n- ", "; ")
            for what, part in (
                ("trained", [run for run in found if run["stage"] in TRAINED]),
                ("converted, fine-tuned", [run for run in found if run["stage"] not in TRAINED]),
            )
        ),
    }  # fmt: skip


# ---- prices.md -----------------------------------------------------------------------------------

KINDS = {
    "latent": "latent",
    "own": "shared key, own queries",
    "grouped-query": "grouped query",
    "separate": "separate keys",
    "heads": "heads removed",
}
STEPS = {
    "weights": "weights alone",
    "inputs": "inputs of keys and values",
    "both": "both sides of the scores",
    "read": "values as heads read them",
    "fisher": "Fisher information (prices)",
}
CHOICES = {
    "price": ["price"],
    "importance, no norm": ["importance"],
    "importance, norm 1 in each layer": ["normalised"],
    "random, mean of three": ["random 1", "random 2", "random 3"],
}
#: What was converted and then fine-tuned.
TUNED = {
    "latent-4": "latent",
    "latent-8": "latent",
    "own-4": "shared key, own queries",
    "grouped-2": "grouped query",
    "grouped-4": "grouped query",
    "heads-3": "16 of 48 heads removed",
    "heads-2": "24 of 48 heads removed",
}


def by_group(models: Runs) -> dict[str, Runs]:
    """Models that differ in the seed alone."""
    groups: dict[str, Runs] = defaultdict(list)
    for model in models:
        groups[model["group"]].append(model)
    return groups


def lost(models: Runs, **row: Any) -> float | None:
    """The mean loss of one row over the models that have it."""
    found = [
        one["lost"]
        for model in models
        for one in model["rows"]
        if all(one.get(key) == value for key, value in row.items())
    ]
    return mean(found)


def ends(numbers: Sequence[float], spec: str = ".2f") -> str:
    """``0.94 to 0.99``, or the one number."""
    return " to ".join(dict.fromkeys(num(end(numbers), spec) for end in (min, max)))


def prices() -> Content:
    models = load("prices")["models"]
    groups = by_group(models)
    agreement = [
        [
            label,
            *(
                _agreement([model["agreement"][kind] for model in group])
                for group in groups.values()
            ),
        ]
        for kind, label in KINDS.items()
    ]
    correlations = [
        one["spearman"]
        for model in models
        for one in model["agreement"].values()
        if one["changes"] > 3
    ]
    shares = {"latent": [0.25, 0.125], "own": [0.625, 0.5625], "grouped-query": [0.5, 0.25]}
    cache = [
        [KINDS[kind], share, *(_cache_cell(group, kind, share) for group in groups.values())]
        for kind, of in {**shares, "separate": [0.625]}.items()
        for share in of
    ]
    columns = [(kind, share) for kind in ("latent", "own") for share in (0.25, 0.125)]
    columns += [("full", 0.25), ("diagonal", 0.25)]
    ladder = [
        [
            label if not number else "",
            name,
            *(
                num(lost(group, what="ladder", weighting=step, kind=kind, share=share), ".3f")
                for kind, share in columns
            ),
        ]
        for step, label in STEPS.items()
        for number, (name, group) in enumerate(groups.items())
        if lost(group, what="ladder", weighting=step) is not None
    ]
    heads = [
        [
            name if not number else "",
            label,
            *(_heads_cell(group, of, share) for share in (1 / 6, 1 / 3, 1 / 2, 2 / 3)),
        ]
        for name, group in groups.items()
        for number, (label, of) in enumerate(CHOICES.items())
    ]
    names = [f"{name} ({len(group)})" for name, group in groups.items()]
    quarters = [lost([model], what="spread", kind="latent", cache=0.25) or 0 for model in models]
    return {
        "models": models,
        "losses": "; ".join(
            f"{name} {', '.join(num(model['valid_bits'], '.3f') for model in group)}"
            for name, group in groups.items()
        ),
        "least": num(min(correlations), ".3f"),
        **_single(models),
        "dearer": _dearer(models),
        "norm": interval(gain_of(_beyond(models, "normalised", 1 / 2)), "+.2f"),
        "importance": interval(gain_of(_beyond(models, "importance", 1 / 2)), "+.2f"),
        "separate_factors": ends(
            [model["agreement"]["separate"]["factor"][1] for model in models], ".1f"
        ),
        "quarter_256": _quarter(groups["Multi30k, d = 256"]),
        "quarter_manuals": _quarter(groups["software manuals, d = 128"]),
        "quarter_enja": _quarter(groups["English-Japanese, d = 128"]),
        "factors": ends(
            [
                one["factor"][1]
                for model in models
                for kind, one in model["agreement"].items()
                if kind != "separate"
            ],
            ".1f",
        ),
        "below": sum(one < 0.9 for one in correlations),
        "correlations": len(correlations),
        "quarters": ends(quarters, ".3f"),
        "agreement": grid(["kind: rank correlation; measured / predicted", *names], agreement),
        "cache": grid(["kind", "KV cache", *names], cache),
        "ladder": table(
            "errors weighted by | models | latent 1/4 | 1/8 | own 1/4 | 1/8 | full 1/4 | "
            "diagonal 1/4",
            ladder,
            left=[0, 1],
        ),
        "heads": table("models | heads removed by | 1/6 | 1/3 | 1/2 | 2/3", heads, left=[0, 1]),
        "tuned": _tuned(),
        "commits": ", ".join(
            dict.fromkeys(text[:7] for model in models for text in model["commit"].split(", "))
        ),
        "dates": ", ".join(sorted({model["date"] for model in models})),
        "predicted_figure": Drawing(
            "prices_predicted.svg",
            "Loss of single changes and of whole models, predicted and measured",
            "predicted (bits per target token)",
            "measured (bits per target token)",
            {
                label: _losses(models, "price", kind, "alone", "even", "spread", "heads")
                for kind, label in KINDS.items()
                if kind != "separate"
            },
            scatter=True,
        ),
        "cache_figure": Drawing(
            "prices_cache.svg",
            "Loss of converted models without training, against the KV cache that is left",
            "share of the KV cache",
            "validation loss (bits per target token)",
            {},
            zero="the trained model",
            panels={
                f"{name} (n = {len(group)})": {
                    f"{KINDS[kind]}, {what}": _losses(group, "cache", kind, what)
                    for kind in ("latent", "grouped-query", "own", "separate")
                    for what in ("spread", "even")[kind == "separate" :]
                }
                for name, group in groups.items()
            },
            names={0.125: "1/8", 0.1875: "3/16", 0.25: "1/4", 0.5: "1/2", 0.5625: "9/16",
                   0.625: "5/8", 0.75: "3/4"},
            log=False,
            log_y=True,
        ),
    }  # fmt: skip


def _single(models: Runs) -> dict[str, str]:
    """Changes of single attentions, by kind.

    Rank correlations of losses with prices, and with size alone; how many lose less than predicted.
    """
    rows = where(models[0]["rows"], what="alone")
    by_price, by_size, below = [], [], []
    for kind in ("latent", "own", "grouped-query", "heads"):
        of = where(rows, kind=kind)
        losses = [one["lost"] for one in of]
        by_price.append(spearmanr([one["price"] for one in of], losses).statistic)
        below.append(sum(one["lost"] < one["price"] for one in of))
        if kind != "heads":
            by_size.append(-spearmanr([sum(one["sizes"].values()) for one in of], losses).statistic)
    return {"single": ends(by_price), "single_size": ends(by_size), "below_price": ends(below, "d")}


def _dearer(models: Runs) -> tuple[int, int]:
    """How often spread widths lose more than even ones, of all comparisons."""
    pairs = [
        (one["lost"], lost([model], what="even", kind=one["kind"], cache=one["cache"]) or 0)
        for model in models
        for one in model["rows"]
        if one["what"] == "spread" and max(one["lost"], one["price"]) > 1e-6
    ]
    return sum(spread > even for spread, even in pairs), len(pairs)


def _beyond(models: Runs, choice: str, share: float) -> list[float]:
    """What a choice of heads loses beyond that by price, by model."""
    of = {"what": "heads", "removed": share}
    pairs = [
        (lost([one], choice=choice, **of), lost([one], choice="price", **of)) for one in models
    ]
    return [(a or 0) - (b or 0) for a, b in pairs]


def _quarter(models: Runs) -> str:
    losses = [lost([one], what="spread", kind="latent", cache=0.25) or 0 for one in models]
    return interval(gain_of(losses), "+.3f")


def _agreement(found: Runs) -> str:
    factor = ends([one["factor"][1] for one in found])
    if found[0]["changes"] < 4:
        return factor
    return f"{ends([one['spearman'] for one in found])}; {factor}"


def _cache_cell(group: Runs, kind: str, share: float) -> str:
    cells = [num(lost(group, what="even", kind=kind, cache=share), ".3f")]
    if kind != "separate":
        cells.append(f"**{num(lost(group, what='spread', kind=kind, cache=share), '.3f')}**")
    return " / ".join(cells)


def _heads_cell(group: Runs, choices: list[str], share: float) -> str:
    removed = float(f"{share:.6g}")  # as the file has it
    found = (lost(group, what="heads", choice=choice, removed=removed) for choice in choices)
    return num(mean(one for one in found if one is not None), ".3f")


def _losses(models: Runs, x: str, kind: str, *of: str) -> dict[float, list[float]]:
    """Losses of a kind's changes, by price or cache, without those near 0."""
    found: dict[float, list[float]] = defaultdict(list)
    for one in (row for model in models for row in model["rows"]):
        drawn = one["kind"] == kind and one["what"] in of
        if drawn and one["lost"] > 1e-4 and (one[x] or 0) > 1e-4:
            found[one[x]].append(one["lost"])
    return found


def tuned_rows(name: str) -> tuple[Runs, Runs]:
    """The runs of a conversion without training and fine-tuned, with what they lost."""
    found = load("prices")["tuned"]
    return tuple(where(found, name=name, training=training) for training in (False, True))  # type: ignore[return-value]


def _tuned() -> str:
    rows = []
    controls = tuned_rows("plain")
    for name, label in TUNED.items():
        sides = list(zip(tuned_rows(name), controls, strict=True))
        cache, *_ = sizes(*sides[0])
        scored = ("valid_bits", "chrf", "bleu")
        cells = [difference(*side, score) for score in scored for side in sides]
        rows.append([label, cache, *cells])
    titles = " | ".join(
        f"{score}, {n}" for score in ("bits", "chrF", "BLEU") for n in ("no training", "250")
    )
    return table(f"converted model | KV cache | {titles}", rows)


# ---- shared_keys.md ------------------------------------------------------------------------------

QUERIES = {
    "standard": "standard heads",
    "separate": "separate keys",
    "diagonal": "shared, diagonal",
    "full": "shared, full",
    "own": "shared, own",
    "own, fairseq's start": "shared, own, fairseq's start",
}
SHARED, SEPARATE = "collab_diagonal", "concatenated"


def of_width(folder: str, method: str, width: int) -> Runs:
    return runs("shared_keys", "widths", folder=folder, method=method, key_dim=width)


def query_runs(folder: str) -> Runs:
    """Runs with ``queries``: those of the page's own file, and those that both questions need."""
    found = [dict(run) for run in load("shared_keys")["runs"] if run["folder"] == folder]
    names = {run["queries"] for run in found}
    for run in load("shared_keys")["widths"]:
        d = {"large": 256, "manuals": 128}.get(folder)
        if run["folder"] == folder and d and run["key_dim"] in (d, d // 4):
            narrow = "separate" if run["key_dim"] < d else "standard"
            queries = "diagonal" if run["method"] == SHARED else narrow
            if queries not in names:
                found.append({**run, "queries": queries})
    return sorted(found, key=lambda run: run["seed"])


def query_table(folder: str, d: int) -> list[list[str]]:
    found = query_runs(folder)
    standard = where(found, queries="standard", key_dim=d)
    score = "valid_bits" if all("valid_bits" in run for run in found) else "valid_loss"
    rows = []
    for queries, name in QUERIES.items():
        ours = [run for run in found if run["queries"] == queries and run["key_dim"] in (d // 4, d)]
        ours = [run for run in ours if (run["key_dim"] == d) == (queries == "standard")]
        if ours:
            against = ["", "", ""] if queries == "standard" else scores(ours, standard, score)
            rows.append([name, ours[0]["key_dim"], len(ours), average(ours, score), *against])
    return rows


def key_widths() -> tuple[list[list[str]], list[float | None], list[float]]:
    """Shared and separate keys: rows, p-values, and differences of all pairs."""
    rows, p, pairs = [], [], []
    for d, folder in ((128, "main"), (256, "large")):
        for part, name in PARTS.items():
            width = int(d * part)
            shared, separate = (of_width(folder, kind, width) for kind in (SHARED, SEPARATE))
            found = gain(shared, separate, "valid_loss")
            p.append(found.p)
            pairs += [
                one["valid_loss"] - pick(separate, seed=one["seed"])["valid_loss"] for one in shared
            ]
            rows.append(
                [d, f"{name}: {width}", *(average(of, "valid_loss") for of in (shared, separate))]
            )
            rows[-1] += scores(shared, separate)
    return rows, p, pairs


def shared_keys() -> Content:
    rows, p, pairs = key_widths()
    series: dict[str, dict[float, list[float]]] = {
        f"{name}, d = {d}": {
            part: gains(
                of_width(folder, kind, int(d * part)), of_width(folder, SEPARATE, d), "valid_loss"
            )
            for part in PARTS
        }
        for name, kind in (("shared keys, diagonal", SHARED), ("separate keys", SEPARATE))
        for d, folder in ((128, "main"), (256, "large"))
    }
    header = "heads | key width | seeds | loss | loss, difference (95%) | chrF | BLEU"
    small = query_runs("scratch")
    standard = where(small, queries="standard", key_dim=128)
    eight = runs("shared_keys", "widths", folder="long", method=SHARED)
    eight_standard = runs("shared_keys", "widths", folder="long", method=SEPARATE)
    costs = []
    for queries in ("standard", "diagonal", "full", "own"):
        width = 128 if queries == "standard" else 32
        one = where(small, queries=queries, key_dim=width)[0]
        costs.append([QUERIES[queries], num(one["parameters"]), num(one["multiply_adds"])])
    return {
        "pairs": len(pairs),
        "wins": sum(one < 0 for one in pairs),
        "sizes": f"{-max(pairs):.3f} to {-min(pairs):.3f}",
        "widths": table("d | key width | loss, shared | loss, separate | "
        "loss, difference (95%) | chrF | BLEU",
            rows, left=[1],
        ),
        "significant": sum((one or 1) < 0.05 for one in p),
        "after_holm": sum((one or 1) < 0.05 for one in holm(p)),
        "figure": Drawing(
            "shared_keys.svg", "Validation loss against key width, trained from scratch",
            "key width, as a share of d", "smoothed loss (bits per token)",
            series, zero="standard heads", names=PARTS,
        ),
        **{
            queries: difference(where(small, queries=queries, key_dim=32), standard, "valid_bits")
            for queries in ("diagonal", "full", "own")
        },
        "xavier": difference(
            where(small, queries="own, fairseq's start"), standard, "valid_bits"
        ),
        "xavier_block": difference(
            where(small, queries="own, fairseq's start"),
            where(small, queries="own", key_dim=32),
            "valid_bits",
        ),
        "full_diagonal": difference(
            where(small, queries="full", key_dim=32),
            where(small, queries="diagonal", key_dim=32),
            "valid_bits",
        ),
        "eight": difference(eight, eight_standard),
        "twice": difference(
            runs("shared_keys", "widths", folder="large_twice", method=SHARED),
            runs("shared_keys", "widths", folder="large_twice", method=SEPARATE),
        ),
        "eight_bleu": difference(eight, eight_standard, "bleu"),
        "small_table": table(header, query_table("scratch", 128)),
        "large_table": table(header, query_table("large", 256)),
        "manuals_table": table(header, query_table("manuals", 128)),
        "enja_table": table(header, query_table("enja", 128)),
        "costs": table("d = 128, 4 heads, K = 32 of 128 | parameters | multiply-adds", costs),
        "sources": sources([*load("shared_keys")["runs"], *load("shared_keys")["widths"]]),
    }  # fmt: skip


# ---- heads.md ------------------------------------------------------------------------------------

#: Ways to remove heads, and the folders of their runs and of the model with all heads.
WAYS = {
    "gates, then 1,000 updates": ("tuned", "tuned"),
    "price, then 2,000 updates": ("priced", "tuned"),
    "early in training, by importance": ("early", "scratch"),
    "the gates' shape from scratch": ("scratch", "scratch"),
}
FOLDERS = {folder for pair in WAYS.values() for folder in pair}
WAYS_OF_RELATIONS = ("dependent->head", "head->dependent")
COUNTS = {"all-0.01": "34 and 30 left", "all-0.03": "21 left", "all-0.1": "9 and 7 left"}


def heads() -> Content:
    pruned = load("heads")["pruning"]
    removed = []
    for name, (folder, base) in WAYS.items():
        whole = where(pruned, folder=base, method="all-0")
        cells = []
        for method in COUNTS:
            ours = [run for run in pruned if (run["folder"], run["method"]) == (folder, method)]
            ours = sorted(ours, key=lambda run: run["seed"])
            cells.append(by_seed(ours, "valid_loss") or "-")
            pairs = [(one, pick(whole, seed=one["seed"])) for one in ours]
            for score, spec in (("valid_loss", "+.3f"), ("bleu", "+.2f")):
                changes = ", ".join(num(a[score] - b[score], spec) for a, b in pairs)
                cells.append(changes or "-")
        removed.append([name, *cells])
    titles = [
        f"{count}: {score}" for count in COUNTS.values() for score in ("loss", "change", "BLEU")
    ]
    groups = load("heads")["groups"]
    tuned = where(groups, folder="tuned")
    whole, chance = (where(tuned, method=one) for one in ("concatenated", "grouped_random"))
    stay = []
    for method, name, trained in (
        ("grouped_pruned", "elected, one per group", "in 2 groups"),
        ("grouped_important", "most important", "standard"),
        ("grouped_random", "random", "standard"),
    ):
        ours = where(groups, folder="tuned", method=method)
        rest = ["-"] if ours == chance else [difference(ours, chance)]
        stay.append([name, trained, *scores(ours, whole), *rest])
    elected = where(groups, folder="tuned", method="grouped_pruned")
    found = load("heads")
    whole_bleu = pick(found["points"], curve="encoder", removed=0)["bleu"]
    free = {
        kind: max(
            one["removed"] for one in found["points"]
            if one["curve"] == kind and one["bleu"] >= whole_bleu - 0.25
        )
        for kind in ("encoder", "decoder", "cross")
    }  # fmt: skip
    relations = [
        [
            name, num(ways["dependent->head"]["pairs"]),
            *(num(100 * ways[way]["best"], ".1f") for way in WAYS_OF_RELATIONS),
            num(100 * ways["dependent->head"]["fixed"], ".1f"),
        ]
        for name, ways in found["relations"].items()
    ]  # fmt: skip
    return {
        "removed": grid(["heads removed by", *titles], removed),
        "stay": table("which 2 of 8 heads stay | heads trained | loss, against all 8 (95%) | "
        "chrF | BLEU | loss, against random (95%)",
            stay, left=[0, 1],
        ),
        "elected": difference(elected, whole),
        "elected_random": difference(elected, chance),
        "important_random": difference(where(tuned, method="grouped_important"), chance),
        "training_in_groups": difference(
            where(groups, folder="trained", method="grouped"),
            where(groups, folder="trained", method="concatenated"),
        ),
        "free": free,
        "bleu": num(whole_bleu, ".2f"),
        "relations": table("relation | pairs | best head, to the governor (%) | "
        "best head, to the dependent (%) | best fixed distance (%)",
            relations,
        ),
        "found": found,
        "hardware": found["hardware"].replace(" a training", ""),
        "sentences": num(found["sentences"]),
        "pruned_sources": sources(run for run in pruned if run["folder"] in FOLDERS),
        "group_sources": sources(groups),
    }  # fmt: skip


# ---- pretrained.md -------------------------------------------------------------------------------


def pretrained() -> Content:
    found = load("pretrained")
    trained = pick(found["runs"], query="trained")
    names = {"separate": "separate keys", "diagonal": "shared keys, diagonal",
             "full": "shared keys, full", "own": "shared keys, own queries"}  # fmt: skip

    def against(run: dict[str, Any]) -> str:
        low, high = (num(end, "+.2f") for end in run["interval"])
        return f"{num(run['spearman'] - trained['spearman'], '+.2f')} ({low} to {high})"

    rows = [
        [
            names.get(run["query"], "as trained"), run["key_dim"], num(run["spearman"], ".2f"),
            "" if run is trained else against(run), num(run["weights"]), num(run["multiply_adds"]),
            "" if run is trained else num(run["seconds"], ".0f"),
        ]
        for run in found["runs"]
    ]  # fmt: skip
    words = {"inputs": "inputs of both sides", "states": "effect on the states of tokens",
             "vectors": "effect on sentence vectors"}  # fmt: skip
    weighted = []
    for size in (96, 48):
        for weights, widths in (
            ("inputs", "even"), ("states", "even"), ("states", "spread"), ("vectors", "even")
        ):  # fmt: skip
            of = where(found["weightings"], key_dim=size, weights=weights, widths=widths)
            cells = [by_seed(of, score) for score in ("spearman", "error")]
            weighted.append([words[weights], widths, size, *cells])
    quarter, eighth = (pick(found["runs"], query="own", key_dim=size) for size in (96, 48))
    return {
        "found": found,
        "trained": num(trained["spearman"], ".2f"),
        "quarter": num(quarter["spearman"], ".2f"),
        "eighth": num(eighth["spearman"], ".2f"),
        "quarter_lost": against(quarter),
        "eighth_lost": against(eighth),
        "table": table("heads | key width K | Spearman x 100 | against trained (95%) | "
        "weights of queries and keys | multiply-adds per token | CPU seconds",
            rows,
        ),
        "weighted": table("errors weighted by | widths | key width K (mean) | "
        "Spearman x 100 | error of vectors",
            weighted, left=[0, 1],
        ),
        "ends": {
            size: " to ".join(num(end, "+.2f") for end in found["former"][str(size)])
            for size in (96, 48)
        },
        "figure": Drawing(
            "pretrained.svg", "Quality against key width, without training (all-MiniLM-L6-v2)",
            "key width, as a share of d", "Spearman correlation x 100",
            {name: {run["key_dim"]: [run["spearman"] - trained["spearman"], *run["interval"]]
                    for run in where(found["runs"], query=query)}
             for query, name in names.items()},
            zero="the trained model", bars=True,
            names={48: "an eighth", 96: "a quarter", 192: "half"},
        ),
    }  # fmt: skip


# ---- speed.md ------------------------------------------------------------------------------------

HEADS = ("standard heads", "shared keys, d/4")
NATURAL, FIXED = "natural lengths, beam 5, batch 64", "fixed length 30, beam 5, batch "


def ratio(preset: str, name: str, task: str, case: str = "") -> str:
    """Times as fast as stock fairseq, in two runs."""
    found = {
        num(one["ratio"], ".2f")
        for run in load("speed")["runs"][:2]
        for one in where(run["records"], preset=preset, heads=name, task=task, engine="ours")
        if one["case"].startswith(case)
    }
    return " to ".join(sorted(found))


def plain(hardware: str) -> str:
    for words in ("(R)", " Processor", " a training"):
        hardware = hardware.replace(words, "")
    return hardware


LENGTHS = (32, 128, 512, 2048)


def by_length(beam: int) -> list[list[str]]:
    """Times as fast as stock fairseq in the same run, by length; memory at the greatest length."""
    measured: dict[str, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for run in load("speed")["lengths"]:
        records = [one for one in run["records"] if one["beam"] == beam]
        stock = {one["length"]: one["seconds"] for one in records if one["kind"] == STOCK}
        for one in records:
            measured[one["kind"]][one["length"]].append(
                (stock[one["length"]] / one["seconds"], one["seconds"], one["memory"], one["cache"])
            )
    rows = []
    for kind, lengths in measured.items():
        ratios = [ends([one[0] for one in lengths[n]]) for n in LENGTHS]
        _, seconds, memory, cache = lengths[LENGTHS[-1]][0]
        sizes_ = (num(1000 * seconds, ".1f"), num(memory / 1024, ".1f"), num(cache / 1024, ".1f"))
        rows.append([beam, kind, *ratios, *sizes_])
    return rows


STOCK = "stock fairseq"


def slower_steps() -> list[float]:
    """A step's time with latents at a quarter, in that of standard heads, at 128 and 512 tokens."""
    found = []
    for run in load("speed")["lengths"]:
        times = {
            (one["kind"], one["beam"], one["length"]): one["seconds"] for one in run["records"]
        }
        found += [
            seconds / times["standard heads", beam, length]
            for (kind, beam, length), seconds in times.items()
            if kind == "latent, a quarter" and length in (128, 512)
        ]
    return found


def speed() -> Content:
    *pairs, engines = load("speed")["runs"]
    records = engines["records"]
    tasks = (
        ("translation of a test set, batches of 64", "256; 128", "trained", "translation", NATURAL),
        ("translation of 30 tokens, batch of 64", "256", "multi30k", "translation", ""),
        ("translation of 30 tokens, batch of 16", "512", "wmt_en_de", "translation", ""),
        ("training update, 2,048 tokens", "256", "multi30k", "training", ""),
        ("training update, 1,000 tokens", "512", "wmt_en_de", "training", ""),
    )
    names = ("ours", "CTranslate2 float32", "CTranslate2 int8")
    cases = (("trained", NATURAL, "test set, batches of 64"),
             ("multi30k", f"{FIXED}64", "d = 256, batch of 64"),
             ("wmt_en_de", f"{FIXED}16", "d = 512, batch of 16"))  # fmt: skip
    next_to = [
        [name, label, *(
            num(pick(records, preset=preset, heads=name, case=case, engine=engine)["ratio"], ".2f")
            for engine in names
        )]
        for name in HEADS for preset, case, label in cases
    ]  # fmt: skip

    def ahead(name: str, case: str) -> str:
        found = where(records, preset="trained", heads=name, case=case)
        ours, theirs = (pick(found, engine=one)["ratio"] for one in ("ours", "CTranslate2 float32"))
        return num(theirs / ours, ".2f")

    lead = [
        [
            name,
            beam,
            *(ahead(name, f"natural lengths, beam {beam}, batch {n}") for n in (1, 16, 64)),
        ]
        for name in HEADS
        for beam in (1, 5)
    ]
    lengths = load("speed")["lengths"]
    return {
        "lengths": table(
            "beam | heads | 32 tokens | 128 | 512 | 2,048 | ms a step, 2,048 | peak GiB | "
            "cache, GiB",
            [row for beam in (1, 5) for row in by_length(beam)],
            left=[1],
        ),
        "lengths_made": "; ".join(
            dict.fromkeys(
                f"{run['date']}, commit {run['commit'][:7]}, {run['hardware']}, torch "
                f"{run['versions']['torch']}" for run in lengths
            )
        ),
        "trained": [ratio("trained", name, "translation", NATURAL) for name in HEADS],
        "third": next_to[0][2],
        "training": [ratio("multi30k", name, "training") for name in HEADS],
        "ratios": grid(
            ["times as fast as stock fairseq, in two runs", "d", *HEADS],
            [[label, d, *(ratio(preset, name, task, case) for name in HEADS)]
             for label, d, preset, task, case in tasks],
        ),
        "next_to": grid(["heads", "translation, beam 5", *names], next_to, left=[0, 1]),
        "lead": table("heads | beam | batch of 1 | batch of 16 | batch of 64", lead),
        "made": "\n".join(
            f"- {run['date']}, commit {run['commit']}, "
            + plain(run["hardware"])
            + f", torch {run['versions']['torch']}"
            + (f", CTranslate2 {run['ctranslate2']}" if run.get("ctranslate2") else "")
            + f", {run['seconds'] / 60:.0f} minutes."
            for run in (*pairs, engines)
        ),
    }  # fmt: skip


# ---- README.md, docs/choose.md -------------------------------------------------------------------


SIDES = ("target", "source")


def cache_of(run: dict[str, Any]) -> int:
    """Bytes of a target token in self-attention and of a source token in cross-attention."""
    sides = (f"{what}_bytes_per_{side}_token" for what in ("key", "value") for side in SIDES)
    return sum(run[field] for field in sides)


def sizes(ours: Runs, theirs: Runs) -> list[str]:
    """KV cache, parameters and multiply-adds, against those of standard heads: three cells."""

    def share(of: Callable[[dict[str, Any]], float]) -> float:
        return sum(map(of, ours)) / len(ours) / of(theirs[0])

    changes = (share(operator.itemgetter(what)) - 1 for what in ("parameters", "multiply_adds"))
    return [
        num(100 * share(cache_of), ".1f").removesuffix(".0") + "%",
        *(num(100 * one, "+.0f") + "%" for one in changes),
    ]


#: What exports and readers should know of each kind: cache in CTranslate2, verdict trained, new.
FULL_SIZE, NARROW = "no: full size", "yes"


def row_of(start: str, kind: str, *rest: str) -> list[str]:
    """A kind of heads next to standard heads: converted without training, or trained anew."""
    ours = decided("converted" if start == "trained" else "scratch", kind)
    ours, theirs = pairs_of(ours, decided("scratch", "standard"))
    differences = (difference(ours, theirs, score) for score in ("valid_bits", "bleu"))
    return [start, DECIDED[kind], *sizes(ours, theirs), *differences, str(len(ours)), *rest]


def trained_models() -> dict[str, list[str]]:
    """Rows of trained models, and the options of the command."""
    kinds = {
        "--to latent --cache 0.25": (
            "latent-4",
            FULL_SIZE,
            "slower steps (H100)",
        ),
        "--to latent --cache 0.125": ("latent-8", FULL_SIZE, "a large loss"),
        "--cache 0.625": ("own-4", FULL_SIZE, "shrinks keys, not values"),
        "--to grouped-query --cache 0.5": ("grouped-2", NARROW, "for CTranslate2"),
        "prune --remove-share 0.3334": ("heads-3", NARROW, "fewer weights"),
        "prune --remove-share 0.5": ("heads-2", NARROW, "a large loss"),
    }
    return {option: row_of("trained", *kind) for option, kind in kinds.items()}


def new_models() -> dict[str, list[str]]:
    """Rows of models trained from scratch, and the options of ``fairseq-train``."""
    query = "transformer_grouped_query --key-value-heads"
    kinds = {
        "transformer_collab --query-mixing own": (
            "own",
            FULL_SIZE,
            "not distinguished from 4 standard heads",
        ),
        "transformer_collab --query-mixing full": (
            "full",
            FULL_SIZE,
            "higher loss than own queries",
        ),
        f"{query} 4": ("grouped-2", NARROW, "for CTranslate2"),
        f"{query} 2": ("grouped-4", NARROW, "for CTranslate2"),
        "transformer_latent --latent-dim 64 --latent-dim-in-encoder 128": (
            "latent-4",
            FULL_SIZE,
            "higher loss than converted",
        ),
        "transformer_latent --latent-dim 32 --latent-dim-in-encoder 128": (
            "latent-8",
            FULL_SIZE,
            "higher loss than converted",
        ),
    }
    four, standard = four_heads(), decided("scratch", "standard")
    cells = (difference(four, standard, score) for score in ("valid_bits", "bleu"))
    first = [
        "new",
        FOUR,
        *sizes(four, standard),
        *cells,
        str(len(four)),
        "-",
        "the baseline to beat",
    ]
    return {
        "transformer_headsize_n --encoder-attention-heads 4": first,
        **{option: row_of("new", *kind) for option, kind in kinds.items()},
    }


TITLES = (
    "start | method | KV cache | parameters | multiply-adds | loss (bits) | BLEU | models "
    "| small cache in CTranslate2, too? | verdict"
)


#: Options of the rows on the front page.
ON_FRONT = (
    "--to latent --cache 0.25",
    "--to grouped-query --cache 0.5",
    "prune --remove-share 0.3334",
    "transformer_headsize_n --encoder-attention-heads 4",
    "transformer_collab --query-mixing own",
    "transformer_latent --latent-dim 64 --latent-dim-in-encoder 128",
    "transformer_grouped_query --key-value-heads 4",
)


def front() -> Content:
    content, keys = prices(), shared_keys()
    few = [row for option, row in trained_models().items() if option in ON_FRONT]
    new = [row for option, row in new_models().items() if option in ON_FRONT]

    def lost_by(name: str) -> str:
        return difference(*(tuned_rows(one)[0] for one in (name, "plain")), "valid_bits")

    memory = {
        one["kind"]: num(one["memory"] / 1024, ".1f")
        for run in load("speed")["lengths"]
        for one in run["records"]
        if (one["beam"], one["length"]) == (5, 2048)
    }
    return {
        **{
            name: content[name]
            for name in (
                "quarter_256",
                "single",
                "single_size",
                "separate_factors",
                "norm",
                "importance",
            )
        },
        "even": decided_loss("converted", "even-4"),
        "convert_quarter": decided_loss("converted", "latent-4"),
        "from_four": difference(
            decided("converted", "latent-4", heads=4),
            decided("repeat", "standard", heads=4),
            "valid_bits",
        ),
        "four_narrow": difference(
            decided("scratch", "latent-4", heads=4),
            decided("repeat", "standard", heads=4),
            "valid_bits",
        ),
        "convert_bleu": difference(
            decided("converted", "latent-4"), decided("scratch", "standard"), "bleu"
        ),
        "narrow_quarter": decided_loss("scratch", "latent-4"),
        "shape": decided_loss("scratch", "shape-latent-4"),
        "baseline": "{} bits, {} BLEU".format(
            *(
                average(decided("scratch", "standard"), score, spec)
                for score, spec in (("valid_bits", ".2f"), ("bleu", ".1f"))
            )
        ),
        "own": decided_loss("scratch", "own"),
        "full": decided_loss("scratch", "full"),
        "diagonal": decided_loss("scratch", "diagonal"),
        "four_heads": difference(four_heads(), decided("scratch", "standard"), "valid_bits"),
        **{
            f"{name}_to_four": difference(decided("scratch", kind), four_heads(), "valid_bits")
            for name, kind in (
                ("own", "own"),
                ("full", "full"),
                ("diagonal", "diagonal"),
                ("grouped", "grouped-2"),
                ("latent", "latent-4"),
            )
        },
        "steps": ends(slower_steps()),
        "own_four": keys["own"],
        "four_captions": four_on_captions(),
        "separate": decided_loss("scratch", "separate"),
        "third_manuals": decided_loss("converted", "heads-3"),
        "memory": [memory[kind] for kind in ("standard heads", "latent, a quarter")],
        "quarter_128": lost_by("latent-4"),
        "models": len(content["models"]),
        "least": content["least"],
        "factors": content["factors"],
        "third": lost_by("heads-3"),
        "found": table(TITLES, [*few, *new], left=(0, 1, 9)),
        "speed": [ratio("multi30k", name, "translation") for name in HEADS],
        "speed_512": ratio("wmt_en_de", HEADS[0], "translation"),
        "training_512": [ratio("wmt_en_de", name, "training") for name in HEADS],
        "speed_trained": ratio("trained", HEADS[0], "translation", NATURAL),
        "speed_training": ratio("multi30k", HEADS[0], "training"),
    }


def choose() -> Content:
    def rows(found: dict[str, list[str]]) -> str:
        lines = [[*row[1:], f"`{option}`"] for option, row in found.items()]
        titles = TITLES.removeprefix("start | ") + " | options"
        return table(titles, lines, left=(0, 8, 9))

    scores_ = {
        query: num(pick(load("pretrained")["runs"], query=query, key_dim=width)["spearman"], ".2f")
        for query, width in (("own", 96), ("trained", 384))
    }
    keys, front_ = shared_keys(), front()
    return {
        "new": rows(new_models()),
        "trained": rows(trained_models()),
        **{name: keys[name] for name in ("own", "full", "diagonal", "eight")},
        **{name: heads()[name] for name in ("elected_random", "important_random")},
        **{name: front_[name] for name in front_ if name.endswith("_to_four")},
        "separate": front_["separate"],
        "diagonal_manuals": front_["diagonal"],
        "encoder": scores_["own"],
        "encoder_trained": scores_["trained"],
    }


#: The page that each template makes, from the project's folder, and its numbers.
PAGES: dict[str, tuple[str, Callable[[], Content]]] = {
    "decide.md.j2": ("results/decide.md", decide),
    "prices.md.j2": ("results/prices.md", prices),
    "shared_keys.md.j2": ("results/shared_keys.md", shared_keys),
    "heads.md.j2": ("results/heads.md", heads),
    "pretrained.md.j2": ("results/pretrained.md", pretrained),
    "speed.md.j2": ("results/speed.md", speed),
    "README.md.j2": ("README.md", front),
    "choose.md.j2": ("docs/choose.md", choose),
}
