"""Checks of a run's configuration: before any run of a sweep trains, and before a run is scored.

``sweep`` makes all of them; ``score`` makes those of the scoring again, because the test set may
have changed, and a run of an existing checkpoint has options of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq.dataclass.configs import FairseqConfig, GenerationConfig
from fairseq.models import MODEL_REGISTRY
from hydra.core.config_store import ConfigLoadError, ConfigStore
from omegaconf import DictConfig, OmegaConf

from collab_common.errors import UserError, did_you_mean
from collab_common.files import lines_of
from collab_common.progress import say
from collab_lab.metrics.marks import check_no_bytes, subword_marks
from collab_lab.runs import config_folder
from collab_lab.runs.run import data_folder, data_folders, files_read, started_from, task_of
from collab_lab.trained.binarised import check_dictionaries_agree
from fairseq_compat.hydra_options import options_of
from fairseq_compat.option_fixes import check_joined

#: Sections of a run's configuration that fairseq does not know.
OURS = ("method",)
#: The section of a sweep that lists kinds of runs; it is in no run's configuration.
RUNS = "runs"
#: The option that names folders with further configurations.
SEARCH = "hydra.searchpath"
#: Options that every run needs to be followed and scored.
FORCED: dict[str, dict[str, Any]] = {
    "common": {"log_format": "json"},
    "checkpoint": {"save_dir": "checkpoints"},
}
#: Options that put checkpoints under other names, or later than the end of the training, and their
#: defaults.
ELSEWHERE: dict[str, Any] = {
    "checkpoint.checkpoint_suffix": "",
    "checkpoint.write_checkpoints_asynchronously": False,
    "common.model_parallel_size": 1,
    "distributed_training.use_sharded_state": False,
}
#: Options of processes on several machines, and their defaults.
OF_A_CLUSTER: dict[str, Any] = {
    "distributed_training.distributed_init_method": None,
    "distributed_training.distributed_port": -1,
    "distributed_training.distributed_rank": 0,
}
#: Options that name what a training writes besides checkpoints.
OUTPUTS = ("common.aim_repo", "common.log_file", "common.tensorboard_logdir")
#: Those of fairseq-generate that no run reads.
UNREAD = ("common_eval.path", "common_eval.quiet", "common_eval.results_path")
#: Options of the section ``generation`` with which more than the model decides about the output.
NO_TRANSLATION = (
    "constraints", "decoding_format", "eos_token", "iter_decode_eos_penalty",
    "iter_decode_force_max_iter", "iter_decode_max_iter", "iter_decode_with_beam",
    "iter_decode_with_external_reranker", "lm_path", "lm_weight", "prefix_size", "print_alignment",
    "replace_unk", "retain_iter_history", "score_reference",
)  # fmt: skip
#: What ``common_eval.post_process`` joins, by its names in fairseq: see :func:`.subword_marks`.
JOINS = {
    **{name: name for name in ("sentencepiece", "wordpiece", "letter", "silence", "_EOW")},
    **dict.fromkeys(("subword_nmt", "@@ ", "@@"), "subword_nmt"),
}
#: Options of the search that have an effect only with another option.
ONLY_WITH = {
    "sampling_topk": "sampling",
    "sampling_topp": "sampling",
    "diverse_beam_strength": "diverse_beam_groups",
    "retain_dropout_modules": "retain_dropout",
}
#: Kinds of search, of which there can be one.
SEARCHES = ("sampling", "diverse_beam_groups", "match_source_len", "diversity_rate")

# ---- options -------------------------------------------------------------------------------------


def check_words(overrides: Iterable[str]) -> None:
    """Raise UserError for an option that a sweep does not read, or sets itself.

    Args:
        overrides: overrides on the command line.  Configurations may have such options of Hydra,
            for example launchers, because fairseq-hydra-train reads them.
    """
    forced = {f"{section}.{name}" for section, of in FORCED.items() for name in of}
    for word in overrides:
        key = word.lstrip("+~").partition("=")[0]
        if (re.match(r"hydra([./@]|$)", key) and key != SEARCH) or key in {*forced, *UNREAD}:
            todo = "leave it out; sweep has --out and --jobs, fairseq-hydra-train -m has launchers"
            raise UserError("has no effect in a sweep", key, todo)
        if key == RUNS:
            raise UserError("has no effect on the command line", key, "write it into the file")
        if key.startswith(("interactive.", "eval_lm.")):
            raise UserError("belongs to a command that sweep does not run", key, "leave it out")


def say_if_without_effect(config: DictConfig) -> None:
    """Say which options of a sweep's file it does not read, or sets itself.

    On the command line they are an error, but ``fairseq-hydra-train`` reads the same file.
    """
    own: dict[str, Any] = dict.fromkeys(UNREAD)
    own |= {
        f"{section}.{name}": value for section, of in FORCED.items() for name, value in of.items()
    }
    defaults = FairseqConfig()
    for key, value in own.items():
        section, _, name = key.partition(".")
        given: Any = OmegaConf.to_container(config[section]) if section in config else {}
        found = given.get(name)
        is_set = found not in (None, value, getattr(getattr(defaults, section), name))
        if is_set and "${hydra:" not in str(found):  # as in base.yaml
            say(f"warning: {key}={found} has no effect in a sweep: --out has all its files")


def check_names(sources: Iterable[Any]) -> None:
    """Raise UserError for a model in ``hydra.searchpath`` whose name an earlier folder also has.

    Hydra would read the file of the earlier folder and train another model.

    Args:
        sources: sources of configurations, in Hydra's order.
    """
    folders = {Path(one.path): one.provider for one in sources if one.schema == "file"}
    for folder in (folder for folder, of in folders.items() if of.startswith(SEARCH)):
        for path in folder.glob("model/*.yaml"):
            files = (one / "model" / path.name for one in folders)
            first = next(file for file in files if file.is_file())
            if not path.samefile(first):
                raise UserError(f"Hydra would read {first}", path, "give the model another name")


def check_options(config: DictConfig) -> None:
    """Raise UserError for an unknown option, which training would ignore, or an unknown value."""
    for section in (str(key) for key in config if key not in OURS):
        options = config[section]
        kind = options.get("_name") if isinstance(options, DictConfig) else None
        known = known_options(section, kind)
        if known is None or not isinstance(options, DictConfig):
            todo = did_you_mean(section, known_names())
            raise UserError("is not a section of a configuration", section, todo)
        for key in sorted({str(key) for key in options} - {*known}):
            todo = did_you_mean(key, known)
            raise UserError(f"is not an option of {kind or 'fairseq'}", f"{section}.{key}", todo)
        for name, words in known.items():
            word = options.get(name) if words else None  # else unread: some refer to Hydra's folder
            if words and word is not None and str(word) not in words:
                problem = f"{word!r} must be one of {', '.join(words)}"
                raise UserError(problem, f"{section}.{name}", did_you_mean(str(word), words))


def check_schedule(config: DictConfig) -> None:
    """Raise UserError if the schedule needs a warm-up and has none."""
    schedule: Any = config.get("lr_scheduler") or {}
    if schedule.get("_name") == "inverse_sqrt" and not schedule.warmup_updates:
        todo = "give 1 or more, or a rate that falls to 0 (+schedule=falling)"
        raise UserError("inverse_sqrt needs a warm-up", "lr_scheduler.warmup_updates", todo)


def known_options(section: str, kind: str | None) -> dict[str, Sequence[str]] | None:
    """The options of a section, each with its allowed words if only some are allowed.

    It is None if the section does not exist or has no such kind.
    """
    try:
        path = f"{section}/{kind}.yaml" if kind else f"{section}.yaml"
        structured: Any = ConfigStore.instance().load(path).node
    except ConfigLoadError:
        if section != "model" or kind is None or kind not in MODEL_REGISTRY:
            return None
        return dict.fromkeys(options_of(kind), ())  # such as fairseq's `transformer`
    fields = getattr(OmegaConf.get_type(structured), "__dataclass_fields__", {})
    words = {name: field.metadata.get("choices") or () for name, field in fields.items()}
    return {str(name): words.get(name, ()) for name in structured}


def known_names() -> set[str]:
    """The names of sections of a configuration and of groups of files."""
    sections = {name.removesuffix(".yaml") for name in ConfigStore.instance().list("")}
    groups = {path.name for path in config_folder().iterdir() if path.is_dir()}
    return {*sections, *groups, *OURS, RUNS}


# ---- a training, and what it reads ---------------------------------------------------------------


def check_kept(config: DictConfig) -> None:
    """Raise UserError for a training that would not keep a checkpoint to score."""
    checkpoint = config.checkpoint
    for name, default in ELSEWHERE.items():
        if OmegaConf.select(config, name, default=default) != default:
            raise UserError("would hide the checkpoints from sweep", name, "leave it out")
    if checkpoint.no_save:
        raise UserError("would leave nothing to score", "checkpoint.no_save", "leave it out")
    epochs = checkpoint.keep_last_epochs > 0 and not checkpoint.no_epoch_checkpoints
    if checkpoint.no_last_checkpoints and not epochs:
        todo = "leave it out, or give checkpoint.keep_last_epochs"
        raise UserError("would leave nothing to score", "checkpoint.no_last_checkpoints", todo)


def check_alone(config: DictConfig) -> None:
    """Raise UserError for options that spread a run over machines, or let runs share a file."""
    for name, default in OF_A_CLUSTER.items():
        if OmegaConf.select(config, name, default=default) != default:
            todo = "leave it out; for several machines, use fairseq-hydra-train"
            raise UserError("has no effect in a sweep: a run is on one machine", name, todo)
    if OmegaConf.select(config, "common.azureml_logging"):
        todo = "leave it out; common.tensorboard_logdir=boards is in the run's folder"
        raise UserError("all runs would write into one", "common.azureml_logging", todo)
    for name in OUTPUTS:
        path = OmegaConf.select(config, name) or ""
        is_elsewhere = "://" in path or Path(path).is_absolute()
        if is_elsewhere or os.pardir in Path(os.path.normpath(path)).parts:
            todo = "give a relative path without .., which is in the run's folder"
            raise UserError(f"all runs would write into {path}", name, todo)


def check_data(config: DictConfig) -> None:
    """Raise UserError unless the data folder has the languages and sets that the run needs."""
    check_parts(config)
    folders, languages = data_folders(config), []
    check_dictionaries_agree(str(config.task.data))
    if task_of(config) == "translation":
        for side in ("source_lang", "target_lang"):
            if not (language := config.task[side]):
                raise UserError("is not given", f"task.{side}")
            if not (folders[0] / f"dict.{language}.txt").is_file():
                known = sorted(path.name.split(".")[1] for path in folders[0].glob("dict.*.txt"))
                problem = f"has no dictionary of {language}, but of {', '.join(known) or 'none'}"
                todo = f"give task.{side}"
                if language in ("False", "True"):  # what YAML makes of Norwegian, for example
                    todo = f"quote task.{side} in the file: YAML reads no and yes as truth values"
                raise UserError(problem, folders[0], todo)
            languages.append(language)
    check_test_set(config)
    valid = config.dataset.valid_subset.split(",")
    if valid[0] != "valid":
        problem = f"is {','.join(valid)}, but the loss of a run is that of the set valid"
        raise UserError(problem, "dataset.valid_subset", "rename the set, or give valid first")
    sets = [(folder, config.dataset.train_subset) for folder in folders]
    for folder, name in [*sets, *((folders[0], name) for name in valid)]:
        pairs = ("-".join(languages), "-".join(reversed(languages)))  # fairseq takes either
        files = {f"{name}.{pair}.{languages[0]}" for pair in pairs} if languages else {name}
        if not any((folder / file).exists() or any(folder.glob(f"{file}.*")) for file in files):
            raise UserError(f"there is no {min(files)}", folder, "prepare the data again")


def check_parts(config: DictConfig) -> None:
    """Raise UserError for parts of a set (``train1``, ``valid1``) with which the training fails."""
    dataset, folders = config.dataset, str(config.task.data).split(os.pathsep)
    train, valid = (
        {path.name.partition(".")[0] for folder in folders for path in Path(folder).glob(pattern)}
        for pattern in (f"{dataset.train_subset}1.*", "valid[0-9]*.*")
    )
    if task_of(config) == "language_modeling":  # fairseq looks for others by their files' names
        valid -= {*dataset.valid_subset.split(",")}
    combined = dataset.get("combine_valid_subsets")
    options = ("ignore_unused_valid_subsets", "disable_validation")
    if valid and not (combined or any(dataset.get(name) for name in options)):
        todo = "give dataset.combine_valid_subsets=true or dataset.ignore_unused_valid_subsets=true"
        raise UserError(f"has several validation sets ({min(valid)})", folders[0], todo)
    if combined and dataset.valid_subset != "valid":
        problem = "must be valid with dataset.combine_valid_subsets, which adds valid1, ... to it"
        raise UserError(problem, "dataset.valid_subset", "leave it out")
    once = config.task.get("upsample_primary", 1)
    if once < 1 and (train or (combined and valid)):
        problem = f"is {once}, with which fairseq fails at a set in several parts"
        raise UserError(problem, "task.upsample_primary", "give 1")


def check_files(config: DictConfig) -> None:
    """Raise UserError if a file is missing that the training reads whenever it starts."""
    for name, path in files_read(config).items():
        if not Path(path).exists():
            raise UserError("file not found", path, f"give {name}")


def check_weights(config: DictConfig) -> None:
    """Raise UserError if the checkpoint that the training starts from is missing."""
    for option, path in started_from(config).items():
        if "://" not in path and not Path(path).is_file():
            raise UserError("checkpoint not found", path, f"give checkpoint.{option}")


# ---- how it is scored ----------------------------------------------------------------------------


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


def check_subwords(post_process: str | None, dictionary: Path) -> None:
    """Raise UserError if translations would be joined as other subwords than a dictionary's.

    That would show after the training only, in an option that a run cannot change any more.
    """
    marks = subword_marks(line.split(" ")[0] for line in lines_of(dictionary))
    joins = JOINS.get(post_process or "")
    if marks is None and joins != "sentencepiece":  # whole words stay as they are
        return
    if joins and joins != marks:
        problem = f"is {post_process}, but {dictionary} has {marks or 'whole words'}"
        todo = f"give {marks}" if marks else "give null"
        raise UserError(problem, "common_eval.post_process", todo)


def check_valid_set(config: DictConfig) -> None:
    """Raise UserError unless the data folder has a validation set, whose loss is in a score."""
    data = data_folder(config)
    if not (any(data.glob("valid.*")) or any(data.glob("valid[0-9]*.*"))):
        problem = "there is no validation set, whose loss is part of a score"
        raise UserError(problem, data, "prepare the data again, with one")


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
        check_subwords(OmegaConf.select(config, "common_eval.post_process"), dictionary)
    return subset
