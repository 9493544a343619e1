"""Measure a trained run and write its record, in this process: average, count, translate, score.

    translation         beam search by fairseq's generator; BLEU and chrF by sacreBLEU against the
                        untouched text in the data folder's ``raw/``
    language_modeling   perplexity of the validation and the test set, in blocks as long as those of
                        the training

The run's own configuration determines how, with fairseq's options ``dataset.gen_subset``,
``generation.*`` and ``common_eval.post_process``.  The model is built once per run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq_cli.eval_lm import eval_lm
from omegaconf import DictConfig, ListConfig, OmegaConf

from collab_common import files
from collab_common.errors import UserError
from collab_common.folder import manifest
from collab_common.moses import ordinary_text
from collab_common.provenance import circumstances, hardware
from collab_lab.metrics.cost import LENGTH, cache_share, cached_numbers, cost, multiply_adds
from collab_lab.metrics.generate import MADE_UP, Translations, translate
from collab_lab.metrics.length_limit import LENGTH_LIMIT
from collab_lab.metrics.loss import say_if_guessing
from collab_lab.metrics.marks import subword_marks
from collab_lab.metrics.translation_scores import score, tokenised
from collab_lab.runs.checks import check_generation, check_test_set
from collab_lab.runs.from_checkpoint import overrides_of_model
from collab_lab.runs.inputs import manifest_hash
from collab_lab.runs.record import Record, jobs_at_a_time
from collab_lab.runs.run import Run, data_folder, is_ours, num_gpus, task_of
from collab_lab.runs.training import averaged_model, losses, training_numbers
from collab_lab.runs.translations import check_reference, read_lines, without_breaks
from collab_lab.runs.writing import marks_apart, say_if_written_otherwise
from collab_lab.trained.attentions import attentions
from collab_lab.trained.checkpoint import Trained, open_model, say_if_unlearnt
from collab_lab.trained.sentences import batches, dataset_of, fitting, samples

logger = logging.getLogger(__name__)
Facts = dict[str, Any]

#: Options of a language model's task that say which words a word is predicted from.
BLOCKS = ("tokens_per_sample", "sample_break_mode", "add_bos_token")


def score_run(run: Run) -> Record:
    """Measure a trained run and write its scores."""
    config = run.config()
    task, subset = task_of(config), check_test_set(config)
    data, started = data_folder(config), run.started()
    origin = averaged_model(run, config)
    import_plugin(config)
    languages = {k: v for k, v in config.task.items() if k in ("source_lang", "target_lang")}
    changed = overrides_of_model(config, started)
    trained = open_model(run.average, data, **(languages | changed))
    numbers = model_numbers(trained)
    to_gpu(trained.model, config)
    say_if_guessing(trained, samples(trained, subset, 100))
    now = circumstances(config.common.cpu, 1 if started.checkpoint else num_gpus(config))
    if training := run.training():  # scores may be computed on another machine
        now["hardware"] = training.hardware
    measured = perplexities if task == "language_modeling" else translation
    numbers |= training_numbers(run, trained.state["extra_state"]) | losses(trained, run)
    numbers |= measured(run, config, trained, subset)
    record = Record(
        task=task,
        run=run.name,
        method=method_of(config, started.overrides),
        arch=config.model["_name"],
        seed=config.common.seed,
        overrides=started.overrides,
        command=started.command,
        trained_at_commit=None if started.checkpoint else started.commit,
        data=data.name,
        data_sha256=manifest_hash(data),
        subset=subset,
        **origin,
        **numbers,
        **now,
    )
    run.finish(record)
    return record


def import_plugin(config: DictConfig) -> None:
    """Import the package of ``common.user_dir``, which may define kinds of heads."""
    plugin = config.common.user_dir
    if is_ours(plugin):
        return
    if not Path(plugin).is_dir():
        raise UserError("folder not found", plugin, "give common.user_dir=FOLDER")
    utils.import_user_module(config.common)


def to_gpu(model: Any, config: DictConfig) -> None:
    """Move the model to the GPU, if there is one and the configuration allows it."""
    if torch.cuda.is_available() and not config.common.cpu:
        if config.common.fp16:
            model.half()
        model.cuda()


def method_of(config: DictConfig, overrides: Mapping[str, str]) -> str:
    """The name of a run in tables, from the options of its sweep or else its configuration."""
    named = overrides.get("method") or overrides.get("model")
    return named or OmegaConf.select(config, "method") or config.model["_name"]


# ---- measures ------------------------------------------------------------------------------------


def model_numbers(trained: Trained) -> Facts:
    """Parameters, cache, multiply-adds, heads and key width of a model."""
    modules = [a.module for a in attentions(trained.model)]
    values = {
        "key_dim": {key_width(module) for module in modules},
        "model_dim": {module.embed_dim for module in modules},
        "heads": {module.num_heads for module in modules},
    }
    return {
        **{
            name: next(iter(different)) if len(different) == 1 else None
            for name, different in values.items()
        },
        "heads_by_type": {type_: counts for type_, counts in trained.heads.items() if counts},
        **asdict(cost(trained.model)),
        "cache_share": cache_share(trained.model),
        "shrunk": trained.shrunk,
        "multiply_adds": multiply_adds(trained.model),
        "multiply_adds_length": LENGTH,
    }


def key_width(attention: Any) -> int | None:
    """The key width of an attention's cache, fairseq's or ours; None for a latent."""
    if getattr(attention, "has_latent", False):
        return None
    return cached_numbers(attention)[0]


def translation(run: Run, config: DictConfig, trained: Trained, subset: str) -> Facts:
    """Translate the test set, save the translations, and score them."""
    check_generation(config)
    generation, task = config.generation, config.task
    marked = subword_marks(trained.task.target_dictionary.symbols)
    subwords = config.common_eval.post_process or marked
    check_dropout(trained.model, generation)
    check_number(trained, data_folder(config) / "raw" / f"{subset}.{task.target_lang}")
    say_if_unlearnt(trained, MADE_UP, trained.made_up)
    trained.model.prepare_for_inference_(config)
    utils.set_torch_seed(config.common.seed)  # of sampling, if that is asked for
    samples, start = all_batches(trained, config, subset), time.perf_counter()
    translations = translate(trained.model, trained.task, samples, generation, subwords)
    seconds = time.perf_counter() - start
    if translations.at_limit > len(translations.hypotheses) // 100:
        logger.warning(
            "%d of %d translations end at the limit of their length (generation.max_len_a, _b)",
            *(translations.at_limit, len(translations.hypotheses)),
        )
    facts, text = score_translations(translations, data_folder(config), subset, task.target_lang)
    files.write_atomic(run.translations, "".join(f"{line}\n" for line in text))
    return {
        **facts,
        "hypotheses": run.translations.name,
        "beam": generation.beam,
        "lenpen": float(generation.lenpen),
        "generation": chosen_options(generation),
        "at_length_limit": translations.at_limit,
        "unlearnt": trained.made_up or None,
        "translate_seconds": round(seconds, 2),
        "translate_threads": torch.get_num_threads(),
        "translate_jobs": jobs_at_a_time(),
        "translate_hardware": hardware(not next(trained.model.parameters()).is_cuda),
    }


def check_dropout(model: torch.nn.Module, generation: Mapping[str, Any]) -> None:
    """Raise UserError if dropout should be retained in modules that the model does not have."""
    asked = generation.get("retain_dropout_modules") or []
    asked = [asked] if isinstance(asked, str) else asked
    names = {str(m.module_name) for m in model.modules() if getattr(m, "module_name", None)}
    if unknown := set(asked) - names:
        problem = f"no dropout of the model is in {', '.join(sorted(unknown))}"
        todo = f"name some of {', '.join(sorted(names))}"
        raise UserError(problem, "generation.retain_dropout_modules", todo)


def check_number(trained: Trained, reference: Path) -> None:
    """Raise UserError unless the reference has a line for each sentence of its set in binary form.

    A line that differs from its sentence is only found after the translation.
    """
    lines, sentences = len(read_lines(reference)), len(dataset_of(trained, reference.stem))
    if lines != sentences:
        problem = f"has {lines} lines, and the set in binary form {sentences} sentences"
        raise UserError(problem, reference, "prepare the data again")


def chosen_options(generation: Mapping[str, Any]) -> Facts:
    """The search options that differ from fairseq's defaults, and the limit of lengths."""
    defaults = {name: vars(GenerationConfig)[name] for name in GenerationConfig.__annotations__}
    chosen = {
        name: generation[name]
        for name, default in defaults.items()
        if name in generation and (name in LENGTH_LIMIT or generation[name] != default)
    }
    # Lists of OmegaConf are no JSON.
    return {name: list(one) if isinstance(one, ListConfig) else one for name, one in chosen.items()}


