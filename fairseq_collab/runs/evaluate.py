"""From a trained run to its ``score.json``: average, translate, score, count.

How the run is translated stands in its own configuration, in fairseq's terms:
``dataset.gen_subset``, ``generation.*``, ``common_eval.post_process``.  The epochs that
``checkpoint.keep_last_epochs`` (or ``keep_interval_updates``) kept are averaged; where neither is
set, the best checkpoint is taken.  References are the untouched text in the data folder's ``raw/``.
Another test set (``Run.subset``) is translated in the same way, with the same averaged model.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from fairseq_collab.checkpoints.average import average_checkpoints, last_checkpoints
from fairseq_collab.metrics.compound_split import compound_split_bleu
from fairseq_collab.metrics.cost import cost, load_architecture
from fairseq_collab.metrics.multiply_adds import LENGTH, multiply_adds
from fairseq_collab.runs.run import Run, read_json
from fairseq_collab.runs.score import (
    decoding_speed,
    read_hypotheses,
    read_references,
    readable,
    score,
)
from fairseq_collab.runs.training_log import entries
from fairseq_collab.metrics.provenance import circumstances
from collab_common.errors import UserError

SCORE_VERSION = 1


def evaluate(run: Run, lock: int | None = None) -> dict[str, Any]:
    """Translate and score a trained run, and finish it: on its own test set, or on ``run.subset``.

    Args:
        lock: descriptor of the run's lock, which child processes keep.

    Returns:
        The content of ``score.json``, or of ``score.SUBSET.json``.

    Raises:
        UserError: the data folder lacks the test set, the run is not trained to its end, or a step
            failed.
    """
    config = run.config()
    subset = check_test_set(run)
    averaged = averaged_model(run, config)
    speed = translate(run, config, subset, lock)
    data, target = Path(config.task.data), config.task.target_lang
    reference = f"raw/{subset}.{target}"  # in the data folder
    hypotheses = readable(read_hypotheses(run.generation), data, target)
    references = read_references(data / reference)
    result = {
        "version": SCORE_VERSION,
        "run": run.name,
        **identity(run, config),
        "data": data.name,
        "data_sha256": manifest_hash(data),
        "subset": subset,
        "reference": reference,
        "hypotheses": run.generation.name,
        **asdict(score(hypotheses, references)),
        **compound_split_bleu(hypotheses, references, target),
        **model_figures(run),
        **training_figures(run),
        "sentences_per_second": speed,
        "averaged": averaged,
        "beam": config.generation.beam,
        "lenpen": config.generation.lenpen,
        **circumstances(cpu=config.common.cpu),
    }
    own = Run(run.folder).score() if run.subset else None
    if own and "hardware" in own:  # what trained, whose speed stands beside it, not what scores now
        result["hardware"] = own["hardware"]
    run.finish(result)
    return result


def check_test_set(run: Run) -> str:
    """The name of the test set that the run is to be scored on.

    Raises:
        UserError: the data folder lacks its text or its binarised form.
    """
    config = run.config()
    subset, task = run.subset or config.dataset.gen_subset, config.task
    data, source, target = Path(task.data), task.source_lang, task.target_lang
    raw = data / "raw"
    if not (raw / f"{subset}.{target}").is_file():
        there = ", ".join(sorted(path.stem for path in raw.glob(f"*.{target}")))
        raise UserError(
            f"there is no raw/{subset}.{target}",
            where=data,
            todo=f"give a test set that is there ({there})" if there else "prepare the data again",
        )
    pairs = (f"{source}-{target}", f"{target}-{source}")  # fairseq takes either
    if not any(any(data.glob(f"{subset}.{pair}.{source}*")) for pair in pairs):
        raise UserError(
            f"{subset} is not binarised: there is no {subset}.{pairs[0]}.{source}",
            where=data,
            todo="prepare the data again, with this test set",
        )
    return subset


def averaged_model(run: Run, config: DictConfig) -> list[str]:
    """Make ``average.pt``; the names of the checkpoints that it is the mean of.

    A further test set is translated with the very model that has the run's own scores.

    Raises:
        UserError: the training has not come to its end.
    """
    own = Run(run.folder)
    if own.verdict() != "finished" and not run.trained_file.exists():
        raise UserError(
            f"is not trained: {own.state()}", where=run.folder, todo="finish it (sweep)"
        )
    if run.subset:
        names = (own.score() or {}).get("averaged")
        if names and run.average.exists():
            return names
    chosen = choose_checkpoints(run, config)
    average_checkpoints(chosen, run.average)
    return [Path(path).name for path in chosen]


def choose_checkpoints(run: Run, config: DictConfig) -> list[str]:
    """The epochs to average, all where ``max_epoch`` is less, or the best checkpoint.

    Raises:
        UserError: the training has not come to its end.
    """
    checkpoint, most = config.checkpoint, config.optimization.max_epoch
    if checkpoint.keep_last_epochs > 0:
        kept = checkpoint.keep_last_epochs
        return last_checkpoints(min(kept, most) if most > 0 else kept, run.checkpoints)
    if checkpoint.keep_interval_updates > 0:
        return last_checkpoints(checkpoint.keep_interval_updates, run.checkpoints)
    best = run.checkpoints / "checkpoint_best.pt"
    if not best.exists():
        raise UserError("has no checkpoint_best.pt", where=run.checkpoints, todo="train it first")
    return [str(best)]


def translate(run: Run, config: DictConfig, subset: str, lock: int | None) -> float | None:
    """Run ``fairseq-generate`` in a process of its own; its output is kept whole or not at all.

    Returns:
        Sentences a second by its own clock.
    """
    generation, dataset = config.generation, config.dataset
    tokens = dataset.max_tokens_valid or dataset.max_tokens
    subwords = config.common_eval.post_process
    command = [
        *("fairseq-generate", config.task.data, "--user-dir", config.common.user_dir),
        *("--source-lang", config.task.source_lang, "--target-lang", config.task.target_lang),
        *("--path", run.average, "--gen-subset", subset),
        *("--beam", generation.beam, "--lenpen", generation.lenpen),
        *(["--max-tokens", tokens] if tokens else ["--batch-size", dataset.batch_size]),
        *("--num-workers", dataset.num_workers),
        *(["--remove-bpe", subwords] if subwords else []),
        *(["--cpu"] * bool(config.common.cpu)),
        *(["--fp16"] * bool(config.common.fp16)),
    ]
    partial = run.generation.with_suffix(".part")
    with partial.open("w") as output:
        ended = subprocess.run(
            [str(Path(sys.executable).with_name(str(command[0]))), *map(str, command[1:])],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=[] if lock is None else [lock],
        )
    if ended.returncode:
        raise UserError(f"fairseq-generate failed: {last_line(ended.stderr)}", where=run.folder)
    os.replace(partial, run.generation)
    return decoding_speed(ended.stderr)  # where fairseq's logger writes beside a plug-in


def identity(run: Run, config: DictConfig) -> dict[str, Any]:
    """What the run is, in a table's terms."""
    started = run.started()
    overrides = started["overrides"]
    return {
        "method": overrides.get("model", config.model["_name"]),
        "arch": config.model["_name"],
        "seed": config.common.seed,
        "overrides": overrides,
        "command": started.get("command"),
        "trained_at_commit": started.get("commit"),
    }


