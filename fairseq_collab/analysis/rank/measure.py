"""Ranks and spectra of a model's heads: from its weights, and on sentences.

Each row of the result describes one matrix, or the mean over matrices of one kind.  Kinds:

    map              (d, d_y)    W_i = A_i B_i^T of one head, biases apart
    sum              (d, d_y)    W_1 + ... + W_H, the product of the concatenated projections
    stacked_queries  (d, H d_y)  [W_1, ..., W_H]: what all heads read of the queries' inputs
    stacked_keys     (H d, d_y)  [W_1; ...; W_H]: what all heads read of the keys' inputs
    logits           (T, S)      of one sentence, before mask and softmax
    logits_centred   (T, S)      the same less each row's mean, which the softmax does not see

The *length* of a sentence is ``n = min(T, S)``, in subwords with the end of sentence.  A head whose
scored vectors have ``h`` numbers gives logits of rank ``min(n, h)`` at most: where ``h < n`` there
are attention weights out of its reach (Bhojanapalli et al. 2020, arXiv 2002.07028).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from collab_common.progress import bar
from fairseq_collab.analysis.rank import spectra
from fairseq_collab.analysis.scores import factors, watched
from fairseq_collab.attention import CollaborativeAttention
from fairseq_collab.attention.latent import LatentAttention
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.trained.attentions import Attention, attentions
from fairseq_collab.trained.opener import Trained

#: In place of the number of a head.
ALL_HEADS = "all"


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is measured of one head of one layer (or of all its heads), and for which lengths.

    Numbers of ``logits`` kinds are means over ``sentences``; those of weights have no lengths.

    Attributes:
        weights: ``trained``, or ``untrained`` for a fresh model of the same options.
        length: of the sentences, on average; from ``length_from`` up to ``length_to``.
        longer: how many of the sentences are longer than the head is wide.
        rows, columns: of the matrix.
        bound: the rank that its shape and the width of the heads allow.
        rank: numerical rank, see :func:`fairseq_collab.analysis.rank.spectra.numerical_rank`.
        dims90, dims95, dims99: dimensions that hold so many percent of the energy.
        norm: Frobenius norm.
        spectrum: singular values over ``norm``; over sentences, the root of their mean square.
    """

    site: Site
    layer: int
    head: str
    kind: str
    weights: str = "trained"
    length_from: int | None = None
    length_to: int | None = None
    length: float | None = None
    sentences: int | None = None
    longer: int | None = None
    rows: float
    columns: float
    bound: float
    rank: float
    effective_rank: float
    dims90: float
    dims95: float
    dims99: float
    norm: float
    spectrum: tuple[float, ...] = field(repr=False)


def measure(
    trained: Trained, sentences: list[dict[str, Any]], bin_width: int, tolerance: float | None
) -> list[Row]:
    """Rows of all kinds, from the weights and from running the model on sentences, one a batch.

    The model is made one of double precision: rounding would pass for rank.
    """
    model = trained.model.double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        untrained = trained.task.build_model(trained.cfg.model).double().eval()
    rows = weight_rows(model, tolerance) + weight_rows(untrained, tolerance, "untrained")
    inputs = (sample["net_input"] for sample in bar("sentences", sentences))
    return rows + logit_rows(model, inputs, bin_width, tolerance)


def weight_rows(model: Any, tolerance: float | None = None, weights: str = "trained") -> list[Row]:
    """Rows of the kinds ``map``, ``sum``, ``stacked_queries`` and ``stacked_keys``.

    The singular values of random matrices fall off, too: compare with those of an untrained model.
    """
    with torch.inference_mode():
        return [
            Row(site=site, layer=layer, head=head, kind=kind, weights=weights, **_means([matrix]))
            for site, layer, module, _ in attentions(model)
            for head, kind, matrix in _weight_matrices(module, tolerance)
        ]


