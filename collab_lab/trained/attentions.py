"""All attentions of a model, fairseq's own or ours: their places, their weights, and hooks.

    score_i = q_i(x) k_i(y)^T = [x 1] A_i B_i^T [y 1]^T,      value_i = [y 1] V_i
    output = sum_i softmax(score_i + mask) value_i Wo_i^T + bo

Shapes:
    x (T, B, d)    y (S, B, d_y)    H heads    G heads of keys or of values, each serves H/G heads
    A (H, d + 1, e)    B (G, d_y + 1, e)    V (G, d_y + 1, h_v)    Wo (H, d, h_v)    bo (d)

Biases are the last rows of the maps.  The scale of the scores is part of the queries.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from collab_common import ATTENTION_TYPES, AttentionType
from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention, HeadAttention
from fairseq_collab.attention.building import split_heads
from fairseq_collab.attention.scores import for_each_head

#: Names of attentions in a model.
_NAME = re.compile(
    r"(?P<side>encoder|decoder)\.layers\.(?P<layer>\d+)\.(?P<kind>self_attn|encoder_attn)"
)
#: State of one model that is never copied to another: signatures, groups, and gates.
_OF_ONE_MODEL = re.compile(
    r"signature|(encoder|decoder)\.dictionary_signature|.*_attn\.(signature|membership|theta)"
)
#: All state of an attention that its maps and outputs depend on, and what describes it.
_OF_ATTENTION = re.compile(
    r"(q|k|v|out|latent)_proj\.(weight|bias)|mixing|signature|membership|theta"
)

K = TypeVar("K")
V = TypeVar("V")
#: The number of heads of each layer, by attention type.
HeadCounts = Mapping[AttentionType, Sequence[int]]
#: The heads to keep, counted from 0, by attention type and layer.
Retained = Mapping[AttentionType, Sequence[Sequence[int]]]


@dataclass(frozen=True)
class Attention:
    """One attention of a model: its type, its layer (from 0), its module, its name in the weights.

    Two are equal if they have the same place, so that mappings by attention also fit the same
    model opened again.
    """

    type: AttentionType
    layer: int
    module: Any = field(compare=False, repr=False)
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.layer}"


def attentions(model: nn.Module) -> list[Attention]:
    """All attentions of a translation or language model, whatever kind of heads they have.

    The order is encoder, decoder, cross-attention, each layer by layer.  The list is empty for a
    model without transformer layers.
    """
    unsorted = []
    for name, module in model.named_modules(remove_duplicate=False):
        if match := _NAME.fullmatch(name):
            type_: Any = match["side"] if match["kind"] == "self_attn" else "cross"
            unsorted.append(Attention(type_, int(match["layer"]), module, name))
    return sorted(unsorted, key=lambda a: (ATTENTION_TYPES.index(a.type), a.layer))


def by_type(model: nn.Module) -> dict[AttentionType, list[Attention]]:
    """All attentions by type; a type that the model lacks has an empty list."""
    every = attentions(model)
    return {type_: [a for a in every if a.type == type_] for type_ in ATTENTION_TYPES}


def of_one_model(name: str) -> bool:
    """Whether the state of this name belongs to one model and must not be copied to another."""
    return _OF_ONE_MODEL.fullmatch(name) is not None


def is_one_of(module: Any, kinds: tuple[type, ...]) -> bool:
    """Whether an attention is of these classes, and not of a plug-in's that is derived from one."""
    package = type(module).__module__.partition(".")[0]
    return isinstance(module, kinds) and package in ("fairseq", "fairseq_collab")


def check_known(model: nn.Module, path: Path | None = None) -> None:
    """Raise UserError for a weight of an attention that a changed model would lose."""
    for problem in weight_problems(model):
        raise UserError(problem, path)


def weight_problems(model: nn.Module) -> Iterator[str]:
    """Weights of attentions that a changed model would lose."""
    for attention in attentions(model):
        for name in attention.module.state_dict():
            if not _OF_ATTENTION.fullmatch(name):
                yield f"the weight {attention.name}.{name} would be lost"


# ---- what they compute ---------------------------------------------------------------------------

Projection = Callable[[Tensor], Tensor]


def projections(module: Any) -> tuple[Projection, Projection, Projection]:
    """Three functions that compute scaled queries, keys and values from an attention's inputs.

    Queries: ``(T, B, d) -> (B, H, T, e)``; keys: ``(S, B, d_y) -> (B, G, S, e)``; values:
    ``(S, B, d_y) -> (B, G, S, h_v)``.  fairseq's own attention does not have these functions, so
    they are built from its projections.

    Raises:
        UserError: the attention normalises its latent, so its keys and values are not linear.
    """
    if getattr(module, "latent_norm", None) is not None:
        problem = "a normalised latent makes keys and values that are not linear in the inputs"
        raise UserError(problem, todo="use a model that was trained without --latent-norm")
    if isinstance(module, HeadAttention):
        return module.project_query, module.project_key, module.project_value
    heads, scale = module.num_heads, module.scaling
    return (
        lambda x: split_heads(module.q_proj(x) * scale, heads),
        lambda y: split_heads(module.k_proj(y), heads),
        lambda y: split_heads(module.v_proj(y), heads),
    )


