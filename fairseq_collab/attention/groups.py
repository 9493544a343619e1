"""Heads in groups: pulled to their group's centre, centres pushed apart (Ni et al. 2023).

arXiv 2305.14380, grouped head attention.  The paper's equation, with the sign that its text and its
released code mean (as printed it would do the opposite):

    Lz = - alpha / (H L)       sum_l sum_i      cos(f_i, z_g(i))
         + beta / (C(C,2) L)   sum_l sum_{c<c'} cos(z_c, z_c')

``f_i`` is what head ``i`` made of the whole batch, flattened (a value, attention or output map);
``g`` are the groups that k-means finds, layer by layer, and ``z_c`` is the mean of group ``c``.

**Nothing here needs the features themselves.**  With ``F`` the matrix of rows ``f_i`` and
``W (C, H)`` the weights of the mean (``W_ci`` is one over the size of group ``c`` for its members),
``Z = W F`` are the centres, and all inner products follow from the Gram matrix ``G = F F^T``:

    <f_i, z_c> = (G W^T)_ic        <z_c, z_c'> = (W G W^T)_cc'
    |f_i - z_c|^2 = G_ii - 2 (G W^T)_ic + (W G W^T)_cc

A feature that is the same at every position says nothing of the text, yet can meet the constraint:
equal within a group (cosine 1), opposite between two (cosine -1).  *Centred* features, ours and not
the paper's, are without each head's mean over the batch's positions, so that a constant is nothing.

So k-means, centres and cosines work on ``H x H`` numbers a layer, and are exact.  The gradient goes
through ``G`` to the features of all heads, hence through the centres, too: the second term has no
other gradient.  Only the assignment ``g`` is constant, as always in k-means.

Shapes:
    B  sentences      N  positions      e  size of a feature at a position
    L  attentions     H  heads          C  groups
    gram (L, H, H)    membership (L, H, C): row ``i`` is the unit vector of head ``i``'s group
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

#: Steps of k-means in one update; the groups of the last update are where they start.
ITERATIONS = 5
#: How the head that stands for a group is elected: see :func:`typical_heads`.
ELECTIONS = ("cosine", "released", "random")
#: Cosines that differ by less are equal: rounding of a Gram matrix in single precision.
TIE = 1e-6
#: Of heads that are elected by chance.
SEED = 1


def gram_matrix(features: Tensor, padding: Tensor | None = None, centred: bool = False) -> Tensor:
    """Inner products of the heads' flattened features: ``(B, H, N, e) -> (H, H)``.

    Args:
        padding: ``(B, N)``, true at positions that count for nothing.
        centred: of features without each head's mean over positions.
    """
    # Sums over a whole batch leave the range of half precision.
    with torch.autocast(features.device.type, enabled=False):
        features = features.to(torch.promote_types(features.dtype, torch.float32))
        if padding is None:
            padding = torch.zeros_like(features[:, 0, :, 0], dtype=torch.bool)
        kept = (~padding).to(features.dtype)[:, None, :, None]  # (B, 1, N, 1)
        features = features * kept  # a product: masked_fill takes several times as long
        if centred:  # here, and not of the products, where rounding would be all that is left
            features = features - features.sum(dim=(0, 2), keepdim=True) / kept.sum() * kept
        flat = features.transpose(0, 1).flatten(1)  # (H, B * N * e)
        return flat @ flat.T


# ---- k-means in the space of the Gram matrix -----------------------------------------------------


def mean_weights(membership: Tensor) -> Tensor:
    """``W``: ``(L, H, C) -> (L, C, H)``; a row of zeros for a group without heads."""
    sizes = membership.sum(dim=1, keepdim=True).clamp_min(1)
    return (membership / sizes).transpose(1, 2)


def squared_distances(gram: Tensor, membership: Tensor) -> Tensor:
    """``|f_i - z_c|^2`` of every head and centre: ``(L, H, C)``."""
    weights = mean_weights(membership)
    to_centres = gram @ weights.transpose(1, 2)  # (L, H, C)
    norms = gram.diagonal(dim1=1, dim2=2).unsqueeze(2)  # (L, H, 1)
    centre_norms = (weights @ to_centres).diagonal(dim1=1, dim2=2).unsqueeze(1)  # (L, 1, C)
    return norms - 2 * to_centres + centre_norms


def first_groups(gram: Tensor, groups: int) -> Tensor:
    """Groups around heads that lie far apart: ``(L, H, H) -> (L, H, C)``.

    The first is the head farthest from the mean of all, each next one the farthest from those
    before: no chance is involved.
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
    """k-means of the heads of each attention, with euclidean distance.

    The same input gives the same groups, and none of them is empty.

    Args:
        gram: ``(L, H, H)``, without gradient.
        start: membership ``(L, H, C)`` to begin with; zero for none so far.

    Returns:
        membership ``(L, H, C)``
    """
    known = start.sum(dim=2).amin(dim=1) > 0  # (L,)
    groups = start.size(2)
    # Computed for all attentions, since asking which are known would stall a GPU.
    fresh = first_groups(gram, groups)
    membership = torch.where(known[:, None, None], _one_hot(start.argmax(dim=2), fresh), fresh)
    membership = fill_empty(gram, membership)
    for _ in range(iterations):
        membership = fill_empty(gram, _nearest(squared_distances(gram, membership)))
    return membership


