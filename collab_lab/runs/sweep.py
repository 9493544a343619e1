"""The runs of a Hydra sweep: one per combination of ``hydra.sweeper.params`` and overrides.

``fairseq-hydra-train -m`` runs these configurations, but trains all in one process, and stops at
the first failure.  Here each run is a folder that resumes (:mod:`collab_lab.runs.run`).
"""

from __future__ import annotations

import difflib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from fairseq.dataclass import initialize
from fairseq.models import MODEL_REGISTRY
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigLoadError, ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException
from yaml import YAMLError

import fairseq_collab  # noqa: F401  (registers the models and criteria that are looked up)
from collab_common.errors import UserError, chain, first_line
from collab_common.progress import bar
from collab_lab.runs import config_folder
from collab_lab.runs.run import flat, started_from
from collab_lab.runs.score import check_generation, import_plugin

#: Sections of a run's configuration that fairseq does not know.
OURS = ("method",)
#: The value of an option that takes that of another.
_REFERENCE = re.compile(r"\$\{(.+)\}")
#: The override that names folders with further configurations.
SEARCH = "hydra.searchpath="
#: Options that every run needs to be followed and scored.
_FORCED = {"common": {"log_format": "json"}, "checkpoint": {"save_dir": "checkpoints"}}


@dataclass(frozen=True)
class Job:
    """One run of a sweep: its varied options, and its whole configuration."""

    name: str
    overrides: dict[str, str]
    config: DictConfig


def plan(config_file: Path, overrides: list[str]) -> list[Job]:
    """Compose every run of a sweep.

    Args:
        config_file: anywhere; files that it includes are looked up in its own folder, then in
            ``hydra.searchpath``, and then in that of :func:`.config_folder`.
        overrides: as on the command line of ``fairseq-hydra-train``.
    """
    config_file, config_dir = config_file.resolve(), config_folder()
    root = config_dir if config_file.is_relative_to(config_dir) else config_file.parent
    name = str(config_file.relative_to(root).with_suffix(""))
    initialize.hydra_init()  # fairseq's option groups, as in fairseq-hydra-train
    GlobalHydra.instance().clear()
    options: dict[str, Any] = {}
    try:
        searched = search_path(check_sections(config_file), overrides)
        check_names(root, searched)
        search = [f"hydra.searchpath={json.dumps([*searched, f'file://{config_dir}'])}"]
        overrides = [word for word in overrides if not word.startswith(SEARCH)]
        with initialize_config_dir(str(root), version_base="1.1", job_name="sweep"):
            whole = compose(name, overrides=search, return_hydra_config=True)
            options |= flat(OmegaConf.to_container(whole, resolve=False))
            params = whole.hydra.sweeper.get("params") or {}
            all_overrides = [*(f"{k}={v}" for k, v in params.items()), *overrides]
            return list(_jobs(name, search, all_overrides))
    except (HydraException, OmegaConfBaseException, YAMLError, RecursionError) as error:
        raise UserError(f"Hydra says: {_explained(error, options)}", where=config_file) from error


def check_sections(config_file: Path) -> dict[str, Any]:
    """The options of a file; UserError for an empty section of hydra's, which Hydra rejects."""
    content = yaml.safe_load(config_file.read_text(encoding="utf-8"))
    sections = flat(content) if isinstance(content, dict) else {}
    for name in ("hydra", "hydra.sweeper"):
        if name in sections and sections[name] is None:
            todo = "give hydra.sweeper.params, or leave it out"
            raise UserError(f"{name} is empty", config_file, todo)
    return sections


def search_path(sections: Mapping[str, Any], overrides: Iterable[str]) -> list[str]:
    """``hydra.searchpath``, from the last override of it, or else from the file."""
    words = [word for word in overrides if word.startswith(SEARCH)]
    if not words:
        return sections.get("hydra.searchpath") or []
    value: Any = OverridesParser.create().parse_override(words[-1]).value()
    folders: list[Any] = value if isinstance(value, list) else [value]
    return [str(getattr(folder, "text", folder)) for folder in folders]


def check_names(root: Path, searched: Iterable[str]) -> None:
    """Raise UserError for a model in ``hydra.searchpath`` whose name a file of ``root`` has.

    Hydra would read the latter, and train another model.
    """
    for folder in (Path(word.removeprefix("file://")) for word in searched):
        for path in folder.glob("model/*.yaml"):
            if (shadow := root / path.relative_to(folder)).is_file() and not path.samefile(shadow):
                raise UserError(f"Hydra would read {shadow}", path, "give the model another name")


def _explained(error: Exception, known: Mapping[str, Any]) -> str:
    """What Hydra says of a name that was typed, and the known name that is nearest to a wrong one.

    Args:
        known: options of the configuration, by name; unresolved
    """
    wrong = re.search(r"Could not (?:override|find) '([^']+)'", str(error))
    cause = next((link for link in chain(error) if isinstance(link, OmegaConfBaseException)), None)
    if cause is not None and cause.full_key and not wrong:
        name = cause.full_key.removeprefix("hydra.sweeper.params.")
        refers = _REFERENCE.fullmatch(str(known.get(name)))
        name = refers[1] if refers and refers[1] in known else name
        fields = getattr(cause.object_type, "__dataclass_fields__", {})
        near = _nearest(str(cause.key), fields) if isinstance(cause, ConfigKeyError) else ""
        return f"{name}: {first_line(cause).rstrip('.')}{near}"
    group, _, name = wrong[1].rpartition("/") if wrong else ("", "", "")
    options: Iterable[str] = known
    if group:
        options = str(error).partition("Available options in")[2].split()
    message, *more = str(error).splitlines()
    if more and not wrong:  # the reason
        message = f"{message.rstrip(':')}: {more[0].strip()}"
    return message.rstrip(".") + _nearest(name, options)


