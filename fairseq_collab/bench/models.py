"""fairseq's transformer and ours, with weights that make both compute one function.

    transformer_headsize_n, h = d/H:  stock's weights, name by name
    transformer_collab, head i:       stock has  Wq_i = diag(m_i) Wq[S_i],  Wk_i = Wk[S_i]

``S_i`` are the key dimensions that head i mixes.  A stock head has room for ``d/H`` of them: where
``K <= d/H`` these are all, and rows of zeros follow; where ``K`` is larger, the random mixing of
the benchmark is zero outside ``d/H`` random dimensions a head.  The scale is ``(d/H)^-0.5``.

Shapes: ``Wq, Wk (K, d)``, mixing ``m (H, K)``, stock's stacked ``Wq_i, Wk_i (d, d)``.
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
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention
from fairseq_collab.bench.settings import PRESETS
from fairseq_collab.models.translation import HeadTransformer
from fairseq_collab.models.variants import COLLABORATIVE

STOCK = "transformer"
COLLAB = "transformer_collab"
HEADSIZE = "transformer_headsize_n"


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


def variants(reductions: tuple[int, ...]) -> list[Variant]:
    """Collaborative heads at each d/K, and the other architectures of ours.

    Where few reductions are wanted, of the others only ``transformer_headsize_n``, which computes
    what they compute.
    """
    others = [arch for arch in architectures() if arch != COLLAB]
    if len(reductions) < 4:
        others = [HEADSIZE]
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


def build_variant(variant: Variant, options: Mapping[str, Any], task: Any) -> Any:
    """Our model of a variant, with random weights."""
    extra = {}
    if variant.reduction is not None:
        extra["key_dim"] = options["encoder_embed_dim"] // variant.reduction
    return build_ours(variant.arch, {**options, **extra}, task)


def preset_options(preset: str) -> dict[str, Any]:
    """All embeddings shared, as in the papers' models; sizes that fairseq's defaults imply."""
    sizes = {"encoder_embed_dim": 512, "encoder_attention_heads": 8}
    return {**sizes, **PRESETS[preset].options, "share_all_embeddings": True}


def random_pair(variant: Variant, preset: str, task: Any, seed: int) -> tuple[Any, Any]:
    """fairseq's model and ours, random and the same function."""
    torch.manual_seed(seed)
    options = preset_options(preset)
    ours, stock = build_variant(variant, options, task), build_stock(options, task)
    if ours.variant is COLLABORATIVE:
        enliven(ours)
        for module in ours.modules():
            if isinstance(module, CollaborativeAttention):
                restrict_mixing(module)
        copy_to_stock(ours, stock)
    else:
        enliven(stock)
        copy_from_stock(stock, ours)
    return stock, ours


def enliven(model: nn.Module) -> None:
    """Let attention and feed-forward outweigh the residuals.

    Then different sentences have different translations, though poor ones: beam search through
    random weights soon runs in circles of a few words.
    """
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                weight.mul_(2)
            elif name.endswith(("out_proj.weight", "fc2.weight")):
                weight.mul_(4)


def restrict_mixing(module: CollaborativeAttention) -> None:
    """Leave each head at most ``d/H`` key dimensions of non-zero mixing, at random."""
    heads, dims = module.mixing.shape
    kept = min(module.embed_dim // heads, dims)
    chosen = torch.stack([torch.randperm(dims)[:kept] for _ in range(heads)])  # (H, kept)
    mask = torch.zeros(heads, dims).scatter_(1, chosen, 1.0)
    with torch.no_grad():
        # As large as a head's own dimensions are in block mixing, so that scores differ.
        module.mixing.copy_(torch.empty(heads, dims).uniform_(0.5, 1.5) * mask)


def copy_from_stock(stock: Any, ours: Any) -> None:
    """Give ours stock's weights, name by name; only what stock lacks stays (signatures)."""
    own, theirs = ours.state_dict(), stock.state_dict()
    ours.load_state_dict({name: theirs.get(name, weight) for name, weight in own.items()})


def copy_to_stock(ours: Any, stock: Any) -> None:
    """Give stock the weights with which it computes what ours does.

    Raises:
        UserError: no stock model does: see :func:`stock_weights`.
    """
    own = ours.state_dict()
    state = {name: own.get(name, weight) for name, weight in stock.state_dict().items()}
    for name, module in ours.named_modules():
        if isinstance(module, CollaborativeAttention):
            state |= {f"{name}.{key}": weight for key, weight in stock_weights(module).items()}
    stock.load_state_dict(state)


def stock_weights(module: CollaborativeAttention) -> dict[str, Tensor]:
    """Query and key projections ``(d, d)`` of ordinary heads that score as ``module`` does.

    Raises:
        UserError: a head mixes more than d/H key dimensions, or scale or bias are not stock's.
    """
    if (module.scale, module.bias) != ("embed", "projection"):
        raise UserError(
            f"has scale {module.scale} and bias {module.bias}; stock's are embed and projection",
            "the collaborative model",
            "give one that was trained with these",
        )
    size = module.embed_dim // module.num_heads
    blocks: dict[str, list[Tensor]] = {name: [] for name in _SCORING}
    for mixing in module.mixing.detach():  # (K)
        dims = mixing.nonzero().flatten()
        if len(dims) > size:
            raise UserError(
                f"a head mixes {len(dims)} key dimensions; one of stock's has room for {size}",
                "the collaborative model",
                "give one with a key dimension of at most d/H",
            )
        for name in _SCORING:
            part = module.get_parameter(name).detach()[dims]  # (|S_i|, d) or (|S_i|)
            if name.startswith("q"):
                part = part * mixing[dims].reshape(-1, *[1] * (part.dim() - 1))
            padded = part.new_zeros(size, *part.shape[1:])
            padded[: len(dims)] = part
            blocks[name].append(padded)
    return {name: torch.cat(parts) for name, parts in blocks.items()}


_SCORING = ("q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias")
