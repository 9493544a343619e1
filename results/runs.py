"""Records of runs to data: decide.json, shared_keys.json, and parts of four other files.

    python results/runs.py results/decide.json runs=runs/decide runs=runs/decide4
    python results/runs.py results/shared_keys.json runs=runs/enja widths=runs/main
    python results/runs.py results/heads.json pruning=runs/head_pruning_multi30k groups=runs/grouped
    python results/runs.py results/prices.json tuned=runs/m30k
    python results/runs.py results/at_size.json "8 heads of 16=runs/m30k128"
    python results/runs.py results/shrink.json m30k128-1=runs/shrunk
    python results/runs.py runs/gpu/gpu.json base=runs/gpu/base cuts=runs/gpu/cuts

The folders are those that ``fairseq-collab sweep`` and the recipes write: runs, or folders of runs.
A row is a run's ``score.json``, flat, with its command, commits (``-dirty`` where files differed),
seed, machine, date and the rule that chose its checkpoint, and with its names in tables.  It
replaces the row of the same names and seed; others stay.
"""

from __future__ import annotations

import argparse
import math
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from collab_common import command
from collab_common.errors import UserError
from collab_lab import open_model
from collab_lab.metrics.loss import mean_bits
from collab_lab.runs.record import Record
from collab_lab.runs.run import Run, data_folder, flat, runs_under
from collab_lab.trained.sentences import samples
from results.data import FULL, OWN, PLAIN, SEPARATE, SHARED, STANDARD
from results.records import File

Row = dict[str, Any]
#: Names in tables of the kinds of recipes/decide.sh.
DECIDE = {
    "standard": "standard heads",
    "own": "shared key, own queries, K = d/4",
    "own-4": "shared key, own queries, K = d/4",
    "own-8": "shared key, own queries, K = d/8",
    "full": "shared key, full mixing, K = d/4",
    "diagonal": "shared key, diagonal mixing, K = d/4",
    "separate": "separate keys, K = d/4",
    "grouped": "grouped query",
    "latent": "latent",
    "normalised": "latent, normalised",
    "even": "latent, even widths",
    "shape-latent": "latent, widths by price",
    "bytes": "latent, widths and bits",
    "bits": "standard heads, bits alone",
    "heads-3": "16 of 48 heads removed",
    "heads-2": "24 of 48 heads removed",
}
#: What the query of a head may do, by ``model.query_mixing``.
QUERIES = {"diagonal": SHARED, "full": FULL, "own": OWN}
#: Folders of recipes/head_pruning.sh, as pages call them.
PRUNING = {"gated": "gates"}
#: Which heads stay, by the method of recipes/grouped_heads.sh.
STAY = {"elected": "elected, one per group", "priced": "most important", "random": "random"}


def row_of(record: Record) -> Row:
    """A record without what only the machine's other programs depend on."""
    left_out = ("versions", "hypotheses", "reference")
    fields = {name: value for name, value in asdict(record).items() if name not in left_out}
    by = record.command and shlex.join(record.command)
    return {**flat(fields), "command": by}


# ---- names of rows, by file ----------------------------------------------------------------------


def decide(run: Run, record: Record, name: str) -> Iterator[tuple[str, Row, tuple[str, ...]]]:
    """Runs of recipes/decide.sh, by stage and kind; those of ``rates`` are a second list."""
    folder = run.folder.parent.name
    kind, size = record.method.removeprefix("to-"), ""
    if folder == "rates":
        rate = float(record.overrides["optimization.lr"].strip("[]"))
        yield "rates", {"kind": kind, "rate": rate}, ("kind", "rate", "seed")
        return
    is_converted = record.method.startswith("to-")
    stages = {"scratch": "scratch", "converted": "converted"}
    stage = stages.get(folder) or ("tuned" if is_converted else "continued")
    if record.heads not in (8, None):
        size += f", {record.heads} heads"
    if record.model_dim != 128:
        size += f", d = {record.model_dim}"
    kind = "own-4" if kind == "own" else kind
    stem = kind if kind in DECIDE else kind.rpartition("-")[0]
    name = DECIDE.get(stem, kind)
    if kind == "standard" and record.heads != 8 and record.model_dim:
        name += f", {record.heads} of size {record.model_dim // (record.heads or 1)}"
    names = {"stage": stage, "kind": kind + size, "name": name}
    yield "runs", names, ("stage", "kind", "seed")


def shared_keys(run: Run, record: Record, name: str) -> Iterator[tuple[str, Row, tuple[str, ...]]]:
    """Shared or separate keys, by folder and key width; those of ``widths`` with test losses."""
    mixing = record.overrides.get("model.query_mixing")
    queries = QUERIES.get(str(mixing))
    if queries is None and record.arch == "transformer_collab":
        queries = QUERIES["diagonal" if record.method.endswith("diagonal") else "full"]
    if queries is None:
        queries = STANDARD if record.key_dim == record.model_dim else SEPARATE
    names: Row = {"folder": run.folder.parent.name, "queries": queries}
    if name == "widths":
        names["test_bits"] = test_bits(run)
    yield name, names, ("folder", "method", "queries", "key_dim", "seed")


