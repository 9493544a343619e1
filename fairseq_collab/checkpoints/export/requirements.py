"""What other engines ask of a transformer, checked before anything is written."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from fairseq.models.transformer import TransformerModelBase

from collab_common.errors import UserError


def check(
    model: Any, path: Path, engine: str, activations: Collection[str], post_norm_only: bool = False
) -> None:
    """Whether ``engine`` can compute what fairseq's own ``model`` computes.

    Args:
        path: of the checkpoint, for the message.
        activations: that the engine knows, by fairseq's names.
        post_norm_only: it normalises after each block, and nowhere else.

    Raises:
        UserError: it cannot; says why.
    """
    if not isinstance(model, TransformerModelBase):
        _refuse(path, f"a {type(model).__name__} does not translate")
    cfg, decoder = model.encoder.cfg, model.decoder
    if cfg.no_cross_attention or cfg.cross_self_attention:
        _refuse(path, f"{engine} knows no --no-cross-attention, no --cross-self-attention")
    if cfg.encoder.embed_dim != cfg.decoder.embed_dim:
        sizes = f"{cfg.encoder.embed_dim} and {cfg.decoder.embed_dim}"
        _refuse(path, f"{engine} has one size for encoder and decoder; here they are {sizes}")
    if decoder.adaptive_softmax is not None:
        _refuse(path, f"{engine} knows no --adaptive-softmax-cutoff")
    if decoder.project_in_dim is not None or decoder.project_out_dim is not None:
        _refuse(path, f"{engine} knows no --decoder-input-dim, no --decoder-output-dim")
    if cfg.base_layers:
        _refuse(path, f"{engine} knows no --base-layers")
    if str(cfg.activation_fn) not in activations:
        _refuse(path, f"{engine} knows no --activation-fn {cfg.activation_fn}")
    if post_norm_only:
        if cfg.encoder.normalize_before or cfg.decoder.normalize_before:
            _refuse(path, f"{engine} knows no --encoder-normalize-before, nor the decoder's")
        if cfg.layernorm_embedding:
            _refuse(path, f"{engine} knows no --layernorm-embedding")


def _refuse(path: Path, reason: str) -> None:
    raise UserError(
        f"no exact export: {reason}", path, "--format fairseq and --format safetensors keep it"
    )
