"""Numbers with a decimal point in README, docs/choose.md and results/README.md are the results'.

A phrase below is a part of a line, with its numbers put in; a failure prints the phrase that the
page should have. What the phrases do not cover has no decimal point, or is in ``OTHERS``.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from commands import REPOSITORY
from documents import DOCS, README, prose

from collab_lab.results.pages import gain, interval, mean, num, pick, values, where

Runs = list[dict[str, Any]]
#: Versions, numbers of papers, and what no result measures: the demo's score, options.
OTHERS = (
    r"\d{4}\.\d{5}",  # arXiv
    r"Python 3\.\d+( to 3\.\d+)?",
    r"(fairseq|torch) (>= )?[\d.]+",
    r"`[^`]*`",
    r"1\.41 times",  # the square root of 2
    r"\d\.\d billion",  # tokens: tests/configs/test_papers.py
)
COUNTS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}


@functools.cache
def load(name: str) -> Any:
    return json.loads((REPOSITORY / "results" / f"{name}.json").read_text())


def runs(name: str, **values: Any) -> Runs:
    return where(load(name)["runs"], **values)


def seeds(found: Runs, what: str = "seed") -> str:
    return f"{COUNTS[len(found)]} {what}" + "s" * (len(found) > 1)


def bleu(ours: Runs, theirs: Runs) -> str:
    """``-0.40 (-0.95 to +0.15)``, over the seeds that both have."""
    common = {run["seed"] for run in ours} & {run["seed"] for run in theirs}
    return interval(
        gain(*([r for r in side if r["seed"] in common] for side in (ours, theirs)), "bleu")
    )


def less(ours: Runs, theirs: Runs, *fields: str) -> str:
    """By how many per cent the sum of some numbers is smaller: ``-75 %``."""
    small, large = (sum(runs[0][field] for field in fields) for runs in (ours, theirs))
    return f"{round(100 * small / large - 100):+} %".replace("+0 %", "0 %")


def cells(ours: Runs, theirs: Runs, *names: str, what: str = "seed") -> str:
    """Three cells: BLEU, what changes, how many seeds say so."""
    return f"| {bleu(ours, theirs)} | {changes(ours, theirs, *names)} | [{seeds(ours, what)}]("


def changes(ours: Runs, theirs: Runs, *names: str) -> str:
    fields = {
        "key cache": ("key_bytes_per_target_token",),
        "KV cache": ("key_bytes_per_target_token", "value_bytes_per_target_token"),
        "parameters": ("parameters",),
        "multiply-adds": ("multiply_adds",),
    }
    return ", ".join(f"{name} {less(ours, theirs, *fields[name])}" for name in names)


# ---- what the pages are about --------------------------------------------------------------------


def key_width() -> Iterable[str]:
    """Shared against separate keys, in pairs of one seed."""
    kinds, pairs = ("collab_diagonal", "concatenated"), []
    for folder, d in (("main", 128), ("large", 256), ("intel", 128)):
        of = functools.partial(runs, "key_dim_multi30k", folder=folder)
        for part in (1, 2, 4, 8):
            pairs += zip(*(of(method=kind, key_dim=d // part) for kind in kinds), strict=True)
        narrow = [of(method=kind, key_dim=d // p) for kind, p in zip(kinds, (4, 2), strict=True)]
        quarter, half = (mean(values(found, "valid_loss")) for found in narrow)
        assert quarter < half  # "a shared quarter has a lower loss than a separate half"
    assert all(a["seed"] == b["seed"] for a, b in pairs)
    assert all(a["valid_loss"] < b["valid_loss"] for a, b in pairs[24:])  # "with one outcome"
    pairs = pairs[:24]
    lower = sum(a["valid_loss"] < b["valid_loss"] for a, b in pairs)
    higher = sum(a["bleu"] > b["bleu"] for a, b in pairs)
    yield f"in {lower} of {len(pairs)} pairs of trainings"
    yield f"in {higher} of {len(pairs)} by BLEU"


def queries() -> Iterable[str]:
    """One shared key: the rows of a small table."""
    scratch = {"folder": "scratch", "model_dim": 128}
    full, diagonal = (
        runs("shared_keys", **scratch, queries=kind, key_dim=32) for kind in ("full", "diagonal")
    )
    pairs = [(one, pick(diagonal, seed=one["seed"])) for one in full]
    large = runs("key_dim_multi30k", folder="large", method="collab_diagonal", key_dim=64)
    for one in runs("shared_keys", folder="large", queries="full", key_dim=64):
        pairs.append((one, pick(large, seed=one["seed"])))
    lower = sum(a["valid_loss"] < b["valid_loss"] for a, b in pairs)
    yield f"beats the diagonal in {lower} of {len(pairs)} pairs"
    standard = runs("shared_keys", **scratch, queries="standard")
    for name in ("diagonal", "full", "own"):
        ours = runs("shared_keys", **scratch, queries=name, key_dim=32)
        base = [run for run in standard if run["seed"] in {one["seed"] for one in ours}]
        loss = interval(gain(ours, base, "valid_loss"), "+.3f")
        yield f"(d = 128, {seeds(ours)}; ["
        yield f"| {loss} | {less(ours, base, 'parameters')} | {less(ours, base, 'multiply_adds')} |"


def goals() -> dict[str, str]:
    """Cells of the table by goal: BLEU against standard heads, and what changes."""
    standard = {"method": "concatenated"}
    manuals = {"name": "key_dim_multi30k", "folder": "manuals"}
    sold, sold_whole = (
        runs(**manuals, method="collab_diagonal", key_dim=32),
        runs(**manuals, **standard, key_dim=128),
    )
    sold_full = runs("shared_keys", folder="manuals", queries="full", key_dim=32)
    own = runs("shared_keys", folder="scratch", queries="own", key_dim=32)
    full = runs("shared_keys", folder="scratch", queries="full", key_dim=32)
    diagonal = runs("shared_keys", folder="scratch", queries="diagonal", key_dim=32)
    whole = runs("shared_keys", folder="scratch", queries="standard", model_dim=128)
    models = load("pretrained")["translation"]
    given, converted, few = (
        where(models, heads=heads, cache=cache)
        for heads, cache in (("trained", 512), ("own", 320), ("latent", 128))
    )
    plain = runs("equal_cache_multi30k", folder="scratch", method="plain")
    small, given_small = (
        runs(
            "equal_cache_multi30k", folder="converted", method=method, key_bytes_per_target_token=n
        )
        for method, n in (("latent", 512), ("plain", 1024))
    )
    latent = [
        run
        for run in runs("equal_cache_multi30k", folder="scratch", method="latent")
        if run["key_bytes_per_target_token"] + run["value_bytes_per_target_token"] == 64 * 8
    ]
    all_heads = runs("pruning_multi30k", folder="scratch", method="all-0")
    early = runs("pruning_multi30k", folder="early", method="all-0.03")
    (left,) = {
        sum(sum(run[f"heads_by_type.{site}"]) for site in ("encoder", "decoder", "cross"))
        for run in early
    }
    sized, wide, older, older_wide = (
        runs("head_size_multi30k", folder=folder, method=method, heads=16, seed=1)
        for folder in ("main", "intel")
        for method in ("size-32", "size-d/H-wide")
    )
    row = {
        "own": cells(own, whole, "key cache", "parameters"),
        "full": cells(full, whole, "key cache", "parameters"),
        "diagonal": cells(diagonal, whole, "key cache", "parameters"),
        "manuals, full": cells(sold_full, sold_whole, "key cache", "parameters"),
        "manuals": cells(sold, sold_whole, "key cache", "parameters"),
        "converted": f"| {bleu(converted, given)} | key cache -75 %, "
        f"{changes(converted, given, 'parameters')} | [{seeds(converted, 'model')}](",
        "latent, converted": f"| {bleu(few, given)} | KV cache -75 %, "
        f"{changes(few, given, 'parameters')} | [{seeds(few, 'model')}](",
        "latent, d = 128": f"d = 128: {bleu(small, given_small)}, [three](",
        "latent": cells(latent, plain, "KV cache", "parameters"),
        "pruned": cells(early, all_heads, "parameters"),
        "again": f"; {bleu(older, older_wide)} on another machine |",
        "head size": cells(sized, wide, "KV cache", "parameters"),
    }
    models = load("prices")["models"]
    spread = {"what": "spread", "kind": "latent", "cache": 0.25}
    lost = [pick(model["rows"], **spread)["lost"] for model in models]
    row["prices"] = (
        f"| validation loss {num(min(lost), '+.3f')} to {num(max(lost), '+.3f')} bits "
        f"| KV cache -75 % | [{len(models)} models]("
    )
    quarter, trained = (
        pick(load("pretrained")["runs"], query=query, key_dim=size)
        for query, size in (("own", 96), ("trained", 384))
    )
    weights = less([quarter], [trained], "weights")
    row["pre-trained"] = (
        f"| Spearman {quarter['spearman']:.2f}, trained {trained['spearman']:.2f} "
        f"| key width -75 %, weights of queries and keys {weights} | [one model]("
    )
    row["heads left"] = f"{left} of 48 heads"
    return row


def speed(heads: str) -> list[str]:
    """Times as fast as stock fairseq with d = 256: in decoding, and in training; of two runs."""

    def of(task: str) -> str:
        case = {"preset": "multi30k", "heads": heads, "task": task, "engine": "ours"}
        if task == "translation":
            case["case"] = "fixed length 30, beam 5, batch 64"
        two = [pick(run["records"], **case)["ratio"] for run in load("speed")["runs"][:2]]
        return f"{min(two):.2f} to {max(two):.2f}"

    return [of("translation"), of("training")]


def readme() -> list[str]:
    return [
        *key_width(),
        *queries(),
        *goals().values(),
        *speed("standard heads"),
        *speed("shared keys, d/4"),
    ]


def elected() -> str:
    """One head of each group, against all eight."""
    kinds = ("grouped_pruned", "concatenated")
    sides = (runs("grouped_heads_multi30k", folder="tuned", method=kind) for kind in kinds)
    return cells(*sides, "parameters", what="model")


def choose() -> list[str]:
    """docs/choose.md: the table by goal once more, and trained models."""
    tuned = runs("pruning_multi30k", folder="tuned", method="all-0")
    important = runs("pruning_multi30k", folder="important", method="all-0.03")
    of, half = functools.partial(runs, "equal_cache_multi30k"), {"key_bytes_per_target_token": 512}
    new = of(method="grouped-query", folder="scratch", **half), of(method="plain", folder="scratch")
    tuned_on = of(method="tuned-grouped-query", **half), of(method="tuned-plain")
    rows = [
        cells(*new, "KV cache", "parameters"),
        cells(*tuned_on, "KV cache", "parameters", what="model"),
        cells(important, tuned, "parameters", what="model"),
        elected(),
    ]
    goal = goals()
    del goal["heads left"]
    losses = [row.strip("| ").split(" | ")[0] for row in queries() if row.startswith("|")]
    return [*goal.values(), *rows, *losses]


def index() -> list[str]:
    """results/README.md: the answers with numbers."""
    first, _ = key_width()
    wins = next(row for row in queries() if "pairs" in row).removeprefix("beats the diagonal ")
    goal = goals()
    early, groups = (cell.split()[1].lstrip("-") for cell in (goal["pruned"], elected()))
    trained, quarter = (
        pick(load("pretrained")["runs"], query=query, key_dim=size)["spearman"]
        for query, size in (("trained", 384), ("own", 96))
    )
    return [
        first,
        f"three quarters, for {trained - quarter:.2f} points of Spearman's correlation",
        f"a lower loss {wins} of trainings",
        f"{48 - int(goal['heads left'].split()[0])} of 48 heads for {early} BLEU (two seeds",
        f"lose {groups} BLEU (three seeds)",
    ]


DOCS_CHOOSE, INDEX = (README.parent / name for name in ("docs/choose.md", "results/README.md"))
PAGES = {README: readme, DOCS_CHOOSE: choose, INDEX: index}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_numbers_are_those_of_the_results(page: Any) -> None:
    text = prose(page)
    missing = [phrase for phrase in PAGES[page]() if phrase not in text]
    assert not missing, f"{page.name} should have\n" + "\n".join(missing)
    for phrase in PAGES[page]():
        text = text.replace(phrase, "")
    for other in OTHERS:
        text = re.sub(other, "", text)
    assert not re.findall(r".*\d\.\d.*", text), "numbers without a source in results/"


def test_documents_fit() -> None:
    """The front door stays small."""
    assert len(README.read_text().splitlines()) <= 120
    assert sum(len(page.read_text().splitlines()) for page in DOCS) <= 750
