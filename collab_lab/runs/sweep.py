"""The runs of a Hydra sweep: one per combination of ``hydra.sweeper.params`` and overrides.

``fairseq-hydra-train -m`` runs these configurations, but trains all in one process, and stops at
the first failure.  Here each run is a folder that resumes (:mod:`collab_lab.runs.run`).
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.dataclass import initialize
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models import MODEL_REGISTRY
from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigLoadError, ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

import fairseq_collab  # noqa: F401  (registers the models and criteria that are looked up)
from collab_common.errors import UserError, chain
from collab_common.progress import bar
from collab_lab.runs import config_folder
from collab_lab.runs.lengths import UNSET, limit_lengths
from collab_lab.runs.run import started_from
from collab_lab.runs.score import check_generation, import_plugin

#: Sections of a run's configuration that fairseq does not know.
OURS = ("method",)
#: The option that names folders with further configurations.
SEARCH = "hydra.searchpath"
#: Options that every run needs to be followed and scored.
_FORCED = {"common": {"log_format": "json"}, "checkpoint": {"save_dir": "checkpoints"}}


@dataclass(frozen=True)
class Job:
    """One run of a sweep: its varied options, and its whole configuration."""

    name: str
    overrides: dict[str, str]
    config: DictConfig


class ConfigFolder(SearchPathPlugin):
    """Has Hydra look up configurations in this project's folder, too."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("fairseq-collab", f"file://{config_folder()}")


def plan(config_file: Path, overrides: list[str]) -> list[Job]:
    """Compose every run of a sweep.

    Args:
        config_file: anywhere; files that it includes are looked up in its own folder, then in that
            of :func:`.config_folder`, and then in ``hydra.searchpath``.
        overrides: as on the command line of ``fairseq-hydra-train``.
    """
    config_file, config_dir = config_file.resolve(), config_folder()
    root = config_dir if config_file.is_relative_to(config_dir) else config_file.parent
    name = str(config_file.relative_to(root).with_suffix(""))
    initialize.hydra_init()  # fairseq's option groups, as in fairseq-hydra-train
    ConfigStore.instance().store("generation", GenerationConfig(**UNSET))
    GlobalHydra.instance().clear()
    Plugins.instance().register(ConfigFolder)
    searched = [word for word in overrides if word.startswith(SEARCH)]
    try:
        with initialize_config_dir(str(root), version_base="1.1", job_name="sweep"):
            hydra = compose(name, overrides=searched, return_hydra_config=True).hydra
            check_names(hydra.runtime.config_sources)
            params = (hydra.sweeper or {}).get("params") or {}
            return list(_jobs(name, [*(f"{k}={v}" for k, v in params.items()), *overrides]))
    except (HydraException, OmegaConfBaseException, YAMLError, RecursionError) as error:
        said = ": ".join(dict.fromkeys(" ".join(str(link).split()) for link in chain(error)))
        raise UserError(f"Hydra says: {said}", where=config_file) from error


def check_names(sources: Iterable[Any]) -> None:
    """Raise UserError for a model in ``hydra.searchpath`` whose name an earlier folder has.

    Hydra would read the latter, and train another model.

    Args:
        sources: of configurations, in Hydra's order.
    """
    folders = {Path(one.path): one.provider for one in sources if one.schema == "file"}
    for folder in (folder for folder, of in folders.items() if of.startswith(SEARCH)):
        for path in folder.glob("model/*.yaml"):
            files = (one / "model" / path.name for one in folders)
            first = next(file for file in files if file.is_file())
            if not path.samefile(first):
                raise UserError(f"Hydra would read {first}", path, "give the model another name")


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
            raise UserError(f"no such option of {kind or 'fairseq'}", f"{section}.{key}")
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


def _structured(section: str, options: Any) -> DictConfig | None:
    """fairseq's options of a section, with their defaults; None where it lists none."""
    kind, store = options.get("_name"), ConfigStore.instance()
    try:
        node: Any = store.load(f"{section}/{kind}.yaml" if kind else f"{section}.yaml").node
        return node
    except ConfigLoadError:
        return None


def _jobs(name: str, overrides: list[str]) -> Iterator[Job]:
    names: set[str] = set()
    for varied, fixed in bar("runs", list(combinations(overrides))):
        try:
            words = [*fixed, *(f"{k}={v}" for k, v in varied.items())]
            config = named(compose(name, words, return_hydra_config=True))
        except ValueError as error:  # a group set to null
            raise UserError(f"Hydra says: {error}") from error
        limit_lengths(config)
        import_plugin(config)
        check_options(config)
        check_generation(config)
        check_schedule(config)
        job = Job(run_name(varied), varied, complete(config))
        if job.name in names:
            raise UserError(f"two runs are called {job.name}", todo="vary fewer options")
        names.add(job.name)
        yield job


def named(config: DictConfig) -> DictConfig:
    """A run's configuration without Hydra's; its method is its file of ``model/`` if none is given.

    So rows of a table have one name whether a sweep varies ``model`` or all runs have one.
    """
    kind = config.hydra.runtime.choices.get("model")
    with open_dict(config):
        del config["hydra"]
        if kind and "method" not in config:
            config["method"] = kind
    return config


def combinations(overrides: list[str]) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Each point of the grid: its varied options, and the overrides that all points share.

    A later override of an option replaces an earlier one, as in Hydra.
    """
    last: dict[str, Any] = {}
    for parsed in OverridesParser.create().parse_overrides(overrides):
        last.pop(parsed.get_key_element(), None)
        last[parsed.get_key_element()] = parsed
    varied = {
        key: one.sweep_string_iterator() for key, one in last.items() if one.is_sweep_override()
    }
    fixed = [one.input_line for key, one in last.items() if key not in varied]
    for values in itertools.product(*varied.values()):
        yield dict(zip(varied, values, strict=True)), fixed


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
