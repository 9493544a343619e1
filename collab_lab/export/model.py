"""The model to export: opened without its data folder, as fairseq's own model, its dictionaries.

A model of fairseq's own is exact where no head needs more than the d/H dimensions of a standard
head: see :mod:`.attention`.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu
from fairseq.data import Dictionary
from fairseq.data.data_utils import infer_language_pair
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerModelBase
from fairseq.tasks import setup_task
from omegaconf import OmegaConf
from torch import Tensor, nn

from collab_common.errors import UserError
from collab_lab.export.standard_weights import NotExactError, plain_weights
from collab_lab.trained.attentions import attentions
from collab_lab.trained.checkpoint import Trained, check_data, check_finite
from collab_lab.trained.untrained import untrained
from fairseq_collab.attention import HeadAttention
from fairseq_collab.models.base import Family
from fairseq_collab.models.checks import register_dictionary_signature
from fairseq_collab.models.families import LANGUAGE_MODEL
from fairseq_collab.models.variants import family_of
from fairseq_compat.checkpoints import naming

_ELSE = "--format ct2 takes heads of every size"
#: fairseq's task for one model of many languages.
MULTILINGUAL = "translation_multi_simple_epoch"
#: The subword model of a data folder.
SUBWORDS = "spm.model"


def inexact(trained: Trained, reason: str, todo: str | None = _ELSE) -> UserError:
    """The error that an exact export is impossible."""
    return UserError(f"no exact export: {reason}", trained.path, todo)


def load(path: Path) -> Trained:
    """Read a checkpoint and build its model, with placeholders as dictionaries."""
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
    sizes_from = weights if trained.model is None else trained.model.state_dict()
    model: Any = untrained(options, trained.cfg, sizes_from, trained.path)
    for name, buffer in model.named_buffers():
        if name.endswith("dictionary_signature") and name in weights:
            buffer.copy_(weights[name])  # that of a placeholder would be rejected
    with naming(trained.path):
        model.load_state_dict(weights, strict=True, model_cfg=options)
    evaluated: nn.Module = model.eval()
    return evaluated


def write(trained: Trained, folder: Path) -> None:
    """``model.pt``, a checkpoint of fairseq's own model: no ``--user-dir`` is needed."""
    result = plain(trained)
    extra = {k: v for k, v in result.state["extra_state"].items() if k != "train_iterator"}
    result = replace(result, state={**result.state, "extra_state": extra})
    result.cfg.common.user_dir = None
    result.save(folder / "model.pt")


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
    ours = [a for a in attentions(trained.model) if isinstance(a.module, HeadAttention)]
    replaced = tuple(f"{attention.name}." for attention in ours)
    weights = {
        name: weight
        for name, weight in trained.model.state_dict().items()
        if not name.startswith(replaced) and not name.endswith("signature")
    }
    for attention in ours:
        count = common_heads(trained, attention.name.partition(".")[0])
        try:
            heads = plain_weights(attention.module, attention.module.embed_dim // count, count)
        except NotExactError as error:
            raise inexact(trained, f"{attention.name}: {error}") from error
        weights |= {f"{attention.name}.{weight}": value for weight, value in heads.items()}
    return weights


def common_heads(trained: Trained, stack: str) -> int:
    """The number of heads of all attentions in one stack of layers, except those without heads."""
    in_stack = [a for a in attentions(trained.model) if a.name.startswith(f"{stack}.")]
    numbers = {a.module.num_heads: a.name for a in in_stack if a.module.num_heads}
    if len(numbers) > 1:
        listed = ", ".join(f"{name} has {number} heads" for number, name in numbers.items())
        problem = f"{listed}; other engines have one number in the {stack}"
        raise inexact(trained, problem, None)
    return next(iter(numbers), 1)


def stock_options(trained: Trained, family: Family) -> Any:
    """Options of fairseq's own model of the family."""
    options, arch = trained.options, family.prefix.rstrip("_")
    values = {option.name: options.get(option.name) for option in fields(family.options)}
    for side, layers in trained.heads.items():
        if side == "cross" or not layers:
            continue
        heads, dim = common_heads(trained, side), options[f"{side}_embed_dim"]
        if dim % heads:
            problem = f"{heads} heads in the {side} do not divide the model's size {dim}"
            raise inexact(trained, problem)
        values[f"{side}_attention_heads"] = heads
        values[f"{side}_layers_to_keep"] = None  # the others are already gone
        values[f"{side}_layers"] = len(layers)
        if side == "decoder":
            for size in ("decoder_input_dim", "decoder_output_dim"):
                values[size] = options[size] or dim
    if family is not LANGUAGE_MODEL:
        return Namespace(**{**values, "_name": arch, "arch": arch})
    for option in family.ignored:
        if options[option]:
            problem = f"fairseq's own language model ignores --{option.replace('_', '-')}"
            raise inexact(trained, problem, None)
    values |= {"_name": arch, "max_target_positions": trained.model.decoder.max_target_positions}
    return OmegaConf.create(values)


# ---- engines that translate ---------------------------------------------------------------------


def check_engine(
    trained: Trained, engine: str, activations: Collection[str], post_norm_only: bool = False
) -> None:
    """Raise UserError for a model that ``engine`` cannot compute.

    Args:
        activations: those that the engine has, by fairseq's names.
        post_norm_only: the engine normalises after each block, and nowhere else.
    """
    todo = "--format fairseq keeps it"
    model = trained.model
    if not isinstance(model, TransformerModelBase):
        raise inexact(trained, f"a {type(model).__name__} does not translate", todo)
    cfg, decoder = model.encoder.cfg, model.decoder
    dims = (cfg.encoder.embed_dim, cfg.decoder.embed_dim)
    pre_norm = cfg.encoder.normalize_before or cfg.decoder.normalize_before
    resized = decoder.project_in_dim is not None or decoder.project_out_dim is not None
    without_cross = cfg.no_cross_attention or cfg.cross_self_attention
    unsupported = {
        "--no-cross-attention, --cross-self-attention": without_cross,
        f"two sizes of encoder and decoder ({dims[0]} and {dims[1]})": dims[0] != dims[1],
        "--adaptive-softmax-cutoff": decoder.adaptive_softmax is not None,
        "--decoder-input-dim, --decoder-output-dim": resized,
        "--base-layers": cfg.base_layers,
        f"--activation-fn {cfg.activation_fn}": str(cfg.activation_fn) not in activations,
        "--encoder-normalize-before, --decoder-normalize-before": post_norm_only and pre_norm,
        "--layernorm-embedding": post_norm_only and cfg.layernorm_embedding,
    }
    for feature, present in unsupported.items():
        if present:
            raise inexact(trained, f"{engine} does not support {feature}", todo)


class Vocabulary(NamedTuple):
    """The languages of a translation model and their dictionaries.

    Attributes:
        subwords: the sentencepiece model of both languages, if the data folder has one.
    """

    source_lang: str
    target_lang: str
    source: Dictionary
    target: Dictionary
    subwords: Path | None = None


def vocabulary(trained: Trained, data: Path | None) -> Vocabulary:
    """The dictionaries of a translation model, from its data folder.

    Args:
        data: default: the folder of the training.
    """
    task = trained.cfg.task
    if task._name not in ("translation", MULTILINGUAL):
        problem = f"its task is {task._name!r}, not translation"
        raise inexact(trained, problem, "--format fairseq keeps it")
    folder = data or Path(task.data)
    todo = f"give the folder that {trained.path} was trained on"
    check_data(folder, todo)
    if task._name == MULTILINGUAL:
        return _of_many_languages(trained, folder, todo)
    langs = (task.source_lang, task.target_lang)
    if None in langs:
        langs = infer_language_pair(str(folder))
    if None in langs:
        raise UserError("the names of its files do not contain the languages", folder, todo)
    stacks = (trained.model.encoder, trained.model.decoder)
    source, target = (
        _dictionary(folder / f"dict.{lang}.txt", stack, todo)
        for lang, stack in zip(langs, stacks, strict=True)
    )
    subwords = folder / SUBWORDS
    return Vocabulary(*langs, source, target, subwords if subwords.is_file() else None)


def _of_many_languages(trained: Trained, folder: Path, todo: str) -> Vocabulary:
    """The dictionaries with the symbols of languages, which the task adds to the files' words."""
    try:
        task = setup_task(Namespace(**{**vars(trained.cfg.task), "data": str(folder)}))
    except FileNotFoundError as error:
        raise UserError("dictionary not found", error.filename or folder, todo) from error
    source, target = (
        _checked(words, folder, stack, todo)
        for words, stack in (
            (task.source_dictionary, trained.model.encoder),
            (task.target_dictionary, trained.model.decoder),
        )
    )
    return Vocabulary("", "", source, target)


def _dictionary(path: Path, stack: Any, todo: str) -> Dictionary:
    if not path.is_file():
        raise UserError("dictionary not found", path, todo)
    return _checked(Dictionary.load(str(path)), path, stack, todo)


def _checked(words: Dictionary, path: Path, stack: Any, todo: str) -> Dictionary:
    expected = stack.embed_tokens.num_embeddings
    if len(words) != expected:
        raise UserError(f"has {len(words)} symbols, the model {expected}", path, todo)
    if hasattr(stack, "dictionary_signature"):
        probe = nn.Module()
        register_dictionary_signature(probe, words)
        if not torch.equal(probe.get_buffer("dictionary_signature"), stack.dictionary_signature):
            raise UserError("has other symbols than the model, or another order", path, todo)
    return words


def position_table(stack: Any) -> Tensor:
    """The position embeddings by position from 0: ``(positions, d)``; zeros without any.

    fairseq counts from ``padding_idx + 1``.
    """
    module = stack.embed_positions
    if module is None:
        longest = stack.max_positions()
        return stack.embed_tokens.weight.new_zeros(longest, stack.layers[0].embed_dim)
    table = module.weight if isinstance(module, nn.Embedding) else module.weights
    return table.detach()[module.padding_idx + 1 :]
