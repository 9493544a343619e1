"""``fairseq-collab cost``: parameters, cache bytes and multiply-adds of models."""

from __future__ import annotations

import argparse
from dataclasses import astuple
from pathlib import Path

from fairseq import utils

from fairseq_collab.metrics.cost import LENGTH, cost, load_architecture, multiply_adds
from fairseq_collab.models.translation import HeadTransformer
from fairseq_collab.models.variants import COLLABORATIVE
from fairseq_collab.results.tables import grid

COLUMNS = (
    "model",
    "parameters",
    "in attention",
    "key bytes/target token",
    "value bytes/target token",
    "key bytes/source token",
    "value bytes/source token",
    f"multiply-adds of {LENGTH} + {LENGTH} tokens",
)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fairseq-collab cost",
        description="Parameters, cache bytes (single precision; a latent or memory that is both "
        "counts as keys) and multiply-adds of models, and of the same models with ordinary heads.",
    )
    parser.add_argument("checkpoints", type=Path, nargs="+", metavar="CHECKPOINT")
    parser.add_argument("--user-dir", metavar="DIR", help="a further plug-in, if a model is its")
    args = parser.parse_args(argv)
    utils.import_user_module(args)
    found = []
    for path in args.checkpoints:
        model = load_architecture(path)
        found.append((str(path), model))
        if isinstance(model, HeadTransformer) and model.variant is COLLABORATIVE:
            ordinary = load_architecture(path, collaborative_sites="none")
            found.append(("the same with concatenated heads", ordinary))
    rows = [[name, *map(_shown, (*astuple(cost(one)), multiply_adds(one)))] for name, one in found]
    print(grid(COLUMNS, rows))
    return 0


def _shown(number: int | None) -> str:
    """A number with separators; none where there is no count."""
    return "-" if number is None else f"{number:,}"