def matrix_of(project: Projection, size: int, like: Tensor) -> Tensor:
    """The affine map ``project`` as a matrix ``(H, size + 1, e)``, its constant in the last row."""
    inputs = torch.eye(size + 1, size, dtype=like.dtype, device=like.device)
    outputs = project(inputs.unsqueeze(1))[0]  # (H, size + 1, e)
    constant = outputs[:, -1:]
    return torch.cat([outputs[:, :-1] - constant, constant], dim=1)


class LinearMaps(NamedTuple):
    """``A``, ``B`` and ``V`` of an attention, in double precision."""

    queries: Tensor
    keys: Tensor
    values: Tensor


@torch.no_grad()
def linear_maps(module: Any) -> LinearMaps:
    """The maps of fairseq's attention or of any of ours; values include the gates of evaluation."""
    exact = copy.deepcopy(module).double().eval()
    like, widths = exact.out_proj.weight, (exact.embed_dim, exact.kdim, exact.kdim)
    return LinearMaps(
        *(matrix_of(*pair, like) for pair in zip(projections(exact), widths, strict=True))
    )


class HeadMaps(NamedTuple):
    """The maps of all heads, and their outputs: a head is an index of the first dimension.

    A bias of the keys adds one number to all scores of a query, which the softmax ignores: ``keys
    (H, d_y, e)`` have no row for it.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    out: Tensor
    out_bias: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, module: Any) -> HeadMaps:
        """The maps of fairseq's attention or of any of ours."""
        heads, project = module.num_heads, module.out_proj
        queries, keys, values = (
            for_each_head(maps.unsqueeze(0), heads)[0] for maps in linear_maps(module)
        )
        out = project.weight.double().unflatten(1, (heads, -1)).transpose(0, 1)  # (H, d, h_v)
        bias = out.new_zeros(out.size(1)) if project.bias is None else project.bias.double()
        return cls(queries, keys[:, :-1], values, out.detach(), bias.detach())


# ---- which weights belong to which heads ---------------------------------------------------------


def weights_by_head(module: Any) -> tuple[str, ...]:
    """Names of the weights whose first dimension counts heads or groups of heads."""
    if not isinstance(module, CollaborativeAttention):
        return ("q_proj", "k_proj", "v_proj")  # of a latent: those that read it
    return ("q_proj" if module.query_mixing == "own" else "mixing", "v_proj")


def groups_of_heads(module: Any) -> int:
    """G, the number of key or value heads that the query heads share."""
    for name in ("key_value_heads", "value_heads"):
        if hasattr(module, name):
            return int(getattr(module, name))
    return int(module.num_heads)


def removed_together(module: Any) -> int:
    """How many heads must be removed at once so that all key or value heads keep equally many."""
    return heads_together(module) if groups_of_heads(module) > 1 else 1


def heads_together(module: Any) -> int:
    """How many query heads share one key or value head."""
    return int(module.num_heads) // max(groups_of_heads(module), 1)


def own_bits(module: Any) -> int:
    """Bits per number in an attention's KV cache, fairseq's or ours; 0 if it is not rounded."""
    return int(getattr(module, "cache_bits", 0))


# ---- hooks ---------------------------------------------------------------------------------------


def arguments_of(module: Any, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of one call of an attention by their names.

    A plug-in's ``forward`` may not name all of them, but pass them on to fairseq's.
    """
    arguments = {**inspect.signature(module.forward).bind(*args, **kwargs).arguments, **kwargs}
    if "query" not in arguments:
        signature = inspect.signature(MultiheadAttention.forward)
        arguments = signature.bind(module, *args, **kwargs).arguments
    return arguments


def inputs_of(module: Any, args: Any, kwargs: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """The inputs of one call of an attention: that of the queries, that of keys and values."""
    arguments = arguments_of(module, args, kwargs)
    return arguments["query"], arguments["key"]


class OnePass(dict[K, V]):
    """What hooks saw of each part of a model in one pass, in which each part is called once.

    The last of several calls would count for all of them: of a layer that runs in a loop, or of a
    decoder that reads the target once more (``--full-context-alignment``).
    """

    def __setitem__(self, part: K, seen: V) -> None:
        """Add a part; UserError if it was called already."""
        if part in self:
            problem = f"{part} is called several times in one pass"
            raise UserError(f"{problem}, so what each call does cannot be told apart")
        super().__setitem__(part, seen)


@contextmanager
def hooked(model: nn.Module, hook: Callable[[Attention], Any]) -> Iterator[None]:
    """Context in which every attention of a model has a hook.

    fairseq's encoder layers can run a fused path that skips the attention module and its hooks;
    :mod:`fairseq_compat.fairseq_fixes` switches that path off.

    Args:
        hook: adds the hook to one attention and returns the hook's handle.

    Raises:
        UserError: one module is at two places, so that the calls of one would count as the other's.
    """
    found = attentions(model)
    place: dict[int, Attention] = {}
    for attention in found:
        if (first := place.setdefault(id(attention.module), attention)) is not attention:
            problem = f"{first.name} and {attention.name} are one module"
            raise UserError(f"{problem}, so what each of them does cannot be told apart")
    with ExitStack() as hooks:
        for attention in found:
            hooks.enter_context(hook(attention))
        yield
