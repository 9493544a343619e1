"""A run of a checkpoint that exists: pruned, re-parametrised, converted, or trained elsewhere."""

from __future__ import annotations

import filecmp
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from fairseq.data import data_utils
from omegaconf import DictConfig, OmegaConf

from collab_common import atomic
from collab_common.errors import UserError
from collab_common.provenance import commit
from collab_lab.runs.record import Started
from collab_lab.runs.run import PLUGIN, Run, flat, is_ours
from collab_lab.trained.checkpoint import check_direction, read_checkpoint
from fairseq_collab.models.options import plain_options


def make_run(
    run: Run, checkpoint: Path, config: DictConfig, chosen: Mapping[str, str], command: list[str]
) -> None:
    """Make the folder of a run that has nothing left to train.

    Args:
        config: from :func:`configuration`.
    """
    run.check_same(config)
    todo = "give another --run, or remove the folder"
    started = Started(dict(chosen), command, commit(), str(checkpoint))
    if run.config_file.exists() and run.started().overrides != started.overrides:
        raise UserError(f"is of {run.started().overrides}", run.folder, todo)
    if not run.average.exists():
        atomic.copy(checkpoint, run.average)
    elif not filecmp.cmp(checkpoint, run.average):
        raise UserError(f"is no longer what {run.folder} was made of", checkpoint, todo)
    run.start(started, config)


def configuration(checkpoint: Path, data: Path, chosen: Mapping[str, str], cpu: bool) -> DictConfig:
    """The checkpoint's own configuration, with the data folder and the options chosen.

    ``checkpoint.finetune_from_model`` names the checkpoint, whose weights are those of the run.
    """
    cfg = read_checkpoint(checkpoint, data)["cfg"]
    config = OmegaConf.create({name: _plain(part) for name, part in plain_options(cfg).items()})
    user_dir = config.common.user_dir
    plugin = PLUGIN if is_ours(user_dir) else Path(user_dir).resolve()
    options: dict[str, Any] = {
        "task.data": str(data),
        "common.user_dir": str(plugin),
        "common.cpu": cpu,
        "common.fp16": bool(config.common.fp16) and not cpu,
        "checkpoint.finetune_from_model": str(checkpoint),
    }
    has_languages = "source_lang" in config.task and "lang_pairs" not in config.task
    if has_languages and not (config.task.source_lang and config.task.target_lang):
        languages = data_utils.infer_language_pair(str(data))  # as fairseq's task does
        options |= dict(zip(("task.source_lang", "task.target_lang"), languages, strict=True))
    for name, value in options.items():
        OmegaConf.update(config, name, value)
    known_options = flat(config)
    for name, text in chosen.items():
        if name in known_options:
            config.merge_with_dotlist([f"{name}={text}"])
            kind, value = type(known_options[name]), OmegaConf.select(config, name)
            if kind in (bool, int, float) and not isinstance(value, (kind, int)):
                raise UserError(f"{text!r} is no {kind.__name__}", where=f"--set {name}")
        elif "." in name:
            raise UserError(f"the checkpoint has no option {name!r}", where="--set")
    todo = "choose --set task.source_lang=LANG --set task.target_lang=LANG"
    check_direction(config.task, checkpoint, todo)
    whole: str = OmegaConf.to_yaml(config)
    return DictConfig(yaml.safe_load(whole))  # as it will be read again


def _plain(options: Any) -> Any:
    """Options of older architectures are a namespace, which YAML does not know."""
    if not isinstance(options, Namespace):
        return options
    values = {"_name": options.arch, **vars(options)}
    kinds = (str, int, float, list, tuple, type(None))
    return {name: value for name, value in values.items() if isinstance(value, kinds)}
