"""Trained models and their twins, in memory and as files."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from fairseq_collab.checkpoints.opener import Trained, load, save
from fairseq_collab.models.translation import HeadTransformer
from fairseq_collab.models.variants import COLLABORATIVE


@dataclass(frozen=True)
class TrainedPair:
    """fairseq's model and ours, the same function, from one checkpoint.

    Attributes:
        given: the checkpoint, which is one of the two.
        twin: options (flat, with ``arch``) of the other one.
    """

    name: str
    given: Trained
    stock: Any
    ours: Any
    twin: dict[str, Any]

    @property
    def path(self) -> Path:
        return self.given.path

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
        given, options = opened(settings.checkpoint, settings)
        path, stock, task = given.path, given.model, given.task
        if type(stock) is not TransformerModel:
            wanted = "give one of fairseq's transformer"
            raise UserError(f"is the checkpoint of a {type(stock).__name__}", path, wanted)
        ours = build_ours(HEADSIZE, options, task)
        copy_from_stock(stock, ours)
        twin = {**options, "arch": HEADSIZE}
        yield TrainedPair(Variant(HEADSIZE).name, given, stock, ours, twin)
    if settings.collab_checkpoint:
        given, options = opened(settings.collab_checkpoint, settings)
        path, ours, task = given.path, given.model, given.task
        if not isinstance(ours, HeadTransformer) or ours.variant is not COLLABORATIVE:
            wanted = "give one of transformer_collab"
            raise UserError(f"is the checkpoint of a {type(ours).__name__}", path, wanted)
        stock = build_stock(options, task)
        copy_to_stock(ours, stock)
        key_dim = options.get("key_dim", options["encoder_embed_dim"] // 4)
        size, rest = divmod(options["encoder_embed_dim"], key_dim)
        name = f"{COLLAB} K={key_dim}" if rest else Variant(COLLAB, size).name
        yield TrainedPair(name, given, stock, ours, {**options, "arch": STOCK})


def opened(file: str, settings: Settings) -> tuple[Trained, dict[str, Any]]:
    """A checkpoint and its flat options.

    Options that are None are left out: fairseq's transformer wants its own defaults for them.
    """
    assert settings.data is not None  # the command has seen to it
    found = load(Path(file), Path(settings.data), to_save=True)
    return found, {name: value for name, value in found.options.items() if value is not None}


def write_twin(pair: TrainedPair, path: Path) -> None:
    """The twin as a checkpoint of its own."""
    arch = pair.twin["arch"]
    options: Any = {**pair.twin, "_name": arch}
    if pair.twin_is_stock:  # fairseq's transformer has no option class
        options = Namespace(**options)
    else:
        known = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[arch]())
        options = {name: value for name, value in options.items() if name in known}
        options["_name"] = arch
    model = pair.stock if pair.twin_is_stock else pair.ours
    save(pair.given.with_model(model, options), path)
