"""The runs of a Hydra sweep: one per combination of ``hydra.sweeper.params`` and overrides.

A configuration may list kinds of runs with options of their own, which multiply with the others::

    runs:
      - model: vanilla
      - model: collab_diagonal
        model.key_dim: 32,16

Each run has a folder from which it resumes (:mod:`collab_lab.runs.run`).  A failed run does not
stop the others.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.dataclass import initialize
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models import MODEL_DATACLASS_REGISTRY
from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

import fairseq_collab  # noqa: F401  (registers the models and criteria that are looked up)
from collab_common.errors import UserError, chain, did_you_mean
from collab_common.progress import bar
from collab_lab.runs import config_folder
from collab_lab.runs.checks import (
    FORCED,
    OURS,
    RUNS,
    SEARCH,
    check_generation,
    check_names,
    check_options,
    check_schedule,
    check_words,
    known_names,
    known_options,
    say_if_without_effect,
)
from collab_lab.runs.length_limit import UNSET, limit_lengths
from collab_lab.runs.run import files_read, started_from
from collab_lab.runs.score import import_plugin

#: Bytes of the name of a folder, in all usual file systems.
LONGEST_NAME = 255


@dataclass(frozen=True)
class Job:
    """One run of a sweep: its varied options, and its whole configuration."""

    name: str
    overrides: dict[str, str]
    config: DictConfig


class ConfigFolder(SearchPathPlugin):
    """Lets Hydra also look up configurations in this project's folder."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("fairseq-collab", f"file://{config_folder()}")


def plan(config_file: Path, overrides: list[str]) -> list[Job]:
    """Compose every run of a sweep: see :func:`jobs`."""
    return [*jobs(config_file, overrides)]


def jobs(config_file: Path, overrides: list[str]) -> Generator[Job, None, None]:
    """Compose the runs of a sweep one by one; each takes a fraction of a second.

    Args:
        config_file: configuration in any folder.  Files that it includes are looked up in its own
            folder, then in that of :func:`.config_folder`, then in ``hydra.searchpath``.
        overrides: overrides as on the command line of ``fairseq-hydra-train``.
    """
    config_file, config_dir = config_file.resolve(), config_folder()
    root = config_dir if config_file.is_relative_to(config_dir) else config_file.parent
    name = str(config_file.relative_to(root).with_suffix(""))
    initialize.hydra_init()  # fairseq's option groups, as in fairseq-hydra-train
    ConfigStore.instance().store("generation", GenerationConfig(**UNSET))
    GlobalHydra.instance().clear()
    Plugins.instance().register(ConfigFolder)
    check_words(overrides)
    searched = [word for word in overrides if word.startswith(SEARCH)]
    try:
        with initialize_config_dir(str(root), version_base="1.1", job_name="sweep"):
            base = compose(name, overrides=searched, return_hydra_config=True)
            check_names(base.hydra.runtime.config_sources)
            say_if_without_effect(base)
            params = (base.hydra.sweeper or {}).get("params") or {}
            shared = [f"{key}={_word(value)}" for key, value in params.items()]
            grid = [[*shared, *kind, *overrides] for kind in kinds_of_runs(base.get(RUNS))]
            yield from _jobs(name, grid)
    except (HydraException, OmegaConfBaseException, YAMLError, RecursionError) as error:
        said = ": ".join(dict.fromkeys(" ".join(str(link).split()) for link in chain(error)))
        todo = None
        if root != config_dir and (config_dir / "experiment" / config_file.name).exists():
            todo = f"if it is of another checkout, install that one: this is {config_dir.parent}"
        unknown = UserError(f"Hydra says: {said}", config_file, todo)
        raise (_hidden(error, root) or _explained(said) or unknown) from error


def kinds_of_runs(listed: Any) -> list[list[str]]:
    """The overrides of each kind of runs, which all count as varied; one empty kind for None.

    Args:
        listed: the section ``runs``: a mapping for each kind, like ``hydra.sweeper.params``; a list
            of values also varies.
    """
    if listed is None:
        return [[]]
    listed = OmegaConf.to_container(listed) if OmegaConf.is_config(listed) else listed
    if not (isinstance(listed, list) and listed and all(isinstance(one, dict) for one in listed)):
        raise UserError("must be a list of options", RUNS, "see docs/train.md")
    return [[_varying(*option) for option in kind.items()] for kind in listed]


def _varying(key: str, value: Any) -> str:
    """An override that varies an option, between the elements of a list or as Hydra writes it."""
    if isinstance(value, dict):
        raise UserError("is a mapping", f"{RUNS}: {key}", f"write {key}.{next(iter(value), 'x')}")
    words = ",".join(map(_word, value if isinstance(value, list) else [value]))
    plain = f"{key}={words}"
    if value is None or key.startswith("~"):  # the grammar has no choice of null alone
        return plain
    if OverridesParser.create().parse_override(plain).is_sweep_override():
        return plain
    return f"{key}=choice({words})"


