"""Fixes of options that are given when a saved model is opened; each docstring names the fault.

These options are ``--model-overrides``, keywords of ``open_model`` and of the hub's
``from_pretrained``, and arguments of the hub's searches.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

from collab_common.errors import UserError, did_you_mean, first_line

from .patching import wrap

#: Options that the hub adds for files next to a model, whether the model reads them or not.
OF_THE_HUB = {"bpe_codes", "sentencepiece_model", "bpe_merges", "bpe_vocab"}
#: The overrides that a user has given, and whether they are only for the model.
_given: ContextVar[tuple[Any, bool]] = ContextVar("_given", default=(None, False))


def reject_unknown_overrides() -> None:
    """--model-overrides and the hub ignore options that the model does not have.

    In a command that has a task of its own, for example fairseq-generate, only options of the model
    have an effect.  Models of fairseq that contain other models override the options of these; such
    overrides stay as they are.
    """
    from fairseq import checkpoint_utils

    @wrap(checkpoint_utils, "load_model_ensemble_and_task")
    def load_ensemble(
        original: Any,
        filenames: Any,
        arg_overrides: Any = None,
        task: Any = None,
        *args: Any,
        **kw: Any,
    ) -> Any:
        token = _given.set((arg_overrides, task is not None))
        try:
            return original(filenames, arg_overrides, task, *args, **kw)
        finally:
            _given.reset(token)

    @wrap(checkpoint_utils, "load_checkpoint_to_cpu")
    def load_checkpoint(
        original: Any, path: Any, arg_overrides: Any = None, *args: Any, **kw: Any
    ) -> Any:
        state = original(path, arg_overrides, *args, **kw)
        given, is_for_model = _given.get()
        if arg_overrides and arg_overrides is given and state.get("cfg") is not None:
            check_overrides(arg_overrides, state["cfg"], path, is_for_model)
        return state


def reject_wrong_values() -> None:
    """--model-overrides and the hub end in a traceback at a value of another type."""
    from fairseq import checkpoint_utils
    from omegaconf import ValidationError

    @wrap(checkpoint_utils, "load_model_ensemble_and_task")
    def load_ensemble(original: Any, filenames: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(filenames, *args, **kwargs)
        except ValidationError as error:
            problem = f"the option {error.full_key} cannot have this value: {first_line(error)}"
            raise UserError(problem, " or ".join(filenames)) from error


def override_parts() -> None:
    """An override does not reach the options that set parts of what it sets.

    For example, ``cache_bits`` does not reach ``cache_bits_in_cross``.  A model's method
    ``override(options, overrides)`` completes its options in place; it is called also without
    overrides.
    """
    from fairseq import checkpoint_utils
    from fairseq.models import MODEL_REGISTRY

    @wrap(checkpoint_utils, "load_checkpoint_to_cpu")
    def load_checkpoint(
        original: Any, path: Any, arg_overrides: Any = None, *args: Any, **kw: Any
    ) -> Any:
        return original(path, {} if arg_overrides is None else arg_overrides, *args, **kw)

    @wrap(checkpoint_utils, "overwrite_args_by_name")
    def overwrite_args_by_name(original: Any, cfg: Any, overrides: Any) -> None:
        if overrides:  # else fairseq looks at every option in vain
            original(cfg, overrides)
        model = cfg.get("model")
        complete = getattr(MODEL_REGISTRY.get(getattr(model, "_name", None)), "override", None)
        if complete is not None:
            complete(model, overrides)


def add_text_sections() -> None:
    """The hub opens no checkpoint of a Hydra configuration without sections for subwords, tokens.

    Opening one ends in a traceback, and ``bpe=`` and ``tokenizer=`` have no effect.
    """
    from fairseq import checkpoint_utils
    from omegaconf import open_dict

    @wrap(checkpoint_utils, "overwrite_args_by_name")
    def overwrite_args_by_name(original: Any, cfg: Any, overrides: Any) -> None:
        if "model" in cfg and "task" in cfg:  # not a section, for which fairseq calls this again
            with open_dict(cfg):
                for name in (name for name in ("bpe", "tokenizer") if name not in cfg):
                    cfg[name] = None
        original(cfg, overrides)


def reject_unknown_arguments() -> None:
    """The hub's ``translate``, ``sample``, ``generate`` ignore arguments that no search reads."""
    from fairseq.dataclass.configs import GenerationConfig
    from fairseq.hub_utils import GeneratorHubInterface

    named = {*inspect.signature(GeneratorHubInterface.generate).parameters}

    @wrap(GeneratorHubInterface, "generate")
    def generate(original: Any, self: Any, *args: Any, **arguments: Any) -> Any:
        known = named | {*GenerationConfig.__dataclass_fields__, *map(str, self.cfg.generation)}
        for name in sorted({*arguments} - known):
            todo = did_you_mean(name, known) or "leave it out"
            raise UserError("is not an option of a search", f"`{name}`", todo)
        return original(self, *args, **arguments)


