"""What formats for translation need: a model that the engine knows, dictionaries."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import infer_language_pair
from fairseq.models.transformer import TransformerModelBase
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.export.model import refused
from fairseq_collab.models.signature import register_dictionary_signature
from fairseq_collab.trained.opener import Trained, check_data


def check(
    trained: Trained, engine: str, activations: Collection[str], post_norm_only: bool = False
) -> None:
    """Refuse a model of which ``engine`` cannot compute what fairseq's computes; raises UserError.

    Args:
        activations: that the engine knows, by fairseq's names.
        post_norm_only: it normalises after each block, and nowhere else.
    """
    todo = "--format fairseq and --format safetensors keep it"
    model = trained.model
    if not isinstance(model, TransformerModelBase):
        raise refused(trained, f"a {type(model).__name__} does not translate", todo)
    cfg, decoder = model.encoder.cfg, model.decoder
    dims = (cfg.encoder.embed_dim, cfg.decoder.embed_dim)
    pre_norm = cfg.encoder.normalize_before or cfg.decoder.normalize_before
    resized = decoder.project_in_dim is not None or decoder.project_out_dim is not None
    without_cross = cfg.no_cross_attention or cfg.cross_self_attention
    present = {
        "knows no --no-cross-attention, no --cross-self-attention": without_cross,
        f"has one size for encoder and decoder; here they are {dims[0]} and {dims[1]}": (
            dims[0] != dims[1]
        ),
        "knows no --adaptive-softmax-cutoff": decoder.adaptive_softmax is not None,
        "knows no --decoder-input-dim, no --decoder-output-dim": resized,
        "knows no --base-layers": cfg.base_layers,
        f"knows no --activation-fn {cfg.activation_fn}": str(cfg.activation_fn) not in activations,
        "knows no --encoder-normalize-before, nor the decoder's": post_norm_only and pre_norm,
        "knows no --layernorm-embedding": post_norm_only and cfg.layernorm_embedding,
    }
    for what, unknown in present.items():
        if unknown:
            raise refused(trained, f"{engine} {what}", todo)


class Vocabulary(NamedTuple):
    """The two dictionaries of a translation model and their languages."""

    source_lang: str
    target_lang: str
    source: Dictionary
    target: Dictionary


def vocabulary(trained: Trained, args: Namespace) -> Vocabulary:
    """The dictionaries of a translation model, from the data folder that it was trained on.

    Args:
        args: ``data``: where that folder is now, if not where it was; ``source_lang`` and
            ``target_lang``, if neither the checkpoint nor the names of the folder's files say.

    Raises:
        UserError: the model is of another task, or the dictionaries are missing, or not its own.
    """
    task = trained.cfg.task
    if task.get("_name") != "translation":
        todo = "--format safetensors takes every model"
        raise refused(trained, f"its task is {task.get('_name')!r}, not translation", todo)
    folder = args.data or Path(task.data)
    todo = f"name the folder that {trained.path} was trained on with --data"
    check_data(folder, todo)
    langs = (args.source_lang or task.source_lang, args.target_lang or task.target_lang)
    if None in langs:
        langs = infer_language_pair(str(folder))
    if None in langs:
        todo = "give --source-lang and --target-lang"
        raise UserError("the names of its files do not tell the languages", folder, todo)
    stacks = (trained.model.encoder, trained.model.decoder)
    source, target = (
        _dictionary(folder / f"dict.{lang}.txt", stack, todo)
        for lang, stack in zip(langs, stacks, strict=True)
    )
    return Vocabulary(*langs, source, target)


def _dictionary(path: Path, stack: Any, todo: str) -> Dictionary:
    if not path.is_file():
        raise UserError("there is no such dictionary", path, todo)
    found = Dictionary.load(str(path))
    expected = stack.embed_tokens.num_embeddings
    if len(found) != expected:
        raise UserError(f"it has {len(found)} symbols, the model {expected}", path, todo)
    if hasattr(stack, "dictionary_signature"):
        probe = nn.Module()
        register_dictionary_signature(probe, found)
        if not torch.equal(probe.get_buffer("dictionary_signature"), stack.dictionary_signature):
            raise UserError("it has other symbols than the model's, or another order", path, todo)
    return found


def position_table(stack: Any) -> Tensor:
    """What is added to the embedding of the i-th token of a sentence: ``(positions, d)``.

    fairseq counts from ``padding_idx + 1`` (:class:`SinusoidalPositionalEmbedding`); this counts
    from 0.  Zeros where a model has no positions.
    """
    module = stack.embed_positions
    if module is None:
        longest = stack.max_positions()
        return stack.embed_tokens.weight.new_zeros(longest, stack.layers[0].embed_dim)
    table = module.weight if isinstance(module, nn.Embedding) else module.weights
    return table.detach()[module.padding_idx + 1 :]
