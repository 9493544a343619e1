"""``fairseq-collab cost``: parameters, cache bytes and multiply-adds of models."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from collab_common.command import positive
from fairseq_collab.commands import options

COLUMNS = {
    "parameters": "parameters",
    "attention_parameters": "in attention",
    "key_bytes_per_target_token": "key bytes/target token",
    "value_bytes_per_target_token": "value bytes/target token",
    "key_bytes_per_source_token": "key bytes/source token",
    "value_bytes_per_source_token": "value bytes/source token",
    "multiply_adds": "multiply-adds",
}


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "cost",
        "Parameters, KV cache per token (bytes in single precision; a latent that is key and value "
        "counts as key) and multiply-adds of translation models and language models; with "
        "shared keys, also of the model with standard heads instead.",
    )
    parser.add_argument("checkpoints", type=Path, nargs="+", metavar="CHECKPOINT")
    parser.add_argument(
        "--length", type=positive, default=30, metavar="N",
        help="tokens on each side, or in a language model's block, for multiply-adds (default: 30)",
    )  # fmt: skip
    options.add_user_dir(parser)
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse_args(argv)
    for path in args.checkpoints:
        options.check_checkpoint(path)
    options.import_models(args)
    from fairseq_collab.metrics.cost import load_architecture
    from fairseq_collab.models.families import HeadTransformer
    from fairseq_collab.models.shared_heads import IN_TYPES
    from fairseq_collab.models.variants import COLLABORATIVE
    from fairseq_collab.results.render import grid

    rows = []
    for path in args.checkpoints:
        model = load_architecture(path)
        rows.append([str(path), *cells(model, args.length)])
        if isinstance(model, HeadTransformer) and model.variant is COLLABORATIVE:
            standard = load_architecture(path, key_dim=0, **dict.fromkeys(IN_TYPES))
            rows.append(["  with standard heads", *cells(standard, args.length)])
    print(grid(["model", *COLUMNS.values()], rows))
    print(f"multiply-adds: {args.length} tokens on each side, or in a language model's block")
    return 0


def cells(model: Any, length: int) -> list[str]:
    """The cells of a row; "-" where a language model has no source."""
    from fairseq_collab.metrics.cost import cost, multiply_adds
    from fairseq_collab.results.render import num

    found = {**asdict(cost(model)), "multiply_adds": multiply_adds(model, length, length)}
    alone = not hasattr(model, "encoder")
    return [num(None if alone and "source" in name else found[name]) for name in COLUMNS]
