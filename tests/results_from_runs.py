"""Writes the JSON beside a page of ``results/`` from run folders, for its template.

    python tests/results_from_runs.py tables results/key_dim_multi30k.json \\
        --x key_dim main=runs/key_dim_multi30k
    python tests/results_from_runs.py gains results/key_dim_multi30k.json --add \\
        plain=runs/key_dim/RUN,runs/key_dim/OTHER
    python tests/results_from_runs.py scores results/multi30k_by_epoch.json \\
        --reference test=raw/test.de --reference test1=raw/test1.de transformer=DIR

``tables``: what ``fairseq-collab table`` reads of finished runs, and the p of each run against the
baseline (--against; else concatenated heads) with its seed; several folders are joined by commas.
``gains``: what ``fairseq-collab compare --seeds`` says of runs against the first of them (of BLEU,
or --metrics).
``scores``: BLEU and chrF of
DIR/SET.EPOCH.out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairseq_collab.results.table_content import content_of, read_table


def tables(named: dict[str, str], x: str, baseline: str | None = None) -> dict[str, Any]:
    found = {}
    for name, folders in named.items():
        table = read_table([Path(folder) for folder in folders.split(",")], x, baseline)
        assert not table.unfinished, table.unfinished
        found[name] = content_of(table)
    return {"tables": found}


def gains(named: dict[str, str], metrics: tuple[str, ...] = ("BLEU",)) -> dict[str, Any]:
    """A score of each system and its gain over the baseline, p corrected for all of the call.

    Of several metrics a part each, NAME.METRIC.
    """
    from fairseq_collab.metrics.seeds import holm
    from fairseq_collab.results.seeds import compare

    found: dict[str, Any] = {}
    for name, folders in named.items():
        baseline, *systems = map(Path, folders.split(","))
        compared = compare(baseline, systems)
        for metric in metrics:
            found[name if len(metrics) == 1 else f"{name}.{metric}"] = {
                one.system.name: asdict(next(each for each in one.gains if each.metric == metric))
                for one in compared
            }
    every = [one for systems in found.values() for one in systems.values()]
    for one, corrected in zip(every, holm([one["p"] for one in every]), strict=True):
        one["p_holm"] = corrected
    return {"gains": found}


def scores(named: dict[str, str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU and chrF of ``FOLDER/SET.EPOCH.out``, by system, set and epoch."""
    from fairseq_collab.metrics.bleu import score
    from fairseq_collab.runs.translations import read_hypotheses, read_lines

    found: dict[str, Any] = {}
    for subset, file in (text.split("=", 1) for text in references):
        sentences = read_lines(Path(file))
        for system, folder in named.items():
            by_epoch = {}
            for path in Path(folder).glob(f"{subset}.*.out"):
                result = score(read_hypotheses(path), sentences)
                by_epoch[int(path.name.split(".")[1])] = {"bleu": result.bleu, "chrf": result.chrf}
            found.setdefault(system, {})[subset] = dict(sorted(by_epoch.items()))
    return {"bleu_signature": result.bleu_signature, "evaluations": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("tables", "gains", "scores"))
    parser.add_argument("out", type=Path)
    parser.add_argument("named", nargs="+", metavar="NAME=PATH")
    parser.add_argument("--x", default="none")
    parser.add_argument("--against", metavar="ROW")
    parser.add_argument("--metrics", default="BLEU", help="of gains")
    parser.add_argument("--add", action="store_true", help="to what is there already")
    parser.add_argument("--reference", action="append", default=[], metavar="SET=FILE")
    args = parser.parse_args()
    named = dict(text.split("=", 1) for text in args.named)
    if args.what == "tables":
        content = tables(named, args.x, args.against)
    elif args.what == "gains":
        content = gains(named, tuple(args.metrics.split(",")))
    else:
        content = scores(named, args.reference)
    if args.add:
        old = json.loads(args.out.read_text())
        parts = {
            key: old.get(key, {}) | content[key] for key in ("tables", "gains") if key in content
        }
        content = old | content | parts
    args.out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
