r"""Options for training a pruned or converted model on.

Every pruned or converted model has its own shape.  ``--out MODELS/model/NAME.pt`` of
``fairseq-collab prune`` and ``reparametrize`` writes MODELS/model/NAME.yaml next to it.  With
MODELS in Hydra's search path, ``model=NAME`` fine-tunes the model:

    fairseq-collab sweep configs/experiment/... hydra.searchpath=[file://MODELS] \
        model="choice(NAME,NAME)"

``checkpoint.finetune_from_model=null`` trains a model of this shape from scratch instead.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import yaml
from fairseq.dataclass import FairseqDataclass
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from omegaconf import OmegaConf

from collab_common.files import write_atomic
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.models.base import Family
from fairseq_collab.models.options import preset
from fairseq_collab.models.variants import family_of

PLUGIN = "fairseq_collab"
#: How :func:`fine_tuning` trains.
UPDATES = (
    *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"),
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


def fine_tuning(result: Trained, checkpoint: Path) -> str:
    """A command that trains the saved model on: a few updates, from a low rate to 0."""
    task = result.cfg.task
    words = ["fairseq-train", task.data, "--task", task._name]
    for name in ("source_lang", "target_lang", "tokens_per_sample", "sample_break_mode"):
        if (value := getattr(task, name, None)) is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
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
    content = {
        "model": {"_name": result.arch, **options},
        "checkpoint": {"finetune_from_model": str(checkpoint.resolve())},
    }
    text = f"# @package _global_\n# The model {checkpoint.name}\n"
    path = checkpoint.with_suffix(".yaml")
    write_atomic(path, text + yaml.safe_dump(content, sort_keys=False))
    return path
