"""The group constraint: heads of a group similar, groups not (Ni et al. 2023, arXiv 2305.14380).

The paper's equation, with the sign that its text and its released code mean (as printed it would do
the opposite):

    Lz = - alpha / (H L)       sum_l sum_i      cos(f_i, z_g(i))
         + beta / (P L)        sum_l sum_{c<c'} cos(z_c, z_c')

``f_i`` is a feature of head ``i`` in the whole batch, flattened: its values, attention weights or
outputs.  ``g`` are the groups of k-means in each attention, and ``z_c`` is the mean of group ``c``.

Only inner products of features are needed.  With ``F`` the matrix of rows ``f_i`` and ``W (C, H)``
the weights of the mean (``W_ci`` is one over the size of group ``c`` for its members), ``Z = W F``
are the centres, and all inner products follow from the Gram matrix ``G = F F^T``:

    <f_i, z_c> = (G W^T)_ic        <z_c, z_c'> = (W G W^T)_cc'
    |f_i - z_c|^2 = G_ii - 2 (G W^T)_ic + (W G W^T)_cc

So k-means, centres and cosines are exact on ``H x H`` numbers per attention.  The gradient passes
through ``G`` to the features of all heads, also through the centres.  The assignment ``g`` is
constant.

Shapes:
    B  sentences      N  positions      e  size of a feature at a position
    L  attentions     H  heads          C  groups, P = C (C - 1) / 2 pairs of them
    gram (L, H, H)    membership (L, H, C): row ``i`` is the unit vector of head ``i``'s group
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

#: Steps of k-means in one update, which starts from the groups of the last update.
ITERATIONS = 5

# ---- k-means in the space of the Gram matrix -----------------------------------------------------


def gram_matrix(features: Tensor, padding: Tensor | None = None) -> Tensor:
    """Compute inner products of the heads' flattened features: ``(B, H, N, e) -> (H, H)``.

    Args:
        padding: ``(B, N)``, true at positions to ignore.
    """
    # Sums over a whole batch leave the range of half precision.
    with torch.autocast(features.device.type, enabled=False):
        features = features.to(torch.promote_types(features.dtype, torch.float32))
        if padding is not None:
            # a product: masked_fill takes several times as long
            features = features * (~padding).to(features.dtype)[:, None, :, None]
        flat = features.transpose(0, 1).flatten(1)  # (H, B * N * e)
        return flat @ flat.T


def mean_weights(membership: Tensor) -> Tensor:
    """Compute ``W``: ``(L, H, C) -> (L, C, H)``; a row of zeros for a group without heads."""
    sizes = membership.sum(dim=1, keepdim=True).clamp_min(1)
    return (membership / sizes).transpose(1, 2)


def squared_distances(gram: Tensor, membership: Tensor) -> Tensor:
    """Compute ``|f_i - z_c|^2`` of every head and centre: ``(L, H, C)``."""
    weights = mean_weights(membership)
    to_centres = gram @ weights.transpose(1, 2)  # (L, H, C)
    norms = gram.diagonal(dim1=1, dim2=2).unsqueeze(2)  # (L, H, 1)
    centre_norms = (weights @ to_centres).diagonal(dim1=1, dim2=2).unsqueeze(1)  # (L, 1, C)
    return norms - 2 * to_centres + centre_norms


def first_groups(gram: Tensor, groups: int) -> Tensor:
    """Form deterministic groups around distant heads: ``(L, H, H) -> (L, H, C)``.

    The first head is the farthest from the mean of all heads; each further one is the farthest from
    the heads before it.
    """
    layers, heads = gram.shape[:2]
    norms = gram.diagonal(dim1=1, dim2=2)  # (L, H)
    between = norms.unsqueeze(1) + norms.unsqueeze(2) - 2 * gram  # (L, H, H)
    farthest = squared_distances(gram, gram.new_ones(layers, heads, 1)).squeeze(2)  # (L, H)
    chosen = []
    for _ in range(groups):
        head = farthest.argmax(dim=1)[:, None, None].expand(-1, heads, 1)
        chosen.append(between.gather(2, head).squeeze(2))  # (L, H): distance to that head
        farthest = torch.stack(chosen).amin(dim=0)
    return _nearest(torch.stack(chosen, dim=2))


def cluster(gram: Tensor, start: Tensor, iterations: int = ITERATIONS) -> Tensor:
    """Run k-means on the heads of each attention, with Euclidean distance; no group is empty.

    Args:
        gram: ``(L, H, H)``, without gradient.
        start: membership ``(L, H, C)`` to begin with; zeros if there is none yet.

    Returns:
        membership ``(L, H, C)``
    """
    has_groups = start.sum(dim=2).amin(dim=1) > 0  # (L,)
    groups = start.size(2)
    # Computed for all attentions: torch.where instead of a branch avoids a GPU sync.
    fresh = first_groups(gram, groups)
    membership = torch.where(has_groups[:, None, None], _one_hot(start.argmax(dim=2), fresh), fresh)
    membership = fill_empty(gram, membership)
    for _ in range(iterations):
        membership = fill_empty(gram, _nearest(squared_distances(gram, membership)))
    return membership


def fill_empty(gram: Tensor, membership: Tensor) -> Tensor:
    """Move the heads farthest from their centres to the empty groups.

    The head nearest to a centre stays, so that no other group becomes empty.
    """
    empty = (membership.sum(dim=1) == 0).unsqueeze(2)  # (L, C, 1)
    distances = squared_distances(gram, membership)
    to_centre = (distances * membership).sum(dim=2)  # (L, H)
    nearest = distances.masked_fill(membership == 0, float("inf")).argmin(dim=1)  # (L, C)
    keeps = _one_hot(nearest, to_centre).masked_fill(empty, 0)  # (L, C, H)
    donors = to_centre.masked_fill(keeps.sum(dim=1) > 0, float("-inf"))
    donors = donors.argsort(dim=1, descending=True, stable=True)  # (L, H)
    rank = (empty.squeeze(2).cumsum(dim=1) - 1).clamp_min(0)  # the n-th empty group: n-th donor
    joins = _one_hot(donors.gather(1, rank), to_centre).masked_fill(~empty, 0)  # (L, C, H)
    leaves = joins.sum(dim=1).unsqueeze(2)  # (L, H, 1)
    return membership * (1 - leaves) + joins.transpose(1, 2)


def _nearest(distances: Tensor) -> Tensor:
    """Put each head into its nearest group, the first one if equal: ``(L, H, C) -> (L, H, C)``."""
    return _one_hot(distances.argmin(dim=2), distances)


def _one_hot(indices: Tensor, like: Tensor) -> Tensor:
    """Make unit vectors of the size and precision of ``like``'s last dimension."""
    return functional.one_hot(indices, like.size(-1)).to(like.dtype)


