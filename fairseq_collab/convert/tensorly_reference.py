"""The decomposition as Cordonnier et al.'s library makes it: TensorLy's ALS on the whole tensor.

    T[i] = Wq_i^T Wk_i,  T (H, d, d_y)  ~  sum_k m_k o Wq~_k o Wk~_k

Settings of the released library of arXiv 2006.16362 (epfml/collaborative-attention 5b05408):
``parafac`` with random initial factors and tolerance 1e-6, TensorLy's 100 sweeps at most; no
decomposition where ``K = H h``.  For comparison only; TensorLy is an optional dependency.
"""

from __future__ import annotations

import math
from dataclasses import replace

from collab_common.errors import UserError
from fairseq_collab.convert.factorise import (
    Factors,
    Problem,
    copied,
    relative_error_of,
)

TOLERANCE = 1e-6
MAX_SWEEPS = 100


def tensorly_factors(problem: Problem, key_dim: int, *, seed: int = 1) -> Factors:
    """Factors of the weights of ``problem``, whose metrics are not used.

    In single precision, that of trained weights.
    """
    try:
        import tensorly
        from tensorly.decomposition import parafac
    except ImportError as error:
        todo = "pip install 'fairseq-collab[reparametrize]'"
        raise UserError("TensorLy is not installed", "--method tensorly", todo) from error
    if key_dim == problem.largest_key_dim:
        return copied(problem)
    stack = (problem.wq.mT @ problem.wk).float().cpu()  # (H, d, d_y)
    search = {"init": "random", "tol": TOLERANCE, "random_state": seed, "return_errors": True}
    with tensorly.backend_context("pytorch"):
        tensor, errors = parafac(stack, key_dim, n_iter_max=MAX_SWEEPS, **search)
    mixing, query, key = (factor.to(problem.wq) for factor in tensor.factors)  # (H|d|d_y, K)
    mixing = mixing * tensor.weights.to(mixing)
    factors = Factors(query.T, key.T, mixing, math.nan, None, len(errors))
    return replace(factors, error=relative_error_of(problem, factors))
