"""``fairseq-collab cost``: what a model costs: parameters, and cache while it decodes.

Counts come from the built model, not from formulas.  Cache figures are for one token of one
sentence, summed over decoder layers, in single precision: a target token is cached by decoder
self-attention (once a beam), a source token by cross-attention (once a sentence here; once a beam
in fairseq's transformer).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fairseq import utils
from fairseq.checkpoint_utils import load_checkpoint_to_cpu
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import build_model
from fairseq.modules import MultiheadAttention
from torch import nn

from collab_common.errors import UserError
from fairseq_collab.attention import HeadAttention
from fairseq_collab.checkpoints.opener import placeholder
from fairseq_collab.models.layers import is_copy
from fairseq_collab.models.translation import HeadTransformer
from fairseq_collab.models.variants import COLLABORATIVE

BYTES_PER_FLOAT = 4


@dataclass(frozen=True)
class Cost:
    """Parameters (each shared one once) and cached bytes a token (single precision)."""

    parameters: int
    attention_parameters: int
    key_bytes_per_target_token: int
    value_bytes_per_target_token: int
    key_bytes_per_source_token: int
    value_bytes_per_source_token: int


def cost(model: Any) -> Cost:
    """Count a fairseq encoder-decoder transformer, stock or ours."""
    target, source = (0, 0), (0, 0)
    for layer in model.decoder.layers:
        target = _add(target, cached_floats(layer.self_attn))
        if layer.encoder_attn is not None:
            source = _add(source, cached_floats(layer.encoder_attn))
    key_target, value_target, key_source, value_source = (
        BYTES_PER_FLOAT * floats for floats in (*target, *source)
    )
    return Cost(
        parameters=sum(p.numel() for p in used_parameters(model)),
        attention_parameters=sum(
            p.numel()
            for module in model.modules()
            if isinstance(module, (HeadAttention, MultiheadAttention))
            for p in module.parameters()
        ),
        key_bytes_per_target_token=key_target,
        value_bytes_per_target_token=value_target,
        key_bytes_per_source_token=key_source,
        value_bytes_per_source_token=value_source,
    )


def used_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """All parameters but the copies that fairseq 0.12.2's encoder layers keep of their weights."""
    seen: set[int] = set()
    for name, parameter in model.named_parameters():
        if not is_copy(name) and id(parameter) not in seen:
            seen.add(id(parameter))
            yield parameter


def cached_floats(attention: Any) -> tuple[int, int]:
    """Numbers that one token's keys and values take in the cache of ``attention``."""
    if isinstance(attention, HeadAttention):
        return attention.cached_floats_per_token()
    return attention.embed_dim, attention.embed_dim


def _add(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0] + b[0], a[1] + b[1]


def load_architecture(path: Path, **overrides: Any) -> nn.Module:
    """The model of a checkpoint, with other options where ``overrides`` says so, without weights.

    Only sizes are wanted: the dictionaries are placeholders of the right length.

    Raises:
        UserError: the file is not a checkpoint of an encoder-decoder transformer, or its
            architecture is a plug-in's that is not loaded.
    """
    state = load_checkpoint_to_cpu(str(path), arg_overrides=overrides)
    cfg = state.get("cfg") or convert_namespace_to_omegaconf(state["args"])
    sizes = []
    for side in ("encoder", "decoder"):
        name = f"{side}.embed_tokens.weight"
        if name not in state["model"]:
            raise UserError(
                f"not an encoder-decoder transformer: it has no {name}",
                where=path,
                todo="give a checkpoint of a translation model",
            )
        sizes.append(len(state["model"][name]))
    source = placeholder(sizes[0])
    joined = getattr(cfg.model, "share_all_embeddings", False)
    target = source if joined else placeholder(sizes[1])
    task = SimpleNamespace(source_dictionary=source, target_dictionary=target)
    try:
        return build_model(cfg.model, task)
    except UserError as error:
        error.where = error.where or path
        raise


def table(rows: list[tuple[str, Cost]]) -> str:
    """A Markdown table, one line a model."""
    columns = [
        "model",
        "parameters",
        "in attention",
        "key bytes/target token",
        "value bytes/target token",
        "key bytes/source token",
        "value bytes/source token",
    ]
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)]]
    lines += [[name, *(f"{number:,}" for number in astuple(found))] for name, found in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
    rows = []
    for path in args.checkpoints:
        model = load_architecture(path)
        rows.append((str(path), cost(model)))
        if isinstance(model, HeadTransformer) and model.variant is COLLABORATIVE:
            ordinary = load_architecture(path, collaborative_sites="none")
            rows.append(("the same with concatenated heads", cost(ordinary)))
    print(table(rows))
    return 0
