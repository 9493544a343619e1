"""Checkpoints of fairseq's own transformer, tiny and untrained, as fairseq-train writes them."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
import toy
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

#: A data folder, made by fairseq-preprocess.
COPY = Path(__file__).parent / "stored" / "copy"


def write(path: Path, **options: Any) -> Path:
    """A tiny transformer that was trained in batches of two sentences."""
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
        batch_size=2,
        **{**toy.SIZES, **options},
    )
    cfg = OmegaConf.to_container(convert_namespace_to_omegaconf(args), enum_to_str=True)
    history = {"criterion_name": "CrossEntropyCriterion", "optimizer_name": "FairseqAdam"}
    history |= {"lr_scheduler_state": {}, "num_updates": 1}
    state = {"args": None, "cfg": cfg, "model": model.state_dict(), "optimizer_history": [history]}
    iterator = {"epoch": 1, "iterations_in_epoch": 0}
    state |= {"extra_state": {"train_iterator": iterator}, "last_optimizer_state": None}
    torch.save(state, path)
    return path
