"""Which attention weights a head of a given size can and cannot compute.

    weights = softmax(scale (x Wq^T)(y Wk^T)^T),  a row for each query

Bhojanapalli, Yun, Rawat, Reddi, Kumar 2020, "Low-rank bottleneck in multi-head attention models"
(arXiv 2002.07028), Theorem 1.  In the paper tokens are columns and weights are normalised down
columns; here, as in all our code, tokens and weights run along rows.

Shapes: ``x (T, d)``, ``y (S, d_y)``, ``Wq (h, d)``, ``Wk (h, d_y)``; a target ``P (T, S)`` has
positive rows of sum 1.  Compute in double precision.

**How far away.**  Let ``C = I - 1 1^T / S``, which takes the mean off each row, and ``Q`` be what
the head computes from logits ``L`` of rank at most ``h``.  ``log Q`` is ``L`` less a constant in
each row, so ``(log Q) C = L C`` has rank at most ``h``, too.  By Eckart, Young and Mirsky no matrix
of that rank is nearer to ``(log P) C``, with singular values ``s_1 >= s_2 >= ...``, than

    tau = (s_{h+1}^2 + s_{h+2}^2 + ...)^0.5        in  ||(log Q - log P) C||_F,

and some is exactly as near.  So a head reaches ``P`` if and only if ``(log P) C`` has rank ``h`` at
most; as that rank never exceeds ``S - 1``, one less than the theorem's ``n`` always suffices.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fairseq_collab.analysis.rank.spectra import centre_rows


def reaching_projections(
    target: Tensor, x: Tensor, y: Tensor, head_size: int, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """``Wq (h, d)`` and ``Wk (h, d_y)`` that compute ``target`` exactly: the theorem's first half.

    With right inverses of the inputs (``x x+ = I``, ``y y+ = I``) queries become ``log P`` and keys
    ``I``.  They score ``log P``, of which the softmax is ``P``.  The paper has ``log(P D)`` with
    any positive diagonal ``D``, which the softmax cancels; ``D = I`` here.

    Args:
        target: ``P (T, S)``, positive, rows of sum 1.
        x, y: inputs of full row rank: ``d >= T`` and ``d_y >= S``.
        head_size: ``h``, at least ``S``; rows beyond ``S`` are zero.
        scale: of the scores; ``h^-0.5`` unless given.

    Raises:
        ValueError: the head is too small for the construction, or an input has not full row rank.
    """
    keys = len(y)
    if head_size < keys:
        raise ValueError(f"the head's size is {head_size}; it must be at least {keys}, one a key")
    for name, inputs in (("x", x), ("y", y)):
        if torch.linalg.matrix_rank(inputs) < len(inputs):
            raise ValueError(f"{name}, {tuple(inputs.shape)}, has not full row rank")
    scale = head_size**-0.5 if scale is None else scale
    wq, wk = x.new_zeros(head_size, x.size(1)), y.new_zeros(head_size, y.size(1))
    wq[:keys] = (torch.linalg.pinv(x) @ target.log() / scale).T
    wk[:keys] = torch.linalg.pinv(y).T
    return wq, wk


def log_distance(weights: Tensor, target: Tensor) -> Tensor:
    """``||(log Q - log P) C||_F``: how far log ratios within rows differ; 0 only if ``Q = P``.

    ``(..., T, S), (T, S) -> (...)``.  In compositional statistics this is Aitchison's distance.
    """
    return torch.linalg.matrix_norm(centre_rows(weights.log() - target.log()))


def least_log_distance(target: Tensor, head_size: int) -> float:
    """``tau``: the smallest log distance to ``target`` of any head of that size, on any input.

    Biases of the projections are covered: they do not raise the rank of the logits.
    """
    s = torch.linalg.svdvals(centre_rows(target.log()))
    return s[head_size:].square().sum().sqrt().item()


def least_log_distance_on(target: Tensor, x: Tensor, y: Tensor, head_size: int) -> float:
    """The same for given inputs, of which too few dimensions are a bottleneck, too.

    Logits are ``x M y^T`` with ``M`` of rank at most ``h``.  So their columns lie in the span of
    ``x``'s and their centred rows in that of ``(C y)^T``'s; with orthonormal bases ``U``, ``V`` of
    both, what is left of ``Z = (log P) C`` outside is lost whatever ``M`` is, and inside the
    nearest matrix of rank ``h`` to ``U^T Z V`` is attained.  For biases give inputs with a column
    of ones.  The theorem's second half is the case ``d < n``: a token whose input is zero, say, is
    given the same score by everyone, whatever the target wants.
    """
    z = centre_rows(target.log())
    u, v = _basis(x), _basis(y - y.mean(0))
    inside = u.T @ z @ v
    s = torch.linalg.svdvals(inside)
    lost = z.square().sum() - inside.square().sum() + s[head_size:].square().sum()
    return math.sqrt(max(lost.item(), 0.0))


def least_error(target: Tensor, head_size: int) -> float:
    """A bound on ``||Q - P||_F`` itself: ``min(P) (1 - exp(-tau))``, for any head of that size.

    Proof.  Let ``t`` be an entry of ``log Q - log P``.  There ``|Q - P| = P |exp(t) - 1|`` is
    at least ``min(P) f(t^2)`` with ``f(u) = 1 - exp(-u^0.5)``.  So ``||Q - P||_F^2`` is at least
    ``min(P)^2`` times the sum of all ``f(t^2)^2``.  As ``f^2`` is concave, increasing and 0 at 0,
    that sum is at least ``f^2`` of the sum of all ``t^2``; and this sum is ``tau^2`` or more, since
    it is the squared norm of ``log Q - log P``, which centring can only shorten.
    """
    tau = least_log_distance(target, head_size)
    return target.min().item() * -math.expm1(-tau)


def _basis(a: Tensor) -> Tensor:
    """Orthonormal columns that span those of ``a``: ``(n, d) -> (n, rank)``."""
    u, s, _ = torch.linalg.svd(a, full_matrices=False)
    return u[:, s > s[0] * max(a.shape) * torch.finfo(a.dtype).eps]
