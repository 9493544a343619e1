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
OTHERS = ("pip", "source", "torchrun")
#: The parsers of fairseq's commands, in ``fairseq.options``.
FAIRSEQS = {
    "fairseq-train": "get_training_parser",
    "fairseq-generate": "get_generation_parser",
    "fairseq-interactive": "get_interactive_generation_parser",
}


class Wrong(Exception):
    """A command that would fail, with its message."""


class Parsed(Exception):
    """Raised in place of what a command does once it has parsed its arguments."""


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


def parse_only(main: Callable[[Words], Any], words: Words) -> Any:
    """What ``main`` parses from ``words``."""
    parsed: list[Any] = []

    def stopping(parse: Callable[..., Any]) -> Callable[..., None]:
        def stop(self: Any, *given: Any, **named: Any) -> None:
            parsed.append(parse(self, *given, **named))
            raise Parsed

        return stop

    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
        for name in ("parse_args", "parse_intermixed_args"):
            parse = getattr(argparse.ArgumentParser, name)
            patch.setattr(argparse.ArgumentParser, name, stopping(parse))
        with contextlib.suppress(Parsed, SystemExit):
            main(words)
    if not parsed:
        raise Wrong([*said.getvalue().splitlines(), "it parses nothing"][-2:][0])
    return parsed[0]


#: Commands with a parser of their own, by name as typed.
OURS = {
    **{name: one for name, one in COMMANDS.items() if name not in ("data", "configs")},
    **{f"data {name}": one for name, one in DATA.items()},
}


def main_of(name: str) -> Callable[[Words], Any]:
    """The function behind ``fairseq-collab NAME``."""
    if name not in OURS:
        raise Wrong(f"no command fairseq-collab {name}")
    return importlib.import_module(module_of(name.rpartition(" ")[2])).main


def check_ours(words: Words) -> None:
    name, *arguments = words
    if name == "data":
        name, arguments = f"data {arguments[0]}", arguments[1:]
    if name == "configs":
        return
    parsed = parse_only(main_of(name), arguments)
    if name == "sweep":
        config = REPOSITORY / parsed.config
        if text := shown(config.name):
            return plan_shown(config.name, text, parsed.overrides)
        if not config.is_file():
            raise Wrong(f"there is no {parsed.config}")
        relative = config.relative_to(REPOSITORY / "configs").with_suffix("")
        compose(["--config-dir", "configs", "--config-name", str(relative), *parsed.overrides])


def shown(name: str) -> str:
    """The configuration of that name that a page shows as a block of YAML; else nothing."""
    texts = [block.text for page in PAGES for block in blocks(page) if block.language == "yaml"]
    return next((text for text in texts if text.startswith(f"# {name}\n")), "")


def plan_shown(name: str, text: str, overrides: Words) -> None:
    """Compose every run of a configuration in a folder of its own."""
    from collab_lab.runs.sweep import plan

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(text)
        try:
            assert plan(Path(folder) / name, overrides)
        except UserError as error:
            raise Wrong(str(error)) from None


def options_of(name: str) -> set[str]:
    """All options of ``fairseq-collab NAME``."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main_of(name)(["--help"])
    return set(re.findall(r"--[a-z][\w-]*", said.getvalue())) | {"-h"}


def check_fairseq(name: str, words: Words) -> None:
    from fairseq import options

    parser = getattr(options, FAIRSEQS[name])
    left_out = ["--arch", "transformer"] if name == "fairseq-train" else []
    words = [one for text in words for one in (left_out if text == "..." else [text])]
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
        patch.chdir(REPOSITORY)  # --user-dir may be a path
        patch.setattr(sys, "argv", [name, *words])  # get_parser looks for --user-dir there
        try:
            options.parse_args_and_arch(parser())
        except SystemExit:
            raise Wrong(said.getvalue().splitlines()[-1]) from None


def compose(words: Words) -> None:
    """Compose a configuration with the first value of each override."""
    from fairseq.dataclass.initialize import hydra_init
    from hydra import compose, initialize_config_dir
    from hydra._internal.utils import get_args_parser
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from collab_lab.runs.sweep import complete

    given = get_args_parser().parse_args(words)
    hydra_init()
    GlobalHydra.instance().clear()
    try:
        first = [
            f"{one.get_key_element()}={next(one.sweep_string_iterator())}"
            if one.is_sweep_override()
            else text
            for text, one in zip(
                given.overrides,
                OverridesParser.create().parse_overrides(given.overrides),
                strict=True,
            )
        ]
        folder = str(REPOSITORY / given.config_dir)
        with initialize_config_dir(folder, version_base="1.1", job_name="check"):
            complete(compose(given.config_name, first))
    except (HydraException, OmegaConfBaseException) as error:
        raise Wrong(f"Hydra says: {error}") from None


def check_example(words: Words) -> None:
    """``python FILE OPTIONS``: the file exists and names the options; it may need libraries."""
    file = REPOSITORY / words[0]
    code = file.read_text() if file.is_file() else ""
    if unknown := [one for one in words[1:] if one.startswith("--") and f'"{one}"' not in code]:
        raise Wrong(f"{words[0]} knows no {', '.join(unknown)}")
    if not code:
        raise Wrong(f"there is no {words[0]}")


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
