"""A run from an existing checkpoint, which was pruned, converted, or trained elsewhere."""

from __future__ import annotations

import dataclasses
import filecmp
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from fairseq import utils
from fairseq.data import data_utils
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import MODEL_DATACLASS_REGISTRY
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from collab_common import atomic
from collab_common.errors import UserError
from collab_common.progress import say
from collab_common.provenance import commit
from collab_lab.metrics.length_limit import LENGTH_LIMIT
from collab_lab.runs import length_limit
from collab_lab.runs.inputs import check_inputs, inputs_of
from collab_lab.runs.record import Record, Started
from collab_lab.runs.run import PLUGIN, Run, flat, is_ours
from collab_lab.trained.checkpoint import open_model, read_checkpoint
from collab_lab.trained.checks import check_direction
from fairseq_collab.models.options import CacheOptions, TransformerOptions, plain_options
from fairseq_collab.models.variants import VARIANTS

#: Options that change what is measured, besides those of the search (the section ``generation``).
ACTING = (
    "dataset.gen_subset", "dataset.max_tokens_valid", "common.seed", "common.fp16",
    "common.user_dir",
    "common_eval.post_process", "model.cache_bits", "model.cache_bits_in_decoder",
    "model.cache_bits_in_cross", "task.source_lang", "task.target_lang", "task.left_pad_source",
    "task.left_pad_target", "task.truncate_source", "task.tokens_per_sample",
    "task.sample_break_mode", "task.add_bos_token",
)  # fmt: skip
#: Those among them that say nothing of a language model, and of a translation model.
OF_TRANSLATION = (
    "dataset.max_tokens_valid", "common_eval.post_process", "task.source_lang", "task.target_lang",
)  # fmt: skip
#: Reserved names: for these, a table shows the field of the record instead of a fact.
FIELDS = {field.name for field in dataclasses.fields(Record)} - {"method"}
#: Options of the search that change no translation.
WITHOUT_EFFECT = ("nbest", "no_beamable_mm", "no_seed_provided", "print_step", "sacrebleu")


def make_run(
    run: Run, checkpoint: Path, config: DictConfig, chosen: Mapping[str, str], command: list[str]
) -> None:
    """Create the folder of a run that has nothing left to train.

    Args:
        config: result of :func:`configuration`.
    """
    run.check_same(config)
    check_inputs(run, config)
    todo = "give another --run, or remove the folder"
    started = Started(dict(chosen), command, commit(), str(checkpoint), inputs_of(config))
    if run.config_file.exists() and run.started().overrides != started.overrides:
        raise UserError(f"is of {run.started().overrides}", run.folder, todo)
    if not run.average.exists():
        atomic.copy(checkpoint, run.average)
    elif not filecmp.cmp(checkpoint, run.average):
        raise UserError(f"has changed since the run {run.folder} was created", checkpoint, todo)
    run.start(started, config)


def configuration(checkpoint: Path, data: Path, chosen: Mapping[str, str], cpu: bool) -> DictConfig:
    """The checkpoint's own configuration, with another data folder and other options.

    ``checkpoint.finetune_from_model`` names the checkpoint whose weights the run has.

    Args:
        chosen: values of options, whose names contain the section (``generation.beam``), and of
            facts.

    Raises:
        UserError: an option has no effect on the scores or an impossible value, or a fact has the
            name of an option.
    """
    saved = _sections(read_checkpoint(checkpoint, data)["cfg"])
    values = {
        name: value_of(name, text, saved) for name, text in chosen.items() if is_option(name, saved)
    }
    check_length_limit(values)
    if "common.fp16" in values and (cpu or not torch.cuda.is_available()):
        raise UserError("needs a GPU", "--set common.fp16", "leave it out")
    changed = {name: value for name, value in values.items() if _is_of_model(name)}
    if changed:  # a model that cannot be built fails before there is a folder
        open_model(checkpoint, data, **_without_sections(changed))
    config = _sections(read_checkpoint(checkpoint, data, **_without_sections(changed))["cfg"])
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
        first, *_ = utils.split_paths(str(data))  # as fairseq's task does
        languages = data_utils.infer_language_pair(first)
        options |= dict(zip(("task.source_lang", "task.target_lang"), languages, strict=True))
    for name, value in (options | values).items():
        OmegaConf.update(config, name, value)
    trained, measured = (
        " to ".join(filter(None, (task.get("source_lang"), task.get("target_lang"))))
        for task in (saved.task, config.task)
    )
    if has_languages and " to " in trained and measured != trained:
        say(f"warning: {checkpoint} translates {trained}, and is measured from {measured}")
    length_limit.unset(config, values)
    length_limit.limit_lengths(config)
    todo = "choose --set task.source_lang=LANG --set task.target_lang=LANG"
    check_direction(config.task, checkpoint, todo)
    whole: str = OmegaConf.to_yaml(config)
    return DictConfig(yaml.safe_load(whole))  # as it will be read again


