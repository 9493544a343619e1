"""``fairseq-collab sweep``: train and score all unfinished runs of a Hydra sweep."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab_common.command import check_folder, check_splittable, positive
from collab_common.errors import UserError, did_you_mean
from collab_common.folder import MANIFEST, read_finished
from collab_common.progress import say
from collab_common.provenance import cores
from collab_lab.cli import options
from collab_lab.runs import config_folder

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from collab_lab.runs.run import Run
    from collab_lab.runs.sweep import Job

GIVE_DATA = "give task.data=FOLDER"


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "sweep",
        "Train, average, translate and score all unfinished runs of a Hydra sweep. "
        "Rerun the command to resume after an interruption.",
        "example: fairseq-collab sweep configs/experiment/key_dim_multi30k.yaml common.seed=1,2,3",
    )
    parser.add_argument(
        "config", type=Path,
        help="configuration with hydra.sweeper.params, e.g. a copy from the folder that "
        "fairseq-collab configs prints",
    )  # fmt: skip
    parser.add_argument("overrides", nargs="*", help="Hydra overrides, fixed or swept")
    parser.add_argument("--out", type=Path, help="folder for the runs (default: runs/CONFIG)")
    parser.add_argument(
        "--jobs", type=positive, default=1, metavar="N", help="number of trainings at the same time"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the runs without training them"
    )
    parser.add_argument(
        "--print", metavar="RUN", dest="printed",
        help="print the whole configuration of this run (a name that --dry-run prints) as YAML, "
        "and train nothing; sweep reads such a file, and so does fairseq-hydra-train "
        "--config-dir . --config-name FOLDER/NAME",
    )  # fmt: skip
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse_intermixed_args(argv)
    if not args.config.is_file():
        todo = f"give or copy a file of {config_folder()}/experiment (fairseq-collab configs)"
        raise UserError("file not found", args.config, todo)
    out = args.out or Path("runs") / args.config.stem
    check_splittable(out)
    if args.printed is None:
        check_given(args.overrides)
    options.import_models(args)
    from collab_lab.runs import sweep
    from collab_lab.runs.run import data_folders, yaml_of
    from collab_lab.runs.scheduler import run_all

    with closing(sweep.jobs(args.config, args.overrides)) as jobs:
        if args.printed is not None:
            print(yaml_of(chosen(args.printed, {job.name: job.config for job in jobs})), end="")
            return 0
        runs = checked(jobs, out.resolve())
    for data in {folder for job in runs.values() for folder in data_folders(job.config)}:
        if (data / MANIFEST).exists():
            read_finished(data)
    if any(job.config.ema.store_ema for job in runs.values() if "ema" in job.config):
        say(
            "warning: ema.store_ema: runs are scored with their weights, without the moving "
            "averages; score what `fairseq-collab average --ema` writes with score --run"
        )
    starts = [run for run in runs if not (run.is_finished() or run.resumes())]
    say_of_averages(runs[run].config for run in starts)
    if args.dry_run:
        for run, job in runs.items():
            print(f"{run.name}: {run.state()}:", *(f"{k}={v}" for k, v in job.overrides.items()))
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // args.jobs)))  # of each run
    return run_all(runs, args.jobs, command=["fairseq-collab", "sweep", *argv])


def say_of_averages(configs: Iterable[DictConfig]) -> None:
    """Say which trainings start from a checkpoint whose moving averages they leave out."""
    from collab_lab.runs.run import started_from
    from collab_lab.trained.left_out import say_if_left_out
    from fairseq_compat import checkpoints

    starts = (started_from(config).get("finetune_from_model") for config in configs)
    for path in sorted({path for path in starts if path and "://" not in path}):
        say_if_left_out(checkpoints.read(path), path)


def check_given(overrides: Sequence[str]) -> None:
    """Raise UserError at once if a data folder on the command line is missing."""
    given = dict(word.lstrip("+").partition("=")[::2] for word in overrides)
    path = given.get("task.data", "")
    if re.fullmatch(r"[\w./+:-]+", path):  # others, such as a choice, are checked with the runs
        for part in path.split(os.pathsep):
            check_folder(Path(part), GIVE_DATA)


def checked(jobs: Iterable[Job], out: Path) -> dict[Run, Job]:
    """Check each run before the next one is composed, because composing all of them takes long."""
    from collab_lab.runs import checks
    from collab_lab.runs.inputs import check_inputs
    from collab_lab.runs.run import Run, data_folders

    runs: dict[Run, Job] = {}
    for job in jobs:
        run = Run(out / job.name)
        run.check_same(job.config)
        for data in data_folders(job.config):
            check_folder(data, GIVE_DATA)
        check_inputs(run, job.config)
        if not run.is_finished():
            checks.check_data(job.config)
            checks.check_kept(job.config)
            checks.check_alone(job.config)
            checks.check_files(job.config)
            if not run.resumes():
                checks.check_weights(job.config)
        runs[run] = job
    return runs


def chosen(name: str, configs: Mapping[str, Any]) -> Any:
    """The configuration of the run with this name; UserError if there is none."""
    if name not in configs:
        todo = did_you_mean(name, configs) or f"give one of {', '.join(configs)}"
        raise UserError(f"no run is called {name!r}", "--print", todo)
    return configs[name]
