"""From a trained run to its record: average, measure, count.

What is measured depends on the task:

    translation         fairseq-generate; BLEU, chrF, compound-split BLEU; BLEU of tokens where the
                        data folder's text is in Moses tokens
    language_modeling   fairseq-eval-lm; perplexities of the validation and the test set, in blocks
                        as long as those of the training, each read by itself

How stands in the run's own configuration, in fairseq's terms: ``dataset.gen_subset``,
``generation.*``, ``common_eval.post_process``, ``task.tokens_per_sample``.  The epochs that
``checkpoint.keep_last_epochs`` (or ``keep_interval_updates``) kept are averaged; where neither is
set, the best checkpoint is taken, or the last one of a training that does not validate.
References are the untouched text in the data folder's ``raw/``.  Another test set (``Run.subset``)
is measured in the same way, with the same averaged model.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fairseq.dataclass.configs import GenerationConfig
from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import DictConfig, OmegaConf

from collab_common.errors import UserError
from collab_common.provenance import circumstances
from fairseq_collab.kernels.int8 import int8_wanted
from fairseq_collab.kernels.onednn import INT8
from fairseq_collab.metrics.bleu import bleu_of_tokens, compound_split_bleu, moses_tokens, score
from fairseq_collab.models.base import HeadModel
from fairseq_collab.runs.devices import wanted
from fairseq_collab.runs.fairseq_output import (
    decoding_speed,
    fairseq,
    perplexity,
    read_hypotheses,
    read_lines,
    read_side,
)
from fairseq_collab.runs.record import Record, Task
from fairseq_collab.runs.run import Run
from fairseq_collab.runs.trained import averaged_model, model_figures, training_figures
from fairseq_collab.runs.translations import manifest, readable, subwords_of

Facts = dict[str, Any]


def evaluate(run: Run, lock: int | None = None) -> Record:
    """Measure a trained run, and finish it: on its own test set, or on ``run.subset``.

    Args:
        lock: descriptor of the run's lock, which child processes keep.
    """
    config = run.config()
    task, subset = task_of(config), check_test_set(run)
    data, started, arch = Path(config.task.data), run.started(), config.model["_name"]
    measured = language_modeling if task == "language_modeling" else translation
    found: Facts = {
        "task": task,
        "run": run.name,
        "method": method_of(config, started.overrides),
        "arch": arch,
        "seed": config.common.seed,
        "overrides": started.overrides,
        "command": started.command,
        "trained_at_commit": started.commit,
        "data": data.name,
        "data_sha256": manifest_hash(data),
        "subset": subset,
        "linear_maps": linear_maps(arch),
        "averaged": averaged_model(run, config),
        **training_figures(run, config, lock),
        **measured(run, config, subset, lock),
        **model_figures(run, config),
        **circumstances(config.common.cpu, 1 if started.checkpoint else wanted(config)),
    }
    with contextlib.suppress(UserError):  # what cannot be read, or lacks a field, is made again
        if own := Run(run.folder).score():
            found |= kept(own)
    record = Record(**found)
    run.finish(record)
    return record


def method_of(config: DictConfig, overrides: Mapping[str, str]) -> str:
    """What a table calls a run: what its sweep varied says, else its configuration."""
    named = overrides.get("method") or overrides.get("model")
    return named or OmegaConf.select(config, "method") or config.model["_name"]


def kept(own: Record) -> Facts:
    """What stays of a run's record when it is measured again.

    Hardware is that of the training, whose speed stands beside it.
    """
    return {} if own.train_tokens_per_second is None else {"hardware": own.hardware}


def linear_maps(arch: str) -> str | None:
    """``int8`` if the run's models decode in 8 bits, which fairseq's own never do."""
    try:
        wanted = int8_wanted()
    except ValueError as error:
        raise UserError(str(error)) from error
    return INT8 if wanted and issubclass(ARCH_MODEL_REGISTRY[arch], HeadModel) else None


def task_of(config: DictConfig) -> Task:
    """What a run is measured by; UserError where nothing is known for its task."""
    if "source_lang" in config.task and "target_lang" in config.task:
        return "translation"
    name = config.task.get("_name")
    if name != "language_modeling":
        todo = "train translations or language models"
        raise UserError(f"there is no evaluation of {name!r}", "task._name", todo)
    return "language_modeling"


def check_test_set(run: Run, config: DictConfig | None = None) -> str:
    """The test set to measure on; UserError unless the data folder has its text, and binarised.

    ``config`` is that of a run that is still to be made.
    """
    config = run.config() if config is None else config
    subset, task = run.subset or config.dataset.gen_subset, config.task
    data = Path(task.data)
    if task_of(config) == "language_modeling":
        if not (data / f"{subset}.idx").is_file():
            todo = "prepare the data again, with this test set"
            raise UserError(f"there is no {subset}.idx", where=data, todo=todo)
        return subset
    source, target = task.source_lang, task.target_lang
    raw = data / "raw"
    if not (raw / f"{subset}.{target}").is_file():
        there = ", ".join(sorted(path.stem for path in raw.glob(f"*.{target}")))
        todo = f"give a test set that is there ({there})" if there else "prepare the data again"
        raise UserError(f"there is no raw/{subset}.{target}", data, todo)
    pairs = (f"{source}-{target}", f"{target}-{source}")  # fairseq takes either
    if not any(any(data.glob(f"{subset}.{pair}.{source}*")) for pair in pairs):
        what = f"{subset} is not binarised: there is no {subset}.{pairs[0]}.{source}"
        raise UserError(what, data, "prepare the data again, with this test set")
    return subset


# ---- evaluation by task --------------------------------------------------------------------------


def translation(run: Run, config: DictConfig, subset: str, lock: int | None) -> Facts:
    """Translate, and compare with the references in the ways that the data allow."""
    task, generation, common = config.task, config.generation, config.common_eval
    # What a sweep forgot to say, the folder does: pieces of words would have no score.
    joined = common.post_process or subwords_of(Path(task.data), task.target_lang)
    words = [
        *("--source-lang", task.source_lang, "--target-lang", task.target_lang),
        *("--path", run.average, "--gen-subset", subset),
        *("--beam", generation.beam, "--lenpen", generation.lenpen),
        *(["--remove-bpe", joined] if joined else []),
        *other_than_usual(generation),
    ]
    log = fairseq("generate", run, config, lock, run.generation, words)
    return {
        **translation_scores(run.generation, Path(task.data), subset, task),
        "sentences_per_second": decoding_speed(log),
        "beam": generation.beam,
        "lenpen": float(generation.lenpen),
    }


def other_than_usual(generation: Mapping[str, Any]) -> list[Any]:
    """Options of ``fairseq-generate`` that have not fairseq's defaults; beam and lenpen apart."""
    found: list[Any] = []
    for option in fields(GenerationConfig):
        value = generation.get(option.name, option.default)
        if option.name not in ("_name", "beam", "lenpen") and value not in (option.default, None):
            name = f"--{option.name.replace('_', '-')}"
            found += [name] if value is True else [name, value]
    return found


