"""Trained models: open a checkpoint with the same checks in every command, and save it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu, load_model_ensemble_and_task
from fairseq.models import ARCH_MODEL_REGISTRY, FairseqLanguageModel
from fairseq.tasks import setup_task
from omegaconf import DictConfig, OmegaConf, ValidationError

from collab_common import AttentionType
from collab_common.errors import UserError, first_line
from collab_common.progress import say
from collab_lab.trained.attentions import Attention, by_type
from collab_lab.trained.checks import (
    GIVE_DATA,
    check_data,
    check_device,
    check_dictionaries,
    check_finite,
    check_task,
    check_transformer,
)
from collab_lab.trained.contexts import without_checkpointing
from collab_lab.trained.foreign import foreign_function, foreign_part
from collab_lab.trained.from_options import check_autoregressive
from collab_lab.trained.left_out import (
    say_if_left_out,
    say_if_not_loaded,
)
from collab_lab.trained.precision import HALF, in_precisions, precision_of
from fairseq_collab.models.options import plain_options
from fairseq_collab.models.variants import family_of
from fairseq_compat import checkpoints
from fairseq_compat.checkpoints import naming, without_training
from fairseq_compat.fairseq_fixes import check_architecture
from fairseq_compat.overrides import check_model_and_task


@dataclass(frozen=True)
class Trained:
    """A trained model in eval mode, and the rest of its checkpoint.

    Attributes:
        state: the checkpoint without its weights; its ``cfg`` is a DictConfig.
        task: fairseq's task, with the dictionaries and the sentences of the data folder.
        precisions: data type of each weight in the checkpoint; the model itself computes in
            single precision.
        saved_in: data type in which each weight will be saved; None: as in memory.
        is_simulated: whether hooks change what the model computes, so that its weights do not
            show the change and it cannot be saved.
    """

    path: Path
    state: dict[str, Any]
    model: Any
    task: Any
    precisions: Mapping[str, torch.dtype] = field(default_factory=dict)
    saved_in: Mapping[str, torch.dtype] | None = None
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
    def foreign(self) -> str | None:
        """The name of what may compute something unknown; None if nothing does.

        It is the model's own class (see :func:`.family_of`); or the class of its architecture,
        which may build a model of a known class and then change it; or in fairseq's own model that
        of a part, such as a layer that a plug-in puts in place of fairseq's; or a function that a
        plug-in puts into one of these classes or modules.
        """
        kind, builder = type(self.model), ARCH_MODEL_REGISTRY.get(self.arch)
        family = family_of(kind)
        if family is None:
            return kind.__name__
        if builder not in (None, kind):
            return builder.__name__
        part = foreign_part(self.model) if kind in family.stock else None
        return part or foreign_function(self.model)

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
        """How many first target tokens of each sentence the training left out of its loss."""
        number = int(getattr(self.cfg.get("criterion"), "ignore_prefix_size", None) or 0)
        return max(0, number)  # fairseq's criterion leaves out none for a number below 0

    @property
    def made_up(self) -> int:
        """How many of these tokens fairseq's search makes up: not the language that its task gives.

        A task with ``--decoder-langtok`` begins each translation with the target language.
        """
        options: Any = getattr(self.task, "args", None)
        _, tag = getattr(options, "langtoks", {}).get("main", (None, None))
        is_given = tag and not options.lang_tok_replacing_bos_eos
        return max(0, self.ignored_prefix - bool(is_given))

    def with_model(self, model: Any, options: Any = None) -> Trained:
        """A copy of this checkpoint that holds another model, and its options if they are given."""
        if options is None:
            return replace(self, model=model)
        if OmegaConf.is_config(options):
            options = plain_options(options)
        content = {**plain_options(self.cfg), "model": options}
        cfg = OmegaConf.create(content, flags={"allow_objects": True})
        return replace(self, model=model, state={**self.state, "cfg": cfg})

    def with_plan(self, plan: Mapping[str, Any]) -> Trained:
        """A copy that records what was cut from the original: only names and numbers."""
        extra = {**self.state.get("extra_state", {}), "plan": dict(plan)}
        return replace(self, state={**self.state, "extra_state": extra})

    @property
    def shrunk(self) -> str | None:
        """The plan by which ``shrink`` made this model; None if another command made it."""
        return what_was_cut(self.state)

    def save(self, out: str | Path) -> None:
        """Write a checkpoint atomically, without optimizer state.

        Commands also write a YAML file next to it, with
        :func:`~collab_lab.trained.fine_tuning.write_configuration`.
        """
        checkpoints.save(self.content(), out)
        if self.saved_in is None and not HALF.isdisjoint(self.precisions.values()):
            say(f"{out}: the weights of half precision are written in single precision")

    def content(self) -> dict[str, Any]:
        """The content of the checkpoint file, which can be used to translate or to fine-tune."""
        if self.is_simulated:
            problem = "cannot be saved: one of its cuts is simulated, so the weights do not have it"
            raise UserError(problem, self.path, "measure the model, and save it without this cut")
        weights = self.model.state_dict()
        if self.saved_in is not None:
            weights = in_precisions(weights, self.saved_in)
        content = {"args": None, "cfg": plain_options(self.cfg), "model": weights}
        return {**without_training(self.state), **content}

    def in_precision_of_source(self) -> Trained:
        """A copy that is saved in the data types of the source; rounds the weights in place.

        Training in half precision may keep some weights in single precision, such as layer norms.

        Raises:
            UserError: a weight is too large for half precision.
        """
        if HALF.isdisjoint(self.precisions.values()):
            return self
        state = self.model.state_dict()
        saved_in = {name: precision_of(name, self.precisions) for name in state}
        for name, tensor in state.items():  # which are the model's own
            if tensor.is_floating_point() and saved_in[name] in HALF:
                tensor.copy_(tensor.to(saved_in[name]))
        todo = "convert the checkpoint to single precision first"
        check_finite(state, self.path, "in half precision, as the source", todo)
        return replace(self, saved_in=saved_in)


def plan_of(state: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The plan of ``shrink`` that a checkpoint stores, or None."""
    plan = (state.get("extra_state") or {}).get("plan")
    return plan if isinstance(plan, Mapping) and plan.get("whole") else None