def _word(value: Any) -> str:
    """A value of YAML as a value of a Hydra override."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, ListConfig)):
        return f"[{','.join(map(_word, value))}]"
    return str(value)


def _hidden(error: Exception, root: Path) -> UserError | None:
    """In one line, why a configuration includes itself: it has the name of one of this project."""
    ours = config_folder()
    hidden = [path for path in ours.rglob("*.yaml") if (root / path.relative_to(ours)).is_file()]
    if not isinstance(error, RecursionError) or root == ours or not hidden:
        return None
    name = hidden[0].relative_to(ours)
    problem = f"hides the configuration of this project that others include as /{name.stem}"
    return UserError(problem, root / name, "give it another name")


def _explained(said: str) -> UserError | None:
    """One line for what Hydra says in many about an unknown name; None for other errors."""
    if match := re.search(r"Could not override '(\w+)'", said):
        kinds = {
            name for kind in MODEL_DATACLASS_REGISTRY for name in known_options("model", kind) or ()
        }
        options = (f"model.{name}" for name in kinds)
        todo = did_you_mean(match[1], known_names()) or did_you_mean(match[1], options)
        return UserError("is not a section, group or option", match[1], todo)
    missing = r"Could not find '([^']+)/([^'/]+)' Available options in '[^']*': ([\w ]+)"
    if match := re.search(missing, said):
        group, name, listed = match.groups()
        todo = did_you_mean(name, listed.partition(" Config search path")[0].split())
        return UserError(f"there is no {group} of this name", f"{group}={name}", todo)
    return None


def _jobs(name: str, grid: Iterable[list[str]]) -> Iterator[Job]:
    names: set[str] = set()
    points = [point for overrides in grid for point in combinations(overrides)]
    for varied, words in bar("runs", points):
        try:
            config = named(compose(name, [*map(_added, words)], return_hydra_config=True))
        except ValueError as error:  # a group set to null
            raise UserError(f"Hydra says: {error}") from error
        with open_dict(config):
            config.pop(RUNS, None)
        limit_lengths(config)
        import_plugin(config)
        check_options(config)
        check_generation(config)
        check_schedule(config)
        job = Job(run_name(varied), varied, complete(config))
        if (length := len(os.fsencode(job.name))) > LONGEST_NAME:
            problem = f"the name of a run has {length} bytes, of at most {LONGEST_NAME}"
            raise UserError(problem, f"{job.name[:60]}...", "vary fewer options in one sweep")
        if job.name in names:
            raise UserError(f"two runs are called {job.name}", todo="vary fewer options")
        names.add(job.name)
        yield job


def named(config: DictConfig) -> DictConfig:
    """A run's configuration without Hydra's section; the default method is its file in ``model/``.

    Rows of a table then have the same name whether a sweep varies ``model`` or not.  A method in a
    configuration belongs to its model, so a command line with another model drops it.
    """
    kind = config.hydra.runtime.choices.get("model")
    given = {word.lstrip("+").partition("=")[0] for word in config.hydra.overrides.task}
    with open_dict(config):
        del config["hydra"]
        if kind and ("method" not in config or ("model" in given and "method" not in given)):
            config["method"] = kind
    return config


def _added(override: str) -> str:
    """Have Hydra add an option that the files lack: :func:`check_options` knows whether it is one.

    Hydra itself would advise to add it with ``+``, whatever the model.
    """
    key = override.partition("=")[0]
    is_option = re.fullmatch(r"(?!hydra\.)[A-Za-z_]\w*(\.\w+)+", key) or key in OURS
    return f"++{override}" if is_option else override


def combinations(overrides: list[str]) -> Iterator[tuple[dict[str, str], list[str]]]:
    """The varied options of each point of the grid, and all its overrides.

    As in Hydra, a later override of an option replaces an earlier one, also if one of them begins
    with ``+`` (which only Hydra needs, to add what the files lack).
    """
    last: dict[str, Any] = {}
    for parsed in OverridesParser.create().parse_overrides(overrides):
        key = parsed.get_key_element().lstrip("+")
        last.pop(key, None)
        last[key] = parsed
    varied = {
        key: one.sweep_string_iterator() for key, one in last.items() if one.is_sweep_override()
    }
    fixed = [one.input_line for key, one in last.items() if key not in varied]
    for values in itertools.product(*varied.values()):
        point = dict(zip(varied, values, strict=True))
        yield point, [*fixed, *(f"{last[key].get_key_element()}={of}" for key, of in point.items())]


def run_name(varied: dict[str, str]) -> str:
    """A name of the varied options that is safe in a shell: ``model-collab_key_dim-16_seed-1``."""
    words = (f"{key.rpartition('.')[2]}-{value}" for key, value in varied.items())
    return re.sub(r"[^\w.-]", "-", "_".join(words)) or "run"


def complete(config: DictConfig) -> DictConfig:
    """The configuration for the run's folder, with paths that do not depend on where it is read."""
    with open_dict(config):
        config.merge_with(FORCED)
        if data := config.task.get("data"):
            folders = (str(Path(folder).resolve()) for folder in data.split(os.pathsep))
            config.task.data = os.pathsep.join(folders)
        # A plug-in that is no folder here is found by its name, wherever it is installed.
        if (plugin := config.common.get("user_dir")) and Path(plugin).exists():
            config.common.user_dir = str(Path(plugin).resolve())
        for option, path in started_from(config).items():
            if "://" not in path:
                config.checkpoint[option] = str(Path(path).absolute())
        for name, path in files_read(config).items():
            OmegaConf.update(config, name, str(Path(path).absolute()))
    return DictConfig(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