# ---- measures of the groups ----------------------------------------------------------------------


class Similarity(NamedTuple):
    """The two mean cosines of ``Lz``, ``(L,)`` each."""

    within: Tensor  # of a head and its centre
    between: Tensor  # of two centres; 0 with one group


def similarity(gram: Tensor, membership: Tensor) -> Similarity:
    """Compute the mean cosines, with a gradient for ``gram``.

    With one head per group (``C = H``) ``within`` is 1, and ``between`` is the disagreement
    regularisation of Li et al. 2018.
    """
    weights = mean_weights(membership)
    to_centres = gram @ weights.transpose(1, 2)  # (L, H, C)
    centres = weights @ to_centres  # (L, C, C)
    norms, centre_norms = (g.diagonal(dim1=1, dim2=2) for g in (gram, centres))
    group_norms = (membership @ centre_norms.unsqueeze(2)).squeeze(2)  # (L, H)
    within = cosine((to_centres * membership).sum(dim=2), norms, group_norms).mean(dim=1)
    groups = membership.size(2)
    if groups == 1:
        return Similarity(within, torch.zeros_like(within))
    row, column = torch.triu_indices(groups, groups, offset=1, device=gram.device)
    pairs = cosine(centres[:, row, column], centre_norms[:, row], centre_norms[:, column])
    return Similarity(within, pairs.mean(dim=1))


def cosine(product: Tensor, norm: Tensor, other_norm: Tensor) -> Tensor:
    """Divide an inner product by two lengths, given squared; 0 without gradient for a length 0."""
    square = norm * other_norm
    has_length = square > torch.finfo(product.dtype).tiny
    # Also in the branch that is not taken: a division by a tiny length would have a huge gradient.
    lengths = square.where(has_length, torch.ones_like(square)).sqrt()
    return (product / lengths).where(has_length, torch.zeros_like(product))