def what_was_cut(state: Mapping[str, Any]) -> str | None:
    """A text with the shares that ``shrink`` left, such as of the cache; None without a plan.

    If a shrunk model was shrunk again, they are shares of the first original.
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
    """Open a checkpoint of a translation or language model, fairseq's own transformer or ours.

    Args:
        data: folder that ``fairseq-preprocess`` wrote; default: the one of the training.
        device: ``cpu`` or ``cuda``.
        changed: options of the model or the task with other values than in the checkpoint.

    Returns:
        The model in eval mode and single precision, with its task and configuration.

    Raises:
        UserError: the checkpoint is missing or damaged, holds NaN, is not a transformer, or does
            not fit the data folder; or the data folder or the device does not exist.
    """
    checkpoint = Path(checkpoint)
    if not checkpoint.is_file():
        raise UserError("checkpoint not found", checkpoint, "give a file that a training wrote")
    check_device(device)
    state = read_checkpoint(checkpoint, data, **changed)
    say_if_left_out(state, checkpoint)
    say_if_not_loaded(state, checkpoint)
    try:
        with naming(checkpoint), naming_options(checkpoint):
            task = setup_task(state["cfg"].task)
    except FileNotFoundError as error:  # of a language that is not there
        problem = f"the data folder has no file {Path(error.filename).name}"
        raise UserError(problem, state["cfg"].task.data, GIVE_DATA) from error
    except Exception as error:  # what fairseq raises: no narrower type
        if "Could not infer language pair" not in str(error):
            raise
        problem = "the languages cannot be read from the names of the files in this folder"
        raise UserError(problem, state["cfg"].task.data, GIVE_DATA) from error
    check_dictionaries(task, state, checkpoint)
    weights = state["model"].items()
    precisions = {name: w.dtype for name, w in weights if w.is_floating_point()}
    with without_checkpointing(state["cfg"].model), naming_options(checkpoint):
        (model,), _, task = load_model_ensemble_and_task([str(checkpoint)], task=task, state=state)
    check_transformer(model, checkpoint)
    without_model = {name: value for name, value in state.items() if name != "model"}
    return Trained(checkpoint, without_model, model.eval().to(device), task, precisions)


def say_if_unlearnt(trained: Trained, here: str, number: int | None = None) -> None:
    """Say that the training left the beginning of each target out of its loss.

    Args:
        here: what becomes of the beginning.
        number: how many of its tokens do; default: all that were left out.
    """
    if trained.ignored_prefix if number is None else number:
        reason = f"--ignore-prefix-size {trained.ignored_prefix}"
        say(f"warning: {trained.path} has not learnt how a target begins ({reason}): {here}")


@contextmanager
def naming_options(checkpoint: Path) -> Iterator[None]:
    """Context that turns a value of the wrong type into a UserError that names the option."""
    try:
        yield
    except ValidationError as error:
        problem = f"the option {error.full_key} has a wrong value: {first_line(error)}"
        raise UserError(problem, checkpoint) from error


def read_checkpoint(checkpoint: Path, data: str | Path | None, **changed: Any) -> dict[str, Any]:
    """Read a checkpoint as a dictionary whose ``cfg`` is set, and check its data folder.

    Args:
        changed: options of the model or the task with other values than in the checkpoint.
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
        check_task(state["cfg"].task)
        check_autoregressive(state["cfg"].model)
    check_model_and_task(changed, state["cfg"], checkpoint)
    check_finite(state["model"], checkpoint)
    return state


def check_model(model: Any) -> None:
    """Raise UserError unless ``model`` is a checkpoint that ``open_model`` opened."""
    if not isinstance(model, Trained):
        raise UserError(f"must be what open_model returns, not {model!r:.60}", "`model`")
