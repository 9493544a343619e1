"""What a page says of runs of the benchmark; the numbers are made up."""

from __future__ import annotations

from typing import Any

from fairseq_collab.bench import grouped, report
from fairseq_collab.bench.models import STOCK

Record = dict[str, Any]
TIMED = {"pairs": 9, "low": 0.5, "high": 1.0, "work": 64, "unit": "sentences"}
TIMED |= {"first_seconds": 0.4, "second_seconds": 0.5}


def record(part: str, model: str, column: str = "default", **values: Any) -> Record:
    return {"part": part, "preset": "p", "case": "c", "model": model, "column": column, **values}


def run_of(*records: Record, **libraries: str) -> Record:
    """A run as its file has it."""
    fields = ("started", "seconds", "hardware", "commit", "command", "load_before")
    described = {**dict.fromkeys(fields, "x"), "versions": {"torch": "2"}, "allocator": {}}
    settings = {"device": "cpu", "seed": 1}
    libraries = libraries or {"default": "torch"}
    return {**described, "settings": settings, "libraries": libraries, "records": [*records]}


def rows(page: str) -> dict[str, list[str]]:
    """The rows of all tables by their first cell; of several, the last."""
    lines = (line for line in page.splitlines() if line.startswith("|"))
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {first: rest for first, *rest in cells}


def details(page: str, title: str) -> str:
    return page.partition(f"<details><summary>{title}</summary>\n\n")[2].partition("</details>")[0]


def test_ratios_of_all_kinds_come_first() -> None:
    """Two runs beside each other; memory and keys beside those of fairseq's model."""

    def of_run(ratio: float, peak: int) -> Record:
        return run_of(
            record("generate", "ours", against=STOCK, ratio=ratio, ties=2, sentences=7, **TIMED),
            record("memory", STOCK, peak_bytes=300, before_bytes=0),
            record("memory", "ours", peak_bytes=peak, before_bytes=0),
            record("train", "ours", "same", against=STOCK, ratio=1.25, **TIMED),
            default="onednn",
            same="torch",
        )

    page = report.markdown("bench.md.j2", runs=[of_run(1.5, 200), of_run(2, 100)])
    answer = rows(page.partition("<details>")[0])
    assert answer["translation: p, c"] == ["1.50 / 2.00"]
    assert answer["peak memory: p, c"] == ["1.50 / 3.00"]
    assert answer["training: p, c"] == ["1.25 / 1.25"]
    assert "With torch's own matrix library" in page
    told = "(0.50 to 1.00; 9 pairs, 2 ties in 7); 160 and 128 sentences/s"
    assert rows(details(page, "Translation"))["p"] == [
        *("c", "ours", STOCK, f"**1.50** {told}", f"**2.00** {told}")
    ]
    assert rows(details(page, "How it was measured"))["commit"] == ["x", "x"]
    assert "No GPU was used" in page


def test_heads_in_groups() -> None:
    common = {**TIMED, "ratio": 0.8, "whole_parameters": 2000}
    update = {"measure": "update", "against": grouped.WITHOUT, "parameters": 2000}
    translation = {"measure": "translation", "against": STOCK, "parameters": 1500}
    run = run_of(
        record("grouped", "m", **common, **update), record("grouped", "n", **common, **translation)
    )
    page = report.markdown("bench.md.j2", runs=[run], folded=False)
    assert "<details>" not in page
    first, second, *_, third, fourth = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("| p ")
    )
    assert first[2:] == ["m", grouped.WITHOUT, "100.0% of 2,000", "+25.0%"]
    assert second[2:] == ["n", STOCK, "75.0% of 2,000", "0.80"]
    told = "**+25.0%** (+0.0% to +100.0%; 9 pairs); 0.400 and 0.500 s an update"
    assert third[-1] == told
    assert fourth[-1] == "**0.80** (0.50 to 1.00; 9 pairs); 160 and 128 sentences/s"


def test_targets_are_of_the_page() -> None:
    found = record("train", "ours", against=STOCK, ratio=1.4999, **TIMED)
    targets = [["fast", least, {"part": "train", "model": "ours"}] for least in (1.4, 1.5)]
    page = report.markdown("bench.md.j2", runs=[run_of(found)], targets=targets)
    reached = [line.rpartition("1.50 ")[2] for line in page.splitlines() if "| fast: p, c" in line]
    assert reached == ["reached |", "NOT reached |"], "by the number that is not rounded"
    assert "Targets" not in report.markdown("bench.md.j2", runs=[run_of(found)])


def test_other_engines_show_the_largest_batch_first() -> None:
    def engine(beam: int, batch: int, bleu: float | None = None) -> Record:
        sizes = {"beam": beam, "batch": batch, "sentences": 9, "case": f"{beam}, {batch}"}
        values = {"pair": "m", "engine": "E", "ratio": 2, "times_of_fastest": 1, "same": 1, **sizes}
        return record("engines", "m", bleu=bleu, **values)

    page = report.markdown("bench.md.j2", runs=[run_of(engine(1, 64), engine(5, 1), engine(5, 64))])
    shown = [line for line in page.partition("<details>")[0].splitlines() if "| p: m" in line]
    assert [line.split("|")[2].strip() for line in shown] == ["5, 64"]
    assert details(page, "Other engines: every batch and beam, BLEU").count("| p: m |") == 3
    assert "Other engines" not in report.markdown("bench.md.j2", runs=[run_of(engine(5, 64))])