def check_length_limit(values: Mapping[str, Any]) -> None:
    """Raise UserError for a limit of lengths that is below 0 or has no effect."""
    given = [f"generation.{name}" for name in LENGTH_LIMIT if f"generation.{name}" in values]
    for name in given:
        if values[name] < 0:
            raise UserError(f"must be 0 or more, not {values[name]}", f"--set {name}")
    if given and values.get("generation.match_source_len"):
        raise UserError("has no effect with generation.match_source_len", f"--set {given[0]}")


def overrides_of_model(config: DictConfig, started: Started) -> dict[str, Any]:
    """The options of model and task in ``score --set``, as arguments of :func:`.open_model`."""
    if started.checkpoint is None:
        return {}  # a sweep's model has been trained with what it varied
    names = filter(_is_of_model, started.overrides)
    return _without_sections({name: OmegaConf.select(config, name) for name in names})


def is_option(name: str, saved: DictConfig) -> bool:
    """Whether a name is that of an option; UserError if the option has no effect on the scores."""
    section, dot, option = name.rpartition(".")
    of_model = MODEL_DATACLASS_REGISTRY.get(saved.model.get("_name"))  # has more by now, perhaps
    fields = dataclasses.fields(of_model) if of_model else ()
    of_checkpoint = {one for one in flat(saved) if "." in one} | {f"model.{f.name}" for f in fields}
    options = set(of_checkpoint)
    for part in dataclasses.fields(FairseqConfig):
        if dataclasses.is_dataclass(part.default):
            options |= {f"{part.name}.{field.name}" for field in dataclasses.fields(part.default)}
    if not dot:
        sections = {one.partition(".")[0] for one in options} - {"model"}
        known = {one.rpartition(".")[2] for one in options}
        for kind in (TransformerOptions, CacheOptions, *(one.options for one in VARIANTS)):
            known |= {field.name for field in dataclasses.fields(kind)}
        sections |= {field.name for field in dataclasses.fields(FairseqConfig)} - {"model"}
        spelled = name.replace("-", "_").lower()
        if spelled in known | sections:
            found = sorted(one for one in options if one.endswith(f".{spelled}"))
            todo = f"give --set {found[0]}=VALUE, or another name" if found else "give another name"
            raise UserError("a fact must not have the name of an option", f"--set {name}", todo)
        if spelled in FIELDS:
            problem = "is a field of score.json, which is measured"
            raise UserError(problem, f"--set {name}", "give another name")
        return False
    if name not in options:
        raise UserError(f"the checkpoint has no option {name!r}", where="--set")
    translates = "source_lang" in saved.task
    acts = name in ACTING and (translates or name not in OF_TRANSLATION)
    if section == "generation":
        acts = translates and option not in WITHOUT_EFFECT
    if not acts:
        of_search = "generation.OPTION, " if translates else ""
        others = [one for one in ACTING if one in of_checkpoint]
        todo = f"give one of {of_search}{', '.join(others)}"
        raise UserError("has no effect on the scores of a run", f"--set {name}", todo)
    return True


def value_of(name: str, text: str, saved: DictConfig) -> Any:
    """The value of an option, converted to its type; UserError if the value is impossible."""
    section, _, option = name.partition(".")
    try:
        value = OmegaConf.from_dotlist([f"value={text}"]).value
    except (YAMLError, OmegaConfBaseException):
        value = text  # "@@ ", for example
    saved_value = OmegaConf.select(saved, name)
    kind = type(saved_value)
    fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
    if kind in (bool, int, float) and (not fits or isinstance(value, bool) != (kind is bool)):
        problem = f"{text!r} must be of the type {kind.__name__}"
        raise UserError(problem, where=f"--set {name}")
    if value is not None and (kind is str or option.endswith("_lang")):  # no: Norwegian
        return text
    default = FairseqConfig.__dataclass_fields__[section].default
    if dataclasses.is_dataclass(default) and not isinstance(default, type):
        try:
            OmegaConf.update(OmegaConf.structured(default), option, value)
        except OmegaConfBaseException as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{text!r}: {reason}", where=f"--set {name}") from error
    return value


def _sections(cfg: DictConfig) -> DictConfig:
    """A checkpoint's configuration as plain sections."""
    return OmegaConf.create({name: _plain(part) for name, part in plain_options(cfg).items()})


def _is_of_model(name: str) -> bool:
    """Whether an option is one of the model or the task, which are made of the checkpoint's."""
    return name.startswith(("model.", "task."))


def _without_sections(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name.partition(".")[2]: value for name, value in options.items()}


def _plain(options: Any) -> Any:
    """Options of older architectures are a namespace, which YAML does not know."""
    if not isinstance(options, Namespace):
        return options
    values = {"_name": options.arch, **vars(options)}
    kinds = (str, int, float, list, tuple, type(None))
    return {name: value for name, value in values.items() if isinstance(value, kinds)}
