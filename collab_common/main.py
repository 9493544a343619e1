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
    """

    module: str
    summary: str
    plugin: bool = True


COMMANDS = {
    "advise": Command(
        "fairseq_collab.commands.advise", "the smaller model that has what is wished for"
    ),
    "average": Command("fairseq_collab.commands.average", "average checkpoints of one training"),
    "bench": Command("fairseq_collab.commands.bench", "speed beside stock fairseq"),
    "compare": Command("fairseq_collab.commands.compare", "significance tests of two runs", False),
    "contrast": Command(
        "fairseq_collab.commands.contrast", "how often a model prefers the correct translation"
    ),
    "configs": Command("", "print the folder of Hydra configurations, for --config-dir", False),
    "cost": Command("fairseq_collab.commands.cost", "parameters and cache bytes of a checkpoint"),
    "data": Command("", "text to a data folder: prepare, validate, a corpus, ...", False),
    "doctor": Command("", "what is installed, what is patched and why, and what is wrong", False),
    "export": Command("fairseq_collab.commands.export", "a model for other engines, exactly"),
    "glue": Command("fairseq_collab.commands.glue", "heads of BERT swapped, on a GLUE task"),
    "glue-table": Command("fairseq_collab.commands.glue_table", "runs of glue beside the paper"),
    "heads": Command("fairseq_collab.commands.heads", "what a model's heads do"),
    "heads-kept": Command(
        "fairseq_collab.commands.heads_kept", "roles and layers of the heads kept along pruning"
    ),
    "pages": Command("fairseq_collab.commands.pages", "README, docs and results from data", False),
    "measure": Command(
        "fairseq_collab.commands.measure", "time and memory of factorisations, beside TensorLy's"
    ),
    "prune": Command("fairseq_collab.commands.prune", "take heads out of a trained model"),
    "prune-curve": Command(
        "fairseq_collab.commands.prune_curve", "BLEU against the share of heads removed"
    ),
    "rank": Command("fairseq_collab.commands.rank", "spectra and ranks of a model's heads"),
    "reparametrize": Command(
        "fairseq_collab.commands.reparametrize", "collaborative heads from a trained model's"
    ),
    "report": Command(
        "fairseq_collab.commands.report", "finished runs on one page, with tests", False
    ),
    "score": Command("fairseq_collab.commands.score", "BLEU and chrF of a run or a translation"),
    "sweep": Command("fairseq_collab.commands.sweep", "all runs of a Hydra sweep; resumes"),
    "table": Command("fairseq_collab.commands.table", "many runs in a table and a figure", False),
    "user-dir": Command("", "print the folder to pass to fairseq as --user-dir", False),
    "vote": Command("fairseq_collab.commands.vote", "which heads stand for their groups"),
}
#: ``fairseq-collab data COMMAND``: the same as ``python -m data_prep.COMMAND``.
DATA = {
    "demo-data": Command("data_prep.demo_data", "the corpus of recipes/demo.sh", False),
    "dialogsum": Command("data_prep.dialogsum", "DialogSum, from a folder", False),
    "embedded": Command("data_prep.embedded.__main__", "generated pairs with trees", False),
    "iwslt14": Command("data_prep.iwslt14", "a stage of recipes/iwslt14.sh", False),
    "multi30k": Command("data_prep.multi30k", "Multi30k, from download to data folder", False),
    "prepare": Command("data_prep.prepare", "text to a data folder", False),
    "tatoeba": Command("data_prep.tatoeba", "a stage of recipes/tatoeba.sh", False),
    "validate": Command("data_prep.validate", "what fairseq would silently shift or drop", False),
    "wikitext2": Command("data_prep.wikitext2", "WikiText-2, from download to data folder", False),
    "wmt14": Command("data_prep.wmt14", "a stage of recipes/wmt14_en_de.sh", False),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command: 0 if it succeeded, 1 for bad input, 2 for bad usage."""
    arguments = sys.argv[1:] if argv is None else argv
    name, *rest = arguments or ["--help"]
    if name == "data":
        return dispatch(f"{PROG} data", DATA, rest or ["--help"])
    if name == "doctor":
        status: int = importlib.import_module(DOCTOR).main(rest, plugin="fairseq_collab")
        return status
    if name in ("configs", "user-dir"):
        return print_folder(name, rest)
    return dispatch(PROG, COMMANDS, [name, *rest])


def dispatch(prog: str, commands: dict[str, Command], arguments: list[str]) -> int:
    """Run one command of a table."""
    name, *rest = arguments
    if name in ("-h", "--help"):
        print(usage(prog, commands))
        return 0
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
    return run(f"{prog} {name}", lambda: importlib.import_module(command.module).main(rest))


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


def print_folder(name: str, rest: list[str]) -> int:
    """Print a folder of the installation; there are no options but --help."""
    folder = {"user-dir": user_dir, "configs": configs}[name]
    parser = argparse.ArgumentParser(prog=f"{PROG} {name}", description=folder.__doc__)
    parser.parse_args(rest)
    print(folder())
    return 0


if __name__ == "__main__":
    sys.exit(main())
