"""Requirements of other engines for translation: a supported model, its dictionaries."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import infer_language_pair
from fairseq.models.transformer import TransformerModelBase
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.export.model import inexact
from fairseq_collab.models.loading import register_dictionary_signature
from fairseq_collab.trained.opener import Trained, check_data

#: The subword model of a data folder.
SUBWORDS = "spm.model"


def check(
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
    found = {
        "--no-cross-attention, --cross-self-attention": without_cross,
        f"two sizes of encoder and decoder ({dims[0]} and {dims[1]})": dims[0] != dims[1],
        "--adaptive-softmax-cutoff": decoder.adaptive_softmax is not None,
        "--decoder-input-dim, --decoder-output-dim": resized,
        "--base-layers": cfg.base_layers,
        f"--activation-fn {cfg.activation_fn}": str(cfg.activation_fn) not in activations,
        "--encoder-normalize-before, --decoder-normalize-before": post_norm_only and pre_norm,
        "--layernorm-embedding": post_norm_only and cfg.layernorm_embedding,
    }
    for what, present in found.items():
        if present:
            raise inexact(trained, f"{engine} does not support {what}", todo)


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

    Raises:
        UserError: the model is of another task, or the dictionaries are missing, or not its own.
    """
    task = trained.cfg.task
    if task.get("_name") != "translation":
        what = f"its task is {task.get('_name')!r}, not translation"
        raise inexact(trained, what, "--format fairseq keeps it")
    folder = data or Path(task.data)
    todo = f"give the folder that {trained.path} was trained on"
    check_data(folder, todo)
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


def _dictionary(path: Path, stack: Any, todo: str) -> Dictionary:
    if not path.is_file():
        raise UserError("there is no such dictionary", path, todo)
    found = Dictionary.load(str(path))
    expected = stack.embed_tokens.num_embeddings
    if len(found) != expected:
        raise UserError(f"has {len(found)} symbols, the model {expected}", path, todo)
    if hasattr(stack, "dictionary_signature"):
        probe = nn.Module()
        register_dictionary_signature(probe, found)
        if not torch.equal(probe.get_buffer("dictionary_signature"), stack.dictionary_signature):
            raise UserError("has other symbols than the model, or another order", path, todo)
    return found


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
