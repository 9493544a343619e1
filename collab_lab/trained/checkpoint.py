"""Trained models: open a checkpoint with the checks of every command, read sentences, save."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.checkpoint_utils import load_checkpoint_to_cpu, load_model_ensemble_and_task
from fairseq.data import ConcatDataset, data_utils
from fairseq.models import FairseqLanguageModel
from fairseq.tasks import setup_task
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask
from omegaconf import DictConfig, OmegaConf, ValidationError
from torch import Tensor, nn

from collab_common import AttentionType
from collab_common.errors import UserError, first_line
from collab_common.progress import bar, say
from collab_lab.trained.attentions import Attention, attentions, by_type
from collab_lab.trained.untrained import check_order_of_words
from fairseq_collab.models.options import plain_options
from fairseq_compat import checkpoints
from fairseq_compat.checkpoints import naming, without_training
from fairseq_compat.fairseq_fixes import UNDEFINED, check_architecture
from fairseq_compat.overrides import check_model_and_task

GIVE_DATA = "give the data folder that fairseq-preprocess wrote"
#: Key of a batch: the number of first targets that the training's criterion left out.
IGNORED = "ignored_prefix"
#: Precisions in which a checkpoint takes half of the bytes.
HALF = {torch.float16, torch.bfloat16}
#: Tokens per batch, where neither the command nor the training limits them.
MAX_TOKENS = 4096


@dataclass(frozen=True)
class Trained:
    """A trained model in eval mode, and the rest of its checkpoint.

    Attributes:
        state: the checkpoint without the weights; its ``cfg`` is a DictConfig.
        task: holds the dictionaries, and the sentences of the data folder.
        precision: of the weights in the checkpoint; the model computes in single precision.
        saved_in: half precision in which the model is saved; None: as it is.
        is_simulated: whether the module computes what its weights do not have: it is not saved.
    """

    path: Path
    state: dict[str, Any]
    model: Any
    task: Any
    precision: torch.dtype = torch.float32
    saved_in: torch.dtype | None = None
    is_simulated: bool = False

    def __repr__(self) -> str:
        number = sum(parameter.numel() for parameter in self.model.parameters())
        heads = [
            f"{t} {' '.join(map(str, of_type))}" for t, of_type in self.heads.items() if of_type
        ]
        return f"{self.path}: {self.arch}, {number:,} parameters\nheads: {', '.join(heads)}"

    @property
    def cfg(self) -> DictConfig:
        return self.state["cfg"]

    @property
    def options(self) -> dict[str, Any]:
        """The model's options, flat."""
        options = self.cfg.model
        return dict(vars(options)) if isinstance(options, Namespace) else plain_options(options)

    @property
    def arch(self) -> str:
        """The name under which the model is registered."""
        return str(self.options.get("_name") or self.options.get("arch"))

    @property
    def attentions(self) -> dict[AttentionType, list[Attention]]:
        """All attentions, by attention type and layer."""
        return by_type(self.model)

    @property
    def heads(self) -> dict[AttentionType, list[int]]:
        """The number of heads of each layer, by attention type."""
        return {
            type_: [a.module.num_heads for a in layers] for type_, layers in self.attentions.items()
        }

    @property
    def is_language_model(self) -> bool:
        """Whether the model is a decoder only."""
        return isinstance(self.model, FairseqLanguageModel)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def ignored_prefix(self) -> int:
        """How many targets of each sentence the training's criterion left out of its loss."""
        return int(getattr(self.cfg.get("criterion"), "ignore_prefix_size", None) or 0)

    def with_model(self, model: Any, options: Any = None) -> Trained:
        """The checkpoint with another model, and with its options if given."""
        if options is None:
            return replace(self, model=model)
        if OmegaConf.is_config(options):
            options = plain_options(options)
        content = {**plain_options(self.cfg), "model": options}
        cfg = OmegaConf.create(content, flags={"allow_objects": True})
        return replace(self, model=model, state={**self.state, "cfg": cfg})

    def with_plan(self, plan: Mapping[str, Any]) -> Trained:
        """The checkpoint with what was cut of its source: names and numbers alone."""
        extra = {**self.state.get("extra_state", {}), "plan": dict(plan)}
        return replace(self, state={**self.state, "extra_state": extra})

    @property
    def shrunk(self) -> str | None:
        """What ``shrink`` did to make the model; None for another one."""
        return what_was_cut(self.state)

    def save(self, out: str | Path) -> None:
        """Write a checkpoint, atomically, without the state of the training."""
        checkpoints.save(self.content(), out)

    def content(self) -> dict[str, Any]:
        """The checkpoint to save: to translate, or to fine-tune."""
        if self.is_simulated:
            problem = "a cut of this model is simulated: its weights do not have it"
            raise UserError(problem, self.path, "measure it, and save it without this cut")
        weights = self.model.state_dict()
        if self.saved_in is not None:
            weights = in_half(weights, self.saved_in)
        content = {"args": None, "cfg": plain_options(self.cfg), "model": weights}
        return {**without_training(self.state), **content}

    def in_precision_of_source(self) -> Trained:
        """The checkpoint, saved in the precision of its source; its weights are rounded in place.

        Raises:
            UserError: a weight is too large for half precision.
        """
        if self.precision not in HALF:
            return self
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            if tensor.is_floating_point():
                tensor.data = tensor.data.to(self.precision).to(tensor.dtype)
        check_finite(self.model.state_dict(), self.path)
        return replace(self, saved_in=self.precision)


