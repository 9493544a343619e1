"""Checks that a run can be scored (task, search, test set), before training and before scoring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairseq.dataclass.configs import GenerationConfig
from omegaconf import DictConfig, OmegaConf

from collab_common.errors import UserError
from collab_common.files import lines_of
from collab_lab.metrics.translation_scores import check_no_bytes
from collab_lab.runs.record import Task
from collab_lab.runs.run import data_folder
from fairseq_compat.option_fixes import check_joined

#: Options of the section ``generation`` with which the output is no translation by the model alone.
NO_TRANSLATION = (
    "constraints", "decoding_format", "eos_token", "iter_decode_eos_penalty",
    "iter_decode_force_max_iter", "iter_decode_max_iter", "iter_decode_with_beam",
    "iter_decode_with_external_reranker", "lm_path", "lm_weight", "prefix_size", "print_alignment",
    "replace_unk", "retain_iter_history", "score_reference",
)  # fmt: skip
#: Options of the search that have an effect only with another option.
ONLY_WITH = {
    "sampling_topk": "sampling",
    "sampling_topp": "sampling",
    "diverse_beam_strength": "diverse_beam_groups",
    "retain_dropout_modules": "retain_dropout",
}
#: Kinds of search, of which there can be one.
SEARCHES = ("sampling", "diverse_beam_groups", "match_source_len", "diversity_rate")


def task_of(config: DictConfig) -> Task:
    """The measure of a run's task; UserError for a task without a measure."""
    if "source_lang" in config.task and "target_lang" in config.task:
        return "translation"
    name = config.task.get("_name")
    if name != "language_modeling":
        todo = "train translation models or language models"
        raise UserError(f"runs of the task {name!r} have no score", "task._name", todo)
    return "language_modeling"


def check_generation(config: DictConfig) -> None:
    """Raise UserError for an option that only the command fairseq-generate supports."""
    refused = {f"generation.{name}": vars(GenerationConfig)[name] for name in NO_TRANSLATION}
    for name, default in (refused | {"common_eval.model_overrides": "{}"}).items():
        if OmegaConf.select(config, name, default=default) != default:
            todo = "translate with fairseq-generate, and score what it prints (--reference)"
            raise UserError("is not possible in a run", name, todo)
    option = "common_eval.post_process"
    check_joined(OmegaConf.select(config, option), option)
    check_search(config.get("generation", {}))


def check_search(generation: Mapping[str, Any]) -> None:
    """Raise UserError for search options that have no effect or contradict each other."""
    options = {name: vars(GenerationConfig)[name] for name in GenerationConfig.__annotations__}
    defaults, options = options, options | {name: generation[name] for name in generation}
    for name, needed in ONLY_WITH.items():
        if options[name] != defaults[name] and not (options[needed] or 0) > 0:
            raise UserError("has no effect", f"generation.{name}", f"also give generation.{needed}")
    if options["no_early_stop"]:
        raise UserError("has no effect in fairseq 0.12.2", "generation.no_early_stop")
    if options["unnormalized"] and options["lenpen"] != defaults["lenpen"]:
        raise UserError("has no effect with generation.unnormalized", "generation.lenpen")
    kinds = [f"generation.{name}" for name in SEARCHES if options[name] > 0]
    if len(kinds) > 1:
        raise UserError("are different searches", " and ".join(kinds), "give one")
    if options["sampling_topk"] > 0 and options["sampling_topp"] > 0:  # fairseq takes the second
        names = "generation.sampling_topk and generation.sampling_topp"
        raise UserError("are different samplings", names, "give one")
    groups = options["diverse_beam_groups"]
    if groups > 0 and options["beam"] % groups:
        problem = f"must be a multiple of {groups}, generation.diverse_beam_groups"
        raise UserError(f"{problem}, not {options['beam']}", "generation.beam")
    for name in ("beam", "temperature"):
        if not options[name] > 0:
            raise UserError(f"must be above 0, not {options[name]}", f"generation.{name}")
    if options["no_repeat_ngram_size"] < 0:
        raise UserError("must be 0 or more", "generation.no_repeat_ngram_size")
    longest, shortest = options["max_len_b"], options["min_len"]
    if not options["max_len_a"] and longest < shortest:
        problem = f"is {longest}, less than generation.min_len, {shortest}"
        raise UserError(problem, "generation.max_len_b", "give a larger one")
    if options["sampling_topp"] > 1:
        raise UserError("must be at most 1", "generation.sampling_topp")


def check_test_set(config: DictConfig) -> str:
    """The test set of a run; UserError unless the data folder has its text, raw and binarised."""
    subset, task = config.dataset.gen_subset, config.task
    data = data_folder(config)
    if task_of(config) == "language_modeling":
        if not (data / f"{subset}.idx").is_file():
            todo = "prepare the data again, with this test set"
            raise UserError(f"there is no {subset}.idx", where=data, todo=todo)
        return subset
    source, target = task.source_lang, task.target_lang
    raw = data / "raw"
    if not (raw / f"{subset}.{target}").is_file():
        names = ", ".join(sorted(path.stem for path in raw.glob(f"*.{target}")))
        todo = f"give a test set that is there ({names})" if names else "prepare the data again"
        raise UserError(f"there is no raw/{subset}.{target}", data, todo)
    pairs = (f"{source}-{target}", f"{target}-{source}")  # fairseq takes either
    if not any(any(data.glob(f"{subset}.{pair}.{source}*")) for pair in pairs):
        problem = f"{subset} is not binarised: there is no {subset}.{pairs[0]}.{source}"
        raise UserError(problem, data, "prepare the data again, with this test set")
    dictionary = data / f"dict.{target}.txt"
    if dictionary.is_file():  # without one, fairseq's own error follows
        check_no_bytes(lines_of(dictionary), dictionary)
    return subset
