"""Runs fairseq-train, tells the exact loss of every update, and dies where it is told to.

    python dying_train.py MOMENT WHAT COUNT [fairseq-train's arguments]

`update`, `interrupt` (Ctrl-C): in the COUNT-th update, between its gradients and the change of the
    weights
`write`: in the COUNT-th torch.save, when half of the bytes are on the disk
`before`, `after`: the COUNT-th time that a file takes the name WHAT
`never`: not at all
"""

import io
import os
import signal
import sys

sys.argv[0] = "fairseq-train"
moment, what, count, *arguments = sys.argv[1:]
sys.argv[1:] = arguments

# isort: off
from fairseq_cli.train import cli_main  # noqa: E402  first: it sets the log up
import torch  # noqa: E402
from fairseq.tasks.fairseq_task import FairseqTask  # noqa: E402
from fairseq.trainer import Trainer  # noqa: E402

times = 0


def due() -> bool:
    global times
    times += 1
    return times == int(count)


def die() -> None:
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGINT if moment == "interrupt" else signal.SIGKILL)


def tell_losses() -> None:
    step = FairseqTask.train_step

    def train_step(self, sample, model, criterion, optimizer, update_num, *rest, **kwargs):
        result = step(self, sample, model, criterion, optimizer, update_num, *rest, **kwargs)
        # In one write: another process may print into the same pipe.
        os.write(1, f"\nLOSS {update_num} {float(result[0]).hex()}\n".encode())
        return result

    FairseqTask.train_step = train_step


def die_in_update() -> None:
    clip = Trainer.clip_grad_norm

    def clip_grad_norm(self, *args, **kwargs):
        if due():
            die()
        return clip(self, *args, **kwargs)

    Trainer.clip_grad_norm = clip_grad_norm


def die_in_write() -> None:
    save = torch.save

    def save_half(obj, file, *args, **kwargs):
        if not due():
            return save(obj, file, *args, **kwargs)
        whole = io.BytesIO()
        save(obj, whole)
        file.write(whole.getvalue()[: whole.tell() // 2])
        file.flush()
        os.fsync(file.fileno())
        return die()

    torch.save = save_half


def die_at_name() -> None:
    replace = os.replace

    def replace_or_die(source, target, **kwargs):
        here = os.path.basename(target) == what and due()
        if here and moment == "before":
            die()
        replace(source, target, **kwargs)
        if here:
            die()

    os.replace = replace_or_die


tell_losses()
if moment in ("update", "interrupt"):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    die_in_update()
elif moment == "write":
    die_in_write()
elif moment in ("before", "after"):
    die_at_name()
cli_main()
