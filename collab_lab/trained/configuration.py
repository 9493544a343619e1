r"""Options for training a pruned or converted model on.

Every pruned or converted model has its own shape.  ``--out MODELS/model/NAME.pt`` of
``fairseq-collab prune`` and ``reparametrize`` writes MODELS/model/NAME.yaml next to it.  With
MODELS in Hydra's search path, ``model=NAME`` fine-tunes the model:

    fairseq-collab sweep configs/experiment/... hydra.searchpath=[file://MODELS] \
        model="choice(NAME,NAME)"

``checkpoint.finetune_from_model=null`` trains a model of this shape from scratch instead.
"""

from __future__ import annotations

import re
import shlex
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
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from omegaconf import OmegaConf

from collab_common.files import write_atomic
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.models.base import Family
from fairseq_collab.models.options import plain_options, preset
from fairseq_collab.models.variants import family_of

PLUGIN = "fairseq_collab"
#: Sections of a configuration with options that tasks and criterions read.
_SECTIONS = ("common", "dataset", "distributed_training", "optimization")
#: Those of a machine, of one training, or of how long sentences are batched.
_OF_MACHINE = {"batch_size", "batch_size_valid", "data_buffer_size", "plasma_path", "seed", "tpu"}
#: The criterion of configs/base.yaml.
SMOOTHED = "label_smoothed_cross_entropy"
#: How :func:`fine_tuning` trains.
UPDATES = (
    *("--optimizer", "adam", "--lr-scheduler", "polynomial_decay", "--lr", "3e-4"),
    *("--max-update", "250", "--total-num-update", "250", "--max-tokens", "4096"),
)
#: Options of how a model was trained or stored, which do not change its function.
_OF_TRAINING = {
    *("encoder_embed_path", "decoder_embed_path", "encoder_layers_to_keep"),
    *("decoder_layers_to_keep", "quant_noise_pq", "quant_noise_pq_block_size"),
    *("quant_noise_scalar", "min_params_to_wrap", "checkpoint_activations"),
    *("offload_activations", "export"),
}


def known_defaults(arch: str) -> dict[str, Any]:
    """The options of an architecture that can change a model's function, with their defaults."""
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
    """The task or the criterion of a checkpoint.

    Attributes:
        kind: ``task`` or ``criterion``.
        name: under which it is registered.
        actions: its options, as fairseq's parsers have them.
        values: of these options, by name; without those that are None.
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
    """The value of an option, as it is given on the command line."""
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
    """By section, options that the task or the criterion reads, and that are not at their defaults.

    With another value a training of the result may fail, as one of adaptive softmax does without
    its ``--ddp-backend``, or differ.
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
    """A value of an option, without an enumeration's class."""
    return value.value if isinstance(value, Enum) else value


def fine_tuning(result: Trained, checkpoint: Path) -> str:
    """A command that trains the saved model on: a few updates, from a low rate to 0.

    The task and the criterion are those of the checkpoint.
    """
    words = ["fairseq-train", result.cfg.task.data]
    for section in (task_of(result), criterion_of(result)):
        words += section.words()
    for of_section in read_elsewhere(result).values():
        for name, value in of_section.items():
            words.append(f"--{name.replace('_', '-')}")
            words += [] if value is True else [as_word(value)]
    user_dir = result.cfg.common.user_dir or PLUGIN  # ours is found by its name, in any checkout
    words += ["--user-dir", PLUGIN if Path(user_dir).name == PLUGIN else user_dir]
    words += ["--finetune-from-model", str(checkpoint)]
    stock = family_of_stock(result.arch)
    # All options are compared with those of the architecture without a preset.
    words += ["--arch", stock.prefix.rstrip("_") if stock else result.arch]
    for name, default in known_defaults(result.arch).items():
        value = result.options.get(name, default)
        if value == default or value is None or value is False:
            continue  # as it is without a flag; none can undo a preset's true
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(",".join(map(str, value)) if isinstance(value, list) else str(value))
    return shlex.join([*words, "--save-dir", str(checkpoint.with_suffix("")), *UPDATES])


def write_configuration(result: Trained, checkpoint: Path) -> Path:
    """Write the Hydra configuration next to the checkpoint; returns its path."""
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
