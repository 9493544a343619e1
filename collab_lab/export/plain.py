"""A trained model in the form of fairseq's own model, with the same function.

It is exact if no head needs more than the d/H dimensions of a standard head: see
:mod:`.standard_weights`.
"""

from __future__ import annotations

import copy
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.nn.functional import pad

from collab_common.errors import UserError
from collab_lab.export.standard_weights import NotExactError, plain_weights
from collab_lab.trained.attentions import attentions, check_known
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward, feed_forwards
from collab_lab.trained.from_options import build_from_options, load_weights
from collab_lab.trained.rebuilt import finish_problems, function_problems, weights_of
from fairseq_collab.models.base import Family
from fairseq_collab.models.families import LANGUAGE_MODEL
from fairseq_collab.models.options import plain_options
from fairseq_collab.models.variants import family_of

_ELSE = "--format ct2 supports heads of any size"


def inexact(trained: Trained, reason: str, todo: str | None = _ELSE) -> UserError:
    """The error that says why an exact export is impossible, and which format would work."""
    if trained.is_language_model:  # for which there is no other format
        todo = None
    return UserError(f"no exact export: {reason}", trained.path, todo)


def build(trained: Trained, options: Any, weights: Mapping[str, Tensor]) -> nn.Module:
    """Build the model of ``options`` with ``weights``, in eval mode."""
    model: Any = build_from_options(options, trained.cfg, trained.model.state_dict(), trained.path)
    load_weights(model, weights, trained.path)
    return model.eval()


def write_plain(trained: Trained, folder: Path) -> None:
    """Write ``model.pt``, a checkpoint of fairseq's own model.

    It needs no ``--user-dir`` unless a plug-in defines the task (:func:`own_task`).
    """
    result = plain(trained)
    build(result, result.cfg.model, result.model.state_dict())  # fairseq takes all weights
    # A plan says what of the heads and the cache is left: here they are filled up again.
    left_out = ("train_iterator", "plan")
    extra = {k: v for k, v in result.state["extra_state"].items() if k not in left_out}
    cfg = copy.deepcopy(result.cfg)
    if own_task(trained) is None:
        cfg.common.user_dir = None
    result = replace(result, state={**result.state, "extra_state": extra, "cfg": cfg})
    result.save(folder / "model.pt")


def own_task(trained: Trained) -> str | None:
    """The name of the model's task if a plug-in defines it; None if it is fairseq's own."""
    task = trained.cfg.task
    name = getattr(task, "_name", None) or getattr(task, "task", None)
    kind = TASK_REGISTRY.get(name)
    is_own = kind is not None and kind.__module__.partition(".")[0] != "fairseq"
    return str(name) if is_own else None


def plain(trained: Trained) -> Trained:
    """Convert to fairseq's own model with the same function; UserError if that is not exact."""
    family = check_source(trained)
    if type(trained.model) in family.stock:
        registered = ARCH_CONFIG_REGISTRY.get(trained.arch)
        package = getattr(registered, "__module__", "").partition(".")[0]
        is_known = registered is None or package == "fairseq"
        check_function(trained)
        return trained if is_known else trained.with_model(trained.model, renamed(trained, family))
    options = stock_options(trained, family)
    weights = stock_weights(trained)
    check_function(trained)
    # Built and loaded by fairseq, so that the state dict is fairseq's own.
    return trained.with_model(build(trained, options, weights), options)


def check_function(trained: Trained) -> None:
    """Raise UserError if weights and options do not say what the model computes."""
    for problem in function_problems(trained):
        raise inexact(trained, problem, None)


def renamed(trained: Trained, family: Family) -> Any:
    """Options of a model of fairseq's class, without the name that a plug-in has for its sizes.

    Stock fairseq lacks that name; the sizes are among the options.
    """
    arch, options = family.prefix.rstrip("_"), trained.cfg.model
    if isinstance(options, Namespace):
        return Namespace(**{**vars(options), "_name": arch, "arch": arch})
    return OmegaConf.create({**plain_options(options), "_name": arch})


def check_source(trained: Trained) -> Family:
    """The family of the model; UserError if it is unknown or the model rounds its KV cache."""
    family = family_of(type(trained.model))
    if family is None or trained.foreign is not None:
        todo = "give a transformer or transformer_lm, fairseq's own or one of this project's"
        name = trained.foreign or type(trained.model).__name__
        problem = f"unknown architecture {trained.arch!r} ({name})"
        raise UserError(problem, trained.path, todo)
    for problem in finish_problems(trained.model):
        raise inexact(trained, problem, "--format onnx exports the model as it is")
    if any(getattr(a.module, "cache_bits", 0) for a in attentions(trained.model)):
        problem = "no exact export: this format cannot round the KV cache (--cache-bits)"
        raise UserError(problem, trained.path, "give --no-cache-bits to export without rounding")
    return family