def _nearest(name: str, names: Iterable[str]) -> str:
    """``; did you mean KEY?``, or nothing where no key is near."""
    near = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]}?" if near else ""


def check_options(config: DictConfig) -> None:
    """Raise UserError for an unknown option, which training would ignore, or an unknown word."""
    for section in (str(key) for key in config if key not in OURS):
        options = config[section]
        if not isinstance(options, DictConfig):
            raise UserError("is no section of a configuration", section)
        kind, structured = options.get("_name"), _structured(section, options)
        if structured is None:
            if kind in MODEL_REGISTRY:  # fairseq lists no options of its `transformer`
                continue
            raise UserError("is no section of a configuration", section)
        for key in {str(key) for key in options} - set(structured):
            problem = f"no such option of {kind or 'fairseq'}{_nearest(key, structured)}"
            raise UserError(problem, f"{section}.{key}")
        for option in getattr(OmegaConf.get_type(structured), "__dataclass_fields__", {}).values():
            if not (words := option.metadata.get("choices")):
                continue  # unread: some refer to Hydra's folder of the run
            word = options.get(option.name)
            if word is not None and str(word) not in words:
                problem = f"{word!r} is none of {', '.join(words)}"
                raise UserError(problem, f"{section}.{option.name}")


def check_schedule(config: DictConfig) -> None:
    """Raise UserError for a rate that fairseq derives from a warm-up of no updates."""
    schedule: Any = config.get("lr_scheduler") or {}
    if schedule.get("_name") == "inverse_sqrt" and not schedule.warmup_updates:
        todo = "give 1 or more, or a rate that falls to 0 (+schedule=falling)"
        raise UserError("inverse_sqrt needs a warm-up", "lr_scheduler.warmup_updates", todo)


def settings(config: DictConfig) -> dict[str, Any]:
    """The options of a run that differ from fairseq's defaults, by dotted name."""
    changed = {}
    for name, value in flat(config).items():
        section, _, option = name.partition(".")
        structured = _structured(section, config[section]) if option else None
        defaults: Any = OmegaConf.to_container(structured or DictConfig({}), enum_to_str=True)
        default = None if option == "_name" else defaults.get(option)
        if refers := _REFERENCE.fullmatch(str(default)):
            default = OmegaConf.select(config, refers[1])
        if value != default:
            changed[name] = value
    return changed


def _structured(section: str, options: Any) -> DictConfig | None:
    """fairseq's options of a section, with their defaults; None where it lists none."""
    kind, store = options.get("_name"), ConfigStore.instance()
    try:
        node: Any = store.load(f"{section}/{kind}.yaml" if kind else f"{section}.yaml").node
        return node
    except ConfigLoadError:
        return None


def _jobs(name: str, search: list[str], overrides: list[str]) -> Iterator[Job]:
    names: set[str] = set()
    for varied, fixed in bar("runs", list(combinations(overrides))):
        try:
            config = compose(name, [*search, *fixed, *(f"{k}={v}" for k, v in varied.items())])
        except ValueError as error:  # a group set to null
            raise UserError(f"Hydra says: {error}") from error
        import_plugin(config)
        check_options(config)
        check_generation(config)
        check_schedule(config)
        job = Job(run_name(varied), varied, complete(config))
        if job.name in names:
            raise UserError(f"two runs are called {job.name}", todo="vary fewer options")
        names.add(job.name)
        yield job


def combinations(overrides: list[str]) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Each point of the grid: its varied options, and the overrides that all points share.

    A later override of an option replaces an earlier one, as in Hydra.
    """
    varied: dict[str, list[str]] = {}
    fixed: dict[str, str] = {}
    parsed_overrides = OverridesParser.create().parse_overrides(overrides)
    for text, parsed in zip(overrides, parsed_overrides, strict=True):
        key = parsed.get_key_element()
        varied.pop(key, None)
        fixed.pop(key, None)
        if parsed.is_sweep_override():
            varied[key] = list(parsed.sweep_string_iterator())
        else:
            fixed[key] = text
    for values in itertools.product(*varied.values()):
        yield dict(zip(varied, values, strict=True)), list(fixed.values())


def run_name(varied: dict[str, str]) -> str:
    """``model-collab_key_dim-16_seed-1``: the varied options, in characters safe for a shell."""
    words = (f"{key.rpartition('.')[2]}-{value}" for key, value in varied.items())
    return re.sub(r"[^\w.-]", "-", "_".join(words)) or "run"


def complete(config: DictConfig) -> DictConfig:
    """The configuration as it is kept in the run's folder: nothing depends on where it is read."""
    with open_dict(config):
        config.merge_with(_FORCED)
        if data := config.task.get("data"):
            folders = (str(Path(folder).resolve()) for folder in data.split(os.pathsep))
            config.task.data = os.pathsep.join(folders)
        # A plug-in that is no folder here is found by its name, wherever it is installed.
        if (plugin := config.common.get("user_dir")) and Path(plugin).exists():
            config.common.user_dir = str(Path(plugin).resolve())
        for option, path in started_from(config).items():
            if "://" not in path:
                config.checkpoint[option] = str(Path(path).absolute())
    return DictConfig(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
