"""Runs dying_train.py, and tells at the end what weights and groups of heads this process has.

python tell_weights.py [dying_train.py's arguments]
"""

import atexit
import hashlib
import os
import runpy
from pathlib import Path

from fairseq_cli.train import Trainer  # not fairseq.trainer: this sets the log up first

create = Trainer.__init__


def __init__(self, *args, **kwargs):
    create(self, *args, **kwargs)
    atexit.register(tell, self)


def tell(trainer):
    digest = hashlib.sha256()
    for tensor in trainer.model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    # In one write: the other process prints into the same pipe.
    os.write(1, f"\nWEIGHTS {digest.hexdigest()}\n".encode())


Trainer.__init__ = __init__
runpy.run_path(str(Path(__file__).with_name("dying_train.py")), run_name="__main__")
