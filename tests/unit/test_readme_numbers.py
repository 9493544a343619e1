"""The results that README.md states are those of ``results/``: its sentences, with numbers put in.

A sentence that the README no longer has is no longer to be listed here.  Not listed: what the first
demonstration took (time and BLEU of a fresh clone), which no file keeps.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from commands import REPOSITORY
from documents import README

from fairseq_collab.bench.targets import TARGETS, reached
from fairseq_collab.checkpoints.prune.curve import free_heads
from fairseq_collab.checkpoints.prune.curve_results import LOSS
from fairseq_collab.results.stored import table_of

FOLDER = REPOSITORY / "results"


@functools.cache
def load(name: str) -> Any:
    return json.loads((FOLDER / name).read_text())


@functools.cache
def readme() -> str:
    """The README with all white space as single spaces."""
    return " ".join(README.read_text().split())


def span(values: list[float], form: str = ".1f", to: str = " to ") -> str:
    """The least and the most, as one where they read the same."""
    texts = dict.fromkeys(f"{value:{form}}" for value in (min(values), max(values)))
    return to.join(texts)


# ---- translation, heads, groups ------------------------------------------------------------------


def reparametrised() -> list[str]:
    models = load("reparametrize_multi30k.json")["models"]
    bleu = {(model["method"], model["key_dim"]): f"{model['bleu']:.2f}" for model in models}
    d = 256
    return [
        f"On a Multi30k transformer of {bleu['trained', None]} BLEU, K = d/2 gives "
        f"{bleu['root', d // 2]} and d/4 {bleu['root', d // 4]} without any training",
        f"(TensorLy's plain decomposition: {bleu['tensorly', d // 2]} and "
        f"{bleu['tensorly', d // 4]};",
        f"and d/8 {bleu['root', d // 8]} (TensorLy {bleu['tensorly', d // 8]});",
        f"d/4 has {bleu['tuned-root', d // 4]} and d/8 {bleu['tuned-root', d // 8]}",
    ]


def collaborative() -> list[str]:
    found = load("multi30k_by_epoch.json")["evaluations"]
    bleu = {name: system["test"] for name, system in found.items()}
    behind = bleu["transformer"]["24"]["bleu"] - bleu["block"]["24"]["bleu"]
    block = bleu["block"]["16"]["bleu"] - bleu["xavier"]["16"]["bleu"]
    collab, concatenated = (mixed(f"{method}, key_dim=32") for method in ("collab", "concatenated"))
    return [
        f"{collab[0][0]:.1f} BLEU on Tatoeba (p = {collab[0][1]:.2f}) and {collab[1][0]:.1f} on "
        f"newstest2013 (p = {collab[1][1]:.3f}), where concatenated heads of that size lost "
        f"{concatenated[0][0]:.1f} and {concatenated[1][0]:.1f}",
        f"with a quarter of the key dimension were {behind:.1f} BLEU behind ordinary heads",
        f"({block:.1f} BLEU better on Multi30k in one run",
    ]


def mixed(label: str) -> list[tuple[float, float]]:
    """How far a row is behind ordinary heads of full size, with p: Tatoeba, newstest2013."""
    named = load("key_dim_mixed.json")["tables"]
    return [
        (-(found.mean or 0), found.p[0][1])
        for name in ("whole", "whole_newstest")
        for found in table_of(named[name]).differences
        if found.row.label == label
    ]


def grouped() -> list[str]:
    trained = table_of(load("grouped_heads_multi30k.json")["tables"]["trained"])
    behind = {found.row.label: f"{-(found.mean or 0):.1f}" for found in trained.differences}
    records = [
        record
        for path in FOLDER.glob("speed_grouped_run_*.json")
        for record in load(path.name)["records"]
        if record["against"].startswith("the same")
    ]
    update = [100 / r["ratio"] - 100 for r in records if r["measure"] == "update"]
    quarter = [r["ratio"] for r in records if "2 of 8 heads" in r["model"]]
    return [
        f"is {behind['grouped, head_groups=4']} BLEU behind ordinary heads with 4 groups and "
        f"{behind['grouped, head_groups=2']} with 2",
        f"The constraint costs {min(update):.0f} to {max(update):+.0f} % of an update",
        f"transformer base decodes {span(quarter, '.2f')} times as fast as with all",
    ]


def pruned() -> list[str]:
    points = [p for p in load("prune_curve_multi30k.json")["points"] if p["curve"] == "encoder"]
    free = free_heads([(p["removed"], p["bleu"]) for p in points], LOSS)
    return [f"{free} of {points[-1]['of']} encoder heads can go within {LOSS} BLEU"]


def prepared() -> list[str]:
    one_job = [row for row in load("data_prep.json")["stages"] if row["jobs"] == 1]
    rates = [r["lines_per_second"] for r in one_job if r["stage"].startswith("tokenise")]
    before, last = load("data_prep_memory.json")["texts"][-2:]
    a_word = (last["peak_bytes"] - before["peak_bytes"]) / (last["types"] - before["types"])
    two_million = last["peak_bytes"] + (2_000_000 - last["types"]) * a_word
    return [
        f"an extrapolated {two_million / 2**30:.1f} GiB for learning 40,000 merges from two "
        "million different words",
        f"By the speed measured on {load('data_prep.json')['pairs']:,} pairs "
        f"({round(min(rates), -3):,.0f} to {round(max(rates), -3):,.0f} lines/s of tokenising",
    ]


# ---- speed ---------------------------------------------------------------------------------------

HEADSIZE, QUARTER, EIGHTH = (
    "transformer_headsize_n d/H",
    "transformer_collab K=d/4",
    "transformer_collab K=d/8",
)
TRAINED = ("trained", "natural lengths, beam 5, batch 64")
CLOCK = ("trained", "fairseq-generate, its own clock")
UPDATES = ("multi30k", "batches of at most 2048 tokens, real sentences")
BASE = ("wmt_en_de", "fixed length 30, beam 5, batch 16")
LONG = ("d=512, H=8", "forward and backward, 2 sequences of length 2048")


def ratios(case: tuple[str, str], model: str, column: str = "default") -> list[float]:
    """Stock's seconds over the model's, in both runs."""
    return [
        record["ratio"]
        for number in (1, 2)
        for record in load(f"speed_run_{number}.json")["records"]
        if (record.get("preset"), record.get("case")) == case
        and (record["model"], record["against"]) == (model, "transformer")
        and record["column"] == column
    ]


def both(*found: list[float]) -> str:
    """``run 1 / run 2``, case by case."""
    return "; ".join(" / ".join(f"{ratio:.2f}" for ratio in runs) for runs in found)


def speed() -> list[str]:
    rows = {
        "translation, `transformer_headsize_n` at d/H": (TRAINED, HEADSIZE),
        "translation, `transformer_collab`, K = d/4": (TRAINED, QUARTER),
    }
    lines = [
        f"| {text} | {both(ratios(*what))} | {both(ratios(*what, 'same'))} |"
        for text, what in rows.items()
    ]
    clock = both(ratios(CLOCK, HEADSIZE), ratios(CLOCK, QUARTER))
    training = [
        both(*(ratios(UPDATES, model, column) for model in (HEADSIZE, QUARTER, EIGHTH)))
        for column in ("default", "same")
    ]
    memory = [target for target in TARGETS if target.part == "memory"]
    peaks = [
        reached(memory[0], load(f"speed_run_{number}.json")["records"], "default")
        for number in (1, 2)
    ]
    peak = both(*([run[f"multi30k, {model}"] for run in peaks] for model in (HEADSIZE, QUARTER)))
    base = {
        (model, column): span(ratios(BASE, model, column))
        for model in (HEADSIZE, QUARTER)
        for column in ("default", "same")
    }
    long = ratios(LONG, QUARTER)
    return [
        *lines,
        f"own clock, d/H; K = d/4 | {clock} | |",
        f"| training, d/H; K = d/4; K = d/8 | {training[0]} | {training[1]} |",
        f"d/H; K = d/4 (length 60) | {peak} | |",
        f"translation is {base[HEADSIZE, 'default']} (d/H) and {base[QUARTER, 'default']} "
        f"(K = d/4) times as fast, with stock's matrix library {base[HEADSIZE, 'same']} and "
        f"{base[QUARTER, 'same']}.",
        f"at 2,048 from K = d/4 up ({span(long)} times stock's speed)",
    ]


@pytest.mark.parametrize(
    "statements", [reparametrised, collaborative, grouped, pruned, prepared, speed]
)
def test_the_readme_states_what_was_found(statements: Any) -> None:
    missing = [text for text in statements() if text not in readme()]
    assert not missing, f"README.md does not say (or no longer): {missing}"