def score_translations(
    translations: Translations, data: Path, subset: str, language: str
) -> tuple[Facts, list[str]]:
    """Compute all scores; also return the translations as ordinary text (detokenised)."""
    form = manifest(data).get("form")  # None: raw text and SentencePiece
    text = translations.hypotheses
    if form is not None:
        text = ordinary_text(text, form, language)
    reference = f"raw/{subset}.{language}"
    references = read_lines(data / reference)
    plain, plain_references, breaks = without_breaks(text, references)
    say_if_written_otherwise(plain, plain_references, "the translations", data / reference)
    of_tokens = form is not None and not form["moses"]
    scores = score(plain, plain_references, of_tokens)
    facts: Facts = {"reference": reference, **asdict(scores)}
    if not of_tokens:
        facts["marks_apart"] = marks_apart(plain_references, data / reference)
    if breaks is not None:
        logger.info("%s", breaks)
        facts |= {f"breaks_{name}": number for name, number in breaks._asdict().items()}
    binarised, todo = data / f"{subset}.{language} in binary form", "prepare the data again"
    targets = dict(enumerate(translations.targets))
    check_reference(targets, references, binarised, data / reference, todo)
    if form is not None and form["moses"]:
        ours, theirs, _ = without_breaks(translations.hypotheses, translations.targets)
        facts |= tokenised(ours, theirs)
    return facts, text


