"""Pairs of models, fairseq's transformer and ours, whose weights make both compute one function.

A pair of random models is ours and its twin of fairseq's own kind, as
:mod:`fairseq_collab.export` makes it: the heads of ours need no more than the ``d/H``
dimensions that an ordinary one scores by.  Where collaborative heads share ``K > d/H`` dimensions,
the random mixing ``m (H, K)`` of the benchmark is zero but for ``d/H`` of them a head.
"""

from __future__ import annotations

import contextlib
import os
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, build_model
from fairseq.models.transformer import TransformerModel
from omegaconf import OmegaConf
from torch import nn

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention
from fairseq_collab.bench.settings import PRESETS, Settings
from fairseq_collab.export.model import plain
from fairseq_collab.kernels.onednn import VARIABLE, matrix_library
from fairseq_collab.models.translation import TRANSLATION, HeadTransformer
from fairseq_collab.models.variants import COLLABORATIVE, VARIANTS
from fairseq_collab.prune.choices import all_heads
from fairseq_collab.prune.surgery import pruned
from fairseq_collab.trained.opener import Trained, load

STOCK, COLLAB, HEADSIZE = "transformer", "transformer_collab", "transformer_headsize_n"


@dataclass(frozen=True)
class Variant:
    """A model, fairseq's or ours; ``reduction`` is ``d/K`` of collaborative heads, else None."""

    arch: str
    reduction: int | None = None

    @property
    def name(self) -> str:
        """As in tables."""
        if self.arch == STOCK:
            return STOCK
        if self.reduction is None:
            return f"{self.arch} d/H"
        return f"{self.arch} K=d" + (f"/{self.reduction}" if self.reduction > 1 else "")


class Pair(NamedTuple):
    """fairseq's model and ours, the same function.

    Attributes:
        preset: of random models, or ``trained``.
        name: of ours, as in tables.
    """

    preset: str
    name: str
    stock: Trained
    ours: Trained


def variants(reductions: tuple[int, ...] = (1, 2, 4, 8)) -> list[Variant]:
    """Collaborative heads at each d/K, and the other architectures of ours.

    Where few reductions are wanted, of the others only ``transformer_headsize_n``, which computes
    what they compute.
    """
    others = sorted({*architectures()} - {COLLAB}) if len(reductions) == 4 else [HEADSIZE]
    return [*map(Variant, others), *(Variant(COLLAB, reduction) for reduction in reductions)]


def architectures() -> list[str]:
    """All encoder-decoder architectures of ours, without their presets."""
    return [
        f"transformer_{variant.name}" for variant in VARIANTS if TRANSLATION in variant.families
    ]


@contextlib.contextmanager
def using(library: str | None) -> Iterator[None]:
    """While it lasts, models are built and prepared with a matrix library: a value of the
    environment's variable, or None for this processor's, whatever the environment says."""
    before = os.environ.pop(VARIABLE, None)
    if library is not None:
        os.environ[VARIABLE] = library
    matrix_library.cache_clear()
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before
        matrix_library.cache_clear()


# ---- random models -------------------------------------------------------------------------------


def build(variant: Variant, preset: str, task: Any) -> Any:
    """The model of a variant with random weights."""
    if variant.arch == STOCK:
        args = Namespace(**preset_options(preset), arch=STOCK)
        return ARCH_MODEL_REGISTRY[STOCK].build_model(args, task)
    return build_model(options_of(variant, preset), task)


def preset_options(preset: str) -> dict[str, Any]:
    """All embeddings shared, as in the papers' models; sizes that fairseq's defaults imply."""
    sizes = {"encoder_embed_dim": 512, "encoder_attention_heads": 8}
    return {**sizes, **PRESETS[preset].options, "share_all_embeddings": True}


def options_of(variant: Variant, preset: str) -> Any:
    """All options of our model."""
    options = {**preset_options(preset), "_name": variant.arch}
    if variant.reduction is not None:
        options["key_dim"] = options["encoder_embed_dim"] // variant.reduction
    return OmegaConf.merge(OmegaConf.structured(MODEL_DATACLASS_REGISTRY[variant.arch]()), options)


def random_pair(variant: Variant, preset: str, task: Any, seed: int) -> Pair:
    """fairseq's model and ours, random and the same function."""
    torch.manual_seed(seed)
    model = build(variant, preset, task)
    enliven(model)
    cfg = OmegaConf.create({"model": options_of(variant, preset), "task": None})
    ours = Trained(Path(f"the {preset} model"), {"cfg": cfg}, model.eval(), task)
    return Pair(preset, variant.name, plain(ours), ours)


@torch.no_grad()
def enliven(model: nn.Module) -> None:
    """Let attention and feed-forward outweigh the residuals, and restrict mixing to ``d/H``.

    Then different sentences have different translations, though poor ones: beam search through
    random weights soon runs in circles of a few words.
    """
    for name, weight in model.named_parameters():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weight.mul_(2)
        elif name.endswith(("out_proj.weight", "fc2.weight")):
            weight.mul_(4)
    for module in model.modules():
        if isinstance(module, CollaborativeAttention):
            heads, dims = module.mixing.shape
            chosen = torch.rand(heads, dims).topk(min(module.embed_dim // heads, dims)).indices
            mask = torch.zeros(heads, dims).scatter_(1, chosen, 1.0)
            # As large as a head's own dimensions are in block mixing, so that scores differ.
            module.mixing.copy_(torch.empty(heads, dims).uniform_(0.5, 1.5) * mask)


# ---- trained models ------------------------------------------------------------------------------


def trained_pairs(settings: Settings) -> Iterator[Pair]:
    """One pair for each checkpoint that was given; raises UserError for one of another kind."""
    if settings.checkpoint:
        stock = opened(settings.checkpoint, settings)
        if type(stock.model) is not TransformerModel:
            raise _of_another_kind(stock, "fairseq's transformer")
        yield pair_of(stock)
    if settings.collab_checkpoint:
        ours = opened(settings.collab_checkpoint, settings)
        if not isinstance(ours.model, HeadTransformer) or ours.model.variant is not COLLABORATIVE:
            raise _of_another_kind(ours, "transformer_collab")
        yield pair_of(ours)


def pair_of(found: Trained) -> Pair:
    """A trained model of fairseq's or of ours, and its twin of the other kind.

    Raises:
        UserError: it is no translation model, or fairseq's own model cannot compute it.
    """
    if type(found.model) is TransformerModel:
        return Pair("trained", Variant(HEADSIZE).name, found, pruned(found, all_heads(found.heads)))
    if not isinstance(found.model, HeadTransformer):
        raise _of_another_kind(found, "a translation model, fairseq's transformer or one of ours")
    return Pair("trained", name_of(found), plain(found), found)


def name_of(ours: Trained) -> str:
    """As in tables."""
    if ours.model.variant is not COLLABORATIVE:
        return ours.arch
    dim = ours.options["encoder_embed_dim"]
    key_dim = ours.options["key_dim"] or dim // 4
    size, rest = divmod(dim, key_dim)
    return f"{COLLAB} K={key_dim}" if rest else Variant(COLLAB, size).name


def opened(file: str, settings: Settings) -> Trained:
    """A checkpoint that was given, for the sentences of ``--data``."""
    return load(Path(file), Path(str(settings.data)), to_save=True)


def _of_another_kind(found: Trained, wanted: str) -> UserError:
    what = f"is the checkpoint of a {found.arch}"
    return UserError(what, found.path, f"give one of {wanted}")