def check_overrides(
    overrides: Iterable[str], cfg: Any, path: Any, is_for_model: bool = False
) -> None:
    """Raise UserError for an override that is not an option of a checkpoint.

    Args:
        cfg: the checkpoint's configuration.
        is_for_model: only options of the model have an effect.
    """
    known = set(_of_model(cfg.model))
    if not is_for_model or _may_read_all(cfg.model):
        known |= {*_of_sections(cfg), *_of_registries(), *OF_THE_HUB}
    if unknown := sorted({*overrides} - known):
        owner = "the model" if is_for_model else "it"
        raise UserError(f"{owner} has no option {unknown[0]!r}", path, "leave it out")


def _may_read_all(options: Any) -> bool:
    """Return whether a model may read the options of all sections.

    A model whose options are a namespace may, because a namespace has them all.  Of these,
    fairseq's ``transformer`` reads only its own.
    """
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.models.transformer import TransformerModel

    if not isinstance(options, Namespace):
        return False
    return ARCH_MODEL_REGISTRY.get(getattr(options, "arch", None)) is not TransformerModel


def check_model_and_task(overrides: Iterable[str], cfg: Any, path: Any) -> None:
    """Raise UserError for an override that is not an option of a checkpoint's model or task."""
    known = {*_of_model(cfg.model), *_of_task(cfg.task)} - {"_name", "arch", "task"}
    if unknown := sorted({*overrides} - known):
        problem = f"neither the model nor its task has the option {unknown[0]!r}"
        raise UserError(problem, path, "leave it out")


def _of_model(options: Any) -> Iterator[str]:
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY

    name = getattr(options, "_name", None) or getattr(options, "arch", None)
    yield from _fields(MODEL_DATACLASS_REGISTRY.get(name))
    if not isinstance(options, Namespace):
        yield from map(str, options)
        return
    # A namespace has taken any name: its parser and its preset say which are options.
    yield from _arguments(ARCH_MODEL_REGISTRY.get(name))
    preset = Namespace()
    with contextlib.suppress(AttributeError):  # some presets want options of a command
        ARCH_CONFIG_REGISTRY.get(name, id)(preset)
    yield from vars(preset)


def _of_sections(cfg: Any) -> Iterator[str]:
    from fairseq.dataclass.configs import FairseqConfig

    for section in dataclasses.fields(FairseqConfig):
        yield section.name
        yield from _fields(section.default)
    for section in cfg.values():
        if hasattr(section, "keys"):
            yield from map(str, section)
    yield from _of_task(cfg.get("task"))


def _of_task(options: Any) -> Iterator[str]:
    from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

    name = getattr(options, "_name", None) or getattr(options, "task", None)
    yield from _fields(TASK_DATACLASS_REGISTRY.get(name))
    yield from _arguments(TASK_REGISTRY.get(name))
    if hasattr(options, "keys"):
        yield from map(str, options)


def _of_registries() -> Iterator[str]:
    """Yield options of tokenisers, subwords and other parts that a checkpoint may lack."""
    from fairseq.registry import REGISTRIES

    for name, registry in REGISTRIES.items():
        yield name
        for kind in registry["registry"].values():
            yield from _arguments(kind)
        for kind in registry["dataclass_registry"].values():
            yield from _fields(kind)


def _fields(kind: Any) -> Iterator[str]:
    if dataclasses.is_dataclass(kind):
        yield from (field.name for field in dataclasses.fields(kind))


def _arguments(kind: Any) -> Iterator[str]:
    """Yield the options that a class adds to a parser."""
    add_args = getattr(kind, "add_args", None)
    if add_args is not None:
        add_args(parser := ArgumentParser(conflict_handler="resolve"))
        yield from (action.dest for action in parser._actions)
