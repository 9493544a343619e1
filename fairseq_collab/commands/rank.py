"""``fairseq-collab rank``: how much of what its heads may use does a trained model use?

For every attention, layer and head: the spectrum and numerical rank of the map that scores, of all
heads' maps together, and of the logits on real sentences, against their length.  What the matrices
are: :mod:`fairseq_collab.analysis.rank.measure`.  Writes ``rank.csv``, ``rank.png`` and
``rank.pdf``.
"""

from __future__ import annotations

import argparse
import csv
import io
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq import utils
from tqdm import tqdm

from collab_common.command import positive, share
from collab_common.errors import UserError
from collab_common.files import make_folder, write_content, write_file
from fairseq_collab.analysis.heads import source
from fairseq_collab.analysis.rank.measure import LogitRows, Row, weight_rows
from fairseq_collab.models.layers import SITES
from fairseq_collab.results.rank_figures import rank_figure

WEIGHT_KINDS = ("map", "sum", "stacked_queries", "stacked_keys")
LOGIT_KINDS = ("logits", "logits_centred")


class Loaded(NamedTuple):
    """A trained model, a fresh one of the same options, and their task; all on the CPU."""

    model: Any
    untrained: Any
    task: Any


def load(checkpoint: Path, data: Path) -> Loaded:
    """Load a checkpoint, with the sentences of the folder ``data``.

    Both models are in eval mode and in double precision: rounding would pass for rank.

    Raises:
        UserError: the checkpoint is missing, damaged, does not fit ``data``, or is not that of an
            encoder-decoder transformer.
    """
    found = source.load(checkpoint, data)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        untrained = found.task.build_model(found.cfg.model)
    return Loaded(found.model.double(), untrained.double().eval(), found.task)


def sentences(loaded: Loaded, subset: str, number: int) -> list[dict[str, Any]]:
    """The model's inputs for ``number`` sentences, evenly spread over ``subset``, one a batch.

    Those that are longer than the model's positions are left out.

    Raises:
        UserError: no sentence is short enough.
        FileNotFoundError: fairseq's, if there is no such subset; told in one line by the commands.
    """
    model, _, task = loaded
    task.load_dataset(subset)
    dataset = task.dataset(subset)
    longest = utils.resolve_max_positions(task.max_positions(), model.max_positions())
    fitting, _ = dataset.filter_indices_by_size(np.arange(len(dataset)), longest)
    if not len(fitting):
        raise UserError(f"has no sentence within the model's {longest} positions", where=subset)
    number = min(number, len(fitting))
    chosen = [int(fitting[i * len(fitting) // number]) for i in range(number)]
    return [dataset.collater([dataset[i]])["net_input"] for i in chosen]


def measure(
    loaded: Loaded, inputs: Sequence[dict[str, Any]], bin_width: int, tolerance: float | None
) -> list[Row]:
    """Rows of all kinds, from the weights and from running the model on ``inputs``."""
    rows = weight_rows(loaded.model, tolerance)
    rows += weight_rows(loaded.untrained, tolerance, "untrained")
    found = LogitRows(loaded.model, bin_width, tolerance)
    for net_input in tqdm(inputs, desc="sentences", disable=None, leave=False):
        found.add(net_input)
    return rows + found.rows()


def to_csv(rows: Sequence[Row]) -> str:
    """A line a row; singular values are joined by spaces, and what does not apply is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in fields(Row)]
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(getattr(row, name)) for name in names])
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return " ".join(f"{number:.4g}" for number in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def summary(rows: Sequence[Row]) -> str:
    """Means over layers, heads and sentences: a line for each site and kind."""
    columns = ("site", "kind", "bound", "rank", "90 %", "95 %", "99 % of energy", "95 % untrained")
    lines = ["{:8} {:16} {:>7} {:>7} {:>7} {:>7} {:>15} {:>15}".format(*columns)]
    for site in SITES:
        for kind in (*WEIGHT_KINDS, *LOGIT_KINDS):
            chosen = [row for row in rows if (row.site, row.kind) == (site, kind)]
            trained = [row for row in chosen if row.weights == "trained"]
            if not trained:
                continue
            means = [_mean(trained, name) for name in ("bound", "rank", "dims90", "dims95")]
            line = f"{site:8} {kind:16}" + "".join(f" {mean:7.1f}" for mean in means)
            line += f" {_mean(trained, 'dims99'):15.1f}"
            untrained = [row for row in chosen if row.weights == "untrained"]
            lines.append(line + (f" {_mean(untrained, 'dims95'):15.1f}" if untrained else ""))
    return "\n".join(lines)


def _mean(rows: Sequence[Row], name: str) -> float:
    """Over all matrices of the rows: those of several sentences count for as many."""
    counts = [row.sentences or 1 for row in rows]
    return float(np.average([getattr(row, name) for row in rows], weights=counts))


def shortage(rows: Sequence[Row]) -> str:
    """How often a sentence is longer than a head is wide: there it cannot attend at will."""
    logits = [row for row in rows if row.kind == "logits"]
    longer = sum(row.longer or 0 for row in logits)
    total = sum(row.sentences or 0 for row in logits)
    return f"sentences longer than the head is wide: {longer} of {total}, all heads counted"


def build_parser() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        prog="fairseq-collab rank",
        description="Spectra and numerical ranks of a trained transformer's attention heads (stock "
        "fairseq's or ours): of Wq Wk^T for each head and for all heads of a layer, and of the "
        "logits on real sentences against their length. Writes a table and a figure.",
    )
    parser.add_argument("checkpoint", type=Path, help="a trained encoder-decoder transformer")
    parser.add_argument("data", type=Path, help="the folder that fairseq-preprocess has written")
    parser.add_argument("--subset", default="valid", help="which sentences (default: valid)")
    parser.add_argument(
        "--sentences", type=positive, default=200, metavar="N",
        help="how many of them, evenly spread (default: 200)",
    )  # fmt: skip
    parser.add_argument(
        "--bin-width", type=positive, default=5, metavar="N",
        help="how many lengths make one line of the table (default: 5)",
    )  # fmt: skip
    parser.add_argument(
        "--tolerance", type=share, metavar="X",
        help="singular values above X times the largest count as rank (default: all that rounding "
        "does not explain, as numpy's matrix_rank: the longer side times 2.2e-16)",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of the results (default: CHECKPOINT.rank)"
    )
    parser.add_argument("--user-dir", metavar="DIR", help="a further plug-in, if the model is its")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; its exit status.

    Raises:
        UserError: see :func:`load` and :func:`sentences`; or a file cannot be written.
    """
    args = build_parser().parse_args(argv)
    utils.import_user_module(Namespace(user_dir=args.user_dir))
    loaded = load(args.checkpoint, args.data)
    inputs = sentences(loaded, args.subset, args.sentences)
    out = args.out or args.checkpoint.with_name(f"{args.checkpoint.name}.rank")
    make_folder(out)
    rows = measure(loaded, inputs, args.bin_width, args.tolerance)
    write_content(out / "rank.csv", to_csv(rows).encode())
    figure = rank_figure(rows, f"{args.checkpoint}, {len(inputs)} sentences of {args.subset}")
    for kind in ("png", "pdf"):
        write_file(out / f"rank.{kind}", partial(figure.savefig, format=kind))
    print(summary(rows))
    print(shortage(rows))
    print(f"{out}: rank.csv, rank.png, rank.pdf")
    return 0
