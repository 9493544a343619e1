"""Every table of ``results/`` is what the JSON beside it says.

Tables that a command has written are rendered again by the project's own functions; the others are
made here, from the JSON beside them.
"""

from __future__ import annotations

import csv
import functools
import json
import re
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from commands import REPOSITORY
from documents import RESULTS, Table, name_of, tables
from results_from_runs import table_of

from data_prep import measure as data_prep_speed
from data_prep import measure_memory
from fairseq_collab.bench import report as bench
from fairseq_collab.metrics import perplexity
from fairseq_collab.metrics.rouge import Interval
from fairseq_collab.results import against, kept_report, kept_runs, rouge_table
from fairseq_collab.results import reparametrized as reparametrized
from fairseq_collab.results import table as runs_table
from fairseq_collab.results.report import page as report_page
from fairseq_collab.results.report import summary
from fairseq_collab.results.table_content import as_csv

FOLDER = REPOSITORY / "results"
Cells = list[list[str]]
NOT_RUN = "not run"
#: Tables without numbers of ours, and why.
UNCHECKED = {
    ("README.md", "Results"): "an index, no numbers",
    ("speed_notes.md", "Where the time goes, and what was tried"): "words, no numbers of ours",
}


@functools.cache
def load(name: str) -> Any:
    return json.loads((FOLDER / name).read_text())


