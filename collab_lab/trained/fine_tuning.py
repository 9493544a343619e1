r"""Options to fine-tune a pruned or converted model.

Every pruned or converted model has its own shape.  ``--out MODELS/model/NAME.pt`` of
``fairseq-collab prune`` and ``reparametrize`` writes MODELS/model/NAME.yaml next to it.  With
MODELS in Hydra's search path, ``model=NAME`` fine-tunes the model:

    fairseq-collab sweep configs/experiment/... hydra.searchpath=[file://MODELS] \
        model="choice(NAME,NAME)"

``checkpoint.finetune_from_model=null`` trains a model of this shape from scratch instead.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
from argparse import Action, ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from omegaconf import OmegaConf

from collab_common.files import write_atomic
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.left_out import plug_in_folder
from collab_lab.trained.sentences import MAX_TOKENS, batched, only_folder
from fairseq_collab.models.base import Family, HeadModel
from fairseq_collab.models.options import plain_options, preset
from fairseq_collab.models.variants import family_of

PLUGIN = "fairseq_collab"
#: Sections of a configuration with options that tasks and criterions read.
_SECTIONS = ("common", "dataset", "distributed_training", "optimization")
#: Those of a machine, of one training, or of how long sentences are batched.
_OF_MACHINE = {"batch_size", "batch_size_valid", "data_buffer_size", "plasma_path", "seed", "tpu"}
#: The criterion of configs/base.yaml.
SMOOTHED = "label_smoothed_cross_entropy"
#: Passes over the training set of :func:`fine_tuning`.
PASSES = 4
#: The largest share of its updates that warm the rate up.
WARM_UP = 0.2
#: Options of a training that a fine-tuning keeps, by section.
_KEPT = {
    "optimization": ("clip_norm",),
    "dataset": (
        "train_subset",
        "valid_subset",
        "skip_invalid_size_inputs_valid_test",
        # fairseq-train ends at a folder with valid1 without one of these
        "combine_valid_subsets",
        "ignore_unused_valid_subsets",
        "disable_validation",
    ),
}
#: Options of how a model was trained or stored, which do not change its function.
_OF_TRAINING = {
    *("encoder_embed_path", "decoder_embed_path", "encoder_layers_to_keep"),
    *("decoder_layers_to_keep", "quant_noise_pq", "quant_noise_pq_block_size"),
    *("quant_noise_scalar", "min_params_to_wrap", "checkpoint_activations"),
    *("offload_activations", "export"),
}


def known_defaults(arch: str) -> dict[str, Any]:
    """Options of an architecture that change what the model computes, with their defaults."""
    # Models without a dataclass, such as those of plug-ins, have no known defaults.
    kind = MODEL_DATACLASS_REGISTRY.get(arch, FairseqDataclass)
    if family := family_of_stock(arch):
        kind = preset(family.options, "stock_options", **family.presets[""])
    structured = OmegaConf.structured(kind)
    values: Any = OmegaConf.to_container(structured, enum_to_str=True)
    return {
        name: default
        for name, default in values.items()
        if name not in {"_name", *_OF_TRAINING}
        and not str(default).startswith("${")  # an option of the task, or of all of fairseq
    }


def family_of_stock(arch: str) -> Family | None:
    """The family of one of fairseq's own architectures without a dataclass, else None."""
    kind = None if arch in MODEL_DATACLASS_REGISTRY else ARCH_MODEL_REGISTRY.get(arch)
    return kind and family_of(kind)


class Section(NamedTuple):
    """The task, the criterion or the optimizer of a checkpoint.

    Attributes:
        kind: ``task``, ``criterion`` or ``optimizer``.
        name: under which it is registered.
        actions: its options, as fairseq's parsers define them.
        values: values of these options by name; options that are None are left out.
    """

    kind: str
    name: str
    actions: Sequence[Action]
    values: Mapping[str, Any]

    @classmethod
    def of(cls, kind: str, name: str, registered: Any, options: Any) -> Section:
        """The options that a registered class adds to parsers, with the values in ``options``."""
        registered.add_args(parser := ArgumentParser(add_help=False))
        actions = [action for action in parser._actions if action.option_strings]
        given = plain_options(options) if OmegaConf.is_config(options) else vars(options)
        names = [action.dest for action in actions if given.get(action.dest) is not None]
        return cls(kind, name, actions, {option: given[option] for option in names})

    def words(self) -> list[str]:
        """The options that are not at their defaults, as words of a command line."""
        words = [f"--{self.kind}", self.name]
        for action in self.actions:
            value = as_word(self.values.get(action.dest, action.default))
            if value == as_word(action.default):
                continue
            option = max(action.option_strings, key=len)  # of -s, --source-lang
            words.append(option if action.nargs == 0 else f"{option}={value}")
        return words


