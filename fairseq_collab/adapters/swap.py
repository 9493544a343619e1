"""Collaborative heads in place of a trained model's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from collab_common.errors import UserError
from fairseq_collab.adapters import hugging_face
from fairseq_collab.adapters.core import collaborative_core
from fairseq_collab.convert.factorise import MAX_STEPS


def swap_attention(
    model: Any,
    key_dim: int,
    *,
    select: Callable[[str], bool] = lambda name: True,
    max_steps: int = MAX_STEPS,
    seed: int = 1,
) -> list[str]:
    """Swap attentions for collaborative heads that compute the same, or nearly so; in place.

    Known are the attentions of Hugging Face's BERT and RoBERTa (self-attention), DistilBERT,
    ALBERT, Marian (all three), ViT and DeiT.  At the model's own dimension the result is exact;
    below it the heads' weights are factorised.

    The model can be used, trained and saved as before.  To load what was saved, make the model from
    its configuration, swap (``max_steps=0`` is fast), then load the state dict.

    Args:
        model: any ``torch.nn.Module`` that holds such attentions.
        key_dim: ``K``, from 1 to the model's dimension.
        select: says by its name in ``model`` which attention to swap; all unless given.
        max_steps: of the factorisation; see ``convert.factorise``.
        seed: of the factorisation.

    Returns:
        The names of the attentions that were swapped.

    Raises:
        UserError: there is none, one cannot be swapped, or ``model`` is one itself; the model is
            then unchanged.
    """
    swapped: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        if select(name):
            adapter = _adapter(name, module, key_dim=key_dim, max_steps=max_steps, seed=seed)
            if adapter is not None:
                swapped[name] = adapter
    if not swapped:
        raise UserError(
            f"no attention of a known kind in a {type(model).__name__}",
            todo="known are Hugging Face's BERT, RoBERTa, DistilBERT, ALBERT, Marian, ViT, DeiT",
        )
    if "" in swapped:
        what = f"the {type(model).__name__} is an attention itself"
        raise UserError(what, todo="give a model that holds it")
    for name, adapter in swapped.items():
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, adapter)
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation("eager")  # whose masks the adapters understand
    return list(swapped)


def _adapter(name: str, module: Any, **search: Any) -> nn.Module | None:
    """What to put in place of ``module``; None if it is no attention that is known."""
    found = hugging_face.parts(module)
    if found is None:
        return None
    adapter, parts = found
    return adapter(module, collaborative_core(name, **parts, **search))
