"""``fairseq-collab cost``: count the parameters, cache bytes and multiply-adds of models."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from collab_lab.cli import options

#: Columns, and the numbers whose sum each of them shows.
COLUMNS = {
    "parameters": ["parameters"],
    "in attention": ["attention_parameters"],
    "KV bytes/target token": ["key_bytes_per_target_token", "value_bytes_per_target_token"],
    "KV bytes/source token": ["key_bytes_per_source_token", "value_bytes_per_source_token"],
    "multiply-adds": ["multiply_adds"],
}
#: Those with shares of the first model's numbers; of the cache there is one share, see ``main``.
WITH_SHARE = ("parameters", "in attention", "multiply-adds")


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "cost",
        "Count parameters, KV cache per token (bytes of keys and values in 16-bit numbers, or in "
        "the bits of --cache-bits; a latent counts as key) and multiply-adds of translation models "
        "and language models.",
    )
    parser.add_argument(
        "checkpoints", type=Path, nargs="+", metavar="CHECKPOINT", help="checkpoint of a model"
    )
    options.add_user_dir(parser)
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse_args(argv)
    for path in args.checkpoints:
        options.check_checkpoint(path)
    options.import_models(args)
    from collab_lab.metrics.cost import LENGTH, LONG, SEARCH_BEAM, load_architecture
    from collab_lab.results.render import grid

    models = {str(path): load_architecture(path) for path in args.checkpoints}
    costs = {name: costs_of(model) for name, (model, _) in models.items()}
    first = next(iter(costs))
    columns = ["model", "KV cache", *COLUMNS, "KV bytes of a search"]
    print(grid(columns, [[name, *cells(costs[name], costs[first])] for name in costs]))
    for name, (_, shrunk) in models.items():
        if shrunk is not None:
            print(f"{name} is shrunk: {shrunk}")
    print("KV cache: share of the bytes of a 16-bit cache of standard heads")
    print(
        f"KV bytes of a search: beam {SEARCH_BEAM}, {LONG:,} tokens on each side; at least (slots "
        "that a beam still sees), and with all slots of all beams"
    )
    if len(costs) > 1:
        print(f"other %: of {first}")
    print(f"multiply-adds: {LENGTH} tokens on each side, or in a language model's block")
    return 0


def costs_of(model: Any) -> dict[str, Any]:
    """The costs of a model."""
    from collab_lab.metrics.cost import cache_share, cost, multiply_adds, searched_bytes

    numbers = {**asdict(cost(model)), "multiply_adds": multiply_adds(model)}
    return {**numbers, "cache_share": cache_share(model), "searched": searched_bytes(model)}


def cells(costs: dict[str, Any], baseline: dict[str, Any]) -> Iterator[str]:
    """The cells of a row: the share of the cache, then costs, their sums and shares."""
    yield f"{costs['cache_share']:.1%}"
    for column, names in COLUMNS.items():
        parts, baseline_parts = ([x.get(name, 0) for name in names] for x in (costs, baseline))
        total, whole = sum(parts), sum(baseline_parts)
        breakdown = f" = {' + '.join(f'{part:,}' for part in parts)}" if len(parts) > 1 else ""
        has_share = whole and costs is not baseline and column in WITH_SHARE
        percent = f" ({total / whole:.0%})" if has_share else ""
        yield f"{total:,}{breakdown}{percent}" if total else "-"
    live, every = costs["searched"]
    yield f"{live:,} to {every:,}" if live < every else f"{every:,}"
