"""Sentences of a trained model's data folder, in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.data import ConcatDataset, Dictionary, data_utils
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask

from collab_common.errors import UserError, check_whole
from collab_common.progress import bar, say
from collab_lab.trained.binarised import check_files
from collab_lab.trained.checkpoint import Trained, check_model

#: Key of a batch: the number of first targets that the training's criterion left out.
IGNORED = "ignored_prefix"
#: Tokens per batch, where neither the command nor the training limits them.
MAX_TOKENS = 4096


def to_device(sample: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """A batch with all its tensors on ``device``."""
    return utils.apply_to_sample(lambda tensor: tensor.to(device), sample)


def say_if_unknown(lines: Sequence[Sequence[str]], words: Dictionary) -> None:
    """Warn of sentences with subwords that a dictionary lacks; its special symbols are no text."""
    known = words.indices.keys() - set(words.symbols[: words.nspecial])
    firsts = (next((unit for unit in units if unit not in known), None) for units in lines)
    if unknown := [unit for unit in firsts if unit is not None]:
        say(
            f"warning: {len(unknown)} of {len(lines)} sentences have subwords that the dictionary "
            f"lacks, which the model reads as <unk>; the first is {unknown[0]!r}"
        )


def dataset_of(trained: Trained, subset: str) -> Any:
    """The dataset of a subset, loaded once: fairseq's multilingual task cannot load it again.

    The training set is everything that the training read: ``train``, ``train1``, ... of every
    folder (several are joined by colons), with the first part repeated ``upsample_primary`` times.
    fairseq's default of -1 fails if there is a second part, so it counts as 1 here.  With
    ``--combine-valid-subsets``, ``valid1``, ... belong to the validation set.
    """
    task = trained.task
    if subset not in task.datasets:
        options = trained.cfg.dataset
        is_trained = subset == options.train_subset
        is_combined = is_trained or (subset == "valid" and options.get("combine_valid_subsets"))
        check_files(task, str(trained.cfg.task.data), subset, bool(is_combined), is_trained)
        if is_combined:
            with first_part_once(task.cfg):
                load_all(trained, subset)
        else:
            task.load_dataset(subset)
            if subset == "train":
                trained_on = f"{trained.path} was trained on {options.train_subset!r}"
                say(f"warning: sentences of 'train' are read; {trained_on} (--subset)")
    return task.dataset(subset)


@contextmanager
def first_part_once(options: Any) -> Iterator[None]:
    """Context in which an ``upsample_primary`` below 1 counts as 1."""
    former = getattr(options, "upsample_primary", 1)
    if former < 1:
        options.upsample_primary = 1
    try:
        yield
    finally:
        if former < 1:
            options.upsample_primary = former


def load_all(trained: Trained, subset: str) -> None:
    """Load all parts of a set from all data folders; an epoch of the training reads one folder.

    A line says so if the task has its own rule for several folders.
    """
    task, folders = trained.task, utils.split_paths(str(trained.cfg.task.data))
    task.load_dataset(subset, combine=True)
    if len(folders) == 1 or subset != trained.cfg.dataset.train_subset:
        return
    if only := only_folder(trained):
        say(f"warning: of {subset}, only the part in {only} is read, not {folders[1:]}")
        return
    shards = [task.datasets[subset]]
    for epoch in range(2, len(folders) + 1):
        task.load_dataset(subset, epoch=epoch, combine=True)
        shards.append(task.datasets[subset])
    task.datasets[subset] = ConcatDataset(shards)


def only_folder(trained: Trained) -> str | None:
    """The only one of several data folders whose training set is read; None if all of it is.

    Other tasks than fairseq's for translation and language models have a rule of their own.
    """
    first, *more = utils.split_paths(str(trained.cfg.task.data))
    is_known = isinstance(trained.task, TranslationTask | LanguageModelingTask)
    return str(first) if more and not is_known else None


def batches(
    trained: Trained,
    subset: str,
    indices: Sequence[int] | None = None,
    *,
    max_tokens: int | None = None,
    max_sentences: int | None = None,
    multiple: int = 1,
    name: str = "batches",
) -> Iterator[dict[str, Any]]:
    """Yield the sentences of a subset in batches, on the model's device, with a progress bar.

    Args:
        indices: sentences to read, in this order; default: all that the model has positions for,
            in the training's order without its shuffling.
        max_tokens, max_sentences: largest batch, padding included; default: as in the training,
            or else :data:`MAX_TOKENS`.  A longer sentence becomes a batch of its own.
        multiple: the size of a batch is a multiple of this number if it is larger.
        name: title of the progress bar.

    Raises:
        UserError: the subset has no sentence that the model can read.
        FileNotFoundError: from fairseq; the subset does not exist.
    """
    dataset, device = dataset_of(trained, subset), trained.device
    batch_indices = batched(trained, subset, indices, max_tokens, max_sentences, multiple)
    samples = (dataset.collater([dataset[int(index)] for index in rows]) for rows in batch_indices)
    ignored = {IGNORED: trained.ignored_prefix}
    return (
        to_device({**sample, **ignored}, device)
        for sample in bar(name, samples, total=len(batch_indices))
    )


def batched(
    trained: Trained,
    subset: str,
    indices: Sequence[int] | None = None,
    max_tokens: int | None = None,
    max_sentences: int | None = None,
    multiple: int = 1,
) -> list[Any]:
    """The indices of the sentences of each batch: see :func:`batches`."""
    dataset, limits = dataset_of(trained, subset), trained.cfg.dataset
    if indices is None:
        with data_utils.numpy_seed(trained.cfg.common.seed):
            indices = fitting(trained, subset, dataset.ordered_indices())
    if max_tokens is max_sentences is None:
        max_tokens, max_sentences = limits.max_tokens, limits.batch_size
        max_tokens = max_tokens or (None if max_sentences else MAX_TOKENS)
    order = np.array(indices)
    lengths = np.array([int(dataset.num_tokens(index)) for index in order])
    is_long = lengths > (max_tokens or np.inf)
    rows = dataset.batch_by_size(order[~is_long], max_tokens, max_sentences, multiple)
    return [*rows, *order[is_long, None]]  # the long ones each by itself, at the end


def fitting(trained: Trained, subset: str, indices: Any = None) -> list[int]:
    """The indices of sentences that the model has positions for, among ``indices`` or all."""
    dataset = dataset_of(trained, subset)
    longest = utils.resolve_max_positions(
        trained.task.max_positions(), trained.model.max_positions()
    )
    indices = np.arange(len(dataset)) if indices is None else indices
    short_enough, left_out = dataset.filter_indices_by_size(indices, longest)
    if not len(short_enough):
        raise UserError(f"has no sentence within the model's {longest} positions", where=subset)
    if len(left_out):
        numbers = f"{len(left_out):,} of {len(indices):,} sentences of {subset}"
        say(f"warning: {numbers} are longer than the model's positions {longest} and are left out")
    return [int(index) for index in short_enough]


def original(dataset: Any, index: int) -> tuple[int, ...]:
    """Where a sentence is in the parts of a set; copies of it are in one place."""
    if isinstance(dataset, ConcatDataset):
        part, within = dataset._get_dataset_and_sample_index(index)
        return (part, *original(dataset.datasets[part], within))
    return original(dataset.src, index) if hasattr(dataset, "src") else (index,)


def samples(trained: Trained, subset: str, number: int | None = None) -> list[dict[str, Any]]:
    """Batches of ``number`` sentences that are spread evenly over a subset, or of all if None.

    Sentences of similar length share a batch.  Of a part that is repeated (``upsample_primary``),
    no sentence is read twice as long as there are others.

    Raises:
        UserError: the number is below 1, or there is no sentence; see :func:`batches`.
    """
    if number is not None and number < 1:
        raise UserError(f"must be a whole number above 0, not {number}", "`sentences`")
    dataset, indices = dataset_of(trained, subset), fitting(trained, subset)
    number = len(indices) if number is None else min(number, len(indices))
    if getattr(trained.cfg.task, "upsample_primary", 1) > 1:  # copies side by side
        indices = sorted(indices, key=lambda index: original(dataset, index))
    spread = [indices[i * len(indices) // number] for i in range(number)]
    order = sorted(spread, key=lambda index: int(dataset.num_tokens(index)))
    return list(batches(trained, subset, order, max_tokens=MAX_TOKENS, name="sentences"))


def sentences_of(model: Trained, subset: str, sentences: int | None) -> list[dict[str, Any]]:
    """Batches of a subset's sentences: ``sentences`` of them spread evenly, or all if None.

    Raises:
        UserError: the subset does not exist, or the number is below 1.
    """
    check_model(model)
    check_whole(sentences=sentences)
    try:
        return samples(model, subset, sentences)
    except FileNotFoundError as error:  # fairseq's
        problem = f"{model.cfg.task.data} has no set of the name {subset!r}"
        raise UserError(problem, "`subset`") from error
