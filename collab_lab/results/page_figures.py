"""The figures of the pages of results, by file name, from ``results/*.json``."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from matplotlib.figure import Figure

from collab_lab.results.figure import draw
from collab_lab.results.page_data import (
    KINDS,
    PARTS,
    PRICED,
    SEPARATE,
    SHARED,
    Runs,
    cache_of,
    decided,
    gains,
    load,
    of_width,
    pick,
    where,
)


def decide() -> Figure:
    """Losses of all kinds against the cache, trained narrow and converted."""
    standard, four = decided("scratch", "standard"), decided("scratch", "standard", heads=4)
    series: dict[str, dict[float, list[float]]] = defaultdict(dict)
    for stage, how in (("converted", "converted"), ("scratch", "trained narrow")):
        for kind, name in KINDS.items():
            ours = decided(stage, kind)
            if ours and "heads" not in name and "even" not in name:
                share = round(cache_of(ours[0]) / cache_of(standard[0]), 4)
                label = f"{name.split(', K')[0]}, {how}"
                series[label][share] = gains(ours, standard, "valid_bits")
    series["4 standard heads"][1] = gains(four, standard, "valid_bits")
    return draw(
        series, "share of the KV cache", "bits per target token",
        "Validation loss against the KV cache, software manuals", zero="8 standard heads",
        names={0.125: "1/8", 0.25: "1/4", 0.5: "1/2", 0.5625: "", 0.625: "5/8", 1: "1"},
    )  # fmt: skip


def prices_predicted() -> Figure:
    """Measured against predicted losses."""
    models, changes = load("prices")["models"], ("alone", "even", "spread", "heads")
    kinds = {kind: name for kind, name in PRICED.items() if kind != "separate"}
    return draw(
        {name: _losses(models, "price", kind, *changes) for kind, name in kinds.items()},
        "predicted (bits per target token)", "measured (bits per target token)",
        "Loss of single changes and of whole models, predicted and measured", scatter=True,
    )  # fmt: skip


def cache() -> Figure:
    """Losses of converted models against the bytes of the cache."""
    kinds = {
        "latent, widths and bits": ("latent", "auto"),
        "latent, widths alone": ("latent", "none"),
        "grouped query, widths and bits": ("grouped-query", "auto"),
        "standard heads, bits alone": ("headsize", "auto"),
    }
    sizes = {row["d"]: None for row in load("cache")["rows"]}
    panels: dict[str, Any] = {}
    for d in sizes:
        rows = [row for row in load("cache")["rows"] if row["d"] == d and row["lost"] > 1e-4]
        series: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
        for name, of in kinds.items():
            for row in rows:
                if (row["what"], row["bits_option"]) == of:
                    series[name][row["share"]].append(row["lost"])
        panels[f"d = {d} (n = {len({row['model'] for row in rows})})"] = series
    [(name, only)] = panels.items() if len(panels) == 1 else [("", {})]
    return draw(
        only, "bytes, as a share of a 16-bit KV cache", "loss (bits per target token)",
        f"What a smaller KV cache costs, without training: Multi30k, 8 heads, {name}", log_y=True,
        panels=panels if len(panels) > 1 else None,
        names={1 / 32: "1/32", 1 / 24: "", 1 / 16: "1/16", 0.09375: "", 1 / 8: "1/8", 0.1875: "",
               1 / 4: "1/4", 0.28125: "", 1 / 2: "1/2", 0.53125: ""},
    )  # fmt: skip


def _losses(models: Runs, x: str, kind: str, *changes: str) -> dict[float, list[float]]:
    """Losses of a kind's changes, by price or cache, without those near 0."""
    found: dict[float, list[float]] = defaultdict(list)
    for one in (row for model in models for row in model["rows"]):
        drawn = one["kind"] == kind and one["what"] in changes
        if drawn and one["lost"] > 1e-4 and (one[x] or 0) > 1e-4:
            found[one[x]].append(one["lost"])
    return found


def shared_keys() -> Figure:
    """Losses of shared and separate keys against their width."""
    series: dict[str, Any] = {
        f"{name}, d = {d}": {
            part: gains(
                of_width(folder, kind, int(d * part)), of_width(folder, SEPARATE, d), "valid_loss"
            )
            for part in PARTS
        }
        for name, kind in (("shared keys, diagonal", SHARED), ("separate keys", SEPARATE))
        for d, folder in ((128, "main"), (256, "large"))
    }
    return draw(
        series, "key width, as a share of d", "smoothed loss (bits per token)",
        "Validation loss against key width, trained from scratch", zero="standard heads",
        names=PARTS,
    )  # fmt: skip


def pretrained() -> Figure:
    """Scores of a converted sentence encoder against key width."""
    found = load("pretrained")["runs"]
    trained = pick(found, query="trained")["spearman"]
    names = {"separate": "separate keys", "diagonal": "shared keys, diagonal",
             "full": "shared keys, full", "own": "shared keys, own queries"}  # fmt: skip
    return draw(
        {name: {run["key_dim"]: [run["spearman"] - trained, *run["interval"]]
                for run in where(found, query=query)} for query, name in names.items()},
        "key width, as a share of d", "Spearman correlation x 100",
        "Quality against key width, without training (all-MiniLM-L6-v2)",
        zero="the trained model", bars=True, names={48: "an eighth", 96: "a quarter", 192: "half"},
    )  # fmt: skip


FIGURES = {
    f"{one.__name__}.svg": one for one in (decide, prices_predicted, cache, shared_keys, pretrained)
}
