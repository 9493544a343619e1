"""The model to export: opened without its data folder, as fairseq's own model, its dictionaries.

A model of fairseq's own is exact where no head needs more than the d/H dimensions of a standard
head: see :mod:`.standard_weights`.
"""

from __future__ import annotations

import copy
import math
import re
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Collection, Mapping
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
from fairseq.utils import split_paths
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.nn.functional import pad

from collab_common.errors import UserError
from collab_lab.export.standard_weights import NotExactError, plain_weights
from collab_lab.pruning.surgery import weights_of
from collab_lab.trained.attentions import attentions, check_known, of_one_model
from collab_lab.trained.checkpoint import Trained, check_data, check_finite
from collab_lab.trained.untrained import load_weights, untrained
from fairseq_collab.models.base import Family
from fairseq_collab.models.checks import register_dictionary_signature
from fairseq_collab.models.families import LANGUAGE_MODEL
from fairseq_collab.models.layers import is_copy
from fairseq_collab.models.options import plain_options
from fairseq_collab.models.variants import family_of

_ELSE = "--format ct2 takes heads of every size"
#: fairseq's task for one model of many languages.
MULTILINGUAL = "translation_multi_simple_epoch"
#: The subword model of a data folder.
SUBWORDS = "spm.model"
#: fairseq's ``--max-len-b``.
MAX_LENGTH = 200
#: The weights of an engine's transformer by fairseq's names, and state that is none.
_OF_ENGINES = re.compile(
    r"(encoder|decoder)\.((embed_tokens|embed_positions)\.weight|version|"
    r"embed_positions\._float_tensor|layers\.\d+\.(self|encoder)_attn\..+|(layernorm_embedding|"
    r"layer_norm|layers\.\d+\.(fc[12]|(self_attn|encoder_attn|final)_layer_norm))\.(weight|bias))"
    r"|decoder\.output_projection\.weight"
)


def inexact(trained: Trained, reason: str, todo: str | None = _ELSE) -> UserError:
    """The error that an exact export is impossible."""
    if trained.is_language_model:  # for which there is no other format
        todo = None
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
    options = trained.cfg.model
    model: Any = build(trained, options, weights)
    for side in ("encoder", "decoder"):
        if hasattr(model, side):  # the layers that ``--*-layers-to-keep`` left
            setattr(options, f"{side}_layers", len(getattr(model, side).layers))
    return trained.with_model(model)


def build(trained: Trained, options: Any, weights: Mapping[str, Tensor]) -> nn.Module:
    """The model of ``options`` with ``weights``, in eval mode."""
    sizes_from = weights if trained.model is None else trained.model.state_dict()
    model: Any = untrained(options, trained.cfg, sizes_from, trained.path)
    for name, buffer in model.named_buffers():
        if name.endswith("dictionary_signature") and name in weights:
            buffer.copy_(weights[name])  # that of a placeholder would be rejected
    load_weights(model, weights, trained.path, options)
    return model.eval()


def write(trained: Trained, folder: Path) -> None:
    """``model.pt``, a checkpoint of fairseq's own model: no ``--user-dir`` is needed."""
    result = plain(trained)
    build(result, result.cfg.model, result.model.state_dict())  # fairseq takes all weights
    extra = {k: v for k, v in result.state["extra_state"].items() if k != "train_iterator"}
    cfg = copy.deepcopy(result.cfg)
    cfg.common.user_dir = None
    result = replace(result, state={**result.state, "extra_state": extra, "cfg": cfg})
    result.save(folder / "model.pt")
    report_padding(trained, lambda stack: trained.options[f"{stack}_embed_dim"])


def plain(trained: Trained) -> Trained:
    """The function as a model of fairseq's own; raises UserError where that is not exact."""
    family = family_of(type(trained.model))
    assert family is not None, "load() rejects other models"
    check_cache(trained)
    if type(trained.model) in family.stock:
        return trained
    options = stock_options(trained, family)
    # Built and loaded by fairseq, so that the state dict is fairseq's own.
    return trained.with_model(build(trained, options, stock_weights(trained)), options)


def check_cache(trained: Trained) -> None:
    """Raise UserError for a model that rounds its KV cache."""
    if any(getattr(a.module, "cache_bits", 0) for a in attentions(trained.model)):
        problem = "no exact export: the format has no rounded KV cache (--cache-bits)"
        raise UserError(problem, trained.path, "give --no-cache-bits to export without rounding")


def without_rounding(trained: Trained) -> Trained:
    """The model, changed in place to one that does not round its KV cache."""
    for attention in attentions(trained.model):
        attention.module.cache_bits = 0
    return trained


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
    return weights


def stock_heads(trained: Trained, stack: str) -> int:
    """The least number that no attention exceeds and that divides the model's size."""
    size = trained.options[f"{stack}_embed_dim"]
    every = attentions(trained.model)
    most = max(a.module.num_heads for a in every if a.name.startswith(f"{stack}."))
    return next((n for n in range(max(1, most), size + 1) if size % n == 0), most)


def report_padding(trained: Trained, width: Callable[[str], int], advice: str = "") -> None:
    """Print what an engine loses of removed and smaller heads.

    Args:
        width: of the heads of each attention there, by the stack of layers.
    """
    for stack in ("encoder", "decoder"):
        every = attentions(trained.model)
        widths = [a.module.out_proj.in_features for a in every if a.name.startswith(f"{stack}.")]
        total = len(widths) * width(stack) if widths else 0
        if zeros := total - sum(widths):
            reason = f"the {stack}'s attentions have one width there{advice}"
            print(
                f"{zeros} of {total} values of heads are zeros, and cost what heads cost: {reason}"
            )


