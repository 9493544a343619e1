"""Trained models: open a checkpoint with the same checks in every command, and save it."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.checkpoint_utils import load_checkpoint_to_cpu, load_model_ensemble_and_task
from fairseq.models import ARCH_MODEL_REGISTRY, FairseqLanguageModel
from fairseq.tasks import TASK_REGISTRY, setup_task
from omegaconf import DictConfig, OmegaConf, ValidationError
from torch import Tensor, nn

from collab_common import AttentionType
from collab_common.errors import UserError, first_line
from collab_common.progress import say
from collab_lab.trained.attentions import Attention, attentions, by_type
from collab_lab.trained.foreign import foreign_function, foreign_part
from collab_lab.trained.from_options import check_autoregressive
from fairseq_collab.models.options import plain_options
from fairseq_collab.models.variants import family_of
from fairseq_compat import checkpoints
from fairseq_compat.checkpoints import naming, without_training
from fairseq_compat.fairseq_fixes import UNDEFINED, check_architecture
from fairseq_compat.overrides import check_model_and_task

GIVE_DATA = "give the data folder that fairseq-preprocess wrote"
#: Precisions in which a checkpoint takes half of the bytes.
HALF = {torch.float16, torch.bfloat16}


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


def in_precisions(
    weights: Mapping[str, Tensor], precisions: Mapping[str, torch.dtype]
) -> dict[str, Tensor]:
    """The weights, with those of half precision converted to it; tied weights stay tied."""
    made: dict[Any, Tensor] = {}

    def saved(name: str, weight: Tensor) -> Tensor:
        precision = precisions[name]
        if not weight.is_floating_point() or precision not in HALF:
            return weight
        key = weight.data_ptr(), weight.shape, precision
        return made.setdefault(key, weight.to(precision))

    return {name: saved(name, weight) for name, weight in weights.items()}


def precision_of(name: str, precisions: Mapping[str, torch.dtype]) -> torch.dtype:
    """The data type to save a weight in; a new weight takes the widest one near it in the model."""
    if name in precisions:
        return precisions[name]
    module = name
    while module:
        module = module.rpartition(".")[0]
        inside = f"{module}." if module else ""
        if found := [precision for n, precision in precisions.items() if n.startswith(inside)]:
            return reduce(torch.promote_types, found)
    return torch.float32


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


def moving_averages(state: Mapping[str, Any]) -> Mapping[str, Tensor] | None:
    """The moving averages of the weights that ``--store-ema`` saved; None if there are none.

    With ``--ema-fp32``, a training in half precision also saves them in single precision.  Those
    are not tied any more, so that each name takes the first of the averages that are.
    """
    extra = state.get("extra_state") or {}
    averages: Mapping[str, Tensor] | None = extra.get("ema")
    if averages is None:
        return None
    exact, names = extra.get("ema_fp32_params") or {}, checkpoints.first_names(averages)
    return {name: exact.get(names[name], average) for name, average in averages.items()}


def say_if_left_out(state: Mapping[str, Any], path: str | Path) -> bool:
    """Say that moving averages in a checkpoint are not what is read; return whether it has any."""
    has_averages = moving_averages(state) is not None
    if has_averages:
        say(
            f"warning: {path} holds moving averages of its weights (--store-ema), which are left "
            "out; to use them instead of the weights, run `fairseq-collab average --ema`"
        )
    return has_averages


def plug_in_folder(state: Mapping[str, Any]) -> Path | None:
    """The folder of the plug-in of a training, where it is loaded from; None if it is not loaded.

    Without a plug-in it is the one of this project.
    """
    user_dir = Path(getattr(state["cfg"].common, "user_dir", None) or "fairseq_collab").absolute()
    file = getattr(sys.modules.get(user_dir.name), "__file__", None)
    folder = file and Path(file).parent
    return folder if folder and folder.name == user_dir.name else None


def say_if_not_loaded(state: Mapping[str, Any], path: str | Path) -> None:
    """Say that the plug-in of a training is not loaded, whatever it changes in fairseq."""
    if plug_in_folder(state) is None:
        user_dir = state["cfg"].common.user_dir
        say(
            f"warning: {path} was trained with the plug-in {user_dir}, which is not loaded: what "
            "it changes in fairseq is left out; give its folder (--user-dir)"
        )


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


@contextmanager
def without_checkpointing(options: Any) -> Iterator[None]:
    """Context in which ``options`` ask for no activation checkpointing and no embedding files.

    With activation checkpointing, hooks would see every layer twice and without a gradient.  The
    embeddings that the training started from may be gone, and the checkpoint replaces them anyway.
    Both options have their former values afterwards, so that a saved model keeps them.
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
    """Context in which models are in eval mode; afterwards each is in its former mode."""
    modes = {module: module.training for model in models for module in model.modules()}
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


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


# ---- checks --------------------------------------------------------------------------------------


def check_model(model: Any) -> None:
    """Raise UserError unless ``model`` is a checkpoint that ``open_model`` opened."""
    if not isinstance(model, Trained):
        raise UserError(f"must be what open_model returns, not {model!r:.60}", "`model`")


def check_data(data: str | Path, todo: str = GIVE_DATA) -> None:
    """Raise UserError unless the data folder, or every folder joined by colons, exists."""
    for folder in utils.split_paths(str(data)):
        if not Path(folder).is_dir():
            raise UserError("data folder not found", folder, todo)


def check_task(options: Any) -> None:
    """Raise UserError if no task of this name is registered."""
    name = getattr(options, "_name", None) or getattr(options, "task", None)
    if name and name not in TASK_REGISTRY:
        todo = "name the folder of its plug-in with --user-dir"
        raise UserError(f"no task is registered as {name!r}", todo=todo)


def check_device(device: torch.device | str) -> None:
    """Raise UserError unless the device is ``cpu`` or a GPU of this machine (``cuda``)."""
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
        problem = "is neither an encoder-decoder transformer nor a transformer language model"
        todo = "give a checkpoint of a translation model or a language model"
        raise UserError(problem, path, todo)


def check_direction(task: Any, path: Path, todo: str) -> None:
    """Raise UserError if a multilingual task does not say which languages to translate."""
    pairs = getattr(task, "lang_pairs", None)
    if pairs and not (task.source_lang and task.target_lang):
        raise UserError(f"translates {', '.join(pairs)}", path, todo)


def check_finite(
    weights: Mapping[str, Tensor],
    path: Path | str,
    when: str = "",
    todo: str = "give an intact checkpoint",
) -> None:
    """Raise UserError if a weight is NaN or infinite."""
    for name, weight in weights.items():
        defined = weight.is_floating_point() and not name.endswith(UNDEFINED)  # nothing reads those
        if defined and not torch.isfinite(weight).all():
            raise UserError(f"{name} holds NaN or infinity {when}".rstrip(), path, todo)
