"""A run in a separate process: trained by ``fairseq-hydra-train``, then scored.

    python -m collab_lab.runs.train_and_score RUN

A process that is killed leaves neither scores nor a reason.  fairseq is imported only after the
arguments were replaced by those of its command, so that its messages name that command.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from omegaconf import DictConfig

from collab_common import LAST_CHECKPOINT, files
from collab_common.errors import chain, find, first_line
from collab_common.provenance import hardware
from collab_lab.runs.length_limit import in_training
from collab_lab.runs.record import Failure, Training, jobs_at_a_time
from collab_lab.runs.run import Run, num_gpus

#: Options of the section ``checkpoint`` that fairseq obeys whenever it loads one.
RESETS = ("reset_dataloader", "reset_lr_scheduler", "reset_meters", "reset_optimizer")


def failure_of(error: BaseException) -> Failure:
    """The verdict and the reason for a run that an exception has ended.

    fairseq raises FloatingPointError if numbers are not finite or the loss scale becomes too small.
    """
    # Hydra leaves by SystemExit; of several processes, the first sends its traceback.
    errors = [link for link in chain(error) if not isinstance(link, SystemExit)] or [error]
    name = FloatingPointError.__name__
    diverged = any(isinstance(link, FloatingPointError) or name in str(link) for link in errors)
    text = str(errors[0]).strip()
    line = text.splitlines()[-1] if "Traceback" in text else first_line(errors[0])
    user_error = find(error)
    reason = str(user_error) if user_error else f"{type(errors[0]).__name__}: {line}"
    return Failure("diverged" if diverged else "failed", " ".join(reason.split()))


def train_command(run: Run, config: DictConfig) -> list[str]:
    """The command line of fairseq that trains on ``config.yaml``."""
    return [
        "fairseq-hydra-train",
        *("--config-path", str(run.folder.parent)),
        # By a bare name, fairseq would reject sections that are not its own.
        *("--config-name", f"{run.name}/{run.config_file.stem}"),
        f"checkpoint.save_dir={quoted(run.checkpoints)}",
        f"hydra.run.dir={quoted(run.folder)}",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
        "common.reset_logging=true",  # fairseq's own log format
        *in_training(config),
        *resumed(run, config),
    ]


def resumed(run: Run, config: DictConfig) -> list[str]:
    """Overrides for a training that resumes: from its own checkpoint, and nothing is reset again.

    fairseq would read another ``restore_file`` at each attempt, and lose what the run has done; it
    would also reset the optimizer, for example, and the result would depend on when the run was
    killed.
    """
    if not (run.checkpoints / LAST_CHECKPOINT).exists():
        return []
    checkpoint = config.get("checkpoint") or {}
    words = [f"checkpoint.{name}=false" for name in RESETS if checkpoint.get(name)]
    if checkpoint.get("restore_file", LAST_CHECKPOINT) != LAST_CHECKPOINT:
        words.append(f"checkpoint.restore_file={LAST_CHECKPOINT}")
    return words


def quoted(path: Path) -> str:
    """A path, quoted as a value of a Hydra override."""
    escaped = str(path).replace("'", "\\'")
    return f"'{escaped}'"


def train(run: Run) -> None:
    """Train as ``fairseq-hydra-train`` does; resume from the last checkpoint if there is one."""
    config = run.config()
    machine = hardware(config.common.cpu, num_gpus(config))
    now = Training(machine, import_module("torch").get_num_threads(), jobs_at_a_time())
    training = run.add_attempt(now)
    sys.argv[:] = train_command(run, config)
    import_module("fairseq_cli.hydra_train").cli_main()
    # Without a checkpoint to score, the run is not trained, and the next sweep trains it.
    import_module("collab_lab.runs.training").choose_checkpoints(run.checkpoints, config)
    files.write_json(run.trained_file, asdict(training))


def main() -> None:
    """Train the run unless it is trained already, and score it."""
    run = Run(Path(sys.argv[1]))
    try:
        if not run.is_trained():
            train(run)
        import_module("collab_lab.runs.score").score_run(run)
    except BaseException as error:
        run.fail(failure_of(error))
        raise


if __name__ == "__main__":
    main()
