"""``fairseq-collab cost``: parameters and cache bytes of models."""

from __future__ import annotations

import argparse
from dataclasses import astuple
from pathlib import Path

from fairseq import utils

from fairseq_collab.metrics.cost import cost, load_architecture
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
)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fairseq-collab cost",
        description="Parameters and cache bytes (single precision) of models, and of the same "
        "models with ordinary heads.",
    )
    parser.add_argument("checkpoints", type=Path, nargs="+", metavar="CHECKPOINT")
    parser.add_argument("--user-dir", metavar="DIR", help="a further plug-in, if a model is its")
    args = parser.parse_args(argv)
    utils.import_user_module(args)
    found = []
    for path in args.checkpoints:
        model = load_architecture(path)
        found.append((str(path), cost(model)))
        if isinstance(model, HeadTransformer) and model.variant is COLLABORATIVE:
            ordinary = load_architecture(path, collaborative_sites="none")
            found.append(("the same with concatenated heads", cost(ordinary)))
    rows = [[name, *(f"{number:,}" for number in astuple(one))] for name, one in found]
    print(grid(COLUMNS, rows))
    return 0
