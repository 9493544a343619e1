"""Hashes of everything that a run reads, because the files behind a path may change."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from collab_common.errors import UserError
from collab_common.files import sha256
from collab_common.folder import manifest
from collab_lab.runs.run import Run, data_folders, files_read, started_from


def manifest_hash(data: Path) -> str | None:
    """The SHA-256 of the file hashes in the data folder's manifest; None without a manifest.

    Logs do not count, because they depend on when and where the folder was prepared.
    """
    files = manifest(data).get("outputs")
    if not files:  # another program's, perhaps
        return None
    outputs = {k: v for k, v in files.items() if not k.endswith(".log")}
    return hashlib.sha256(json.dumps(outputs, sort_keys=True).encode()).hexdigest()


def inputs_of(config: DictConfig) -> dict[str, str]:
    """Hashes of the data folders, the weights to start from and other files, by option."""
    is_given = OmegaConf.select(config, "task.data") is not None
    found = {}
    for number, folder in enumerate(data_folders(config) if is_given else ()):
        if (data := manifest_hash(folder)) is not None:
            found["task.data" if number == 0 else f"task.data: {folder}"] = data
    weights = {f"checkpoint.{option}": path for option, path in started_from(config).items()}
    for option, path in (weights | files_read(config)).items():
        if Path(path).is_file():
            found[option] = _hash_of(Path(path), Path(path).stat().st_mtime_ns)
    return found


@functools.cache  # many runs start from one file
def _hash_of(path: Path, _changed: int) -> str:
    return sha256(path)


def check_inputs(run: Run, config: DictConfig) -> None:
    """Raise UserError if the files of a run have changed since it was started."""
    former = run.started().inputs
    for option, content in inputs_of(config).items() if former else ():
        if former.get(option, content) != content:
            problem = f"was started with other content of {option}"
            raise UserError(problem, run.folder, "give another folder, or remove this one")
