"""The command ``fairseq-collab`` and the table of its commands.

A command's module is imported only when the command is called.  So ``fairseq-collab doctor`` works
even if fairseq cannot be imported, and help texts do not load models.
"""

from __future__ import annotations

import importlib
import logging
import sys
from importlib.metadata import version

from collab_common.command import Parser, run
from collab_common.errors import did_you_mean
from collab_lab.runs import config_folder

PROG = "fairseq-collab"
HELP = ("-h", "--help")


#: What each command does, by its name: see :func:`module_of`.
COMMANDS = {
    "average": "average checkpoints of one training",
    "bench": "measure speed next to stock fairseq and CTranslate2",
    "compare": "test whether two runs differ significantly",
    "configs": "print the folder of Hydra configurations",
    "cost": "count the parameters, KV cache and multiply-adds of models",
    "data": "prepare corpora for fairseq",
    "doctor": "check the installation",
    "export": "export a model to fairseq, CTranslate2, Hugging Face or ONNX Runtime",
    "heads": "analyse what the heads of a model do",
    "prices": "predict what narrower keys, latents, grouped queries and fewer heads cost",
    "prune": "remove heads from a trained model",
    "reparametrize": "convert a trained model to shared, narrower or fewer keys",
    "score": "compute BLEU and chrF of runs, a checkpoint or a translation",
    "shrink": "make a trained model smaller: heads, feed-forward units, KV cache",
    "sweep": "run all trainings of a Hydra sweep; a rerun resumes it",
    "table": "tabulate and draw finished runs",
    "vote": "elect one head per group",
}
#: ``fairseq-collab data COMMAND``.
DATA = {
    "demo-data": "generate the corpus of recipes/demo.sh",
    "iwslt14": "download and prepare IWSLT14",
    "multi30k": "download and prepare Multi30k",
    "prepare": "prepare your own text",
    "wmt14": "download and prepare WMT14",
}


def main(argv: list[str] | None = None) -> int:
    """Run one command; return 0 if it succeeded, 1 for bad input, 2 for bad usage."""
    prog, commands = PROG, COMMANDS
    name, *arguments = (sys.argv[1:] if argv is None else argv) or HELP
    if name == "data":
        prog, commands = f"{PROG} data", DATA
        name, *arguments = arguments or HELP
    if name in HELP:
        return run(prog, lambda: print(usage(prog, commands)))
    if name == "--version":
        return run(prog, lambda: print(PROG, version(PROG)))
    if name not in commands:
        todo = did_you_mean(name, commands) or f"give one of {', '.join(sorted(commands))}"
        print(f"{prog}: error: there is no command {name!r}; {todo}", file=sys.stderr)
        return 2
    if name == "configs":
        return run(f"{prog} {name}", lambda: print_configs(arguments))
    # Sizes of dictionaries and data, whenever one is opened; advice to install tensorboardX; parts
    # of the fonts in a figure.
    for chatty in ("fairseq.tasks", "fairseq.data", "fontTools"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    return run(f"{prog} {name}", lambda: called(name, arguments))


def called(name: str, arguments: list[str]) -> int:
    """Run the command of this name; its errors name options instead of Python arguments."""
    from collab_lab.cli.options import spelled

    with spelled(statistics="prices", engine="for", timed_in="time-in"):
        status: int = importlib.import_module(module_of(name)).main(arguments)
    return status


def module_of(name: str) -> str:
    """The module of a command; it has ``main(argv) -> exit status``."""
    if name in DATA:
        return f"data_prep.{name.replace('-', '_')}"
    return f"collab_lab.cli.{name}"


def usage(prog: str, commands: dict[str, str]) -> str:
    """All commands of a table, one line each."""
    lines = [f"  {name:13} {summary}" for name, summary in sorted(commands.items())]
    return "\n".join([f"usage: {prog} COMMAND [OPTIONS]", "", *lines])


def print_configs(arguments: list[str]) -> None:
    """Print the folder of configurations."""
    prog = f"{PROG} configs"
    Parser(
        prog=prog, description="Print the folder of Hydra configurations, for --config-dir."
    ).parse_args(arguments)
    print(config_folder())


if __name__ == "__main__":
    sys.exit(main())
