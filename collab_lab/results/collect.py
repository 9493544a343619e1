"""Read run folders into one data frame: a row per run, a column per field of ``score.json``.

Nested fields have dotted names (``perplexity.test``); options that a sweep varied are
``overrides.KEY``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import DictConfig, OmegaConf

from collab_common.errors import UserError
from collab_lab.runs.record import Record
from collab_lab.runs.run import Run, data_folders, find_runs, flat

#: All runs of a table must agree in these: scores on other text, or scored otherwise, do not
#: compare.
SAME_IN_TABLE = (
    "task", "data", "data_sha256", "subset", "reference", "sentences", "bleu_signature",
    "chrf_signature", "compound_split_signature", "multiply_adds_length",
)  # fmt: skip
#: Seeds of one model agree in these; ``decoding`` is of :func:`decoding_of`.
SAME_IN_ROW = (
    "arch", "decoding", "heads", "parameters", "attention_parameters",
    "key_bytes_per_target_token", "value_bytes_per_target_token", "multiply_adds",
)  # fmt: skip
#: Those of seeds that chose their own heads.
SAME_CHOICE = ("arch", "decoding")
#: Sections of a run's configuration with the options of its training.
TRAINED_BY = ("model", "criterion", "optimizer", "lr_scheduler", "optimization")
#: Options of other sections that change a training.
TRAINED_ALSO_BY = ("dataset.batch_size", "dataset.max_tokens", "dataset.train_subset")
#: What the seconds of a model depend on, next to it.
TIMED = {
    "train_seconds": ("train_threads", "train_jobs", "hardware"),
    "translate_seconds": ("translate_threads", "translate_jobs", "translate_hardware"),
}
#: Relative difference of training updates above which a table warns.
BUDGET_TOLERANCE = 0.01
#: What is cached of a token.
CACHED = ("key", "value")
#: Column of the KV cache as a share.
SHARE = "cache_share"
SEED = "overrides.common.seed"


def read_runs(folders: Sequence[Path]) -> tuple[pd.DataFrame, list[str]]:
    """Read the finished runs, ordered by seed, and one line of text for each unfinished run.

    Raises:
        UserError: no run is finished.
    """
    finished, unfinished = [], []
    for run in find_runs(folders):
        record = run.record()
        if record is None:
            unfinished.append(f"{run.name}: {run.state()}")
        else:
            finished.append({"folder": run.folder, **asdict(record), **derived(record)})
    if not finished:
        todo = "finish them (fairseq-collab sweep)"
        raise UserError(f"no finished run; {unfinished[0]}", todo=todo)
    frame = pd.DataFrame([flat(run) for run in finished], dtype=object)  # values keep their types
    return frame.sort_values("seed", kind="stable", ignore_index=True), unfinished


def derived(record: Record) -> dict[str, Any]:
    """Columns that are computed from a record."""
    cached: dict[str, Any] = {}
    for side in ("target", "source"):
        keys, values = (getattr(record, f"{part}_bytes_per_{side}_token") for part in CACHED)
        cached[f"cache_bytes_per_{side}_token"] = None if keys is None else keys + values
    bits = None if record.valid_nats is None else record.valid_nats / math.log(2)
    return {"decoding": decoding_of(record), "valid_bits": bits, **cached}


def decoding_of(record: Record) -> str | None:
    """How a run was decoded: beam, length penalty, and options that differ from fairseq's defaults.

    For a language model it is how the text was cut into blocks, which limit the context of words.
    """
    options: Mapping[str, Any] | None
    if record.beam is None:
        options = record.blocks
    elif record.generation is None:
        return f"beam={record.beam}, lenpen={record.lenpen}, others not recorded"
    else:
        options = {"beam": record.beam, "lenpen": record.lenpen, **record.generation}
    return ", ".join(f"{name}={value}" for name, value in options.items()) if options else None


def column(frame: pd.DataFrame, name: str) -> pd.Series | None:
    """A field, or an option of the sweep by its key or the key's end; None if no run has it."""
    choices = [key for key in frame if key.startswith("overrides.") and key.endswith(f".{name}")]
    for key in (name, *choices):
        if key in frame and frame[key].notna().any():
            return frame[key]
    return None


def numeric(values: pd.Series) -> pd.Series:
    """The values as numbers if all are numbers; otherwise unchanged."""
    try:
        return pd.to_numeric(values)
    except (TypeError, ValueError):
        return values


