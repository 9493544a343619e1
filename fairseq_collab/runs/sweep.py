"""The runs of a Hydra sweep: one per combination of ``hydra.sweeper.params`` and overrides.

``fairseq-hydra-train -m`` runs the same configurations, but trains all in one process, and stops at
the first failure.  Here each run is a folder that resumes (:mod:`fairseq_collab.runs.run`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairseq.dataclass import initialize
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from collab_common.errors import UserError, first_line
from fairseq_collab.runs.run import started_from

#: Options that every run needs to be followed and scored.
_FORCED = {"common": {"log_format": "json"}, "checkpoint": {"save_dir": "checkpoints"}}


@dataclass(frozen=True)
class Job:
    """One run of a sweep: its varied options, and its whole configuration."""

    name: str
    overrides: dict[str, str]
    config: DictConfig


def plan(config_file: Path, config_dir: Path, overrides: list[str]) -> list[Job]:
    """Compose every run of a sweep.

    Args:
        config_file: somewhere under ``config_dir``, Hydra's search path.
        overrides: as on the command line of ``fairseq-hydra-train``.

    Raises:
        UserError: no such file, a configuration that Hydra rejects, or two runs of one name.
    """
    config_file, config_dir = config_file.resolve(), config_dir.resolve()
    if not config_file.is_file():
        raise UserError("there is no such file", config_file)
    if not config_file.is_relative_to(config_dir):
        what = f"not under the configuration folder {config_dir}"
        raise UserError(what, config_file, "give --config-dir")
    name = str(config_file.relative_to(config_dir).with_suffix(""))
    initialize.hydra_init()  # fairseq's option groups, as in fairseq-hydra-train
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(config_dir), version_base="1.1", job_name="sweep"):
            whole = compose(name, return_hydra_config=True)
            params = whole.hydra.sweeper.get("params") or {}
            return list(_jobs(name, [*(f"{k}={v}" for k, v in params.items()), *overrides]))
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(f"Hydra says: {first_line(error)}", where=config_file) from error


def _jobs(name: str, overrides: list[str]) -> Iterator[Job]:
    names: set[str] = set()
    for varied, fixed in combinations(overrides):
        config = compose(name, overrides=[*fixed, *(f"{k}={v}" for k, v in varied.items())])
        job = Job(run_name(varied), varied, complete(config))
        if job.name in names:
            raise UserError(f"two runs are called {job.name}", todo="vary fewer options")
        names.add(job.name)
        yield job


def combinations(overrides: list[str]) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Each point of the grid: its varied options, and the overrides that all points share.

    A later override of the same option replaces an earlier one, as in Hydra.
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
    parts = (f"{key.rpartition('.')[2]}-{value}" for key, value in varied.items())
    return re.sub(r"[^\w.-]", "-", "_".join(parts)) or "run"


def complete(config: DictConfig) -> DictConfig:
    """The configuration as it is kept in the run's folder: nothing depends on where it is read."""
    with open_dict(config):
        config.merge_with(_FORCED)
        for section, option in (("task", "data"), ("common", "user_dir")):
            path = config[section].get(option)
            # A plug-in that is no folder here is found by its name, wherever it is installed.
            if path and (option == "data" or Path(path).exists()):
                config[section][option] = str(Path(path).resolve())
        for option, path in started_from(config).items():
            if "://" not in path:
                config.checkpoint[option] = str(Path(path).absolute())
    return DictConfig(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
