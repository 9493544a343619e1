"""Whether commands would be understood: parsed by their own parsers, and not run.

Options must exist, required ones must be there, choices must be valid; overrides of Hydra must be
ones of options that exist.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import io
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import REPOSITORY
from documents import Command

CONFIGS = REPOSITORY / "configs"
Words = list[str]


class Wrong(Exception):
    """A command that would be refused, with its refusal."""


class Parsed(Exception):
    """Raised in place of what a command does once it has parsed its arguments."""

    def __init__(self, arguments: Any):
        super().__init__()
        self.arguments = arguments


def check(command: Command) -> None:
    """Parse a command, those that it starts included.

    Raises:
        Wrong: it would be refused, or is of a kind that is not known here.
    """
    name, *given = command.words
    words = [
        word for text in given for word in (_LEFT_OUT.get(name, []) if text == "..." else [text])
    ]
    if name not in _CHECKS:
        raise Wrong(f"no check for commands of the kind {name!r}")
    if command.variables and name != "bash":
        raise Wrong(f"nothing is known of variables for {name}: {sorted(command.variables)}")
    if name == "bash":
        check_recipe(words, command.variables)
    else:
        _CHECKS[name](words)


# ---- parsers of argparse -------------------------------------------------------------------------


@contextlib.contextmanager
def parsing_only() -> Iterator[None]:
    """While it lasts, every parser of argparse raises :class:`Parsed` once it has parsed."""
    with pytest.MonkeyPatch.context() as patch:
        for method in ("parse_args", "parse_intermixed_args"):
            parse = getattr(argparse.ArgumentParser, method)

            def stop(self: Any, *given: Any, parse: Callable = parse, **named: Any) -> None:
                raise Parsed(parse(self, *given, **named))

            patch.setattr(argparse.ArgumentParser, method, stop)
        yield


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turns what argparse refuses into :class:`Wrong`."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            yield
    except SystemExit as exit_:
        lines = told.getvalue().strip().splitlines()
        raise Wrong(lines[-1] if lines else f"exits with {exit_.code}") from None


def parse_only(main: Callable[[Words], Any], words: Words) -> Any:
    """What ``main`` parses from ``words``."""
    try:
        with refusals(), parsing_only():
            main(words)
    except Parsed as parsed:
        return parsed.arguments
    raise Wrong("it has parsed nothing")


def main_of(name: str) -> Callable[[Words], Any]:
    """The function behind ``fairseq-collab NAME``."""
    from collab_common import main as cli

    group, _, member = name.rpartition(" ")
    commands = cli.DATA if group == "data" else cli.COMMANDS
    if member not in commands:
        raise Wrong(f"no command fairseq-collab {name}")
    return importlib.import_module(cli.module_of(member, commands[member])).main


def check_ours(words: Words) -> None:
    name, *arguments = words
    if name == "data":
        name, arguments = f"data {arguments[0]}", arguments[1:]
    if name in ("user-dir", "configs"):
        if arguments:
            raise Wrong(f"fairseq-collab {name} takes no arguments")
        return
    parsed = parse_only(main_of(name), arguments)
    if name == "sweep":
        if not (REPOSITORY / parsed.config).is_file():
            raise Wrong(f"there is no {parsed.config}")
        relative = (REPOSITORY / parsed.config).relative_to(REPOSITORY / parsed.config_dir)
        compose_each(str(relative.with_suffix("")), parsed.overrides)


def options_of(name: str) -> set[str]:
    """All options of ``fairseq-collab NAME``."""
    parsers: list[argparse.ArgumentParser] = []
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(SystemExit):
        patch.setattr(argparse.ArgumentParser, "print_help", lambda self: parsers.append(self))
        main_of(name)(["--help"])
    (parser,) = parsers
    return {
        option for action in parser._actions for option in action.option_strings or [action.dest]
    }


def check_python(words: Words) -> None:
    """``python -m MODULE ...`` of ours, and ``python FILE``."""
    if words[0] != "-m":
        if len(words) != 1 or not (REPOSITORY / words[0]).is_file():
            raise Wrong(f"not a program of the repository: {words}")
        return
    name, *arguments = words[1:]
    if name.split(".")[0] not in ("data_prep", "fairseq_collab"):
        raise Wrong(f"not a module of the repository: {name}")
    try:
        module = importlib.import_module(name)
        if hasattr(module, "__path__"):
            module = importlib.import_module(f"{name}.__main__")
    except ModuleNotFoundError as error:
        raise Wrong(f"no module {error.name}") from None
    parse_only(module.main, arguments)


# ---- fairseq's commands --------------------------------------------------------------------------


def check_fairseq(parser: str, words: Words) -> None:
    """``fairseq-train`` and its like, by the function of ``fairseq.options`` named ``parser``."""
    from fairseq import options

    with pytest.MonkeyPatch.context() as patch, refusals():
        patch.chdir(REPOSITORY)  # --user-dir may be a path
        patch.setattr(sys, "argv", ["fairseq", *words])  # get_parser looks for --user-dir there
        options.parse_args_and_arch(getattr(options, parser)())


def check_torchrun(words: Words) -> None:
    from torch.distributed.run import get_args_parser

    with refusals():
        parsed = get_args_parser().parse_args(words)
    check(Command([parsed.training_script, *parsed.training_script_args]))


def check_hydra_train(words: Words) -> None:
    from hydra._internal.utils import get_args_parser

    with refusals():
        parsed = get_args_parser().parse_args(words)
    if parsed.config_dir != "configs":
        raise Wrong(f"--config-dir is {parsed.config_dir}")
    compose_each(parsed.config_name, parsed.overrides, multirun=parsed.multirun)


def compose_each(name: str, overrides: Words, multirun: bool = True) -> None:
    """Compose a configuration with each value of each override, with the first of all others."""
    from fairseq.dataclass.initialize import hydra_init
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from fairseq_collab.runs.sweep import complete

    hydra_init()
    GlobalHydra.instance().clear()
    try:
        parsed = OverridesParser.create().parse_overrides(overrides)
        values = [
            [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
            if override.is_sweep_override()
            else [text]
            for text, override in zip(overrides, parsed, strict=True)
        ]
        if not multirun and any(len(texts) > 1 for texts in values):
            raise Wrong("several values without -m")
        first = [texts[0] for texts in values]
        points = [first]
        for place, texts in enumerate(values):
            points += [[*first[:place], text, *first[place + 1 :]] for text in texts[1:]]
        with initialize_config_dir(str(CONFIGS), version_base="1.1", job_name="check"):
            for point in points:
                complete(compose(name, point))
    except (HydraException, OmegaConfBaseException) as error:
        raise Wrong(f"Hydra says: {error}") from None


# ---- recipes and other programs ------------------------------------------------------------------


@functools.cache
def recipe_code(recipe: Path) -> str:
    """A recipe and what it sources, without comments; bash has looked at its syntax."""
    done = subprocess.run(["bash", "-n", recipe], capture_output=True, text=True)
    if done.returncode:
        raise Wrong(done.stderr)
    text = re.sub(r"^\s*#.*$|\s# .*$", "", recipe.read_text(), flags=re.M)
    sourced = re.findall(r'^source .*?(\w+\.sh)"?$', text, re.M)
    return text + "".join(recipe_code(recipe.parent / name) for name in sourced)


def check_recipe(words: Words, variables: frozenset[str]) -> None:
    """``VARIABLES bash recipes/NAME.sh ARGUMENTS``: all of it means something to the recipe."""
    name, *arguments = words
    recipe = REPOSITORY / name
    if not name.startswith("recipes/") or not recipe.is_file():
        raise Wrong(f"there is no {name}")
    code = recipe_code(recipe)
    unknown = [v for v in variables if not re.search(rf"\$\{{?{v}\b", code)]
    if unknown:
        raise Wrong(f"{name} reads no {', '.join(sorted(unknown))}")
    if 'pytest "$@"' in code or re.search(r'pytest .*"\$@"', code):
        return  # what follows is pytest's
    if "--" in arguments:  # what follows is overrides of Hydra
        arguments = arguments[: arguments.index("--")]
    if stages := re.search(
        r"^all_stages \w+ (\w+)", code, re.M
    ):  # variants and pairs are its module's
        module = f"data_prep.{stages[1]}"
        at = [i for i, word in enumerate(arguments) if word in ("--variant", "--pair")]
        chosen = [word for i in at for word in arguments[i : i + 2]]
        check_python(["-m", module, "fetch", "--out", "DIR", *chosen])
        arguments = [word for word in arguments if word not in chosen]
    for word in arguments:
        option = word.startswith("-") and not re.search(rf"(?<![\w-]){word}(\)| *\|)", code)
        choice = re.fullmatch(r"[a-z][\w-]*", word) and not re.search(rf"\b{word}\b", code)
        if option or choice:
            raise Wrong(f"{name} knows no {word}")


def check_pip(words: Words) -> None:
    from packaging.requirements import Requirement
    from pip._internal.commands import create_command

    command, *arguments = words
    with refusals():
        _, given = create_command(command).parse_args(arguments)
    for requirement in given:
        if not requirement.startswith("."):
            Requirement(requirement)


def check_sacrebleu(words: Words) -> None:
    from sacrebleu.sacrebleu import parse_args

    with refusals(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["sacrebleu", *words])
        parse_args()


def check_source(words: Words) -> None:
    if words != [".venv/bin/activate"]:
        raise Wrong(f"recipes/setup.sh makes .venv/bin/activate, not {words}")


#: What ``...`` stands for in a command, if the command is nothing without.
_LEFT_OUT = {"fairseq-train": ["--arch", "transformer"], "torchrun": ["..."]}
_CHECKS: dict[str, Callable[[Words], None]] = {
    "bash": lambda words: check_recipe(words, frozenset()),
    "cat": lambda words: None,  # files of the reader's
    "fairseq-collab": check_ours,
    "fairseq-generate": functools.partial(check_fairseq, "get_generation_parser"),
    "fairseq-hydra-train": check_hydra_train,
    "fairseq-train": functools.partial(check_fairseq, "get_training_parser"),
    "pip": check_pip,
    "python": check_python,
    "sacrebleu": check_sacrebleu,
    "source": check_source,
    "torchrun": check_torchrun,
}