def check_same(frame: pd.DataFrame, fields: Iterable[str], todo: str) -> None:
    """Raise UserError if runs differ in a field; the error names two runs and their values."""
    for field in (field for field in fields if field in frame):
        values = frame[field].where(frame[field].notna(), None)
        differs = values.map(str) != str(values.iloc[0])
        if differs.any():
            run, other = frame["folder"].iloc[0], frame["folder"][differs].iloc[0]
            problem = f"{run} and {other} differ in {field}: "
            problem += f"{values.iloc[0]} and {values[differs].iloc[0]}"
            raise UserError(problem, todo=todo)


def check_seeds(frame: pd.DataFrame) -> None:
    """Raise UserError unless the runs are different seeds of one model."""
    chosen = frame["heads"].isna().all()  # attentions differ: each training may choose its heads
    todo = "they are not seeds of one model: make a table of each"
    check_same(frame, SAME_CHOICE if chosen else SAME_IN_ROW, todo)
    if (twice := frame["seed"].duplicated()).any():
        second = frame[twice].iloc[0]
        first = frame[frame["seed"] == second["seed"]].iloc[0]
        problem = f"{first['folder']} and {second['folder']} are one model with one seed"
        todo = "leave one out, or give one another method"
        raise UserError(f"{problem} ({second['seed']})", todo=todo)


def trained_otherwise(frame: pd.DataFrame) -> dict[str, list[str]]:
    """The options of their training in which seeds of one model differ, with the values.

    A table names those that a sweep varies; others may differ between two sweeps.
    """
    if len(frame) < 2:
        return {}
    found = [training_options(Run(folder).config()) for folder in frame["folder"]]
    if frame["heads"].isna().all():  # each training may have chosen its heads
        found = [{name: one[name] for name in one if one[name][0] != "model"} for one in found]
    common = set.intersection(*map(set, found))  # an older version had fewer options
    values = {name: sorted({one[name][1] for one in found}) for name in sorted(common)}
    return {name: different for name, different in values.items() if len(different) > 1}


def training_options(config: DictConfig) -> dict[str, tuple[str, str]]:
    """The sections and values of a training's options, by name; the rate is in several sections.

    The model of an older architecture also has the options of all other sections.
    """
    parts = {name: part for name, part in config.items() if isinstance(part, DictConfig)}
    others = {name for section in parts.keys() - {"model"} for name in parts[section]}
    found = {
        str(section if name == "_name" else name): (section, str(value))
        for section in TRAINED_BY
        for name, value in parts.get(section, {}).items()
        if section != "model" or name == "_name" or name not in others
    }
    for option in TRAINED_ALSO_BY:
        if (value := OmegaConf.select(config, option)) is not None:
            found[option] = (option.partition(".")[0], str(value))
    # Scores are of the first folder; the same text may be elsewhere on another machine.
    further = ", ".join(folder.name for folder in data_folders(config)[1:]) or "none"
    return {**found, "further data folders": ("task", further)}


def warnings(frame: pd.DataFrame) -> list[str]:
    """Warnings about whatever makes a comparison unfair or its numbers doubtful."""
    problems = []
    unknown = frame["train_updates"].isna()
    if unknown.any() and not unknown.all():
        names = ", ".join(Run(folder).name for folder in frame.loc[unknown, "folder"])
        problems.append(f"how long these checkpoints were trained is unknown: {names}")
    updates = frame["train_updates"].dropna().astype(int)
    if len(updates) and updates.max() > updates.min() * (1 + BUDGET_TOLERANCE):
        fewest, most = frame.loc[updates.idxmin()], frame.loc[updates.idxmax()]
        problems.append(
            f"training budgets differ by more than {BUDGET_TOLERANCE:.0%}: "
            f"{updates.min():,} updates ({Run(fewest['folder']).name}) to "
            f"{updates.max():,} ({Run(most['folder']).name})"
        )
    if len(decoding := distinct(frame, "decoding")) > 1:
        problems.append(f"different decoding: {'; '.join(decoding)}")
    if frame["averaged"].map(len).nunique() > 1:
        problems.append("different numbers of averaged checkpoints")
    if frame["data_sha256"].isna().any():
        problems.append("the data folder has no manifest: the runs may have read different files")
    return problems


def timed_otherwise(frame: pd.DataFrame, shown: set[str]) -> list[str]:
    """A warning for each column of seconds that were not all measured in one way."""
    problems = []
    for name in (name for name in TIMED if name in shown):
        ways = distinct(frame[frame[name].notna()], *TIMED[name])
        if len(ways) > 1:
            of = "threads, runs at a time, hardware"
            problems.append(f"{name} was measured in {len(ways)} ways ({of}): {'; '.join(ways)}")
    return problems


def distinct(frame: pd.DataFrame, *names: str) -> list[str]:
    """The different values of fields, sorted."""
    chosen = frame[[name for name in names if name in frame]].dropna(how="all")
    return sorted({", ".join(map(str, row)) for row in chosen.itertuples(index=False)})
