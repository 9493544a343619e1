"""fairseq's commands on a run's data, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from collab_common.errors import UserError
from fairseq_collab.runs.fairseq_output import last_line
from fairseq_collab.runs.run import Run


def fairseq(
    name: str, run: Run, config: DictConfig, lock: int | None, output: Path, words: list[Any]
) -> str:
    """Run one of fairseq's commands on the run's data, in a process of its own.

    Args:
        output: what it prints, kept whole or not at all; of ``fairseq-generate`` without its log.

    Returns:
        its log: where fairseq's logger writes beside a plug-in

    Raises:
        UserError: it failed; with the last line that it wrote.
    """
    tokens = config.dataset.max_tokens_valid or config.dataset.max_tokens
    changed = OmegaConf.select(config, "common_eval.model_overrides", default="{}")  # as text
    command = [
        *(Path(sys.executable).with_name(f"fairseq-{name}"), config.task.data),
        *("--user-dir", config.common.user_dir, *words),
        *(["--max-tokens", tokens] if tokens else ["--batch-size", config.dataset.batch_size]),
        *("--num-workers", config.dataset.num_workers),
        *(["--cpu"] * bool(config.common.cpu)),
        *(["--fp16"] * bool(config.common.fp16)),
        *(["--model-overrides", changed] if changed != "{}" else []),
    ]
    partial = output.with_name(f"{output.name}.part")
    partial.unlink(missing_ok=True)  # a file of its own, whoever may still write into that one
    with partial.open("w") as file:
        ended = subprocess.run(
            list(map(str, command)),
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=[] if lock is None else [lock],
        )
        if name != "generate":
            file.write(ended.stderr)
    if ended.returncode:
        raise UserError(f"fairseq-{name} failed: {last_line(ended.stderr)}", where=run.folder)
    os.replace(partial, output)
    return ended.stderr
