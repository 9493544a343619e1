"""Trained models and their twins, in memory and as files."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.checkpoint_utils import load_checkpoint_to_cpu
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.models.transformer import TransformerModel
from omegaconf import OmegaConf

from collab_common.errors import UserError
from fairseq_collab.bench.models import (
    COLLAB,
    HEADSIZE,
    STOCK,
    Variant,
    build_ours,
    build_stock,
    copy_from_stock,
    copy_to_stock,
)
from fairseq_collab.bench.settings import Settings
from fairseq_collab.checkpoints.opener import checkpoint_of, load, plain_config
from fairseq_collab.models.transformer_collab import CollabTransformer
from fairseq_compat import checkpoints as files


@dataclass(frozen=True)
class TrainedPair:
    """fairseq's model and ours, the same function, from one checkpoint.

    Attributes:
        path: the checkpoint, which is one of the two.
        twin: options (flat, with ``arch``) of the other one.
    """

    name: str
    path: Path
    stock: Any
    ours: Any
    twin: dict[str, Any]

    @property
    def twin_is_stock(self) -> bool:
        """Whether the file is ours."""
        return self.twin["arch"] == STOCK


def trained_pairs(settings: Settings) -> Iterator[TrainedPair]:
    """One pair for each checkpoint that was given.

    Raises:
        UserError: a checkpoint is not what its option says.
    """
    if settings.checkpoint:
        path, stock, options, task = opened(settings.checkpoint, settings)
        if type(stock) is not TransformerModel:
            wanted = "give one of fairseq's transformer"
            raise UserError(f"is the checkpoint of a {type(stock).__name__}", path, wanted)
        ours = build_ours(HEADSIZE, options, task)
        copy_from_stock(stock, ours)
        twin = {**options, "arch": HEADSIZE}
        yield TrainedPair(Variant(HEADSIZE).name, path, stock, ours, twin)
    if settings.collab_checkpoint:
        path, ours, options, task = opened(settings.collab_checkpoint, settings)
        if not isinstance(ours, CollabTransformer):
            wanted = "give one of transformer_collab"
            raise UserError(f"is the checkpoint of a {type(ours).__name__}", path, wanted)
        stock = build_stock(options, task)
        copy_to_stock(ours, stock)
        key_dim = options.get("key_dim", options["encoder_embed_dim"] // 4)
        size, rest = divmod(options["encoder_embed_dim"], key_dim)
        name = f"{COLLAB} K={key_dim}" if rest else Variant(COLLAB, size).name
        yield TrainedPair(name, path, stock, ours, {**options, "arch": STOCK})


def opened(file: str, settings: Settings) -> tuple[Path, Any, dict[str, Any], Any]:
    """Path, model, flat options and task of a checkpoint.

    Options that are None are left out: fairseq's transformer wants its own defaults for them.
    """
    assert settings.data is not None  # the command has seen to it
    model, cfg, task = load(Path(file), Path(settings.data))
    values = vars(cfg.model) if isinstance(cfg.model, Namespace) else plain_config(cfg.model)
    options = {name: value for name, value in values.items() if value is not None}
    return Path(file), model, options, task


def write_twin(pair: TrainedPair, path: Path) -> None:
    """The twin as a checkpoint of its own."""
    state = load_checkpoint_to_cpu(str(pair.path))
    arch = pair.twin["arch"]
    options: Any = {**pair.twin, "_name": arch}
    if pair.twin_is_stock:  # fairseq's transformer has no option class
        options = Namespace(**options)
    else:
        known = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[arch]())
        options = {name: value for name, value in options.items() if name in known}
        options["_name"] = arch
    cfg = {**plain_config(state["cfg"]), "model": options}
    files.save(checkpoint_of(state, cfg, pair.stock if pair.twin_is_stock else pair.ours), path)
