"""Toy tasks and models, built in memory."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, build_model
from omegaconf import OmegaConf
from torch import Tensor, nn

import fairseq_collab  # noqa: F401  (registers the architectures)

#: Small enough for double precision and every combination of options.
SIZES = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in (
        ("embed_dim", 16),
        ("ffn_embed_dim", 24),
        ("attention_heads", 4),
        ("layers", 2),
    )
}


def dictionary(words: int = 20) -> Dictionary:
    symbols = Dictionary()
    for i in range(words):
        symbols.add_symbol(f"w{i}")
    return symbols


def task(words: int = 20) -> Namespace:
    """What fairseq's model builders read of a translation task."""
    symbols = dictionary(words)
    return Namespace(source_dictionary=symbols, target_dictionary=symbols)


def model(arch: str, symbols: Namespace | None = None, **options: Any) -> nn.Module:
    """Build ``arch`` as fairseq does, with :data:`SIZES` unless told otherwise."""
    return build(arch, symbols or task(), {**SIZES, **options})


def build(arch: str, symbols: Namespace, options: dict[str, Any]) -> nn.Module:
    """Build ``arch`` as fairseq does, with these options.

    Collaborative heads mix all dimensions, as trained ones do, unless told otherwise.
    """
    if arch in MODEL_DATACLASS_REGISTRY:
        defaults = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[arch]())
        mixes = "mixing_init" in defaults and options.get("key_dim") != 0
        mixing = {"mixing_init": "xavier"} if mixes else {}
        cfg = OmegaConf.merge(defaults, {**mixing, **options})
        cfg._name = arch
        return build_model(cfg, symbols)
    return ARCH_MODEL_REGISTRY[arch].build_model(Namespace(arch=arch, **options), symbols)


def batch(symbols: Namespace | None = None) -> dict[str, Tensor]:
    """Sources padded left, targets right, as fairseq's batches are."""
    symbols = (symbols or task()).source_dictionary
    pad, eos = symbols.pad(), symbols.eos()
    source = torch.tensor([[5, 6, 7, 8, eos], [pad, pad, 9, 5, eos], [pad, 11, 6, 10, eos]])
    previous = torch.tensor([[eos, 9, 8, 7], [eos, 5, pad, pad], [eos, 6, 12, pad]])
    return {
        "src_tokens": source,
        "src_lengths": source.ne(pad).sum(1),
        "prev_output_tokens": previous,
    }


def randomised(module: Any, std: float = 0.5) -> Any:
    """The module with weights that hide no mistake behind zeros and ones."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=std)
    return module


def criterion() -> LabelSmoothedCrossEntropyCriterion:
    """fairseq's own, which our criterions add to."""
    return LabelSmoothedCrossEntropyCriterion(task(), False, 0.1)


def close(*tensors: Any, **more: Any) -> None:
    """They are equal in double precision."""
    torch.testing.assert_close(*tensors, rtol=0, atol=1e-10, **more)


def num_parameters(module: nn.Module) -> int:
    """Parameters, each shared one counted once."""
    return sum(parameter.numel() for parameter in module.parameters())
