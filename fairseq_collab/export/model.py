"""A checkpoint opened without its data folder, and its function as a model of fairseq's own.

That is exact where no head needs more than the d/H dimensions of a standard head: see
:mod:`.attention`.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fairseq.checkpoint_utils import load_checkpoint_to_cpu
from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.attention import HeadAttention
from fairseq_collab.export.attention import NotExactError, plain_weights
from fairseq_collab.models.base import Family
from fairseq_collab.models.families import LANGUAGE_MODEL
from fairseq_collab.models.variants import family_of
from fairseq_collab.trained.attentions import attentions
from fairseq_collab.trained.from_options import untrained
from fairseq_collab.trained.opener import Trained, check_finite, save

_ELSE = "--format ct2 takes heads of every size"


def inexact(trained: Trained, reason: str, todo: str | None = _ELSE) -> UserError:
    """The error that an exact export is impossible."""
    return UserError(f"no exact export: {reason}", trained.path, todo)


def load(path: Path) -> Trained:
    """Read a checkpoint and build its model, with placeholders as dictionaries.

    Raises:
        UserError: it cannot be read, holds NaN, or is of an unknown architecture.
    """
    state = load_checkpoint_to_cpu(str(path))
    weights = state.pop("model")
    trained = Trained(path, state, None, None)
    kind = ARCH_MODEL_REGISTRY.get(trained.arch)
    if kind is None or family_of(kind) is None:
        todo = "give a transformer or transformer_lm, fairseq's own or one of this project's"
        raise UserError(f"unknown architecture {trained.arch!r}", path, todo)
    check_finite(weights, path)
    return trained.with_model(build(trained, trained.cfg.model, weights))


def build(trained: Trained, options: Any, weights: Mapping[str, Tensor]) -> nn.Module:
    """The model of ``options`` with ``weights``, in eval mode."""
    known = weights if trained.model is None else trained.model.state_dict()
    model = untrained(options, trained.cfg, known, trained.path)
    for name, buffer in model.named_buffers():
        if name.endswith("dictionary_signature") and name in weights:
            buffer.copy_(weights[name])  # that of a placeholder would be rejected
    try:
        model.load_state_dict(weights, strict=True)
    except UserError as error:
        error.where = error.where or trained.path
        raise
    return model.eval()


def write(trained: Trained, folder: Path) -> None:
    """``model.pt``, a checkpoint of fairseq's own model: no ``--user-dir`` is needed."""
    result = plain(trained)
    extra = {k: v for k, v in result.state["extra_state"].items() if k != "train_iterator"}
    result = replace(result, state={**result.state, "extra_state": extra})
    result.cfg.common.user_dir = None
    save(result, folder / "model.pt")


def plain(trained: Trained) -> Trained:
    """The function as a model of fairseq's own; raises UserError where that is not exact."""
    family = family_of(type(trained.model))
    assert family is not None, "load() rejects other models"
    if type(trained.model) in family.stock:
        return trained
    options = stock_options(trained, family)
    # Built and loaded by fairseq, so that the state dict is fairseq's own.
    return trained.with_model(build(trained, options, stock_weights(trained)), options)


def stock_weights(trained: Trained) -> dict[str, Tensor]:
    """The weights of fairseq's own model."""
    ours = [one for one in attentions(trained.model) if isinstance(one.module, HeadAttention)]
    replaced = tuple(f"{one.name}." for one in ours)
    weights = {
        name: weight
        for name, weight in trained.model.state_dict().items()
        if not name.startswith(replaced) and not name.endswith("dictionary_signature")
    }
    for one in ours:
        count = common_heads(trained, one.name.partition(".")[0])
        try:
            heads = plain_weights(one.module, one.module.embed_dim // count, count)
        except NotExactError as error:
            raise inexact(trained, f"{one.name}: {error}") from error
        weights |= {f"{one.name}.{weight}": value for weight, value in heads.items()}
    return weights


def common_heads(trained: Trained, stack: str) -> int:
    """The number of heads of all attentions in one stack of layers, except those without heads."""
    own = [a for a in attentions(trained.model) if a.name.startswith(f"{stack}.")]
    own = [one for one in own if one.module.num_heads]
    if not own:
        return 1
    heads: int = own[0].module.num_heads
    for one in own:
        if one.module.num_heads != heads:
            what = f"{one.name} has {one.module.num_heads} heads, {own[0].name} has {heads}"
            raise inexact(trained, f"{what}; other engines have one number in the {stack}", None)
    return heads


def stock_options(trained: Trained, family: Family) -> Any:
    """Options of fairseq's own model of the family."""
    given, arch = trained.options, family.prefix.rstrip("_")
    values = {option.name: given.get(option.name) for option in fields(family.options)}
    for side, layers in trained.heads.items():
        if side == "cross" or not layers:
            continue
        heads, dim = common_heads(trained, side), given[f"{side}_embed_dim"]
        if dim % heads:
            what = f"{heads} heads in the {side} do not divide the model's size {dim}"
            raise inexact(trained, what)
        values[f"{side}_attention_heads"] = heads
        values[f"{side}_layers_to_keep"] = None  # the others are already gone
        values[f"{side}_layers"] = len(layers)
        if side == "decoder":
            for size in ("decoder_input_dim", "decoder_output_dim"):
                values[size] = given[size] or dim
    if family is not LANGUAGE_MODEL:
        return Namespace(**{**values, "_name": arch, "arch": arch})
    for option in family.ignored:
        if given[option]:
            what = f"fairseq's own language model ignores --{option.replace('_', '-')}"
            raise inexact(trained, what, None)
    values |= {"_name": arch, "max_target_positions": trained.model.decoder.max_target_positions}
    return OmegaConf.create(values)
