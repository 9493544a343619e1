"""fairseq's transformer and ours, with weights that make both compute one function.

A head of fairseq's scores by ``d/H`` dimensions, ``score_i = (d/H)^-0.5 (x Wq_i^T)(y Wk_i^T)^T``.
So ours has a twin there whose heads need no more (:mod:`fairseq_collab.checkpoints.export`): heads
of size ``d/H``, and collaborative heads whose mixing ``m_i`` is zero but for ``d/H`` of their ``K``
dimensions.  Where ``K`` is larger, the random mixing of the benchmark is so.

Shapes: ``Wq, Wk (K, d)``, mixing ``m (H, K)``, stock's ``Wq_i, Wk_i (d/H, d)``.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.models import (
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    MODEL_REGISTRY,
    build_model,
)
from omegaconf import OmegaConf
from torch import nn

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention, HeadAttention
from fairseq_collab.bench.settings import PRESETS
from fairseq_collab.checkpoints.export.attention import NotExactError, plain_weights
from fairseq_collab.models.translation import HeadTransformer

STOCK, COLLAB, HEADSIZE = "transformer", "transformer_collab", "transformer_headsize_n"


@dataclass(frozen=True)
class Variant:
    """One of our models; ``reduction`` is ``d/K`` of collaborative heads, else None."""

    arch: str
    reduction: int | None = None

    @property
    def name(self) -> str:
        """As in tables."""
        if self.reduction is None:
            return f"{self.arch} d/H"
        return f"{self.arch} K=d" + (f"/{self.reduction}" if self.reduction > 1 else "")


def variants(reductions: tuple[int, ...] = (1, 2, 4, 8)) -> list[Variant]:
    """Collaborative heads at each d/K, and the other architectures of ours.

    Where few reductions are wanted, of the others only ``transformer_headsize_n``, which computes
    what they compute.
    """
    others = [HEADSIZE]
    if len(reductions) == 4:
        others = [arch for arch in architectures() if arch != COLLAB]
    return [*map(Variant, others), *(Variant(COLLAB, reduction) for reduction in reductions)]


def architectures() -> list[str]:
    """All registered encoder-decoder architectures of ours, without their presets.

    Not those of other plug-ins: what is compared here computes stock fairseq's function.
    """
    return sorted(
        name
        for name, model in MODEL_REGISTRY.items()
        if issubclass(model, HeadTransformer)
        and model.__module__.startswith("fairseq_collab.")
        and f"{name}_wmt_en_de" in MODEL_REGISTRY
    )


def build_stock(options: Mapping[str, Any], task: Any) -> Any:
    """fairseq's ``transformer`` with flat options; those that it does not know are ignored."""
    args = Namespace(**{**options, "arch": STOCK})
    return ARCH_MODEL_REGISTRY[STOCK].build_model(args, task)


def build_ours(arch: str, options: Mapping[str, Any], task: Any) -> Any:
    """One of our models; options that it does not know are ignored."""
    known = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[arch]())
    cfg = OmegaConf.merge(known, {k: v for k, v in options.items() if k in known})
    cfg._name = arch
    return build_model(cfg, task)


def build(variant: Variant | None, preset: str, task: Any) -> Any:
    """Our model of a variant, or fairseq's if it is None, with random weights."""
    options = preset_options(preset)
    if variant is None:
        return build_stock(options, task)
    if variant.reduction is not None:
        options["key_dim"] = options["encoder_embed_dim"] // variant.reduction
    return build_ours(variant.arch, options, task)


def preset_options(preset: str) -> dict[str, Any]:
    """All embeddings shared, as in the papers' models; sizes that fairseq's defaults imply."""
    sizes = {"encoder_embed_dim": 512, "encoder_attention_heads": 8}
    return {**sizes, **PRESETS[preset].options, "share_all_embeddings": True}


def random_pair(variant: Variant, preset: str, task: Any, seed: int) -> tuple[Any, Any]:
    """fairseq's model and ours, random and the same function."""
    torch.manual_seed(seed)
    stock, ours = build(None, preset, task), build(variant, preset, task)
    enliven(ours)
    copy_to_stock(ours, stock)
    return stock, ours


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


def copy_from_stock(stock: Any, ours: Any) -> None:
    """Give ours stock's weights, name by name; only what stock lacks stays (signatures)."""
    own, theirs = ours.state_dict(), stock.state_dict()
    ours.load_state_dict({name: theirs.get(name, weight) for name, weight in own.items()})


def copy_to_stock(ours: Any, stock: Any) -> None:
    """Give stock the weights with which it computes what ours does.

    Raises:
        UserError: no stock model does.
    """
    own = ours.state_dict()
    state = {name: own.get(name, weight) for name, weight in stock.state_dict().items()}
    for name, module in ours.named_modules():
        if isinstance(module, HeadAttention):
            try:
                weights = plain_weights(module, module.embed_dim // module.num_heads)
            except NotExactError as error:
                raise UserError(
                    f"{name}: {error}", "our model", "give one with K of at most d/H"
                ) from error
            state |= {f"{name}.{key}": weight for key, weight in weights.items()}
    stock.load_state_dict(state)