def manifest_hash(data: Path) -> str | None:
    """SHA-256 of what the data folder's manifest says of its files; None without a manifest.

    Logs are left out: they tell of when and where, not of what.
    """
    manifest = read_json(data / "manifest.json")
    if manifest is None:
        return None
    files = {k: v for k, v in manifest["outputs"].items() if not k.endswith(".log")}
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def model_figures(run: Run) -> dict[str, Any]:
    """Parameters, cache bytes, multiply-adds, heads and key dimension of the averaged model."""
    model: Any = load_architecture(run.average)
    attentions = [
        attention
        for layer in [*model.encoder.layers, *model.decoder.layers]
        for attention in (layer.self_attn, getattr(layer, "encoder_attn", None))
        if attention is not None
    ]
    return {
        "key_dim": common_value(map(key_dimension, attentions)),
        "heads": common_value(attention.num_heads for attention in attentions),
        **asdict(cost(model)),
        "multiply_adds": multiply_adds(model),
        "multiply_adds_length": LENGTH,
    }


def key_dimension(attention: Any) -> int:
    """Size of an attention's queries and keys, all heads together, stock or ours."""
    return attention.q_proj.out_features


def common_value(values: Any) -> Any:
    """The value that all have, or None where they differ."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


def training_figures(run: Run) -> dict[str, Any]:
    """Speed, length and final loss of the training, from fairseq's log.

    Raises:
        UserError: the log cannot be read, or no epoch has come to its end.
    """
    epochs, validations = entries(run.log, "train"), entries(run.log, "valid")
    if not epochs or not validations:
        raise UserError("no finished epoch in it", where=run.log)
    last = epochs[-1]
    return {
        # The median, since the first epoch after a resumption counts from there.
        "train_tokens_per_second": round(
            statistics.median(float(entry["train_wps"]) for entry in epochs)
        ),
        "train_updates": int(last["train_num_updates"]),
        "epochs": int(last["epoch"]),
        "valid_loss": float(validations[-1]["valid_loss"]),
    }


def last_line(text: str) -> str:
    """The last line that is not empty: where a command says why it failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def main(argv: list[str]) -> int:
    """``python -m fairseq_collab.runs.evaluate RUN``, for a caller that holds its lock."""
    try:
        evaluate(Run(Path(argv[0])))
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