def cells(markdown: str | Iterable[str]) -> list[Cells]:
    """The tables of some Markdown: cells by row, headings first, dashes left out."""
    lines = markdown.splitlines() if isinstance(markdown, str) else list(markdown)
    found: list[Cells] = [[]]
    for line in lines:
        if not line.startswith("|"):
            found.append([])
        elif not re.fullmatch(r"[|\s:-]+", line):
            found[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return [rows for rows in found if rows]


# ---- rendered by the project's own functions -----------------------------------------------------


def of_data_prep() -> list[Cells]:
    stages = data_prep_speed.table(load("data_prep.json")["stages"])
    return [*cells(stages), *cells(measure_memory.table(load("data_prep_memory.json")["texts"]))]


def of_dialogsum() -> list[Cells]:
    content = load("grouped_heads_dialogsum.json")
    lines = [rouge_table.Line(**_with_intervals(line)) for line in content["runs"]]
    return cells(rouge_table.markdown(content, lines))


def _with_intervals(line: dict[str, Any]) -> dict[str, Any]:
    def intervals(found: dict[str, Any] | None) -> dict[str, Interval] | None:
        return found and {name: Interval(**values) for name, values in found.items()}

    kinds = ("scores", "differences")
    return {**line, **{kind: intervals(line[kind]) for kind in kinds}}


def of_wikitext2() -> list[Cells]:
    models = load("grouped_heads_wikitext2.json")["models"]
    return cells(perplexity.markdown([perplexity.Row(**model) for model in models]))


def of_key_dim() -> list[Cells]:
    found = table_of(load("key_dim_multi30k.json")["tables"]["main"])
    return cells(runs_table.markdown(found))


def of_key_dim_mixed() -> list[Cells]:
    """Two test sets, each against heads of the same key dimension and of the full one."""
    named = {name: table_of(it) for name, it in load("key_dim_mixed.json")["tables"].items()}
    main, same, runs = cells(runs_table.markdown(named["main"]))
    newstest, newstest_same, _ = cells(runs_table.markdown(named["newstest"]))
    whole, newstest_whole = (
        cells(runs_table.markdown(named[name]))[1] for name in ("whole", "whole_newstest")
    )
    return [main, same, whole, newstest, newstest_same, newstest_whole, runs]


def of_grouped() -> list[Cells]:
    named = {
        name: table_of(it) for name, it in load("grouped_heads_multi30k.json")["tables"].items()
    }
    tuned, trained = (cells(runs_table.markdown(named[name])) for name in ("tuned", "trained"))
    weaker = [["constraint", "GHT: BLEU", "more than ordinary heads"]]
    weaker[0] += ["GHT-PS, 4 heads: BLEU", "more than ordinary heads"]
    labels = {
        "0.1": "alpha = beta = 0.1",
        "released": "alpha = beta = 0.5, `group_normalisation=released`",
    }
    for key, label in labels.items():
        row = [label]
        for stage in ("trained", "tuned"):
            (one,) = named[f"{key} {stage}"].differences
            bleu = runs_table.spread(one.row.values("bleu"))
            row += [bleu, f"{one.mean:+.2f} ({against.ps(one)})"]
        weaker.append(row)
    runs = [*trained[2], *tuned[2][1:]]
    content = load("decoding_grouped_multi30k.json")
    decoding = cells(bench.markdown("decoding.md.j2", content=content))
    return [*tuned[:2], *trained[:2], weaker, *decoding, runs]


def of_reparametrized() -> list[Cells]:
    content = load("reparametrize_multi30k.json")
    rows = [reparametrized.Row(**model) for model in content["models"]]
    sizes = {
        "wmt_en_de": "`transformer_wmt_en_de` (d = 512, 8 heads, K = 256)",
        "bert_base": "BERT-base (d = 768, 12 heads, K = 384)",
    }
    times = [["", "attentions", "method", "relative error", "seconds an attention", "MiB"]]
    for row in content["timing"]["rows"]:
        first = row["method"] == "tensorly"
        method = {
            "tensorly": f"TensorLy, {row['steps']} sweeps",
            "start": "our start, no step",
            "ours": f"ours, {row['steps']} steps",
        }[row["method"]]
        seconds = f"{row['seconds']:.{1 if row['seconds'] >= 1 else 2}f}"
        size = [sizes[row["size"]], str(row["attentions"])] if first else ["", ""]
        times.append([*size, method, f"{row['error']:.4f}", seconds, f"{row['mib']:,.0f}"])
    return [*cells(reparametrized.markdown(rows)), times]


# ---- made here -----------------------------------------------------------------------------------


def of_multi30k() -> list[Cells]:
    systems = load("multi30k.json")["systems"]
    names = {"transformer": "`transformer`", "block": "block"}
    names["xavier"] = "`xavier` mixing (the default)"
    shown = {"transformer": names["transformer"]}
    shown["transformer_collab_multi30k --key-dim 64 --mixing-init block"] = (
        "`transformer_collab_multi30k`, `--mixing-init block`"
    )
    sets = ("test_2016_flickr", "test_2017_flickr")
    heads = ["", "parameters", "key bytes a token", "valid. loss"]
    main = [[*heads, "2016 BLEU", "2016 chrF", "2017 BLEU", "2017 chrF"]]
    for system in systems:
        if system["epochs"] == 24:
            row = [shown[system["name"]], f"{system['parameters']:,}", f"{system['key_bytes']:,}"]
            scores = [f"{system[name][kind]:.2f}" for name in sets for kind in ("bleu", "chrf")]
            main.append([*row, f"{system['valid_loss']:.3f}", *scores])
    found = load("multi30k_by_epoch.json")["evaluations"]
    epochs = sorted({int(epoch) for system in found.values() for epoch in system["test"]})
    by_epoch = [["epoch", *map(str, epochs)]]
    for system, name in names.items():
        scored = {int(epoch): score for epoch, score in found[system]["test"].items()}
        row = [f"{scored[e]['bleu']:.2f}" if e in scored else NOT_RUN for e in epochs]
        by_epoch.append([name, *row])
    return [main, by_epoch]


def of_grouped_mixed() -> list[Cells]:
    """Fine-tuned models on two test sets, then what they were before; tests beside each."""
    named = {name: table_of(it) for name, it in load("grouped_heads_mixed.json")["tables"].items()}
    tables = {name: cells(runs_table.markdown(table)) for name, table in named.items()}
    chance = [tables[f"chance{heads}"][1] for heads in (4, 2)]
    order = ("tuned", "tuned_newstest", "trained", "trained_newstest")
    (tuned, newstest, trained, trained_newstest) = (tables[name] for name in order)
    found = [*tuned[:2], *chance, *newstest[:2], *trained[:2], *trained_newstest[:2]]
    return [*found, [*trained[2], *tuned[2][1:]]]


def of_rank() -> list[Cells]:
    models = load("rank_multi30k.json")["models"]
    sites = ("encoder", "decoder", "cross")
    logits = "logits of one head and sentence (full rank: 15 to 17)"
    collab = "`transformer_collab`, K = 64, block mixing"
    rows = [["dimensions that hold 95 % of the energy", *sites, "before training"]]
    for model, kind, text in (
        ("transformer", "map", "`transformer`: map of one head (of 64)"),
        ("transformer", "sum", "sum of a layer's maps (of 256)"),
        ("transformer", "stacked_queries", "maps side by side: queries (of 256)"),
        ("transformer", "stacked_keys", "maps one above the other: keys (of 256)"),
        ("transformer", "logits_centred", logits),
        ("transformer_collab", "map", f"{collab}: map of one head (of 64)"),
        ("transformer_collab", "sum", "sum of a layer's maps (of 64)"),
        ("transformer_collab", "logits_centred", logits),
    ):
        found = [models[model][site][kind] for site in sites]
        before = [one["untrained"]["dims95"] for one in found if "untrained" in one]
        start = f"{statistics.fmean(before):.0f}" if before else ""
        rows.append([text, *(f"{one['trained']['dims95']:.1f}" for one in found), start])
    return [rows]


def syntax_of(file: str) -> Cells:
    """The best head of each relation, and the best fixed distance."""
    rows = [["relation", "dependent to head: best head / fixed distance", "head to dependent"]]
    for name, directions in load(file)["syntax"]["relations"].items():
        pairs = directions["dependent->head"]["pairs"]
        row = [f"{name} ({pairs:,} pairs)"]
        for found in directions.values():
            best = max(max(layer) for layer in found["encoder"])
            row.append(f"{best:.1%} / {found['baseline']['accuracy']:.1%}".replace("%", " %"))
        rows.append(row)
    return rows


def of_embedded_heads() -> list[Cells]:
    return [syntax_of(f"heads_embedded_{model}.json") for model in ("concatenated", "collab")]


def of_methods() -> list[Cells]:
    sections = {section["data"]: section for section in load("report.json")["sections"]}
    (multi30k,), (mixed,) = (
        cells(summary.methods(sections.pop(data))) for data in ("multi30k", "mixed")
    )
    assert not sections
    return [multi30k, mixed]


def of_kept() -> list[Cells]:
    content = dict(load("heads_kept_multi30k.json"))  # a copy: the loaded one is kept
    made = content.pop("made")
    del content["version"]
    content["results"] = [kept_runs.Result(**result) for result in content["results"]]
    content["baseline"] = {int(seed): bleu for seed, bleu in content["baseline"].items()}
    return [*cells(kept_report.markdown(kept_runs.Found(**content), made)), kept_tests()]


def kept_tests() -> Cells:
    """Fine-tuned and from scratch, each against its control, and against each other."""
    pairs = {
        (test["baseline"], test["system"]): f"{test['difference']:+.2f} ({test['p']:.3f})"
        for test in load("heads_kept_multi30k_tests.json")["tests"]
    }
    more = "more than all heads (p)"
    rows = [["gates, penalty", "heads", f"fine-tuned: {more}", f"from scratch: {more}"]]
    rows[0].append("fine-tuned: more than from scratch (p)")
    for result in load("heads_kept_multi30k.json")["results"]:
        shape = f"{result['sites']}-{result['penalty']}_seed-{result['seed']}"
        controls = ((f"{kind}/model-all-0_seed-1", kind) for kind in ("tuned", "scratch"))
        row = [
            f"{result['sites']}, {result['penalty']}",
            str(sum(map(sum, result["heads"].values()))),
        ]
        row += [pairs.get((control, f"{kind}/model-{shape}"), "-") for control, kind in controls]
        rows.append([*row, pairs[f"scratch/model-{shape}", f"tuned/model-{shape}"]])
    return rows


def of_heads() -> list[Cells]:
    sites = {"encoder": "encoder self-attention", "decoder": "decoder self-attention"}
    sites["cross"] = "cross-attention"
    curves: dict[str, dict[int, Any]] = {}
    for point in load("prune_curve_multi30k.json")["points"]:
        curves.setdefault(point["curve"], {})[point["removed"]] = point
    curve = [["removed", *sites.values()]]
    for removed, point in curves["encoder"].items():
        if 0 < removed < point["of"]:
            scores = (f"{curves[site][removed]['bleu']:.2f}" for site in sites)
            curve.append([f"{removed} of {point['of']}", *scores])
    return [syntax_of("heads_multi30k.json"), curve]


RENDERED: dict[str, Callable[[], list[Cells]]] = {
    "data_prep.md": of_data_prep,
    "grouped_heads_dialogsum.md": of_dialogsum,
    "grouped_heads_mixed.md": of_grouped_mixed,
    "grouped_heads_multi30k.md": of_grouped,
    "grouped_heads_wikitext2.md": of_wikitext2,
    "heads_embedded.md": of_embedded_heads,
    "heads_kept_multi30k.md": of_kept,
    "heads_multi30k.md": of_heads,
    "key_dim_mixed.md": of_key_dim_mixed,
    "key_dim_multi30k.md": of_key_dim,
    "methods.md": of_methods,
    "multi30k.md": of_multi30k,
    "rank_multi30k.md": of_rank,
    "reparametrize_multi30k.md": of_reparametrized,
}


#: Pages without a template, which test_pages.py renders again.
BY_HAND = [page for page in RESULTS if not page.with_name(f"{page.name}.j2").exists()]


def checked(page: Path) -> list[Table]:
    """The tables of a page but those that are excused."""
    return [table for table in tables(page) if (page.name, table.heading) not in UNCHECKED]


@pytest.mark.parametrize("page", BY_HAND, ids=name_of)
def test_tables_are_what_the_json_says(page: Path) -> None:
    found = [[table.header, *table.rows] for table in checked(page)]
    expected = RENDERED[page.name]() if page.name in RENDERED else []
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == theirs


def test_the_report_is_what_its_json_says() -> None:
    text = (FOLDER / "report.html").read_text()
    assert text == report_page.report(load("report.json"))


def test_a_changed_number_is_noticed(tmp_path: Path) -> None:
    text = (FOLDER / "grouped_heads_wikitext2.md").read_text()
    changed = tmp_path / "grouped_heads_wikitext2.md"
    for content, same in ((text, True), (text.replace("265.12 |", "265.21 |"), False)):
        changed.write_text(content)
        (table,) = checked(changed)
        assert ([[table.header, *table.rows]] == of_wikitext2()) == same


def test_every_excuse_is_of_a_table_that_is_there() -> None:
    there = {(page.name, table.heading) for page in RESULTS for table in tables(page)}
    assert UNCHECKED.keys() <= there


@pytest.mark.parametrize(
    ("file", "content", "table"),
    [
        ("key_dim_multi30k.csv", "key_dim_multi30k.json", "main"),
        ("key_dim_mixed.csv", "key_dim_mixed.json", "main"),
        ("key_dim_mixed_newstest2013.csv", "key_dim_mixed.json", "newstest"),
        ("grouped_heads_mixed.csv", "grouped_heads_mixed.json", "tuned"),
        ("grouped_heads_multi30k.csv", "grouped_heads_multi30k.json", "tuned"),
        ("grouped_heads_multi30k_trained.csv", "grouped_heads_multi30k.json", "trained"),
    ],
)
def test_csv_is_what_the_json_says(file: str, content: str, table: str) -> None:
    expected = as_csv(table_of(load(content)["tables"][table]))
    found = list(csv.DictReader((FOLDER / file).read_text().splitlines()))
    for ours, theirs in zip(found, csv.DictReader(expected.splitlines()), strict=True):
        assert ours == theirs
