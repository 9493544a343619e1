"""What several export formats need: whole folders or none, dictionaries, tables of positions."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import infer_language_pair
from torch import Tensor, nn

from collab_common import atomic
from collab_common.errors import UserError
from collab_common.files import locked
from fairseq_collab.checkpoints.export.model import Trained
from fairseq_collab.checkpoints.opener import check_data
from fairseq_collab.models.signature import register_dictionary_signature


@contextlib.contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """A new folder to fill; it takes the name ``out`` once it is full, and goes if that fails.

    A former ``out`` stays until then.

    Raises:
        UserError: another process is making ``out``.
    """
    out = out.resolve()  # so that "." and links have a parent and a name
    new, former = (out.with_name(f".{out.name}.{kind}") for kind in ("new", "former"))
    with locked(out.with_name(f".{out.name}.lock")):
        # Under the lock, whatever temporary folder is there belongs to a process that died; it
        # may have died between its two renames.
        if former.exists() and not out.exists():
            former.rename(out)
        for path in (new, former):
            _remove(path)
        new.mkdir()
        try:
            yield new
            for path in new.iterdir():
                atomic.sync(path)
            _put_in_place(new, out, former)
        finally:
            _remove(new)


def _put_in_place(new: Path, out: Path, former: Path) -> None:
    """Renames; what was there before goes aside first, as a folder cannot be replaced at once."""
    if out.exists():
        out.rename(former)
    new.rename(out)
    _remove(former)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class Vocabulary(NamedTuple):
    """The two dictionaries of a translation model and their languages."""

    source_lang: str
    target_lang: str
    source: Dictionary
    target: Dictionary


def vocabulary(
    trained: Trained, data: Path | None, source_lang: str | None, target_lang: str | None
) -> Vocabulary:
    """The dictionaries of a translation model, from the data folder that it was trained on.

    Args:
        data: where that folder is now, if not where it was.
        source_lang, target_lang: the languages, if neither the checkpoint nor the names of the
            folder's files tell.

    Raises:
        UserError: the model is of another task, there is no such folder, or its dictionaries are
            not the model's.
    """
    task = trained.state["cfg"].task
    if task.get("_name") != "translation":
        reason = f"no exact export: its task is {task.get('_name')!r}, not translation"
        raise UserError(reason, trained.path, "--format safetensors takes every model")
    folder = data or Path(task.data)
    todo = f"name the folder that {trained.path} was trained on with --data"
    check_data(folder, todo)
    source_lang, target_lang = source_lang or task.source_lang, target_lang or task.target_lang
    if source_lang is None or target_lang is None:
        source_lang, target_lang = infer_language_pair(str(folder))
    if source_lang is None or target_lang is None:
        todo = "give --source-lang and --target-lang"
        raise UserError("the names of its files do not tell the languages", folder, todo)
    source = _dictionary(folder / f"dict.{source_lang}.txt", trained.model.encoder, todo)
    target = _dictionary(folder / f"dict.{target_lang}.txt", trained.model.decoder, todo)
    return Vocabulary(source_lang, target_lang, source, target)


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
