"""``python command.py train|generate ARGUMENTS``: one of fairseq's commands, installed or not.

A training tells a hash of its process's weights at its end.
"""

import atexit
import hashlib
import importlib
import os
import sys

import fairseq_collab  # noqa: F401  (first: it lets fairseq be imported at all)

name, *arguments = sys.argv[1:]
sys.argv = [f"fairseq-{name}", *arguments]
command = importlib.import_module(f"fairseq_cli.{name}")


def tell(trainer: object) -> None:
    digest = hashlib.sha256()
    for parameter in trainer.model.parameters():
        digest.update(parameter.detach().float().cpu().numpy().tobytes())
    # In one write: nothing comes between.
    os.write(1, f"\nWEIGHTS {digest.hexdigest()}\n".encode())


if name == "train":
    create = command.Trainer.__init__

    def __init__(self, *args, **kwargs):
        create(self, *args, **kwargs)
        atexit.register(tell, self)

    command.Trainer.__init__ = __init__
command.cli_main()