def is_rounded(trained: Trained) -> bool:
    """Whether an attention rounds its KV cache."""
    return any(getattr(a.module, "cache_bits", 0) for a in attentions(trained.model))


def without_rounding(trained: Trained) -> Trained:
    """Stop a model from rounding its KV cache, in place, and return it with such options."""
    for attention in attentions(trained.model):
        attention.module.cache_bits = 0
    options = {
        name: "0" if name == "cache_bits" else None if name.startswith("cache_bits_in") else value
        for name, value in trained.options.items()
    }
    return trained.with_model(trained.model, OmegaConf.create({**options, "_name": trained.arch}))


def stock_weights(trained: Trained) -> dict[str, Tensor]:
    """The weights of fairseq's own model."""
    check_known(trained.model, trained.path)
    ours = attentions(trained.model)
    replaced = tuple(f"{attention.name}." for attention in ours)
    weights = {
        name: weight
        for name, weight in weights_of(trained).items()
        if not name.startswith(replaced)
    }
    for attention in ours:
        count = stock_heads(trained, attention.name.partition(".")[0])
        try:
            heads = plain_weights(attention.module, attention.module.embed_dim // count, count)
        except NotExactError as error:
            raise inexact(trained, f"{attention.name}: {error}") from error
        weights |= {f"{attention.name}.{weight}": value for weight, value in heads.items()}
    for block in feed_forwards(trained.model):
        weights |= filled_block(block, stock_width(trained, block.side))
    return weights


def filled_block(block: FeedForward, width: int) -> dict[str, Tensor]:
    """The weights of a feed-forward block, filled up to ``width`` with units of no effect."""
    maps, more = block.module, width - block.width
    return {
        f"{block.name}.fc1.weight": pad(maps.fc1.weight, (0, 0, 0, more)),
        f"{block.name}.fc1.bias": pad(maps.fc1.bias, (0, more)),
        f"{block.name}.fc2.weight": pad(maps.fc2.weight, (0, more)),
    }


def filled_blocks(trained: Trained) -> str | None:
    """A line about narrower feed-forward blocks that the export must widen, if there are any."""
    widths: dict[str, set[int]] = {}
    for block in feed_forwards(trained.model):
        widths.setdefault(block.side, set()).add(block.width)
    filled = [f"{side} {max(of)}" for side, of in widths.items() if len(of) > 1]
    return f"feed-forward blocks: filled up to the widest ({', '.join(filled)})" if filled else None


def stock_width(trained: Trained, side: str) -> int:
    """The width of the widest feed-forward block of a side, at least 1: fairseq has one of all."""
    blocks = feed_forwards(trained.model)
    return max(1, *(block.width for block in blocks if block.side == side))


def stock_heads(trained: Trained, stack: str) -> int:
    """The least number of heads that divides the model's size and that no attention exceeds."""
    layers = [a.module for a in attentions(trained.model) if a.name.startswith(f"{stack}.")]
    most, size = max(layer.num_heads for layer in layers), layers[0].embed_dim
    return next((n for n in range(max(1, most), size + 1) if size % n == 0), most)


def stock_options(trained: Trained, family: Family) -> Any:
    """Options of fairseq's own model of the family."""
    options, arch = trained.options, family.prefix.rstrip("_")
    values = {option.name: options.get(option.name) for option in fields(family.options)}
    for side, layers in trained.heads.items():
        if side == "cross" or not layers:
            continue
        values[f"{side}_attention_heads"] = stock_heads(trained, side)
        values[f"{side}_ffn_embed_dim"] = stock_width(trained, side)
        values[f"{side}_layers_to_keep"] = None  # the others are already gone
        values[f"{side}_layers"] = len(layers)
        if side == "decoder":
            for size in ("decoder_input_dim", "decoder_output_dim"):
                values[size] = options[size] or options["decoder_embed_dim"]
    if family is not LANGUAGE_MODEL:  # with the options of its task, as fairseq-train saves them
        task = trained.cfg.task
        of_task = plain_options(task) if OmegaConf.is_config(task) else vars(task)
        return Namespace(**{**of_task, **values, "_name": arch, "arch": arch, "task": task._name})
    for option in family.ignored:
        if options[option]:
            problem = f"fairseq's own language model ignores --{option.replace('_', '-')}"
            raise inexact(trained, problem, None)
    values |= {"_name": arch, "max_target_positions": trained.model.decoder.max_target_positions}
    return OmegaConf.create(values)
