"""``fairseq-collab cost``: parameters, cache bytes and multiply-adds of models."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any

from collab_common.command import positive
from fairseq_collab.commands import options
from fairseq_collab.metrics.cost import LENGTH, cost, load_architecture, multiply_adds
from fairseq_collab.models.translation import HeadTransformer
from fairseq_collab.models.variants import COLLABORATIVE
from fairseq_collab.results.tables import grid, num

COLUMNS = (
    "model",
    "parameters",
    "in attention",
    "key bytes/target token",
    "value bytes/target token",
    "key bytes/source token",
    "value bytes/source token",
    "multiply-adds",
)
#: What of it is of a source.
OF_SOURCE = [COLUMNS.index(name) - 1 for name in COLUMNS if name.endswith("source token")]


def main(argv: list[str]) -> int:
    parser = options.parser_of(
        "cost",
        "Parameters, cache bytes (single precision; a latent or memory that is both "
        "counts as keys) and multiply-adds of translation models and language models; a "
        "transformer_collab beside the same model with ordinary heads.",
    )
    parser.add_argument("checkpoints", type=Path, nargs="+", metavar="CHECKPOINT")
    parser.add_argument(
        "--length", type=positive, default=LENGTH, metavar="N",
        help="multiply-adds are those of so many tokens on each side, or of a language model's "
        f"block of so many (default: {LENGTH})",
    )  # fmt: skip
    options.add_user_dir(parser)
    args = parser.parse_args(argv)
    options.import_plugin(args)
    found = []
    for path in args.checkpoints:
        model = load_architecture(path)
        found.append((str(path), numbers(model, args.length)))
        if isinstance(model, HeadTransformer) and model.variant is COLLABORATIVE:
            ordinary = load_architecture(path, collaborative_sites="none")
            found.append(("the same with concatenated heads", numbers(ordinary, args.length)))
    rows = [[name, *(num(number, ",") for number in one)] for name, one in found]
    print(grid(COLUMNS, rows))
    print(f"multiply-adds: {args.length} tokens on each side, or in a language model's block")
    return 0


def numbers(model: Any, length: int) -> list[int | None]:
    """What stands in the columns; None where a language model has no source."""
    found: list[int | None] = [*astuple(cost(model)), multiply_adds(model, length, length)]
    alone = not hasattr(model, "encoder")
    return [None if alone and place in OF_SOURCE else one for place, one in enumerate(found)]