def fill_empty(gram: Tensor, membership: Tensor) -> Tensor:
    """Give each group without heads the head that is farthest from its own centre.

    The head nearest to a centre stays there, so that no group becomes empty by it.
    """
    empty = (membership.sum(dim=1) == 0).unsqueeze(2)  # (L, C, 1)
    distances = squared_distances(gram, membership)
    own = (distances * membership).sum(dim=2)  # (L, H)
    stay = _one_hot(_nearest_members(distances, membership), own).masked_fill(empty, 0)  # (L, C, H)
    donors = own.masked_fill(stay.sum(dim=1) > 0, float("-inf"))
    donors = donors.argsort(dim=1, descending=True, stable=True)  # (L, H)
    place = (empty.squeeze(2).cumsum(dim=1) - 1).clamp_min(0)  # the n-th empty group: n-th donor
    joins = _one_hot(donors.gather(1, place), own).masked_fill(~empty, 0)  # (L, C, H)
    leaves = joins.sum(dim=1).unsqueeze(2)  # (L, H, 1)
    return membership * (1 - leaves) + joins.transpose(1, 2)


def _nearest(distances: Tensor) -> Tensor:
    """Membership in the nearest group, the first of several: ``(L, H, C) -> (L, H, C)``."""
    return _one_hot(distances.argmin(dim=2), distances)


def _nearest_members(distances: Tensor, membership: Tensor) -> Tensor:
    """In each group the head nearest to its centre, 0 in an empty one: ``(L, H, C) -> (L, C)``."""
    return distances.masked_fill(membership == 0, float("inf")).argmin(dim=1)


def _one_hot(indices: Tensor, like: Tensor) -> Tensor:
    """Unit vectors in ``like``'s precision, of as many entries as its last dimension has."""
    return functional.one_hot(indices, like.size(-1)).to(like.dtype)


# ---- what is made of the groups ------------------------------------------------------------------


class Similarity(NamedTuple):
    """Mean cosines of each attention, ``(L,)`` both: what ``Lz`` is made of."""

    within: Tensor  # of a head and its own centre
    between: Tensor  # of two centres; 0 where there is only one


def similarity(gram: Tensor, membership: Tensor) -> Similarity:
    """The cosines of ``Lz``, with their gradient to ``gram``.

    With one group a head (``C = H``) ``within`` is 1, and ``between`` is what the disagreement
    regularisation of Li et al. 2018 reduces.  With ``C = 1`` there is nothing to push apart.
    """
    weights = mean_weights(membership)
    to_centres = gram @ weights.transpose(1, 2)  # (L, H, C)
    centres = weights @ to_centres  # (L, C, C)
    norms, centre_norms = (g.diagonal(dim1=1, dim2=2) for g in (gram, centres))
    own_norms = (membership @ centre_norms.unsqueeze(2)).squeeze(2)  # (L, H)
    within = _cosine((to_centres * membership).sum(dim=2), norms, own_norms).mean(dim=1)
    groups = membership.size(2)
    if groups == 1:
        return Similarity(within, torch.zeros_like(within))
    one, other = torch.triu_indices(groups, groups, offset=1, device=gram.device)
    pairs = _cosine(centres[:, one, other], centre_norms[:, one], centre_norms[:, other])
    return Similarity(within, pairs.mean(dim=1))


def _cosine(product: Tensor, norm: Tensor, other_norm: Tensor) -> Tensor:
    """From an inner product and two squared lengths; 0, without gradient, where one is zero."""
    tiny = torch.finfo(product.dtype).tiny
    return product / (norm * other_norm).clamp_min(tiny).sqrt()


class Movement(NamedTuple):
    """How far groups have come from one update to the next, ``(L,)`` both."""

    changed: Tensor  # share of the heads that are in another group
    shift: Tensor  # root mean square way of the centres, relative to their length


