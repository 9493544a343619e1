"""Short trainings that have to reduce the loss: fairseq's trainer, its commands, two processes."""

from __future__ import annotations

import math
import os
import re
import socket
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from commands import USER_DIR, sizes, train_log, write_copy_task
from fairseq import options
from fairseq_cli import preprocess

from fairseq_collab.bench import train
from fairseq_collab.bench.models import Variant, architectures, random_pair
from fairseq_collab.bench.settings import Settings
from fairseq_collab.bench.work import batches, random_task

from .core import Check, Place, expect

#: The loss a token has to become at least so much smaller, in nats.
LESS = 0.3
#: Besides the translation loss: what trains the heads of an architecture.
CRITERIONS = {
    "transformer_grouped_heads": "label_smoothed_cross_entropy_with_head_groups",
    "transformer_gated_heads": "label_smoothed_cross_entropy_with_head_gates",
}
FAST = ("--lr=0.005", "--warmup-updates=8", "--clip-norm=1")
#: Runs fairseq's commands by name, and tells the weights after a training.
COMMAND = Path(__file__).with_name("command.py")
TRAINING = [
    "--optimizer=adam", "--lr-scheduler=inverse_sqrt", "--dropout=0", "--num-workers=0",
    "--criterion=label_smoothed_cross_entropy", "--max-tokens=400", "--log-format=json",
    "--log-interval=1", "--disable-validation", "--no-epoch-checkpoints", "--seed=1", *FAST,
]  # fmt: skip


def checks(place: Place, folder: Path) -> Iterator[Check]:
    """All architectures in this process in each format; then the commands, in ``folder``."""
    for arch in architectures():
        for form in place.formats:
            run = partial(trained, arch, form, place)
            yield Check(f"training {arch} {form or 'float32'}", run)
    data = folder / "bin"
    yield Check("fairseq-preprocess", partial(prepare, folder, data))
    for form in () if place.quick else place.formats:
        name = f"fairseq-train and fairseq-generate {form or 'float32'}"
        yield Check(name, partial(commands_work, form, data, place))
    backends = ["gloo", *["nccl"] * (torch.cuda.device_count() > 1)]
    for backend in backends:
        name = f"two processes, {backend}"
        yield Check(name, partial(two_processes, backend, data, place))


def falls(losses: list[float]) -> str:
    """The first loss and the last one, or AssertionError if that is not much smaller."""
    first, last = losses[0], losses[-1]
    told = f"loss {first:.2f} to {last:.2f}"
    expect(math.isfinite(last) and first - last >= LESS, f"{told}: not by {LESS}")
    return told


def trained(arch: str, form: str, place: Place) -> str:
    """Updates on one batch of random sentences, by fairseq's ``Trainer``."""
    settings = Settings(device=place.device)
    task = random_task("tiny", 16, seed=1)
    (batch,) = batches(task, "train", settings, 1, max_sentences=16)
    model = random_pair(Variant(arch), "tiny", task, seed=1).ours.model
    criterion = CRITERIONS.get(arch, "label_smoothed_cross_entropy")
    one = train.trainer(
        model, task, settings, *FAST, f"--criterion={criterion}", *([form] if form else [])
    )
    losses = [train.loss(one, batch)]
    for _ in range(10 if place.quick else 40):
        one.train_step([batch])
    return falls([*losses, train.loss(one, batch)])


# ---- commands ------------------------------------------------------------------------------------


def prepare(folder: Path, data: Path) -> str:
    """A copy task as a data folder for the checks that follow."""
    text = folder / "text"
    write_copy_task(text, train=200)
    arguments = ["--source-lang=en", "--target-lang=de", "--joined-dictionary"]
    arguments += [f"--{split}pref={text / split}" for split in ("train", "valid", "test")]
    args: Namespace = options.get_preprocessing_parser().parse_args(
        [*arguments, f"--destdir={data}"]
    )
    preprocess.main(args)
    return f"{len(list(data.iterdir()))} files"


def start(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    """A command of fairseq's in a new process, whatever the environment calls it."""
    settings = {**os.environ, **environment}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(
        [sys.executable, str(COMMAND), *map(str, arguments)], env=settings, **pipes
    )


def output_of(process: subprocess.Popen[str]) -> str:
    """All that it prints; AssertionError with its last lines if it fails."""
    output, _ = process.communicate(timeout=300)
    last = " / ".join(output.strip().splitlines()[-3:])
    expect(process.returncode == 0, f"status {process.returncode}: {last}")
    return output


def training(data: Path, save: Path, updates: int, place: Place) -> list[object]:
    """The arguments of ``fairseq-train``."""
    model = ["--arch=transformer_collab", "--key-dim=8", *sizes(32, 64)]
    more = [f"--save-dir={save}", f"--max-update={updates}", *place.options]
    return ["train", data, *USER_DIR, *model, *TRAINING, *more]


def commands_work(form: str, data: Path, place: Place) -> str:
    """Train and translate, in one format."""
    save = data.with_name(f"model{form}")
    updates = training(data, save, 60, place)
    log = train_log(output_of(start(*updates, *([form] if form else []))))
    told = falls([float(entry["loss"]) * math.log(2) for entry in log])
    half = [form.replace("memory-efficient-", "")] if form in HALF else []
    arguments = [*USER_DIR, "--path", save / "checkpoint_last.pt", *place.options, *half]
    output = output_of(start("generate", data, *arguments, "--beam=5", "--max-len-b=20"))
    found = len(re.findall(r"^H-", output, re.M))
    expect(found == 50, f"{found} translations of 50 sentences")
    return f"{told}, {found} translations"


HALF = ("--fp16", "--bf16", "--memory-efficient-fp16")


def two_processes(backend: str, data: Path, place: Place) -> str:
    """Two processes with other sentences each end with the same weights.

    With ``gloo`` they share one GPU, which NCCL refuses.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    distributed = [f"--distributed-backend={backend}", "--ddp-backend=legacy_ddp"]
    save = data.with_name(f"two-{backend}")
    command = [*training(data, save, 8 if place.quick else 60, place), *distributed]
    processes = []
    for rank in range(2):
        device = str(rank if backend == "nccl" else 0)
        world = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": device}
        world |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        processes.append(start(*command, **world))
    try:
        one, other = map(output_of, processes)
    finally:
        for process in processes:
            process.kill()  # one that waits for another which has died
    log = train_log(one)
    told = falls([float(entry["loss"]) * math.log(2) for entry in log])
    told += f", {log[-1]['wps']} tokens/s"
    found = [re.findall(r"^WEIGHTS (\w+)$", output, re.M) for output in (one, other)]
    expect(all(found), "no process has told its weights")
    expect(found[0] == found[1], "the weights of the two processes are not the same")
    return f"{told}, the same weights in both"