def in_half(weights: Mapping[str, Tensor], precision: torch.dtype) -> dict[str, Tensor]:
    """Weights in half precision; those that are one tensor stay one."""
    made: dict[Any, Tensor] = {}
    return {
        name: made.setdefault((weight.data_ptr(), weight.shape), weight.to(precision))
        if weight.is_floating_point()
        else weight
        for name, weight in weights.items()
    }


def precision_of(weights: Mapping[str, Tensor]) -> torch.dtype:
    """The half precision that most numbers of a checkpoint are in, else single."""
    numbers = Counter[torch.dtype]()
    for weight in weights.values():
        numbers[weight.dtype] += weight.numel()
    [(most, _)] = numbers.most_common(1) or [(torch.float32, 0)]
    return most if most in HALF else torch.float32


def plan_of(state: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The plan that a checkpoint has of its model, if it has one."""
    plan = (state.get("extra_state") or {}).get("plan")
    return plan if isinstance(plan, Mapping) and plan.get("whole") else None


def what_was_cut(state: Mapping[str, Any]) -> str | None:
    """What a checkpoint's plan says of its model: shares that are left; None without a plan.

    They are of the model that was shrunk first, if its result was shrunk again.
    """
    plan = plan_of(state)
    if plan is None:
        return None
    now, whole = plan["costs"], plan.get("original", plan["whole"])
    return (
        f"{now['heads']} of {whole['heads']} heads, "
        f"{now['parameters'] / whole['parameters']:.1%} of the layers' parameters, "
        f"cache {now['cache'] / whole['cache']:.1%}"
    )


def open_model(
    checkpoint: str | Path,
    data: str | Path | None = None,
    *,
    device: torch.device | str = "cpu",
    **changed: Any,
) -> Trained:
    """Open a checkpoint of a transformer, fairseq's or ours, for translation or a language model.

    Args:
        data: folder that ``fairseq-preprocess`` has written; default: that of the training.
        device: ``cpu`` or ``cuda``.
        changed: other values for options of the model or the task.

    Raises:
        UserError: the checkpoint is missing, damaged, holds NaN, is of another model, or does not
            fit its data folder; that folder, or the device, does not exist.
    """
    checkpoint = Path(checkpoint)
    if not checkpoint.is_file():
        raise UserError("checkpoint not found", checkpoint, "give a file that a training wrote")
    check_device(device)
    state = read_checkpoint(checkpoint, data, **changed)
    say_if_left_out(state, checkpoint)
    try:
        with naming(checkpoint), naming_options(checkpoint):
            task = setup_task(state["cfg"].task)
    except FileNotFoundError as error:  # of a language that is not there
        problem = f"there is no {Path(error.filename).name}"
        raise UserError(problem, state["cfg"].task.data, GIVE_DATA) from error
    except Exception as error:  # what fairseq raises: no narrower type
        if "Could not infer language pair" not in str(error):
            raise
        problem = "the names of its files do not contain the languages"
        raise UserError(problem, state["cfg"].task.data, GIVE_DATA) from error
    check_dictionaries(task, state, checkpoint)
    precision = precision_of(state["model"])
    with without_checkpointing(state["cfg"].model), naming_options(checkpoint):
        (model,), _, task = load_model_ensemble_and_task([str(checkpoint)], task=task, state=state)
    check_transformer(model, checkpoint)
    without_model = {name: value for name, value in state.items() if name != "model"}
    return Trained(checkpoint, without_model, model.eval().to(device), task, precision)


def moving_averages(state: Mapping[str, Any]) -> Mapping[str, Tensor] | None:
    """The moving averages of its weights in a checkpoint of ``--store-ema``; None without them."""
    averages: Mapping[str, Tensor] | None = (state.get("extra_state") or {}).get("ema")
    return averages


def say_if_left_out(state: Mapping[str, Any], path: str | Path) -> None:
    """Say that the moving averages in a checkpoint are not what is read of it."""
    if moving_averages(state) is not None:
        say(
            f"warning: {path} holds moving averages of its weights (--store-ema), which are left "
            "out; to use them in place of the weights, give `fairseq-collab average --ema`"
        )


@contextmanager
def naming_options(checkpoint: Path) -> Iterator[None]:
    """Within it, an option whose value is of another type is a UserError."""
    try:
        yield
    except ValidationError as error:
        problem = f"the option {error.full_key} cannot be that: {first_line(error)}"
        raise UserError(problem, checkpoint) from error


@contextmanager
def without_checkpointing(options: Any) -> Iterator[None]:
    """Within it, options build a model without activation checkpointing, and read no embeddings.

    Hooks would see every layer twice, and no gradient.  Embeddings that the training started from
    may be gone, and the checkpoint's replace them.  A model that is saved has its options.
    """
    saving = ("checkpoint_activations", "offload_activations")  # the second implies the first
    without: dict[str, Any] = dict.fromkeys(saving, False)
    without |= dict.fromkeys(("encoder_embed_path", "decoder_embed_path"))
    saved = {name: getattr(options, name) for name in without if name in options}
    for name in saved:
        setattr(options, name, without[name])
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(options, name, value)


@contextmanager
def in_evaluation(*models: nn.Module) -> Iterator[None]:
    """Within it, models are in eval mode: a caller may be training them."""
    modes = {module: module.training for model in models for module in model.modules()}
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def read_checkpoint(checkpoint: Path, data: str | Path | None, **changed: Any) -> dict[str, Any]:
    """The content of a checkpoint with ``cfg``, its data folder checked.

    Args:
        changed: other values for options of the model or the task.
    """
    if data is not None:
        check_data(data)
        changed["data"] = str(data)
    with naming_options(checkpoint):
        state: dict[str, Any] = load_checkpoint_to_cpu(str(checkpoint), changed)
    if data is None:
        todo = f"give the folder that {checkpoint} was trained on"
        check_data(getattr(state["cfg"].task, "data", ""), todo)
    with naming(checkpoint):
        check_architecture(state["cfg"].model)
        check_order_of_words(state["cfg"].model)
    check_model_and_task(changed, state["cfg"], checkpoint)
    check_finite(state["model"], checkpoint)
    return state


# ---- sentences -----------------------------------------------------------------------------------


def to_device(sample: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """A batch with all its tensors on ``device``."""
    return utils.apply_to_sample(lambda tensor: tensor.to(device), sample)


def dataset_of(trained: Trained, subset: str) -> Any:
    """A subset, loaded once: fairseq's multilingual task fails at a second time.

    The training set is all that a training reads: ``train``, ``train1``, ... in one folder, the
    first ``upsample_primary`` times, and every folder of several that are joined by colons.
    With ``--combine-valid-subsets``, ``valid1``, ... belong to the validation set.
    fairseq's default, -1 times, fails as soon as there is a second part: it counts as once.
    """
    task = trained.task
    if subset not in task.datasets:
        options = trained.cfg.dataset
        is_combined = subset == "valid" and options.get("combine_valid_subsets")
        if subset == options.train_subset or is_combined:
            with first_part_once(task.cfg):
                load_all(trained, subset)
        else:
            task.load_dataset(subset)
    return task.dataset(subset)


@contextmanager
def first_part_once(options: Any) -> Iterator[None]:
    """Within it, the first part of a training set counts once where ``upsample_primary`` is -1."""
    former = getattr(options, "upsample_primary", 1)
    if former < 1:
        options.upsample_primary = 1
    try:
        yield
    finally:
        if former < 1:
            options.upsample_primary = former


def load_all(trained: Trained, subset: str) -> None:
    """Load all parts of a set: an epoch of the training reads one of its data folders.

    A line says so where a task has another rule for several folders.
    """
    task, folders = trained.task, utils.split_paths(str(trained.cfg.task.data))
    task.load_dataset(subset, combine=True)
    if len(folders) == 1 or subset != trained.cfg.dataset.train_subset:
        return
    if not isinstance(task, TranslationTask | LanguageModelingTask):
        say(f"warning: of {subset}, only the part in {folders[0]} is read, not {folders[1:]}")
        return
    shards = [task.datasets[subset]]
    for epoch in range(2, len(folders) + 1):
        task.load_dataset(subset, epoch=epoch, combine=True)
        shards.append(task.datasets[subset])
    task.datasets[subset] = ConcatDataset(shards)


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
    """The sentences of a subset in batches, on the model's device, with a progress bar.

    Args:
        indices: which sentences, in which order; default: all, as in an epoch of the training
            without its shuffling of batches, but for those longer than the model's positions.
        max_tokens, max_sentences: limits of a batch, padding included; default: those of the
            training, else :data:`MAX_TOKENS`.  A longer sentence is a batch by itself.
        multiple: of which larger batches have a number of sentences.
        name: of the progress bar.

    Raises:
        UserError: there is no sentence.
        FileNotFoundError: fairseq's, for a subset that does not exist.
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
    """The sentences, of those at ``indices`` or of all, that the model has positions for."""
    dataset = dataset_of(trained, subset)
    longest = utils.resolve_max_positions(
        trained.task.max_positions(), trained.model.max_positions()
    )
    indices = np.arange(len(dataset)) if indices is None else indices
    short_enough, _ = dataset.filter_indices_by_size(indices, longest)
    if not len(short_enough):
        raise UserError(f"has no sentence within the model's {longest} positions", where=subset)
    return [int(index) for index in short_enough]


def samples(trained: Trained, subset: str, number: int | None = None) -> list[dict[str, Any]]:
    """Batches of ``number`` sentences spread evenly over a subset, or of all.

    Sentences of similar length share a batch.  Errors are those of :func:`batches`, and UserError
    for a number below 1.
    """
    if number is not None and number < 1:
        raise UserError(f"must be a whole number above 0, not {number}", "`sentences`")
    dataset, indices = dataset_of(trained, subset), fitting(trained, subset)
    number = len(indices) if number is None else min(number, len(indices))
    spread = [indices[i * len(indices) // number] for i in range(number)]
    order = sorted(spread, key=lambda index: int(dataset.num_tokens(index)))
    return list(batches(trained, subset, order, max_tokens=MAX_TOKENS, name="sentences"))


# ---- checks --------------------------------------------------------------------------------------


def check_data(data: str | Path, todo: str = GIVE_DATA) -> None:
    """Raise UserError unless the data folder, or every folder joined by colons, exists."""
    for folder in utils.split_paths(str(data)):
        if not Path(folder).is_dir():
            raise UserError("data folder not found", folder, todo)


def check_device(device: torch.device | str) -> None:
    """Raise UserError for a device that is neither ``cpu`` nor a ``cuda`` that is there."""
    known = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    try:
        kind = torch.device(device).type
    except RuntimeError:  # torch's, for any other word
        kind = ""
    if kind not in known:
        raise UserError(f"there is no {str(device)!r}", "`device`", f"give {' or '.join(known)}")


def check_dictionaries(task: Any, state: Mapping[str, Any], path: Path) -> None:
    """Raise UserError if a dictionary of the data folder and the embeddings differ in size."""
    for side, stack in (("source", "encoder"), ("target", "decoder")):
        embedding = state["model"].get(f"{stack}.embed_tokens.weight")
        if embedding is None:  # of other kinds
            continue
        words = len(getattr(task, f"{side}_dictionary"))
        if words != len(embedding):
            problem = f"its {side} dictionary has {words} symbols, the model {len(embedding)}"
            todo = f"give the folder that {path} was trained on"
            raise UserError(problem, state["cfg"].task.data, todo)


def check_transformer(model: Any, path: Path) -> None:
    """Raise UserError unless the model is a transformer for translation or a language model."""
    needed = {"decoder"} if isinstance(model, FairseqLanguageModel) else {"encoder", "decoder"}
    if not needed <= {a.type for a in attentions(model)}:
        problem = "neither an encoder-decoder transformer nor a transformer language model"
        todo = "give a checkpoint of a translation model or a language model"
        raise UserError(problem, path, todo)


def check_direction(task: Any, path: Path, todo: str) -> None:
    """Raise UserError for options of a multilingual task that name no languages to translate."""
    pairs = getattr(task, "lang_pairs", None)
    if pairs and not (task.source_lang and task.target_lang):
        raise UserError(f"translates {', '.join(pairs)}", path, todo)


def check_finite(weights: Mapping[str, Tensor], path: Path | str) -> None:
    """Raise UserError if a weight is NaN or infinite."""
    for name, weight in weights.items():
        defined = weight.is_floating_point() and not name.endswith(UNDEFINED)  # nothing reads those
        if defined and not torch.isfinite(weight).all():
            raise UserError(f"{name} holds NaN or infinity", path, "give an intact checkpoint")