def movement(gram: Tensor, before: Tensor, after: Tensor) -> Movement:
    """Compare two memberships on the same features; 1 and 1 where there was none before."""
    old, new = mean_weights(before), mean_weights(after)
    way, length = (
        (w @ gram @ w.transpose(1, 2)).diagonal(dim1=1, dim2=2).sum(dim=1).clamp_min(0)
        for w in (new - old, new)
    )
    changed = 1 - (before * after).sum(dim=2).mean(dim=1)
    return Movement(changed, (way / length.clamp_min(torch.finfo(way.dtype).tiny)).sqrt())


class Quality(NamedTuple):
    """How clear the groups are, ``(L,)`` both: the larger, the clearer."""

    silhouette: Tensor  # mean over heads, from -1 to 1 (Rousseeuw 1987); a head alone has 0
    dunn: Tensor  # least distance of two groups / largest within one (Dunn 1974); 0 of heads alone


def quality(gram: Tensor, membership: Tensor) -> Quality:
    """Indices of the groups, by euclidean distances of heads."""
    norms = gram.diagonal(dim1=1, dim2=2)  # (L, H)
    squares = norms.unsqueeze(1) + norms.unsqueeze(2) - 2 * gram
    distances = squares.clamp_min(0).sqrt()  # (L, H, H)
    sizes = membership.sum(dim=1, keepdim=True)  # (L, 1, C)
    sums = distances @ membership  # (L, H, C): of the way from a head to a group's heads
    alone = (membership * (sizes - 1)).sum(dim=2)  # (L, H): others in the own group
    own = (sums * membership).sum(dim=2) / alone.clamp_min(1)
    other = (sums / sizes.clamp_min(1)).masked_fill(membership > 0, float("inf")).amin(dim=2)
    silhouette = (other - own) / torch.maximum(other, own).clamp_min(_tiny(gram))
    silhouette = silhouette.masked_fill((alone == 0) | other.isinf(), 0)
    together = membership @ membership.transpose(1, 2)  # (L, H, H)
    within = (distances * together).flatten(1).amax(dim=1)
    between = distances.masked_fill(together > 0, float("inf")).flatten(1).amin(dim=1)
    dunn = between / within.clamp_min(_tiny(gram))
    return Quality(silhouette.mean(dim=1), dunn.masked_fill((within == 0) | between.isinf(), 0))


def _tiny(like: Tensor) -> float:
    return torch.finfo(like.dtype).tiny


def match(membership: Tensor, reference: Tensor) -> Tensor:
    """Number the groups as in ``reference``, those with most heads in common first."""
    layers, _, groups = membership.shape
    overlap = reference.transpose(1, 2) @ membership  # (L, C of the reference, C)
    layer = torch.arange(layers, device=overlap.device)
    order = torch.zeros_like(overlap)
    for _ in range(groups):
        best = overlap.flatten(1).argmax(dim=1)
        name, group = best // groups, best % groups
        order[layer, name, group] = 1
        overlap[layer, name] = -1
        overlap[layer, :, group] = -1
    return membership @ order.transpose(1, 2)


def phi(gram: Tensor, membership: Tensor) -> Tensor:
    """Cosine of every head and centre: ``(L, H, C)``."""
    weights = mean_weights(membership)
    to_centres = gram @ weights.transpose(1, 2)  # (L, H, C)
    centre_norms = (weights @ to_centres).diagonal(dim1=1, dim2=2).unsqueeze(1)  # (L, 1, C)
    norms = gram.diagonal(dim1=1, dim2=2).unsqueeze(2)  # (L, H, 1)
    return _cosine(to_centres, norms, centre_norms)


def typical_heads(gram: Tensor, membership: Tensor, election: str = "cosine") -> Tensor:
    """In each group the head that is most like its centre: ``(L, C)``.

    Args:
        election: ``cosine``, the paper's phi (section 3.2): the largest cosine with the centre, and
            of equals the longest feature.  ``released``: the smallest euclidean distance, as in the
            paper's released code.  The two heads of a pair are equally far from their mean, so that
            there, as in that code, rounding and the lower number decide between them.  ``random``:
            a member by chance, the same one in every batch.
    """
    if election == "released":
        return _nearest_members(squared_distances(gram, membership), membership)
    outside = membership == 0
    if election == "random":
        by_chance = torch.rand(gram.size(1), generator=torch.Generator().manual_seed(SEED))  # (H,)
        return by_chance.to(gram.device)[:, None].masked_fill(outside, -1).argmax(dim=1)
    norms = gram.diagonal(dim1=1, dim2=2).unsqueeze(2)  # (L, H, 1)
    cosines = phi(gram, membership).masked_fill(outside, -2)
    equals = cosines >= cosines.amax(dim=1, keepdim=True) - TIE
    return norms.masked_fill(~equals, -1).argmax(dim=1)
