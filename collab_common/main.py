"""The command `fairseq-collab`: one table of commands, one way for a command to fail.

Commands are modules named in a table and imported when they are called: importing `fairseq_collab`
imports fairseq and torch, and `fairseq-collab doctor` has to say what is wrong where that very
import fails. The commands on text, on finished runs alone and those that print a folder do without
both and start at once.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import collab_common
from collab_common.command import run

PROG = "fairseq-collab"
DOCTOR = "fairseq_compat.doctor"


class Command(NamedTuple):
    """A module with ``main(argv) -> exit status``, imported when the command is called.

    Attributes:
        plugin: whether it needs fairseq, and our models registered with it.
        module: of ``data_prep``; else that of ``fairseq_collab.commands`` with the command's name.
    """

    summary: str
    plugin: bool = True
    module: str = ""


COMMANDS = {
    "advise": Command("a smaller model that meets a cache or size target"),
    "average": Command("average checkpoints of one training"),
    "bench": Command("speed next to stock fairseq and CTranslate2"),
    "compare": Command("significance tests of two runs", False),
    "configs": Command("print the folder of Hydra configurations, for --config-dir", False),
    "cost": Command("parameters and cache bytes of a checkpoint"),
    "data": Command("text to a data folder: prepare, validate, a corpus, ...", False),
    "doctor": Command("what is installed, what is patched and why, and what is wrong", False),
    "export": Command("a model for other engines, exactly"),
    "heads": Command("what a model's heads do"),
    "pages": Command("README, docs and results from data", False),
    "prune": Command("take heads out of a trained model"),
    "reparametrize": Command("collaborative heads from a trained model's"),
    "report": Command("finished runs on one page, with tests", False),
    "score": Command("BLEU and chrF of runs, a checkpoint or a translation"),
    "sweep": Command("all runs of a Hydra sweep; resumes"),
    "table": Command("many runs in a table and a figure", False),
    "user-dir": Command("print the folder to pass to fairseq as --user-dir", False),
    "vote": Command("which heads stand for their groups"),
}
#: ``fairseq-collab data COMMAND``: the same as ``python -m data_prep.COMMAND``.
DATA = {
    "demo-data": Command("the corpus of recipes/demo.sh", False, "data_prep.demo_data"),
    "embedded": Command("generated pairs with trees", False, "data_prep.embedded.__main__"),
    "iwslt14": Command("a stage of recipes/iwslt14.sh", False, "data_prep.iwslt14"),
    "multi30k": Command("Multi30k, from download to data folder", False, "data_prep.multi30k"),
    "prepare": Command("text to a data folder", False, "data_prep.prepare"),
    "validate": Command("what fairseq would silently shift or drop", False, "data_prep.validate"),
    "wmt14": Command("a stage of recipes/wmt14_en_de.sh", False, "data_prep.wmt14"),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command: 0 if it succeeded, 1 for bad input, 2 for bad usage."""
    arguments = sys.argv[1:] if argv is None else argv
    name, *rest = arguments or ["--help"]
    if name == "data":
        return dispatch(f"{PROG} data", DATA, rest or ["--help"])
    if name == "doctor":
        doctor = importlib.import_module(DOCTOR)
        return run(f"{PROG} {name}", lambda: doctor.main(rest, plugin="fairseq_collab"))
    if name in ("configs", "user-dir"):
        return run(f"{PROG} {name}", lambda: print_folder(name, rest))
    return dispatch(PROG, COMMANDS, [name, *rest])


def dispatch(prog: str, commands: dict[str, Command], arguments: list[str]) -> int:
    """Run one command of a table."""
    name, *rest = arguments
    if name in ("-h", "--help"):
        return run(prog, lambda: print(usage(prog, commands)))
    if name not in commands:
        print(f"{prog}: error: no command {name!r}\n{usage(prog, commands)}", file=sys.stderr)
        return 2
    command = commands[name]
    collab_common.MODELS = command.plugin
    if command.plugin:
        # How long dictionaries and data are, each time that one is opened; and one of fairseq's
        # tasks, on import, that tensorboardX is to be installed.
        for chatty in ("fairseq.tasks", "fairseq.data"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
        if find_spec("fairseq") is None:
            todo = "run `pip install --no-deps fairseq==0.12.2`"
            print(f"{prog}: error: fairseq is not installed; {todo}", file=sys.stderr)
            return 1
    module = module_of(name, command)
    return run(f"{prog} {name}", lambda: importlib.import_module(module).main(rest))


def module_of(name: str, command: Command) -> str:
    """What is imported when it is called."""
    return command.module or f"fairseq_collab.commands.{name.replace('-', '_')}"


def usage(prog: str, commands: dict[str, Command]) -> str:
    """All commands of a table, a line each."""
    lines = [f"  {name:13} {command.summary}" for name, command in sorted(commands.items())]
    return "\n".join([f"usage: {prog} COMMAND [OPTIONS]", "", *lines])


def user_dir() -> Path:
    """Where the package is installed: what to pass to fairseq as --user-dir."""
    spec = find_spec("fairseq_collab")
    if spec is None or spec.origin is None:
        sys.exit("fairseq-collab: the package fairseq_collab is gone; install it again")
    return Path(spec.origin).parent


def configs() -> Path:
    """The folder of Hydra configurations, for --config-dir: in the wheel, or of the checkout."""
    installed = user_dir() / "configs"
    return installed if installed.is_dir() else user_dir().parent / "configs"


def print_folder(name: str, rest: list[str]) -> None:
    """Print a folder of the installation; there are no options but --help."""
    folder = {"user-dir": user_dir, "configs": configs}[name]
    parser = argparse.ArgumentParser(prog=f"{PROG} {name}", description=folder.__doc__)
    parser.parse_args(rest)
    print(folder())


if __name__ == "__main__":
    sys.exit(main())