def as_word(value: Any) -> str:
    """The value of an option as a word of a command line."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def task_of(result: Trained) -> Section:
    """The task of a checkpoint."""
    options = result.cfg.task
    return Section.of("task", options._name, TASK_REGISTRY[options._name], options)


def criterion_of(result: Trained) -> Section:
    """The criterion of a checkpoint, without a term for groups or gates of heads."""
    options = result.cfg.criterion
    names = {kind: name for name, kind in CRITERION_REGISTRY.items()}
    bases = CRITERION_REGISTRY[options._name].__mro__
    kind = next(k for k in bases if k in names and k.__module__.partition(".")[0] != PLUGIN)
    return Section.of("criterion", names[kind], kind, options)


def read_elsewhere(result: Trained) -> dict[str, dict[str, Any]]:
    """Options that the task or the criterion reads and that differ from their defaults, by section.

    Fine-tuning needs the same values: with others it may fail (adaptive softmax does without its
    ``--ddp-backend``) or train differently.
    """
    kinds = (
        TASK_DATACLASS_REGISTRY.get(task_of(result).name),
        CRITERION_DATACLASS_REGISTRY.get(criterion_of(result).name),
    )
    defaults, found = OmegaConf.structured(FairseqConfig), dict[str, dict[str, Any]]()
    for option in chain.from_iterable(fields(kind) for kind in kinds if kind is not None):
        match = re.fullmatch(r"\$\{(\w+)\.(\w+)\}", str(option.default))
        if match is None or match[1] not in _SECTIONS or match[2] in _OF_MACHINE:
            continue
        section, name = match.groups()
        value, default = (str_of(cfg[section].get(name)) for cfg in (result.cfg, defaults))
        if value not in (default, None, False):
            found.setdefault(section, {})[name] = value
    return found


def str_of(value: Any) -> Any:
    """The value of an option; of a member of an enumeration, its plain value."""
    return value.value if isinstance(value, Enum) else value


def unregistered(trained: Trained) -> str | None:
    """Text about a criterion or optimizer that no loaded plug-in registers, or None."""
    known: dict[str, Mapping[str, Any]]
    known = {"criterion": CRITERION_REGISTRY, "optimizer": OPTIMIZER_REGISTRY}
    for section, names in known.items():
        name = getattr(trained.cfg.get(section), "_name", None)
        if name is not None and name not in names:
            return f"{trained.path} was trained with the {section} {name!r}, which is not fairseq's"
    return None


def fine_tuning_lines(original: Trained, result: Trained, checkpoint: Path) -> list[str]:
    """Commands that fine-tune the saved model and, in the same way, its original; each has a title.

    Without the original fine-tuned alike, nobody knows whether a gain comes from the cut or from
    the extra training.
    """
    if (missing := unregistered(result)) is not None:
        todo = f"to have a command and {checkpoint.with_suffix('.yaml').name} to fine-tune it"
        return [f"{missing}: give the folder of its plug-in (--user-dir) {todo}"]
    if result.cfg.get("optimizer") is None:
        return [f"{original.path} does not say how it was trained: choose how to fine-tune"]
    try:
        updates = PASSES * updates_per_pass(original)
    except FileNotFoundError:  # fairseq's, of a set
        return [f"{original.cfg.task.data} has no training set to fine-tune on"]
    passes = f"about {PASSES} passes"
    if only := only_folder(original):
        passes += f" over the part in {only}: give more --max-update and --total-num-update"
    return [
        *lines_of_plug_in(result),
        f"to fine-tune {checkpoint} ({passes}, at the rate of its training):",
        command(result, checkpoint, checkpoint.with_suffix(""), updates),
        f"to train {original.path} as long, which is what to compare the result with:",
        command(original, original.path, original_folder(checkpoint), updates),
    ]


def lines_of_plug_in(result: Trained) -> list[str]:
    """A line about a plug-in that brings, for example, a criterion, but not our architectures."""
    folder = Path(plug_in_of(result))
    is_ours = issubclass(ARCH_MODEL_REGISTRY[result.arch], HeadModel)
    if not is_ours or folder.name == PLUGIN:
        return []
    if any(PLUGIN in path.read_text(errors="replace") for path in folder.glob("**/*.py")):
        return []
    todo = f"add `import {PLUGIN}` to it, which defines {result.arch}"
    return [f"fairseq reads one plug-in, {folder}: {todo}"]


def original_folder(checkpoint: Path) -> Path:
    """The folder in which the original of a changed model is fine-tuned."""
    return checkpoint.with_name(f"{checkpoint.stem}-original")


def updates_per_pass(trained: Trained) -> int:
    """The number of updates in one pass over the training set, with the training's batches."""
    limits = trained.cfg.dataset
    rows = batched(trained, limits.train_subset, multiple=limits.required_batch_size_multiple)
    return -(-len(rows) // batches_per_update(trained))


def batches_per_update(trained: Trained) -> int:
    """How many batches one update of the training sums the gradients of, over all processes."""
    cfg = trained.cfg
    return int(cfg.optimization.update_freq[-1] * cfg.distributed_training.distributed_world_size)


def command(result: Trained, checkpoint: Path, save_dir: Path, updates: int) -> str:
    """A command that trains a saved model on, in one process, with a rate that ends at 0.

    Task, criterion, optimizer, batches and the peak rate are those of its training.  So is the
    warm-up, unless there was none or it is longer than the share :data:`WARM_UP` of the updates.

    Args:
        updates: number of updates.
    """
    words = ["fairseq-train", result.cfg.task.data]
    for section in (task_of(result), criterion_of(result)):
        words += section.words()
    for of_section in read_elsewhere(result).values():
        for name, value in of_section.items():
            words.append(f"--{name.replace('_', '-')}")
            words += [] if value is True else [as_word(value)]
    words += ["--user-dir", plug_in_of(result)]
    words += ["--finetune-from-model", str(checkpoint)]
    stock = family_of_stock(result.arch)
    # All options are compared with those of the architecture without a preset.
    arch = stock.prefix.rstrip("_") if stock else result.arch
    words += ["--arch", arch]
    ARCH_MODEL_REGISTRY[arch].add_args(parser := ArgumentParser(add_help=False))
    options = {action.dest for action in parser._actions}  # not those that fairseq derives
    for name, default in known_defaults(result.arch).items():
        value = result.options.get(name, default)
        if value == default or value is None or value is False or name not in options:
            continue  # as it is without a flag; none can undo a preset's true
        words += as_option(name, value)
    words += training_words(result, updates)
    return shlex.join([*words, "--save-dir", str(save_dir), "--no-epoch-checkpoints"])


def plug_in_of(result: Trained) -> str:
    """The ``--user-dir`` of a training: of the plug-in with the heads, or as it was given."""
    kind = ARCH_MODEL_REGISTRY[result.arch]
    if issubclass(kind, HeadModel) and kind.__module__.partition(".")[0] != PLUGIN:
        file = sys.modules[kind.__module__].__file__
        assert file is not None
        return str(Path(file).parent)
    user_dir = result.cfg.common.user_dir or PLUGIN
    if Path(user_dir).name == PLUGIN:
        return PLUGIN  # in any checkout
    moved = None if Path(user_dir).is_dir() else plug_in_folder(result.state)
    return str(moved or user_dir)


def training_words(trained: Trained, updates: int) -> list[str]:
    """The options of :func:`fine_tuning` that say how to train, as words of a command line."""
    cfg, name = trained.cfg, trained.cfg.optimizer._name
    words = Section.of("optimizer", name, OPTIMIZER_REGISTRY[name], cfg.optimizer).words()
    schedule, warm_up = cfg.lr_scheduler, math.ceil(WARM_UP * updates)
    rate = schedule.get("max_lr") or max(cfg.optimization.lr)  # of cycles, which rise to it
    warm_up = min(schedule.get("warmup_updates") or warm_up, warm_up)
    words += ["--lr", f"{rate:g}", "--lr-scheduler", "polynomial_decay"]
    words += ["--warmup-updates", str(warm_up)]
    words += ["--max-update", str(updates), "--total-num-update", str(updates)]
    max_tokens, sentences = cfg.dataset.max_tokens, cfg.dataset.batch_size
    size = {"max_tokens": max_tokens or (None if sentences else MAX_TOKENS)}
    for name, value in {**size, "batch_size": sentences}.items():
        words += as_option(name, value) if value else []
    if (number := batches_per_update(trained)) > 1:
        words += ["--update-freq", str(number)]
    for section, names in _KEPT.items():
        defaults = getattr(FairseqConfig(), section)
        for name in names:
            value = getattr(cfg[section], name)
            if value != getattr(defaults, name) and value is not False:
                words += as_option(name, value)
    return words


def as_option(name: str, value: Any) -> list[str]:
    """An option that is not at its default, as words of a command line."""
    option = f"--{name.replace('_', '-')}"
    return [option] if value is True else [option, as_word(value)]


def write_configuration(result: Trained, checkpoint: Path) -> Path | None:
    """Write the Hydra configuration next to the checkpoint, and return its path.

    If something is :func:`unregistered`, nothing is written, and the result is None.
    """
    if unregistered(result) is not None:
        return None
    names = known_defaults(result.arch)
    options = {name: result.options[name] for name in names if result.options.get(name) is not None}
    task, criterion = task_of(result), criterion_of(result)
    if criterion.name == "cross_entropy":  # which has no place for the smoothing of configs/base
        criterion = criterion._replace(name=SMOOTHED, values={"label_smoothing": 0.0})
    content: dict[str, Any] = {
        "model": {"_name": result.arch, **options},
        "task": {"_name": task.name, **task.values},
        "criterion": {"_name": criterion.name, **criterion.values},
        **read_elsewhere(result),
        "checkpoint": {"finetune_from_model": str(checkpoint.resolve())},
    }
    if criterion.name != SMOOTHED:
        content = {"defaults": [{"override /criterion": None}], **content}
    text = f"# @package _global_\n# The model {checkpoint.name}\n"
    path = checkpoint.with_suffix(".yaml")
    write_atomic(path, text + yaml.safe_dump(content, sort_keys=False))
    return path