def _weight_matrices(
    module: Any, tolerance: float | None
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Head, kind and numbers of each matrix that an attention's factors make."""
    a, b = (factor[:, :-1] for factor in factors(module))  # biases apart: (H, d, e), (H, d_y, e)
    heads, d, d_y = len(a), a.size(1), b.size(1)
    widths = _widths(module, a, b)
    for head, s in enumerate(spectra.map_spectrum(a, b)):
        yield str(head), "map", _numbers(s, (d, d_y), min(d, d_y, widths[head]), tolerance)
    # Columns of all heads' queries and of all heads' keys; those that heads share count once.
    used = a.any(1) & b.any(1)  # (H, e)
    one_query = isinstance(module, CollaborativeAttention)  # A_i = Wq^T diag(m_i)
    queries = int(used.any(0).sum()) if one_query else sum(widths)
    first = [i for i in range(heads) if not i or not torch.equal(b[i], b[i - 1])]
    keys = sum(int(used[i:j].any(0).sum()) for i, j in pairwise([*first, heads]))
    keys = min(keys, _latent_dim(module, keys))
    for kind, s, shape, width in (
        ("sum", spectra.sum_spectrum(a, b), (d, d_y), min(queries, keys)),
        ("stacked_queries", spectra.stacked_spectrum(b, a), (d, heads * d_y), queries),
        ("stacked_keys", spectra.stacked_spectrum(a, b), (heads * d, d_y), keys),
    ):
        yield ALL_HEADS, kind, _numbers(s, shape, min(*shape, width), tolerance)


def _widths(module: Any, a: Tensor, b: Tensor) -> list[int]:
    """The rank that the width of each head allows: that of its vectors, and of a latent."""
    widths: list[int] = spectra.used_width(a, b).tolist()
    return [min(width, _latent_dim(module, width)) for width in widths]


def _latent_dim(module: Any, otherwise: int) -> int:
    return module.latent_dim if isinstance(module, LatentAttention) else otherwise


def logit_rows(
    model: Any,
    inputs: Iterable[dict[str, Any]],
    bin_width: int = 5,
    tolerance: float | None = None,
) -> list[Row]:
    """One row a site, layer, head, kind of ``logits`` and bin of lengths, in this order.

    Args:
        model: in eval mode, and in double precision, or else rounding passes for rank.
        inputs: one sentence each, without padding; the model reads them teacher-forced.
        bin_width: how many lengths share a row.
    """
    # By site, layer, head, kind and number of the bin, in the order of the rows.
    found: dict[tuple[int, int, int, str, int], list[dict[str, Any]]] = defaultdict(list)

    def see(attention: Attention, logits: Tensor) -> None:
        """Keep the numbers of ``logits (1, H, T, S)``, without and with centring."""
        rows, columns = logits.shape[2:]
        length, site = min(rows, columns), SITES.index(attention.site)
        # Centred rows are orthogonal to (1, ..., 1), which is worth one column of the shape.
        for kind, matrices, free in (
            ("logits", logits[0], columns),
            ("logits_centred", spectra.centre_rows(logits[0]), columns - 1),
        ):
            values = torch.linalg.svdvals(matrices)  # (H, min(T, S))
            for head, width in enumerate(widths[attention]):
                numbers = _numbers(values[head], (rows, columns), min(rows, free, width), tolerance)
                numbers |= {"length": length, "longer": length > width}
                place = site, attention.layer, head, kind, (length - 1) // bin_width
                found[place].append(numbers)

    with torch.inference_mode():
        places = attentions(model)
        widths = {one: _widths(one.module, *factors(one.module)) for one in places}
        with watched(model, see):
            for net_input in inputs:
                model(**net_input)
    return [
        Row(
            site=SITES[site],
            layer=layer,
            head=str(head),
            kind=kind,
            length_from=number * bin_width + 1,
            length_to=(number + 1) * bin_width,
            sentences=len(each),
            **{**_means(each), "longer": sum(one["longer"] for one in each)},
        )
        for (site, layer, head, kind, number), each in sorted(found.items())
    ]


def _numbers(
    s: Tensor, shape: tuple[int, int], bound: int, tolerance: float | None
) -> dict[str, Any]:
    """What a row says of one matrix with these singular values.

    Where large terms cancel, what rounding leaves may exceed the tolerance, but no rank exceeds the
    bound.
    """
    norm = torch.linalg.vector_norm(s)
    return {
        "rows": shape[0],
        "columns": shape[1],
        "bound": bound,
        "rank": min(int(spectra.numerical_rank(s, shape, tolerance)), bound),
        "effective_rank": float(spectra.effective_rank(s)),
        **{f"dims{n}": int(spectra.energy_rank(s, n / 100)) for n in (90, 95, 99)},
        "norm": float(norm),
        "spectrum": s / norm.clamp_min(torch.finfo(s.dtype).tiny),
    }


def _means(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Over matrices of the same kind; of spectra the root of the mean square."""
    means = {name: fmean(one[name] for one in found) for name in found[0] if name != "spectrum"}
    padded = pad_sequence([one["spectrum"] for one in found])  # (r, N)
    return {**means, "spectrum": tuple(padded.square().mean(1).sqrt().tolist())}
