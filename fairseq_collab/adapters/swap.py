"""Shared keys in place of the heads of a trained Hugging Face model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from collab_common.errors import UserError
from collab_common.progress import bar
from fairseq_collab.adapters import hugging_face
from fairseq_collab.adapters.core import collaborative_core
from fairseq_collab.attention.building import check_choice
from fairseq_collab.attention.collaborative import QUERY_MIXINGS
from fairseq_collab.convert.calibrate import InputSums, Moments


def swap_attention(
    model: Any,
    key_dim: int,
    *,
    query: str = "own",
    inputs: Iterable[Mapping[str, Any]] | None = None,
    select: Callable[[str], bool] = lambda name: True,
) -> list[str]:
    """Replace attentions by heads that share one key of width ``key_dim``, in place.

    Known are the attentions of Hugging Face's BERT and RoBERTa (self-attention), DistilBERT,
    Marian (all three) and DeiT.  At the model's own dimension the result is exact;
    below, the trained weights are approximated in closed form (the diagonal by least squares):
    see :mod:`fairseq_collab.convert.low_rank`.

    The model can be used, trained and saved as before.  To load a saved model, make it from its
    configuration, call ``swap_attention`` with equal arguments, then load the state dict.

    Example:
        >>> import torch
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1,
        ...                              num_attention_heads=2, intermediate_size=8)).eval()
        >>> batch = {"input_ids": torch.tensor([[1, 2, 3, 4]])}  # (B, T)
        >>> before = model(**batch).last_hidden_state
        >>> swap_attention(model, key_dim=8, inputs=[batch])
        ['encoder.layer.0.attention.self']
        >>> bool((model(**batch).last_hidden_state - before).abs().max() < 1e-5)  # all 8: exact
        True

    Args:
        model: any ``torch.nn.Module`` that holds such attentions.
        key_dim: ``K``, numbers per token in the key of all heads: from 1 to the model's dimension.
        query: ``own`` (least error), ``full`` (queries and keys of width K) or ``diagonal``
            (Cordonnier et al. 2020); see :mod:`fairseq_collab.attention.collaborative`.  Or
            ``separate``, the baseline: each head has K/H dimensions of its own.
        inputs: batches, as keyword arguments of ``model``: errors are weighted by what the
            attentions read of them.  Some 500 sentences do, if they are from all parts of the
            training data: the first 512 of a file that is sorted by source cost 0.8 points of
            Spearman's correlation (results/pretrained.md).  Without, all directions weigh equally.
        select: true for the names in ``model`` of attentions to replace; all unless given.

    Returns:
        The names of the attentions that were replaced.

    Raises:
        UserError: there is none, one cannot be replaced, or ``model`` is one itself; the model is
            then unchanged.
        ValueError: an unknown ``query``.
    """
    check_choice("query", query, (*QUERY_MIXINGS, "separate"))
    found = {
        name: known
        for name, module in model.named_modules()
        if select(name) and (known := hugging_face.parts(module)) is not None
    }
    if not found:
        raise UserError(
            f"no attention of a known kind in a {type(model).__name__}",
            todo="known are Hugging Face's BERT, RoBERTa, DistilBERT, Marian, DeiT",
        )
    if "" in found:
        what = f"the {type(model).__name__} is an attention itself"
        raise UserError(what, todo="give a model that holds it")
    seen = {} if inputs is None else moments(model, [*found], inputs)
    swapped = {}
    for name, (adapter, parts) in bar("attentions", list(found.items())):
        core = collaborative_core(name, key_dim=key_dim, query=query, seen=seen.get(name), **parts)
        swapped[name] = adapter(model.get_submodule(name), core)
    for name, module in swapped.items():
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, module)
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation("eager")  # whose masks the adapters understand
    return list(swapped)


@torch.no_grad()
def moments(
    model: nn.Module, names: list[str], inputs: Iterable[Mapping[str, Any]]
) -> dict[str, Moments]:
    """Run the model on ``inputs``; the moments of what each attention reads, padding left out."""
    sums = {name: InputSums() for name in names}
    masks: dict[str, Tensor | None] = {}  # of encoder and decoder: (B, T), true at tokens

    def see(name: str, module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        x = args[0] if args else kwargs["hidden_states"]  # (B, T, d)
        y = kwargs.get("key_value_states")  # (B, S, d_y), in cross-attention
        own = masks["decoder" if "decoder" in name.split(".") else "encoder"]
        real = _tokens(x, own)
        source, there = (x, real) if y is None else (y, _tokens(y, masks["encoder"]))
        sums[name].add(x, real, source, there, time=1)

    training = model.training
    model.eval()
    with ExitStack() as hooks:
        for name in names:
            hook = model.get_submodule(name).register_forward_pre_hook(
                partial(see, name), with_kwargs=True
            )
            hooks.enter_context(hook)
        for batch in bar("calibration", inputs):
            masks["encoder"] = batch.get("attention_mask")
            masks["decoder"] = batch.get("decoder_attention_mask")
            model(**batch)
    model.train(training)
    if not all(one.queries.count for one in sums.values()):
        raise UserError("an attention has read no token", "inputs", "give batches for the model")
    return {name: one.moments() for name, one in sums.items()}


def _tokens(x: Tensor, mask: Tensor | None) -> Tensor:
    """True at tokens, ``(B, T)``; everywhere without a mask."""
    if mask is None:
        return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    return mask.to(torch.bool)