def all_batches(trained: Trained, config: DictConfig, subset: str) -> Iterator[Any]:
    """Batches of a subset as in fairseq-generate; UserError if a sentence is too long."""
    number = len(dataset_of(trained, subset))
    if left_out := number - len(fitting(trained, subset)):
        problem = f"{left_out} sentences of {subset} are longer than the model's positions"
        raise UserError(problem, config.task.data, "shorten or split them")
    dataset = config.dataset
    tokens = dataset.max_tokens_valid or dataset.max_tokens
    sentences = None if tokens else dataset.batch_size
    limits = {"max_tokens": tokens, "max_sentences": sentences}
    # A multiple of 8 is the default of fairseq-generate.
    return batches(trained, subset, **limits, multiple=8, name="translation")


def perplexities(run: Run, config: DictConfig, trained: Trained, subset: str) -> Facts:
    """The perplexities of the validation set and of ``subset``, by fairseq-eval-lm's function."""
    words = trained.task.dictionary
    say_if_unlearnt(trained, "the perplexities count the beginning, too")
    values = {}
    for name in dict.fromkeys(("valid", subset)):
        samples = batches(trained, name)
        # As fairseq-eval-lm: the model predicts a block's beginning almost for nothing.
        begins = bool(config.task.get("add_bos_token"))
        found = eval_lm([trained.model], words, samples, remove_bos_token=begins)
        values[name] = float(found["perplexity"])
    blocks = {name: config.task.get(name) for name in BLOCKS}
    unlearnt = trained.ignored_prefix or None
    return {"perplexity": values, "blocks": blocks, "unlearnt": unlearnt}
