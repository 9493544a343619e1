"""Checkpoints as fairseq wrote them up to 0.9: options in ``args``, some under other names."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
import toy
from fairseq.data import Dictionary

#: A data folder, made by fairseq-preprocess.
COPY = Path(__file__).parent / "stored" / "copy"


def write(path: Path, versions: bool = True, **options: Any) -> Path:
    """A tiny transformer that was trained in batches of two sentences.

    Args:
        versions: that of its stacks; without, they do not end in a norm.
    """
    source, target = (Dictionary.load(str(COPY / f"dict.{side}.txt")) for side in ("en", "de"))
    symbols = Namespace(source_dictionary=source, target_dictionary=target)
    torch.manual_seed(1)
    model = toy.randomised(toy.model("transformer", symbols, **options), 0.3)
    args = Namespace(
        arch="transformer",
        task="translation",
        data=str(COPY),
        source_lang="en",
        target_lang="de",
        criterion="cross_entropy",
        optimizer="adam",
        lr_scheduler="fixed",
        lr=[0.1],
        max_tokens=None,
        max_sentences=2,
        **{**toy.SIZES, **options},
    )
    history = {"criterion_name": "CrossEntropyCriterion", "optimizer_name": "FairseqAdam"}
    history |= {"lr_scheduler_state": {}, "num_updates": 1}
    younger = () if versions else ("version", "layer_norm.weight", "layer_norm.bias")
    left_out = [f"{side}.{name}" for side in ("encoder", "decoder") for name in younger]
    weights = {name: x for name, x in model.state_dict().items() if name not in left_out}
    state = {"args": args, "model": weights, "optimizer_history": [history]}
    iterator = {"epoch": 1, "iterations_in_epoch": 0}
    state |= {"extra_state": {"train_iterator": iterator}, "last_optimizer_state": None}
    torch.save(state, path)
    return path
