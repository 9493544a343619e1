"""Figures of the pages, by file, from ``results/*.json``: a function a figure."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean

from matplotlib.figure import Figure

from collab_lab.results.figure import draw
from results.data import (
    KEY_WIDTHS,
    MANUALS,
    SEPARATE,
    SHARED,
    WIDTHS,
    Runs,
    by,
    by_feed_forward,
    cache_of,
    decided,
    distilled,
    gains,
    is_simulated,
    load,
    long_rows,
    of_width,
)

#: Scores by x.
Points = dict[float, list[float]]


def decide() -> Figure:
    """Losses of all kinds against the cache, trained narrow and converted."""
    standard, series = decided("scratch", "standard"), defaultdict[str, Points](dict)
    for stage, how in (("converted", ", converted"), ("scratch", ", trained narrow")):
        for kind in ("own-4", "own-8", "full", "diagonal", "separate", "grouped-2",
                     "grouped-4", "latent-4", "latent-8", "shape-latent-4"):  # fmt: skip
            if ours := decided(stage, kind):
                share = round(cache_of(ours[0]) / cache_of(standard[0]), 4)
                label = ours[0]["name"].split(", K")[0] + how
                series[label][share] = gains(ours, standard, "valid_bits")
    four = decided("scratch", "standard, 4 heads")
    series["4 standard heads"][1] = gains(four, standard, "valid_bits")
    return draw(
        {"": series}, "share of the KV cache", "bits per target token",
        "Validation loss against the KV cache, software manuals", zero="8 standard heads",
        names={0.125: "1/8", 0.25: "1/4", 0.5: "1/2", 0.5625: "", 0.625: "5/8", 1: "1"},
    )  # fmt: skip


def losses(rows: Runs) -> Points:
    """Losses by cache, without those near 0."""
    drawn = [row for row in rows if row["lost"] > 1e-4]
    return {at: [row["lost"] for row in some] for at, some in by(drawn, "share").items()}


def cache() -> Figure:
    """Losses of converted models against the bytes of the cache."""
    names = ("latent, widths and bits", "latent, widths alone", "grouped query, widths and bits",
             "standard heads, bits alone")  # fmt: skip
    panels = {}
    for d, rows in by(load("cache")["rows"], "d").items():
        drawn, models = by(rows, "name"), by(rows, "model")
        panels[f"d = {d} (n = {len(models)})"] = {name: losses(drawn[name]) for name in names}
    return draw(
        panels, "bytes, as a share of a 16-bit KV cache", "loss (bits per target token)",
        "What a smaller KV cache costs, without training: Multi30k, 8 heads", log_y=True,
        names={1 / 32: "1/32", 1 / 24: "", 1 / 16: "1/16", 0.09375: "", 1 / 8: "1/8", 0.1875: "",
               1 / 4: "1/4", 0.28125: "", 1 / 2: "1/2", 0.53125: ""},
    )  # fmt: skip


def shared_keys() -> Figure:
    """Losses of shared and separate keys against their width."""
    series = {
        f"{name}, d = {d}": {
            part: gains(
                of_width(folder, kind, d * part), of_width(folder, SEPARATE, d), "test_bits"
            )
            for part in KEY_WIDTHS
        }
        for name, kind in (("shared keys, diagonal", SHARED), ("separate keys", SEPARATE))
        for folder, d in WIDTHS.items()
    }
    return draw(
        {"": series}, "key width, as a share of d", "test loss (bits per token)",
        "Test loss against key width, trained from scratch", zero="standard heads",
        names=KEY_WIDTHS,
    )  # fmt: skip


def long() -> Figure:
    """Rises of the loss against the position in the translation, of what long.md's table has."""
    ends = by(load("long")["models"], "model")[MANUALS][0]["parts"]
    names = {(a + b) / 2: f"{a:,} to {b:,}" for a, b in zip((0, *ends), ends, strict=False)}
    series = {
        row["name"]: {at: [rise] for at, rise in zip(names, row["by_part"], strict=True)}
        for row in long_rows(MANUALS)
        if min(row["by_part"]) > 1e-4 and not is_simulated(row)
    }
    return draw(
        {"": series}, "position in the translation (target tokens)",
        "loss (bits per target token)", "What a smaller KV cache costs in manuals, by position",
        log_y=True, names=names,
    )  # fmt: skip


def shrink() -> Figure:
    """Losses of smaller models against the layers' parameters that stay."""
    panels: dict[str, dict[str, Points]] = {}
    for size, rows in by_feed_forward().items():
        number, names = len(by(rows, "model")), by(rows, "name")
        for of, score in (("validation", "lost"), ("test", "lost_test")):
            series = panels.setdefault(f"{size}, {of} (n = {number})", {})
            for name, some in names.items():
                shares = by(some, "share").items()
                series[name] = {at: [row[score] for row in found] for at, found in shares}
    return draw(
        panels, "layers' parameters left", "loss (bits per target token)",
        "What fewer heads and units cost, without training: Multi30k", log_y=True,
        names={share: f"{100 * share:g}%" for share in (0.33, 0.49, 0.66, 0.825)},
    )  # fmt: skip


#: Models of distil.json after their last training; the whole model also before.
ROUTES = {
    "whole model": ("whole", "whole-text"),
    "cut for ONNX Runtime": ("cut-onnx-text", "cut-onnx-distilled"),
    "cut for CTranslate2": ("cut-ct2-text", "cut-ct2-distilled"),
    "small from the start": ("narrow-again-text", "narrow-again-distilled"),
    "two decoder layers": ("shallow-again-text", "shallow-again-distilled"),
}


def distil() -> Figure:
    """BLEU against milliseconds a sentence, of each way to a smaller model, in two engines."""
    panels = dict[str, dict[str, Points]]()
    for engine, title in (("onnx", "ONNX Runtime, int8"), ("ct2", "CTranslate2, int8")):
        panels[title] = {name: {} for name in ROUTES}
        for name, methods in ROUTES.items():
            for method in methods:
                rows = distilled(method, f"{engine}-int8")
                at = round(fmean(row["ms"] for row in rows), 3)
                panels[title][name][at] = [row["bleu"] for row in rows]
    return draw(
        panels, "milliseconds a sentence, batches of 32", "BLEU",
        "What a smaller model is worth, in seconds: Multi30k, d = 256", log=False,
    )  # fmt: skip


FIGURES = {f"{one.__name__}.svg": one for one in (decide, cache, distil, long, shared_keys, shrink)}
