"""Replacing the heads of a trained Hugging Face model by heads with shared keys.

    s (x Wq_i^T + bq_i)(y Wk_i^T + bk_i)^T  ~  s q_i(x) (y Wk~^T)^T + (equal for all keys)

The queries ``q_i`` are diagonal, full or own (:mod:`fairseq_collab.attention.collaborative`); the
closed forms are those of :mod:`collab_lab.mathematics.low_rank`.  With ``K = H h`` they are exact.

Shapes: ``Wq_i, Wk_i (h, .)`` with ``h = d/H``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from collab_common.errors import UserError
from collab_common.progress import bar
from collab_lab.hugging_face import adapters
from collab_lab.hugging_face.statistics import collect, pretrained
from collab_lab.mathematics.new_heads import shared_keys
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.shrinking.cuts.narrower_heads import NarrowerHeads
from collab_lab.shrinking.cuts.shared_key import SharedKey
from collab_lab.trained.checks import check_finite
from collab_lab.trained.contexts import in_evaluation
from fairseq_collab.attention import CollaborativeAttention, SeparateAttention
from fairseq_collab.attention.building import check_choice
from fairseq_collab.attention.collaborative import QUERY_MIXINGS

#: Differences by rounding, as shares of the largest output.
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.2}
#: Weight and bias of a linear map, if it has one.
Linear = tuple[Tensor, Tensor | None]


def swap_attention(
    model: Any,
    key_dim: int | Mapping[str, int],
    *,
    query: str = "own",
    inputs: Iterable[Mapping[str, Any]] | None = None,
) -> dict[str, int]:
    """Replace attentions by heads that share one key of width ``key_dim``, in place.

    It supports the attentions of Hugging Face's BERT (self-attention), DistilBERT, Marian (all
    three types) and DeiT.  If K equals the model's dimension, the result is exact; a smaller K
    changes the output as little as possible: see
    :mod:`collab_lab.mathematics.shared_projection` for own queries and
    :mod:`collab_lab.mathematics.low_rank` for others.

    The model can be used, trained and saved as before.  To load a saved model, build it from its
    configuration, call ``swap_attention`` with the returned widths and the same ``query``, and load
    the state dict.

    Example:
        >>> import torch
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1,
        ...                              num_attention_heads=2, intermediate_size=8)).eval()
        >>> batch = {"input_ids": torch.tensor([[1, 2, 3, 4]])}  # (B, T)
        >>> before = model(**batch).last_hidden_state
        >>> swap_attention(model, key_dim=8, inputs=[batch])
        {'encoder.layer.0.attention.self': 8}
        >>> bool((model(**batch).last_hidden_state - before).abs().max() < 1e-5)  # all 8: exact
        True

    Args:
        model: any ``torch.nn.Module`` that contains such attentions.  Wrap it in a module that
            returns what matters to you, such as a vector per sentence or a loss.
        key_dim: key width K, the numbers per token in the key of all heads (from 1 to the model's
            dimension); or a mapping from the name of each attention to replace to its width.
        query: ``own`` (least error), ``full`` (queries and keys of width K) or ``diagonal``
            (Cordonnier et al. 2020); see :mod:`fairseq_collab.attention.collaborative`.  Or
            ``separate``, the baseline: each head has its own K/H dimensions.
        inputs: batches, as keyword arguments of ``model``, on which errors are weighted by their
            effect on the output.  About 500 sentences from all parts of the training data suffice.
            Without them, all directions of the weights count equally.

    Returns:
        The key widths of the attentions that were replaced, by name.

    Raises:
        UserError: there is no such attention, one cannot be replaced or computes something else
            than its weights say, or ``model`` is itself an attention; the model is then unchanged.
        ValueError: an unknown ``query``.
    """
    check_choice("query", query, (*QUERY_MIXINGS, "separate"))
    originals = {
        name: parts
        for name, module in model.named_modules()
        if (not isinstance(key_dim, Mapping) or name in key_dim)
        and (parts := adapters.attention_parts(module)) is not None
    }
    if isinstance(key_dim, Mapping) and (unknown := sorted({*key_dim} - {*originals})):
        raise UserError("no attention of a known kind has this name", unknown[0])
    if not originals:
        raise UserError(
            f"no attention of a known kind in a {type(model).__name__}",
            todo="known are Hugging Face's BERT, DistilBERT, Marian, DeiT",
        )
    if "" in originals:
        problem = f"the {type(model).__name__} is an attention itself"
        raise UserError(problem, todo="give a model that holds it")
    check_alone(model, {name: maps["projections"] for name, (*_, maps) in originals.items()})
    heads = {name: trained_heads(name, **maps) for name, (*_, maps) in originals.items()}
    for name, of in heads.items():
        check_function(name, model.get_submodule(name), of)
    target = NarrowerHeads() if query == "separate" else SharedKey(query)
    by_name = key_dim if isinstance(key_dim, Mapping) else dict.fromkeys(heads, key_dim)
    widths = {name: by_name[name] for name in heads}
    for name, attention in heads.items():
        if allowed_range := target.out_of_range(attention, widths[name]):
            raise UserError(f"key width {widths[name]} is out of range", name, allowed_range)
    prices = {} if inputs is None else collect(model, heads, inputs)
    trained = {name: PricedAttention(heads[name], prices.get(name)) for name in heads}
    swapped = {}
    for name, (adapter, dropout, _) in bar("attentions", list(originals.items())):
        core = collaborative_core(trained[name], widths[name], query, dropout)
        check_finite(core.state_dict(), name)
        swapped[name] = adapter(model.get_submodule(name), core)
    for name, module in swapped.items():
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, module)
    for attention in pretrained(model):
        attention.set_attn_implementation("eager")  # whose masks the adapters understand
    return widths


def check_alone(model: Any, projections: Mapping[str, Sequence[Linear]]) -> None:
    """Raise UserError if an attention, or a weight of queries, keys or values, is in two places.

    Only one of them would be replaced, and what is one weight would become two.  Layers that are
    one module as a whole are replaced together.

    Args:
        projections: those of each attention, by its name.
    """
    places = dict[int, dict[int, str]]()  # of each module: the names of its parents' attribute
    for name, module in model.named_modules(remove_duplicate=False):
        if name:
            parent = model.get_submodule(name.rpartition(".")[0])
            places.setdefault(id(module), {}).setdefault(id(parent), name)
    owners = dict[int, str]()  # of each weight
    todo = "give each its own (copy.deepcopy), and train the model again"
    for name, maps in projections.items():
        if len(found := [*places[id(model.get_submodule(name))].values()]) > 1:
            raise UserError(f"is one module with {found[1]}", found[0], todo)
        for weight, _ in maps[:3]:
            if (owner := owners.setdefault(weight.data_ptr(), name)) != name:
                raise UserError(f"has weights in common with {owner}", name, todo)
        if len({weight.data_ptr() for weight, _ in maps[:3]}) < 3:
            raise UserError("its queries, keys and values have weights in common", name, todo)


def trained_heads(
    name: str, projections: Sequence[Linear], *, num_heads: int, scaling: float
) -> SeparateAttention:
    """Copy the heads of another library's attention into an attention of this project.

    Args:
        name: name of the attention, for messages.
        projections: projections of queries ``(H h, d)``, keys and values ``(H h, d_y)``, with
            stacked heads; then that of the output, if there is one (otherwise the output is the
            heads side by side).
        scaling: factor of the trained heads' scores.
    """
    check(name, projections, num_heads)
    dim, kdim = (weight.size(1) for weight, _ in projections[:2])
    heads = SeparateAttention(dim, num_heads, kdim=kdim).to(projections[0][0])
    torch.nn.init.eye_(heads.out_proj.weight)
    state = {}
    for projection, (weight, bias) in zip(("q", "k", "v", "out"), projections, strict=False):
        state[f"{projection}_proj.weight"] = weight
        state[f"{projection}_proj.bias"] = weight.new_zeros(len(weight)) if bias is None else bias
    check_finite(state, name)
    heads.load_state_dict(state, strict=False)
    heads.scaling = scaling
    return heads


@torch.no_grad()
def check_function(name: str, original: Any, heads: SeparateAttention) -> None:
    """Raise UserError if an attention computes something else than its weights say.

    A registered attention function, a hook, or a projection of another class may change scores or
    outputs, and the replacement would lose that.  Random states show it; some are large, because
    capped scores differ only then.
    """
    implementation = original.config._attn_implementation
    function = ALL_ATTENTION_FUNCTIONS.get(implementation)
    if function is not None and function.__module__.partition(".")[0] != "transformers":
        problem = (
            f"its attention function {implementation!r} would be replaced by softmax attention"
        )
        raise UserError(problem, name, "set the attention implementation to 'eager'")
    if original._forward_pre_hooks:
        raise UserError("a hook before it would be lost", name, "remove the hook first")
    like, random = heads.k_proj.weight, torch.Generator().manual_seed(1)
    x = torch.randn(3, 7, heads.embed_dim, generator=random).to(like)  # (B, T, d)
    x *= torch.tensor([1.0, 5.0, 25.0]).to(like).view(3, 1, 1)
    no_mask = x.new_zeros(3, 1, 7, 7)
    with in_evaluation(original, heads):
        # Without the hooks on the output, which the adapter keeps.
        found = original.forward(x, attention_mask=no_mask)[0]
        expected = heads(*[x.transpose(0, 1)] * 3)[0].transpose(0, 1)
    largest = expected.flatten(1).abs().amax(1).view(3, 1, 1)
    if not ((found - expected).abs() <= ROUNDING[like.dtype] * largest).all():
        problem = f"the {type(original).__name__} computes something else than its weights say"
        raise UserError(problem, name, "remove hooks and layers of other classes first")


def collaborative_core(
    trained: PricedAttention, key_dim: int, query: str, dropout: float
) -> CollaborativeAttention:
    """Build heads with a shared key whose scores equal or approximate those of the trained heads.

    Args:
        trained: result of :func:`trained_heads`.
        key_dim: key width K; exact at ``H h``.
        query: query mixing: diagonal, full or own; or separate, with K/H dimensions per head.

    Returns:
        An attention without output projection, which the caller keeps.
    """
    heads = trained.module
    weights, _ = shared_keys(trained, key_dim, query)
    core = CollaborativeAttention(
        heads.embed_dim,
        heads.num_heads,
        key_dim,
        query_mixing="diagonal" if query == "separate" else query,
        kdim=heads.kdim,
        dropout=dropout,
    ).to(heads.k_proj.weight)
    copied = trained.copied("v_proj", "out_proj")
    core.load_state_dict(weights | copied)
    del core.out_proj
    return core


def check(name: str, projections: Sequence[Linear], num_heads: int) -> None:
    """Raise UserError for heads that cannot share keys."""
    dim = projections[0][0].size(1)
    widths = [len(weight) for weight, _ in projections[:3]]
    if widths != [dim] * 3 or dim % num_heads:
        raise UserError(
            f"{num_heads} heads have queries, keys and values of sizes "
            f"{', '.join(map(str, widths))} in all, not of the model's size {dim}",
            name,
            "heads that were pruned or resized cannot be swapped",
        )