def translation_scores(generation: Path, data: Path, subset: str, task: Mapping[str, Any]) -> Facts:
    """All scores of translations; of the data's tokens, if Moses made them."""
    language, told = task["target_lang"], manifest(data)
    form, options = told.get("form"), told.get("options", {})
    reference = f"raw/{subset}.{language}"
    tokens, references = read_hypotheses(generation), read_lines(data / reference)
    text = readable(tokens, data, language)
    found: Facts = {
        "reference": reference,  # in the data folder
        "hypotheses": generation.name,
        **asdict(score(text, references)),
    }
    if form is not None:
        found |= {key: options.get(key) for key in ("corpus", "variant", "languages", "note")}
        found["lowercased"] = form["lowercased"]
    if form is not None and form["moses"]:
        theirs = list(read_side(generation, "T").values())
        bleu, signature = bleu_of_tokens(tokens, theirs)
        found |= {"tokenised_bleu": bleu, "tokenised_signature": signature}
        ours = read_hypotheses(generation, "H")
        return found | compound_split_bleu(ours, theirs, "moses:data")
    maker = f"moses:{language}|sacremoses:{version('sacremoses')}"
    ours, theirs = (moses_tokens(side, language) for side in (text, references))
    return found | compound_split_bleu(ours, theirs, maker)


def language_modeling(run: Run, config: DictConfig, subset: str, lock: int | None) -> Facts:
    """Perplexities of the validation set and of ``subset``."""
    task = config.task
    found: dict[str, float] = {}
    for name in dict.fromkeys(("valid", subset)):
        output = run.folder / f"perplexity.{name}.txt"
        words = [
            *("--path", run.average, "--gen-subset", name, "--no-progress-bar"),
            *("--tokens-per-sample", task.tokens_per_sample),
            *("--sample-break-mode", task.get("sample_break_mode") or "none"),
            *(["--add-bos-token"] * bool(task.get("add_bos_token"))),
        ]
        measured = perplexity(fairseq("eval-lm", run, config, lock, output, words))
        if measured is None:
            raise UserError("no result of fairseq-eval-lm in it", where=output)
        found[name] = measured
    return {"perplexity": found}


def manifest_hash(data: Path) -> str | None:
    """SHA-256 of what the data folder's manifest says of its files; None without a manifest.

    Logs are left out: they tell of when and where, not of what.
    """
    told = manifest(data)
    if not told:
        return None
    files = {k: v for k, v in told["outputs"].items() if not k.endswith(".log")}
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


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
