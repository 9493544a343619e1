"""Whether commands on pages would be understood: parsed by their own parsers, and not run."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import REPOSITORY
from documents import PAGES, Command, blocks

from collab_common.errors import UserError
from collab_lab.cli.main import COMMANDS, DATA, module_of

Words = list[str]
#: Programs of others, whose options are not looked at.
OTHERS = ("mkdir", "pip", "pre-commit", "source", "torchrun")
#: The parsers of fairseq's commands, in ``fairseq.options``.
FAIRSEQS = {
    "fairseq-train": "get_training_parser",
    "fairseq-generate": "get_generation_parser",
    "fairseq-interactive": "get_interactive_generation_parser",
}
#: Commands with a parser, by name as typed.
OURS = {
    **{name: one for name, one in COMMANDS.items() if name not in ("data", "configs")},
    **{f"data {name}": one for name, one in DATA.items()},
}


class Wrong(Exception):
    """A command that would fail, with its message."""


class Parser(Exception):
    """Raised with a parser, and its way to parse, in place of what a command does."""


def check(command: Command) -> None:
    """Parse a command; Wrong if it would fail, or is of an unknown kind."""
    name, *words = command.words
    if name == "bash":
        check_recipe(words, command.variables)
    elif name == "fairseq-collab":
        check_ours(words)
    elif name in FAIRSEQS:
        check_fairseq(name, words)
    elif name == "fairseq-hydra-train":
        compose(words)
    elif name == "python":
        check_example(words)
    elif name not in OTHERS:
        raise Wrong(f"no check for commands of the kind {name!r}")


def parser_of(name: str) -> tuple[argparse.ArgumentParser, Callable[[Words], Any]]:
    """The parser of ``fairseq-collab NAME``, and the method that it parses with."""
    if name not in OURS:
        raise Wrong(f"no command fairseq-collab {name}")
    main = importlib.import_module(module_of(name.rpartition(" ")[2])).main
    with pytest.MonkeyPatch.context() as patch:
        for method in ("parse_args", "parse_intermixed_args"):
            parse = getattr(argparse.ArgumentParser, method)

            def stop(self: Any, *_: Any, parse: Any = parse) -> None:
                raise Parser(self, parse.__get__(self))

            patch.setattr(argparse.ArgumentParser, method, stop)
        try:
            main([])
        except Parser as parser:
            return parser.args  # type: ignore[return-value]
    raise AssertionError(f"{name} parses nothing")


def options_of(name: str) -> set[str]:
    """All options of ``fairseq-collab NAME``."""
    return {option for one in parser_of(name)[0]._actions for option in one.option_strings}


@contextlib.contextmanager
def complaints() -> Any:
    """What argparse says before it exits, as Wrong."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            yield
        except SystemExit:
            raise Wrong(said.getvalue().splitlines()[-1]) from None


def check_ours(words: Words) -> None:
    """``fairseq-collab NAME``; the configuration of a sweep is composed."""
    if words[0] == "configs":
        return
    width = 2 if words[0] == "data" else 1
    name = " ".join(words[:width])
    _, parse = parser_of(name)
    with complaints():
        parsed = parse(words[width:])
    if name == "sweep":
        shown = [one.text for page in PAGES for one in blocks(page) if one.language == "yaml"]
        for text in shown:  # a configuration that a page shows
            if text.startswith(f"# {Path(parsed.config).name}\n"):
                return plan_shown(text, parsed.overrides)
        relative = Path(parsed.config).relative_to("configs").with_suffix("")
        overrides = parsed.overrides
        if any(one.startswith("hydra.searchpath=") for one in overrides):  # a model to be made
            overrides = [one for one in overrides if not one.startswith(("hydra.", "model="))]
        compose(["--config-dir", "configs", "--config-name", str(relative), *overrides])


def plan_shown(text: str, overrides: Words) -> None:
    """Compose every run of a configuration."""
    from collab_lab.runs.sweep import plan

    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        try:
            assert plan(Path(file.name), overrides)
        except UserError as error:
            raise Wrong(str(error)) from None


def check_fairseq(name: str, words: Words) -> None:
    """A command of fairseq's, where ``...`` stands for further options."""
    from fairseq import options

    left_out = ["--arch", "transformer"] if name == "fairseq-train" else []
    words = [one for text in words for one in (left_out if text == "..." else [text])]
    with pytest.MonkeyPatch.context() as patch, complaints():
        patch.chdir(REPOSITORY)  # --user-dir may be a path
        patch.setattr(sys, "argv", [name, *words])  # get_parser looks for --user-dir there
        options.parse_args_and_arch(getattr(options, FAIRSEQS[name])())


def compose(words: Words) -> None:
    """Compose the first run of ``fairseq-hydra-train``."""
    from fairseq.dataclass.initialize import hydra_init
    from hydra import compose, initialize_config_dir
    from hydra._internal.utils import get_args_parser
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from collab_lab.runs.sweep import combinations, complete

    parsed = get_args_parser().parse_args(words)
    folder = REPOSITORY / parsed.config_dir
    if not (folder / f"{parsed.config_name}.yaml").is_file():
        raise Wrong(f"there is no {parsed.config_dir}/{parsed.config_name}.yaml")
    hydra_init()
    GlobalHydra.instance().clear()
    varied, fixed = next(iter(combinations(parsed.overrides)))
    overrides = [*fixed, *(f"{key}={value}" for key, value in varied.items())]
    try:
        with initialize_config_dir(str(folder), version_base="1.1", job_name="check"):
            complete(compose(parsed.config_name, overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise Wrong(f"Hydra says: {error}") from None


def check_example(words: Words) -> None:
    """``python FILE OPTIONS``: the file exists and names the options; it may need libraries."""
    if not (REPOSITORY / words[0]).is_file():
        raise Wrong(f"there is no {words[0]}")
    code = (REPOSITORY / words[0]).read_text()
    if unknown := [one for one in words[1:] if one.startswith("--") and f'"{one}"' not in code]:
        raise Wrong(f"{words[0]} knows no {', '.join(unknown)}")


def check_recipe(words: Words, variables: frozenset[str]) -> None:
    """``VARIABLES bash recipes/NAME.sh``: the recipe exists and reads the variables."""
    recipe = REPOSITORY / words[0]
    if not words[0].startswith("recipes/") or not recipe.is_file():
        raise Wrong(f"there is no {words[0]}")
    code = recipe.read_text()
    for name in re.findall(r'^source .*?(\w+\.sh)"?$', code, re.M):
        code += (recipe.parent / name).read_text()
    known = {"CUDA_VISIBLE_DEVICES"}
    if unknown := [name for name in variables - known if not re.search(rf"\$\{{?{name}\b", code)]:
        raise Wrong(f"{words[0]} reads no {', '.join(sorted(unknown))}")
    if "stages.sh" in code:
        dry = ["bash", str(recipe), "--dry-run", *words[1:]]
        done = subprocess.run(dry, capture_output=True, text=True)
        if done.returncode:
            raise Wrong(done.stderr.strip())
