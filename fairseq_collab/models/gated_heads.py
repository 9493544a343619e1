"""Models with a gate per head, closed in training (arXiv 1905.09418): ``..._gated_heads``.

They have all options of ``..._headsize_n``.
``--criterion label_smoothed_cross_entropy_with_head_gates`` closes gates;
``fairseq-collab prune --gates`` removes the heads of closed gates.

The paper starts from a converged model: ``--finetune-from-model`` takes a checkpoint of this
architecture, of ``transformer_headsize_n`` or of fairseq's own ``transformer``.  Gates that are
missing start open.
"""

# No "from __future__ import annotations": fairseq reads the fields' types.
import logging
from dataclasses import dataclass
from typing import Any

from fairseq.models.transformer import TransformerConfig
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.attention import SeparateAttention
from fairseq_collab.attention.gates import GatedAttention, gated_attentions
from fairseq_collab.models.layers import is_copy
from fairseq_collab.models.options import Site, named_types, option
from fairseq_collab.models.separate_heads import SeparateOptions, head_options

logger = logging.getLogger(__name__)


@dataclass
class GatedOptions(SeparateOptions):
    """Options of ``transformer_gated_heads`` (Voita et al. 2019, arXiv 1905.09418)."""

    gated_types: str = option(
        "encoder,decoder,cross",
        "attention types with gates, joined by commas",
    )
    gate_speed: int = option(
        1,
        "speed of the gates: how many times as fast as other parameters Adam changes their log "
        "alpha (the paper: 1); give more for a short training",
    )
    freeze_decoder: bool = option(
        False,
        "train only the encoder, as in the paper's encoder-only experiments",
        of_model=True,
    )


def gated_heads(cfg: TransformerConfig, site: Site) -> SeparateAttention:
    """Build the heads at ``site``, with gates where they are chosen."""
    heads, sizes = head_options(cfg, site)
    if not heads or site.type not in named_types("--gated-types", cfg.gated_types):
        return SeparateAttention(site.embed_dim, heads, **sizes)
    return GatedAttention(site.embed_dim, heads, gate_speed=cfg.gate_speed, **sizes)


def freeze_decoder(model: nn.Module, options: dict[str, Any]) -> None:
    """Freeze the decoder, so that optimisers skip its parameters, if ``--freeze-decoder`` is given.

    Embeddings that the encoder shares with the decoder are also frozen.

    Raises:
        UserError: the decoder contains gates.
    """
    if not options["freeze_decoder"]:
        return
    for parameter in model.get_submodule("decoder").parameters():
        parameter.requires_grad = False
    if not all(attention.theta.requires_grad for attention in gated_attentions(model)):
        problem = "would freeze the gates of the decoder"
        raise UserError(problem, "--freeze-decoder", "give --gated-types encoder")


def add_gates(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Add the gates of ``model`` to weights without gates, in place.

    Signatures keep their head sizes, which loading compares.
    """
    if any(name.endswith(".theta") for name in weights):
        return
    if not any(name.endswith("signature") for name in weights):
        _sign(model, weights)
    for name, attention in model.named_modules():
        saved = weights.get(f"{name}.signature")
        if isinstance(attention, GatedAttention) and saved is not None:
            weights[f"{name}.signature"] = attention.signature_of(saved)
            weights[f"{name}.theta"] = attention.theta.detach().clone()


def _sign(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Add the signatures of ``model`` to weights of fairseq's own transformer, in place."""
    logger.warning(
        "a checkpoint of stock fairseq does not say how many heads and which dictionary it has: "
        "this model assumes that both are its own"
    )
    for name in [name for name in weights if is_copy(name)]:
        del weights[name]
    state = model.state_dict()
    weights.update({name: state[name] for name in state if name.endswith("signature")})
