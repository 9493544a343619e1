"""Parts of a model that are not trained (``--freeze``)."""

from __future__ import annotations

from collections.abc import Collection

from torch import nn

from collab_common.errors import UserError

PARTS = ("encoder", "decoder", "embeddings")
#: Modules of either side that are embeddings, of tokens and of positions, or tied to them.
_EMBEDDINGS = ("embed_tokens", "embed_positions", "output_projection", "adaptive_softmax")


def parts_of(text: str | None) -> frozenset[str]:
    """Parse ``--freeze``: names of :data:`PARTS` joined by commas, or None.

    Raises:
        UserError: an unknown name.
    """
    names = frozenset() if text is None else frozenset(text.split(","))
    if not names <= set(PARTS):
        raise UserError(
            f"is {text!r}; it must name some of {', '.join(PARTS)}, joined by commas",
            where="--freeze",
        )
    return names


def freeze(model: nn.Module, parts: Collection[str]) -> None:
    """Take the gradient from the parameters of ``parts``; fairseq's optimisers then skip them.

    The encoder and the decoder include their embeddings.  A matrix that several parts share is
    frozen with any of them: a part that was named never changes.
    """
    for name, parameter in model.named_parameters(remove_duplicate=False):
        side, _, rest = name.partition(".")
        within = {side, "embeddings"} if rest.startswith(_EMBEDDINGS) else {side}
        if within & set(parts):
            parameter.requires_grad = False
