"""``fairseq-collab sweep``: all runs of a Hydra sweep that are not finished."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from collab_common.command import check_folder, positive
from collab_common.errors import UserError
from collab_common.folder import MANIFEST, read_finished
from collab_common.provenance import cores
from fairseq_collab.runs.run import Run


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fairseq-collab sweep",
        description="Do all runs of a Hydra sweep that are not finished: train, average, "
        "translate, score. Rerun the command to resume after an interruption.",
        epilog="example: fairseq-collab sweep configs/experiment/key_dim_multi30k.yaml "
        "common.seed=1,2,3",
    )
    parser.add_argument("config", type=Path, help="a configuration with hydra.sweeper.params")
    parser.add_argument("overrides", nargs="*", help="Hydra overrides, fixed or swept")
    parser.add_argument("--config-dir", type=Path, default=Path("configs"), help="default: configs")
    parser.add_argument("--out", type=Path, help="default: runs/NAME of the configuration")
    parser.add_argument("--jobs", type=positive, default=1, metavar="N", help="trainings at a time")
    parser.add_argument("--dry-run", action="store_true", help="list the runs and stop")
    args = parser.parse_intermixed_args(argv)
    import torch

    from fairseq_collab.runs.sweep import plan
    from fairseq_collab.runs.worker import work_off

    out = args.out or Path("runs") / args.config.stem
    jobs = plan(args.config, args.config_dir, args.overrides)
    runs = {Run(out.resolve() / job.name): job for job in jobs}
    for run, job in runs.items():
        run.check_same(job.config)
    if args.dry_run:
        for run in runs:
            print(f"{run.verdict():10} {run.folder}")
        return 0
    check_data({run: Path(job.config.task.data) for run, job in runs.items()})
    threads = max(1, cores() // args.jobs)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # of each training
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # of the scoring in this process
    return work_off(runs, args.jobs, command=["fairseq-collab", "sweep", *argv], log=sys.stdout)


def check_data(folders: Mapping[Run, Path]) -> None:
    """Reject data folders that are missing, changed, or not those that runs were scored on."""
    from fairseq_collab.runs.score import manifest_hash

    for data in set(folders.values()):
        check_folder(data, "give task.data=FOLDER")
        if (data / MANIFEST).exists():
            read_finished(data)
    for run, data in folders.items():
        score = run.score()
        if score and score.data_sha256 not in (None, manifest_hash(data)):
            todo = "give another folder, or remove this one"
            raise UserError(f"was scored on other text than that of {data} now", run.folder, todo)
