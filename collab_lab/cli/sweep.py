"""``fairseq-collab sweep``: all runs of a Hydra sweep that are not finished."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collab_common.command import check_folder, check_splittable, positive
from collab_common.errors import UserError, did_you_mean
from collab_common.folder import MANIFEST, read_finished
from collab_common.provenance import cores
from collab_lab.cli import options
from collab_lab.runs import config_folder


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
    parser.add_argument("--jobs", type=positive, default=1, metavar="N", help="parallel trainings")
    parser.add_argument("--dry-run", action="store_true", help="print the runs, train none")
    parser.add_argument(
        "--print", metavar="RUN", dest="printed",
        help="print the whole configuration of this run (a name of --dry-run) as YAML, train none; "
        "sweep takes it, and fairseq-hydra-train --config-dir . --config-name FOLDER/NAME",
    )  # fmt: skip
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse_intermixed_args(argv)
    if not args.config.is_file():
        todo = f"give or copy a file of {config_folder()}/experiment (fairseq-collab configs)"
        raise UserError("file not found", args.config, todo)
    options.import_models(args)
    from collab_lab.runs import sweep
    from collab_lab.runs.inputs import check_inputs
    from collab_lab.runs.run import Run, yaml_of
    from collab_lab.runs.worker import run_all

    out = args.out or Path("runs") / args.config.stem
    check_splittable(out)
    jobs = sweep.plan(args.config, args.overrides)
    if args.printed is not None:
        print(yaml_of(chosen(args.printed, {job.name: job.config for job in jobs})), end="")
        return 0
    runs = {Run(out.resolve() / job.name): job for job in jobs}
    for run, job in runs.items():
        run.check_same(job.config)
        check_inputs(run, job.config)
    check_data({Path(part) for job in jobs for part in job.config.task.data.split(os.pathsep)})
    for run, job in runs.items():
        if not run.is_finished():
            sweep.check_data(job.config)
            sweep.check_kept(job.config)
            if not run.resumes():
                sweep.check_weights(job.config)
    if args.dry_run:
        for run, job in runs.items():
            print(f"{run.name}: {run.state()}:", *(f"{k}={v}" for k, v in job.overrides.items()))
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // args.jobs)))  # of each run
    return run_all(runs, args.jobs, command=["fairseq-collab", "sweep", *argv])


def chosen(name: str, configs: Mapping[str, Any]) -> Any:
    """The configuration of a run; UserError for a name that no run has."""
    if name not in configs:
        todo = did_you_mean(name, configs) or f"give one of {', '.join(configs)}"
        raise UserError(f"no run is called {name!r}", "--print", todo)
    return configs[name]


def check_data(folders: set[Path]) -> None:
    """Reject data folders that are missing or changed."""
    for data in folders:
        check_folder(data, "give task.data=FOLDER")
        if (data / MANIFEST).exists():
            read_finished(data)
