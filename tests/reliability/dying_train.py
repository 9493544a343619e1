"""Runs fairseq-train, tells each update's exact loss and the weights, and dies where MOMENT says.

    python dying_train.py MOMENT WHAT COUNT [fairseq-train's arguments]

`update`, `interrupt` (Ctrl-C): in the COUNT-th update, between its gradients and the change of the
    weights
`write`: in the COUNT-th torch.save, when half of the bytes are on the disk
`before`: the COUNT-th time that a file takes the name WHAT
`never`: not at all
"""

import atexit
import hashlib
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
create, step, clip = Trainer.__init__, FairseqTask.train_step, Trainer.clip_grad_norm
save, replace = torch.save, os.replace


def tell(word: str, value: object) -> None:
    os.write(1, f"\n{word} {value}\n".encode())  # at once: another process may print there, too


def due(*moments: str) -> bool:
    global times
    times += moment in moments
    return moment in moments and times == int(count)


def die() -> None:
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGINT if moment == "interrupt" else signal.SIGKILL)


def create_and_tell(self, *args, **kwargs):
    create(self, *args, **kwargs)

    def tell_weights():
        tensors = self.model.state_dict().values()
        tell("WEIGHTS", hashlib.sha256(b"".join(t.numpy().tobytes() for t in tensors)).hexdigest())

    atexit.register(tell_weights)


def step_and_tell(self, sample, model, criterion, optimizer, update_num, *rest, **kwargs):
    result = step(self, sample, model, criterion, optimizer, update_num, *rest, **kwargs)
    tell(f"LOSS {update_num}", float(result[0]).hex())
    return result


def clip_or_die(self, *args, **kwargs):
    if due("update", "interrupt"):
        die()
    return clip(self, *args, **kwargs)


def save_half(obj, file, *args, **kwargs):
    if not due("write"):
        return save(obj, file, *args, **kwargs)
    whole = io.BytesIO()
    save(obj, whole)
    file.write(whole.getvalue()[: whole.tell() // 2])
    file.flush()
    os.fsync(file.fileno())
    return die()


def replace_or_die(source, target, **kwargs):
    if os.path.basename(target) == what and due("before"):
        die()
    replace(source, target, **kwargs)


Trainer.__init__, Trainer.clip_grad_norm = create_and_tell, clip_or_die
FairseqTask.train_step, torch.save, os.replace = step_and_tell, save_half, replace_or_die
if moment == "interrupt":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
cli_main()
