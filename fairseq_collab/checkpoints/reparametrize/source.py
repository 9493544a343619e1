"""The trained model to re-parametrise: loaded with its task, recognised and checked.

Accepted are fairseq's own ``transformer``, ``transformer_lm`` and ``roberta`` families, and
``transformer_headsize_n`` and its twins as long as values have size ``d/H`` and all layers of a
side have as many heads.  What is refused is refused before anything is computed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.models.roberta import RobertaModel
from fairseq.models.transformer import TransformerModel, TransformerModelBase
from fairseq.models.transformer_lm import TransformerLanguageModel
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention
from fairseq_collab.checkpoints.opener import check_finite, loaded, read_checkpoint
from fairseq_collab.models.base import HeadModel
from fairseq_collab.models.language_models import HeadLanguageModel
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.models.masked_lm import HeadRoberta
from fairseq_collab.models.translation import HeadTransformer
from fairseq_collab.models.variants import CONCATENATED

#: fairseq's classes, exactly: a class derived from one may compute something else.
_STOCK: dict[type, str] = {
    TransformerModel: "transformer_collab",
    TransformerModelBase: "transformer_collab",
    TransformerLanguageModel: "transformer_lm_collab",
    RobertaModel: "roberta_collab",
}
#: Our own families; of encoder-decoder models those with concatenated heads alone.
_OURS: dict[type[HeadModel], str] = {
    HeadTransformer: "transformer_collab",
    HeadLanguageModel: "transformer_lm_collab",
    HeadRoberta: "roberta_collab",
}
#: How a model calls its attentions; RoBERTa's stack of layers is within its encoder.
_ATTENTION = re.compile(
    r"(?P<side>encoder|decoder)\.(sentence_encoder\.)?layers\.(?P<layer>\d+)\."
    r"(?P<kind>self_attn|encoder_attn)"
)
#: The weights of each of fairseq's attentions that score.
_SCORING = ("q_proj.weight", "k_proj.weight")


@dataclass(frozen=True)
class Place:
    """One attention of a model: its name in the state dict, its site, its layer from 0."""

    name: str
    site: Site
    layer: int

    def __str__(self) -> str:
        return f"{self.site} {self.layer}"


@dataclass
class Source:
    """A trained model in eval mode, and what is needed to write another one like it.

    Attributes:
        state: the checkpoint, with ``cfg``, without the weights.
        arch: of the result.
        attentions: the modules by place, site by site, layer by layer.
    """

    path: Path
    state: dict[str, Any]
    model: Any
    task: Any
    arch: str
    attentions: dict[Place, Any]


def load(path: Path, data: Path | None = None) -> Source:
    """Load a checkpoint; the data folder is that of its training, unless another one is given.

    Raises:
        UserError: it cannot be read, or its model cannot be re-parametrised; says why.
    """
    state = read_checkpoint(path, data)
    check_finite(state["model"], path)
    check_weights(state["model"], path)
    model, _, task = loaded(path, state)
    arch = target_arch(model, path)
    attentions = find_attentions(model)
    for place, module in attentions.items():
        check_attention(place, module, path)
    check_head_counts(attentions, path)
    state = {name: value for name, value in state.items() if name != "model"}
    return Source(path, state, model, task, arch, attentions)


def target_arch(model: Any, path: Path) -> str:
    """The architecture with collaborative heads that goes with ``model``.

    Raises:
        UserError: there is none.
    """
    if type(model) in _STOCK:
        return _STOCK[type(model)]
    if any(isinstance(module, CollaborativeAttention) for module in model.modules()):
        todo = "give the model that it was made from, or train with --key-dim"
        raise UserError("its heads are collaborative already", path, todo)
    for ours, arch in _OURS.items():
        if isinstance(model, ours) and (
            ours is not HeadTransformer or model.variant is CONCATENATED
        ):
            return arch
    raise UserError(
        f"a {type(model).__name__} is none of the models that can be re-parametrised",
        path,
        "give a transformer, transformer_lm, roberta or transformer_headsize_n",
    )


def find_attentions(model: nn.Module) -> dict[Place, Any]:
    """All attentions of ``model``, encoder, decoder, then cross, layer by layer."""
    found = {}
    for name, module in model.named_modules():
        match = _ATTENTION.fullmatch(name)
        if match:
            self_attention: Site = "encoder" if match["side"] == "encoder" else "decoder"
            site = self_attention if match["kind"] == "self_attn" else "cross"
            found[Place(name, site, int(match["layer"]))] = module
    places = sorted(found, key=lambda place: (SITES.index(place.site), place.layer))
    return {place: found[place] for place in places}


def check_weights(weights: dict[str, Tensor], path: Path) -> None:
    """No attention may be pruned, or share its scoring weights with another.

    Raises:
        UserError: names the weight.
    """
    owners: dict[int, str] = {}
    for name, weight in weights.items():
        if name.endswith("q_proj.weight"):
            attention, (rows, columns) = name.removesuffix("q_proj.weight"), weight.shape
            if f"{attention}signature" not in weights and rows != columns:
                raise UserError(
                    f"{name} has {rows} of {columns} rows: heads were pruned",
                    path,
                    "give the model before it was pruned",
                )
        if name.endswith(_SCORING):
            first = owners.setdefault(weight.data_ptr(), name)
            if first != name:
                raise UserError(
                    f"{name} is tied to {first}: heads that share weights would come apart",
                    path,
                    "untie them first",
                )


def check_attention(place: Place, module: nn.Module, path: Path) -> None:
    """Scores must be ``(x Wq_i^T + bq_i)(y Wk_i^T + bk_i)^T``, and values of size ``d/H``.

    Raises:
        UserError: says what is different.
    """
    if isinstance(module, ConcatenatedAttention):
        if module.v_head_size * module.num_heads != module.embed_dim:
            raise UserError(
                f"{place}: {module.num_heads} heads have values of size {module.v_head_size}; "
                f"collaborative heads have size {module.embed_dim}/H",
                path,
                "heads that were pruned or resized cannot be re-parametrised",
            )
    elif type(module) is not MultiheadAttention:
        raise UserError(f"{place}: {type(module).__name__} is an unknown attention", path)
    elif module.bias_k is not None or module.add_zero_attn:
        raise UserError(f"{place}: it attends to a constant key (add_bias_kv)", path)


def check_head_counts(attentions: dict[Place, Any], path: Path) -> None:
    """All attentions of the encoder, and all of the decoder, must have as many heads.

    Raises:
        UserError: names two that differ.
    """
    first: dict[bool, tuple[Place, Any]] = {}
    for place, module in attentions.items():
        other, expected = first.setdefault(place.site == "encoder", (place, module.num_heads))
        if module.num_heads != expected:
            raise UserError(
                f"{place} has {module.num_heads} heads and {other} has {expected}",
                path,
                "models with pruned heads cannot be re-parametrised",
            )