def stock_options(trained: Trained, family: Family) -> Any:
    """Options of fairseq's own model of the family."""
    options, arch = trained.options, family.prefix.rstrip("_")
    values = {option.name: options.get(option.name) for option in fields(family.options)}
    for side, layers in trained.heads.items():
        if side == "cross" or not layers:
            continue
        values[f"{side}_attention_heads"] = stock_heads(trained, side)
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


# ---- engines that translate ---------------------------------------------------------------------


def check_engine(
    trained: Trained, engine: str, activations: Collection[str], post_norm_only: bool = False
) -> None:
    """Raise UserError for a model that ``engine`` cannot compute.

    Args:
        activations: those that the engine has, by fairseq's names.
        post_norm_only: the engine normalises after each block, and nowhere else.
    """
    check_cache(trained)
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
        "--quant-noise-scalar": cfg.quant_noise.scalar,
        f"--activation-fn {cfg.activation_fn}": str(cfg.activation_fn) not in activations,
        "--encoder-normalize-before, --decoder-normalize-before": post_norm_only and pre_norm,
        "--layernorm-embedding": post_norm_only and cfg.layernorm_embedding,
    }
    for feature, present in unsupported.items():
        if present:
            raise inexact(trained, f"{engine} does not support {feature}", todo)


def check_all_read(model: nn.Module, engine: str) -> None:
    """Raise UserError for a weight of a model that ``engine`` has no place for."""
    check_known(model)
    for name in model.state_dict():
        if not (_OF_ENGINES.fullmatch(name) or of_one_model(name) or is_copy(name)):
            raise UserError(f"no exact export: {engine} has no place for the weight {name}")


def longest_output(model: Any) -> int:
    """Tokens of the longest translation that ``fairseq-generate`` makes, without ``</s>``."""
    return min(MAX_LENGTH, int(model.max_decoder_positions()) - 1)


class Vocabulary(NamedTuple):
    """The languages of a translation model and their dictionaries.

    Attributes:
        subwords: the sentencepiece model of both languages, if the data folder has one.
        folder: the data folder.
    """

    source_lang: str
    target_lang: str
    source: Dictionary
    target: Dictionary
    subwords: Path | None = None
    folder: Path = Path()


def vocabulary(trained: Trained, data: Path | None) -> Vocabulary:
    """The dictionaries of a translation model, as its task reads them from its data folder.

    Args:
        data: default: the folder of the training.
    """
    cfg = copy.deepcopy(trained.cfg.task)
    if cfg._name not in ("translation", MULTILINGUAL):
        problem = f"its task is {cfg._name!r}, not translation"
        raise inexact(trained, problem, "--format fairseq keeps it")
    folder = data or Path(split_paths(cfg.data)[0])  # the first has the dictionaries
    todo = f"give the folder that {trained.path} was trained on"
    check_data(folder, todo)
    cfg.data, langs = str(folder), ("", "")
    if cfg._name != MULTILINGUAL:
        langs = (cfg.source_lang, cfg.target_lang)
        if None in langs:
            langs = infer_language_pair(cfg.data)
        if None in langs:
            raise UserError("the names of its files do not contain the languages", folder, todo)
        cfg.source_lang, cfg.target_lang = langs
    try:
        task = setup_task(cfg)
    except FileNotFoundError as error:
        raise UserError("dictionary not found", error.filename or folder, todo) from error
    sides = zip((task.source_dictionary, task.target_dictionary), langs,
                (trained.model.encoder, trained.model.decoder), strict=True)  # fmt: skip
    for words, lang, stack in sides:
        check_words(words, folder / f"dict.{lang}.txt" if lang else folder, stack, todo)
    subwords = folder / SUBWORDS
    found = subwords if subwords.is_file() and all(langs) else None
    return Vocabulary(*langs, task.source_dictionary, task.target_dictionary, found, folder)


def check_words(words: Dictionary, path: Path, stack: Any, todo: str) -> None:
    """Raise UserError unless a dictionary is that of a trained encoder or decoder."""
    expected = stack.embed_tokens.num_embeddings
    if len(words) != expected:
        raise UserError(f"has {len(words)} symbols, the model {expected}", path, todo)
    # fairseq finds the last of equal words, engines another (``#fairseq:overwrite``).
    if twice := [word for word, number in Counter(words.symbols).items() if number > 1]:
        raise UserError(f"has the symbol {twice[0]!r} twice: no exact export", path)
    if hasattr(stack, "dictionary_signature"):
        probe = nn.Module()
        register_dictionary_signature(probe, words)
        if not torch.equal(probe.get_buffer("dictionary_signature"), stack.dictionary_signature):
            raise UserError("has other symbols than the model, or another order", path, todo)


def position_table(stack: Any, positions: int) -> Tensor:
    """The embeddings of positions from 0: ``(positions, d)``; zeros without any.

    fairseq counts from ``padding_idx + 1``.  Learned ones end with NaN after the last.
    """
    module = stack.embed_positions
    if module is None:
        return stack.embed_tokens.weight.new_zeros(positions, stack.layers[0].embed_dim)
    first = module.padding_idx + 1
    if isinstance(module, nn.Embedding):
        table = module.weight.detach()[first : first + positions]
        return pad(table, (0, 0, 0, positions - len(table)), value=math.nan)
    table = module.get_embedding(first + positions, module.embedding_dim, module.padding_idx)
    return table[first:]