def heads(run: Run, record: Record, name: str) -> Iterator[tuple[str, Row, tuple[str, ...]]]:
    """Runs of recipes/head_pruning.sh (``pruning``) and recipes/grouped_heads.sh (``groups``)."""
    folder = run.folder.parent.name
    if name == "pruning":
        # One name for one penalty, whatever chose the heads.
        method = re.sub(r"^(gates|priced|early)-", "all-", record.method)
        names = {"folder": PRUNING.get(folder, folder), "method": method}
        yield name, names, ("folder", "method", "seed")
        return
    stem, _, number = record.method.rpartition("-")
    names = {"folder": folder}
    if stem in STAY:
        trained = f"in {number} groups" if stem == "elected" else "standard"
        names |= {"stay": STAY[stem], "heads_trained": trained}
    yield name, names, ("folder", "method", "seed")


def prices(run: Run, record: Record, name: str) -> Iterator[tuple[str, Row, tuple[str, ...]]]:
    """Conversions of recipes/decide.sh, with and without updates, and the trained model."""
    folder, kind = run.folder.parent.name, record.method.removeprefix("to-")
    converted = record.method.startswith("to-") or kind == "standard"
    if converted and folder in ("scratch", "converted", "tuned"):
        names = {"name": "plain" if kind == "standard" else kind, "training": folder == "tuned"}
        yield name, names, ("name", "training", "seed")


def at_size(run: Run, record: Record, name: str) -> Iterator[tuple[str, Row, tuple[str, ...]]]:
    """Trainings from scratch, with their test losses; ``name`` is that of the row."""
    names = {"kind": name, "d": record.model_dim, "test_bits": test_bits(run)}
    yield "trained", names, ("kind", "d", "seed")


def shrink(run: Run, record: Record, name: str) -> Iterator[tuple[str, Row, tuple[str, ...]]]:
    """Models that ``--keep`` kept, after updates, and the trained model ``name`` after the same."""
    kind, _, share = record.method.rpartition("-")
    names: Row = {"model": name, "name": " ".join(kind.split("-")) or PLAIN}
    names |= {"test_bits": test_bits(run), "updates": record.train_updates}
    names |= {"share": float(share) if kind else 1.0}
    yield "tuned", names, ("model", "name", "share", "updates")


def gpu(run: Run, record: Record, name: str) -> Iterator[tuple[str, Row, tuple[str, ...]]]:
    """Models of recipes/gpu.sh, with their test losses."""
    yield name, {"test_bits": test_bits(run)}, ("method", "seed")


def test_bits(run: Run) -> float:
    """The loss of a run's checkpoint on the test set, on the GPU if there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = open_model(run.average, data_folder(run.config()), device=device)
    return round(mean_bits(model.model, samples(model, "test")), 5)


Names = Callable[[Run, Record, str], Iterator[tuple[str, Row, tuple[str, ...]]]]
FILES: dict[str, Names] = {
    one.__name__: one for one in (decide, shared_keys, heads, prices, at_size, shrink, gpu)
}


def collect(file: Path, name: str, folder: Path) -> int:
    """Put all finished runs under a folder into a file; how many."""
    names_of, content, number = FILES[file.stem], File(file), 0
    nested = [run for part in sorted(folder.iterdir()) if part.is_dir() for run in _runs(part)]
    for run in {run.folder: run for run in [*_runs(folder), *nested]}.values():
        record = run.record()
        if record is None:
            print(f"{run.folder}: {run.state()}", file=sys.stderr)
            continue
        for part, names, keys in names_of(run, record, name):
            row = {**row_of(record), **names}
            if record.valid_nats is not None:
                row["valid_bits"] = round(record.valid_nats / math.log(2), 5)
            content.put(part, ({key: row.get(key) for key in keys}, row))
            number += 1
    return number


def _runs(folder: Path) -> list[Run]:
    try:
        return runs_under(folder)
    except UserError:  # a folder of models, or of tables
        return []


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help=f"results/NAME.json: {', '.join(FILES)}")
    parser.add_argument(
        "folders",
        nargs="+",
        metavar="NAME=FOLDER",
        help="a part of the file, a row of at_size, or a model of shrink",
    )
    args = parser.parse_args(argv)
    if args.file.stem not in FILES:
        raise UserError("no runs go into this file", args.file, f"one of {', '.join(FILES)}")
    for text in args.folders:
        name, equals, folder = text.rpartition("=")
        if not equals or not Path(folder).is_dir():
            raise UserError("is not NAME=FOLDER", text, "give a folder of runs")
        print(f"{folder}: {collect(args.file, name, Path(folder))} rows")
    return 0


if __name__ == "__main__":
    sys.exit(command.run("runs.py", lambda: main(sys.argv[1:])))
