"""The command ``fairseq-collab``: the table of commands.

A command is a module that is imported when it is called: ``fairseq-collab doctor`` must work where
importing fairseq fails, and help texts, text and finished runs need no models.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import collab_common
from collab_common.command import run

PROG = "fairseq-collab"
HELP = ("-h", "--help")


class Command(NamedTuple):
    """A module with ``main(argv) -> exit status``.

    Attributes:
        module: default: that of ``fairseq_collab.commands`` with the command's name.
    """

    summary: str
    module: str = ""


COMMANDS = {
    "advise": Command("find a smaller model that meets a cache or size target at the lowest loss"),
    "average": Command("average checkpoints of one training"),
    "bench": Command("measure speed next to stock fairseq and CTranslate2"),
    "compare": Command("test whether two runs differ significantly"),
    "configs": Command("print the folder of Hydra configurations"),
    "cost": Command("count parameters, KV cache and multiply-adds of a checkpoint"),
    "data": Command("prepare and validate data"),
    "doctor": Command("check the installation", "fairseq_compat.doctor"),
    "export": Command("export to fairseq, CTranslate2 or Hugging Face, exactly"),
    "heads": Command("analyse what the heads of a model do"),
    "pages": Command("render pages of results from data"),
    "prune": Command("remove heads from a trained model"),
    "reparametrize": Command("convert a trained model to shared, narrower or fewer keys"),
    "report": Command("compare finished runs on one page"),
    "score": Command("compute BLEU and chrF of runs, a checkpoint or a translation"),
    "sweep": Command("run all trainings of a Hydra sweep; a rerun resumes it"),
    "table": Command("tabulate and draw finished runs"),
    "user-dir": Command("print the folder for fairseq's --user-dir"),
    "vote": Command("elect one head per group"),
}
#: ``fairseq-collab data COMMAND``.
DATA = {
    "demo-data": Command("the corpus of recipes/demo.sh", "data_prep.demo_data"),
    "iwslt14": Command("IWSLT14, from download to data folder", "data_prep.iwslt14"),
    "multi30k": Command("Multi30k, from download to data folder", "data_prep.multi30k"),
    "prepare": Command("text to a data folder", "data_prep.prepare"),
    "wmt14": Command("WMT14, from download to data folder", "data_prep.wmt14"),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command; return 0 if it succeeded, 1 for bad input, 2 for bad usage."""
    prog, commands = PROG, COMMANDS
    name, *rest = (sys.argv[1:] if argv is None else argv) or HELP
    if name == "data":
        prog, commands = f"{PROG} data", DATA
        name, *rest = rest or HELP
    if name in HELP:
        return run(prog, lambda: print(usage(prog, commands)))
    if name == "--version":
        return run(prog, lambda: print(PROG, version(PROG)))
    if name not in commands:
        known = ", ".join(sorted(commands))
        print(f"{prog}: error: no command {name!r}; one of {known}", file=sys.stderr)
        return 2
    if name in FOLDERS:
        return run(f"{prog} {name}", lambda: print_folder(name, rest))
    collab_common.MODELS = False  # a command imports them when it needs them
    # Sizes of dictionaries and data, whenever one is opened; advice to install tensorboardX.
    for chatty in ("fairseq.tasks", "fairseq.data"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    module = module_of(name, commands[name])
    return run(f"{prog} {name}", lambda: importlib.import_module(module).main(rest))


def module_of(name: str, command: Command) -> str:
    """The module of a command."""
    return command.module or f"fairseq_collab.commands.{name}"


def usage(prog: str, commands: dict[str, Command]) -> str:
    """All commands of a table, one line each."""
    lines = [f"  {name:13} {command.summary}" for name, command in sorted(commands.items())]
    return "\n".join([f"usage: {prog} COMMAND [OPTIONS]", "", *lines])


def user_dir() -> Path:
    """The folder of the package, for fairseq's --user-dir."""
    spec = find_spec("fairseq_collab")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def configs() -> Path:
    """The folder of Hydra configurations, for --config-dir: in the wheel, or of the checkout."""
    installed = user_dir() / "configs"
    return installed if installed.is_dir() else user_dir().parent / "configs"


FOLDERS = {"user-dir": user_dir, "configs": configs}


def print_folder(name: str, rest: list[str]) -> None:
    """Print a folder of the installation."""
    folder = FOLDERS[name]
    argparse.ArgumentParser(prog=f"{PROG} {name}", description=folder.__doc__).parse_args(rest)
    print(folder())


if __name__ == "__main__":
    sys.exit(main())
